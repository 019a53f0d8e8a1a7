//! Parser of the short form of layouts, such as `tp8-pp4-dp2`.

use std::str::FromStr;

use super::fields::{Unfit, fill};
use super::spec::{LayoutSpec, PartialLayout};
use super::zero::ZeroStage;

/// Error of a layout in its short form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseLayoutError {
    /// A text without parts.
    #[error("layout `{0}` names nothing\nhint: each degree has its name, as in tp8-pp4-dp2")]
    Empty(
        /// The whole text.
        String,
    ),
    /// JSON that is no layout.
    #[error(
        "a layout as JSON has all fields of one: {0}\nhint: as in an answer, or in words, as in tp8-pp4-dp2"
    )]
    Json(
        /// The problem.
        String,
    ),
    /// A part that is not known.
    #[error(
        "`{part}` in layout `{layout}` is not one of tpN, sp, nosp, cpN, a2a, ring, epN, etpN, ppN, vppN, dpN, \
         fsdpN, shardN, zeroN, mbsN{}", hint_for(.part)
    )]
    UnknownPart {
        /// The part.
        part: String,
        /// The whole text.
        layout: String,
    },
    /// A part that is repeated.
    #[error("`{part}` comes twice in layout `{layout}`\nhint: once is enough")]
    Twice {
        /// The part.
        part: String,
        /// The whole text.
        layout: String,
    },
    /// Two parts that decide the same field differently.
    #[error("`{one}` and `{other}` in layout `{layout}` contradict each other\nhint: {works}")]
    Contradiction {
        /// The earlier part.
        one: String,
        /// The later part.
        other: String,
        /// The whole text.
        layout: String,
        /// Hint at a layout that would work.
        works: String,
    },
    /// A degree that is not a whole number.
    #[error("`{part}` in layout `{layout}` has no whole number\nhint: {nearest}")]
    Fraction {
        /// The part.
        part: String,
        /// The whole text.
        layout: String,
        /// The part with the nearest whole numbers.
        nearest: String,
    },
    /// A degree above `u32::MAX`.
    #[error(
        "`{part}` in layout `{layout}` is beyond the largest degree, {}\nhint: the degrees multiply to the number of GPUs",
        u32::MAX
    )]
    TooLarge {
        /// The part.
        part: String,
        /// The whole text.
        layout: String,
    },
}

/// Hint about two parts that contradict each other.
fn without_contradiction(one: &LayoutPart<'_>, other: &LayoutPart<'_>) -> String {
    let shards = |part: &LayoutPart<'_>| part.name == "fsdp";
    let [number, other_number] =
        [one, other].map(|part| part.digits.parse::<u32>().ok().filter(|number| *number > 0));
    let is_hybrid = shards(one) != shards(other) && !is_of_zero(one) && !is_of_zero(other);
    match (number, other_number) {
        (Some(a), Some(b)) if is_hybrid => {
            let within = if shards(one) { a } else { b };
            let all = u64::from(a) * u64::from(b);
            format!(
                "leave out one; hybrid sharding of {all} replicas over groups of {within} is dp{all}-zero3-shard{within}"
            )
        }
        _ => "leave out one".to_owned(),
    }
}

/// True if the part is a ZeRO stage.
fn is_of_zero(part: &LayoutPart<'_>) -> bool {
    matches!(part.name.as_str(), "zero" | "z" | "zero_stage")
}

/// Hint about parts that layouts do not have; begins with a line break.
fn hint_for(part: &str) -> &'static str {
    let small = part.to_ascii_lowercase();
    let name = small.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    let has = |words: &[&str]| words.contains(&name);
    match () {
        () if small.contains("1f1b") || has(&["gpipe", "zb", "zbv", "interleaved", "dualpipe"]) => {
            "\nhint: `--schedule NAME` is an option of its own"
        }
        () if has(&["gbs", "bs", "batch", "global_batch_size"]) => {
            "\nhint: `--global-batch-size B` is an option of its own"
        }
        () if has(&[
            "ga",
            "gas",
            "acc",
            "gradient_accumulation_steps",
            "num_microbatches",
            "mb_count",
            "m",
        ]) =>
        {
            "\nhint: micro-batches follow from the batch: `--global-batch-size B` and mbsN"
        }
        () if has(&["gpus", "gpu", "world_size", "n", "ngpus"]) => {
            "\nhint: `--gpus N` is an option of its own"
        }
        () if has(&["nodes", "node"]) => "\nhint: `--gpus N` says how many there are",
        () if has(&["full", "selective", "recompute", "ckpt", "ac"]) => {
            "\nhint: `--recompute none|selective|full` is an option of its own"
        }
        () if has(&["sp", "ulysses", "usp"]) => {
            "\nhint: `sp` rides on tensor parallelism and has no degree; over ranks of its own it is cpN, or cpN-a2a \
             as DeepSpeed-Ulysses does"
        }
        () if has(&["mp", "model", "model_parallel"]) => {
            "\nhint: model parallelism is tpN within layers, ppN between them"
        }
        () if has(&["best", "auto", "any", "optimal", "search", "all"]) => {
            "\nhint: `planner search` finds the best layouts"
        }
        () if has(&["plan", "json", "yaml"]) => {
            "\nhint: a layout is named, as in tp8-pp4-dp2; `planner explain` and `planner compare` read plans"
        }
        () if has(&["hsdp"]) => {
            "\nhint: hybrid sharding is dpN-zero3-shardN: N replicas, sharded over so many"
        }
        () if has(&["tp", "pp", "dp", "cp", "ep"]) => {
            "\nhint: a degree follows its name, as in tp8-pp4-dp2"
        }
        () if small.bytes().all(|byte| byte.is_ascii_digit()) && !small.is_empty() => {
            "\nhint: each degree has its name, as in tp8-pp4-dp2"
        }
        () => "",
    }
}

/// A name and the number that follows it.
struct LayoutPart<'a> {
    /// The text as written.
    text: &'a str,
    /// The letters, in lower case.
    name: String,
    /// The digits, including those after a decimal point; empty if there are none.
    digits: &'a str,
}

/// Iterator over the parts of a layout: letters, then digits.
struct LayoutParts<'a> {
    rest: &'a str,
    /// True if the character before `rest` is a digit.
    is_after_digit: bool,
}

impl LayoutParts<'_> {
    /// Skips separators between parts: any punctuation, and an `x` between a digit and a letter, as in `tp8xpp4`.
    fn skip_between(&mut self) {
        let rest = self.rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_joined = self.is_after_digit && rest.len() == self.rest.len();
        let after = rest.strip_prefix(['x', 'X']).filter(|_| is_joined);
        self.rest =
            after.filter(|it| it.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or(rest);
    }
}

/// Words that contain digits but no number.
const WORDS: [&str; 2] = ["a2a", "1f1b"];

/// The word of [`WORDS`] that is at the start of a text, if the word ends there.
fn first_word(text: &str) -> Option<&str> {
    WORDS.into_iter().find_map(|word| {
        let (start, rest) = text.split_at_checked(word.len())?;
        let is_it = start.eq_ignore_ascii_case(word);
        (is_it && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some(start)
    })
}

/// Length of the name at the start of a text: letters, and `_` where another letter follows.
fn name_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_letter = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_alphabetic);
    let is_within = |index: &usize| {
        is_letter(*index) || (*index > 0 && bytes[*index] == b'_' && is_letter(index + 1))
    };
    (0..bytes.len()).take_while(is_within).count()
}

/// Length of the number at the start of a text: digits, and those after a decimal point.
fn number_length(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let behind = text[whole..].strip_prefix('.').map_or(0, digits);
    if whole > 0 && behind > 0 { whole + 1 + behind } else { whole }
}

impl<'a> Iterator for LayoutParts<'a> {
    type Item = LayoutPart<'a>;

    fn next(&mut self) -> Option<LayoutPart<'a>> {
        self.skip_between();
        let start = self.rest;
        if start.is_empty() {
            return None;
        }
        if let Some(word) = first_word(start) {
            self.rest = &start[word.len()..];
            self.is_after_digit = false;
            return Some(LayoutPart { text: word, name: word.to_ascii_lowercase(), digits: "" });
        }
        let (letters, after) = start.split_at(name_length(start));
        let name = letters.to_ascii_lowercase();
        // A `-` before the number is a minus sign, except in `zero-3`.
        let joins = |c: char| "=:_ \"".contains(c) || (c == '-' && name == "zero");
        let number = if name.is_empty() { after } else { after.trim_start_matches(joins) };
        let num_digits = number_length(number);
        let (digits, rest) = number.split_at(num_digits);
        self.is_after_digit = !digits.is_empty();
        self.rest = if digits.is_empty() { after } else { rest };
        let length = if digits.is_empty() { letters.len() } else { start.len() - rest.len() };
        Some(LayoutPart { text: &start[..length], name, digits })
    }
}

impl FromStr for PartialLayout {
    type Err = ParseLayoutError;

    /// Parses `tp8-sp-cp2-a2a-pp4-vpp2-dp2`, also written `TP8,PP4`, `tp=8 pp=4`, `tp8_pp4` or `TP8xPP4`; fields that
    /// are not named stay open.
    ///
    /// A layout as JSON, with all fields as in answers, decides all fields.
    fn from_str(text: &str) -> Result<Self, ParseLayoutError> {
        if text.trim_start().starts_with('{') {
            let spec: Result<LayoutSpec, _> = serde_json::from_str(text);
            return match spec {
                Ok(spec) => Ok(Self::from(&spec)),
                // `{"tp": 8, "pp": 4}` is read as words; a truncated text is an error of JSON.
                Err(error) if error.is_eof() => Err(ParseLayoutError::Json(error.to_string())),
                Err(error) => {
                    parse_words(text).map_err(|_| ParseLayoutError::Json(error.to_string()))
                }
            };
        }
        parse_words(text)
    }
}

fn parse_words(text: &str) -> Result<PartialLayout, ParseLayoutError> {
    let mut layout = PartialLayout::default();
    let parts = LayoutParts { rest: text, is_after_digit: false };
    // `TP8 x PP4`: an `x` between two parts is a separator.
    let parts: Vec<LayoutPart<'_>> =
        parts.filter(|part| part.text != "x" && part.text != "X").collect();
    if parts.is_empty() {
        return Err(ParseLayoutError::Empty(text.to_owned()));
    }
    for (index, part) in parts.iter().enumerate() {
        layout.set(part).map_err(|unfit| unfit.of(part, &parts[..index], text))?;
    }
    Ok(layout)
}

impl Unfit {
    /// The error for a part that follows the parts `before`.
    fn of(
        self,
        part: &LayoutPart<'_>,
        before: &[LayoutPart<'_>],
        layout: &str,
    ) -> ParseLayoutError {
        let (named, layout) = (part.text.to_owned(), layout.to_owned());
        match self {
            Self::Unknown => ParseLayoutError::UnknownPart { part: named, layout },
            Self::TooLarge => ParseLayoutError::TooLarge { part: named, layout },
            Self::Fraction => {
                let below = part.digits.split('.').next().unwrap_or_default();
                let above = below.parse::<u32>().map_or(1, |below| below.saturating_add(1));
                let name = &part.name;
                let nearest = match below.trim_start_matches('0') {
                    "" => format!("`{name}{above}` is the nearest"),
                    below => format!("`{name}{below}` or `{name}{above}`"),
                };
                ParseLayoutError::Fraction { part: named, layout, nearest }
            }
            Self::Decided => match before.iter().find(|one| decide_both(one, part)) {
                Some(one) if (&one.name, one.digits) != (&part.name, part.digits) => {
                    let (works, one) = (without_contradiction(one, part), one.text.to_owned());
                    ParseLayoutError::Contradiction { one, other: named, layout, works }
                }
                _ => ParseLayoutError::Twice { part: named, layout },
            },
        }
    }
}

/// Returns whether two parts decide the same field.
fn decide_both(one: &LayoutPart<'_>, other: &LayoutPart<'_>) -> bool {
    let mut layout = PartialLayout::default();
    layout.set(one).is_ok() && layout.set(other).is_err()
}

impl PartialLayout {
    /// Sets the field that a part names.
    fn set(&mut self, part: &LayoutPart<'_>) -> Result<(), Unfit> {
        let LayoutPart { name, digits, .. } = part;
        if digits.is_empty() {
            let taken = self.slots_mut().find_map(|(field, slot)| slot.fill_word(field, name));
            return taken.unwrap_or(Err(Unfit::Unknown));
        }
        let number = if digits.contains('.') {
            Err(Unfit::Fraction)
        } else {
            digits.parse::<u32>().map_err(|_| Unfit::TooLarge)
        };
        // `fsdp8` states the number of replicas and the states that they shard.
        if let Some(stage) = ZeroStage::of_replicas(name) {
            fill(&mut self.zero_stage, stage)?;
            return fill(&mut self.data_parallel, number?);
        }
        let mut slots = self.slots_mut();
        let (_, slot) = slots.find(|(field, _)| field.is_called(name)).ok_or(Unfit::Unknown)?;
        slot.fill_number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::choice::Choice::{Any, One};
    use super::*;
    use crate::graph::ContextParallelKind;

    #[test]
    fn a_named_layout_reads() {
        let layout: PartialLayout = "tp8-sp-pp4-vpp2-dp2-zero1".parse().unwrap();
        assert_eq!(layout.tensor_parallel, One(8));
        assert_eq!(layout.sequence_parallel, One(true));
        assert_eq!(layout.pipeline_parallel, One(4));
        assert_eq!(layout.virtual_stages, One(2));
        assert_eq!(layout.data_parallel, One(2));
        assert_eq!(layout.zero_stage, One(ZeroStage::OptimizerState));
        assert_eq!(layout.context_parallel, Any);
        let layout: PartialLayout = "tp2-cp4-a2a-dp2".parse().unwrap();
        assert_eq!(layout.context_parallel_kind, One(ContextParallelKind::AllToAll));
        assert_eq!(layout.to_string(), "tp2-cp4-a2a-dp2");
    }

    #[test]
    fn a_layout_is_read_in_any_common_writing() {
        let plain: PartialLayout = "tp8-pp4-dp2".parse().unwrap();
        for text in [
            "tp8,pp4,dp2",
            "TP8-PP4-DP2",
            "tp=8 pp=4 dp=2",
            "tp8_pp4_dp2",
            "TP8xPP4xDP2",
            "TP8 x PP4 x DP2",
            "TP 8, PP 4, DP 2",
            "tp8pp4dp2",
            "t8-p4-d2",
            "tp: 8; pp: 4; dp: 2",
            r#"{"tp": 8, "pp": 4, "dp": 2}"#,
            "tp8/pp4/dp2",
            "tp8*pp4*dp2",
            "tensor_model_parallel_size=8 pipeline_model_parallel_size=4 data_parallel_size=2",
            "tp8--pp4--dp2",
        ] {
            assert_eq!(text.parse(), Ok(plain), "{text}");
        }
        for (text, same) in [
            ("fsdp64", "dp64-zero3"),
            ("FSDP 8 x TP 8", "tp8-dp8-zero3"),
            ("fsdp-dp8", "dp8-zero3"),
            ("fsdp64-zero3", "dp64-zero3"),
            ("ddp8", "dp8-zero0"),
            ("dp8-zero-3", "dp8-zero3"),
            ("dp8 ZeRO=1", "dp8-zero1"),
            ("tp2-cp4-ulysses", "tp2-cp4-a2a"),
            ("cp4_a2a", "cp4-a2a"),
            ("tp8 sp", "tp8-sp"),
        ] {
            assert_eq!(text.parse::<PartialLayout>(), same.parse(), "{text}");
        }
    }

    #[test]
    fn a_wrong_layout_names_the_part() {
        for (text, part) in [
            ("tp", "tp"),
            ("8", "8"),
            ("tp8-xp2", "xp2"),
            ("tp-8", "tp"),
            ("zero4", "zero4"),
            ("zero", "zero"),
            ("tp8-1f1b", "1f1b"),
            ("tp8 gbs512", "gbs512"),
            ("sp8", "sp8"),
            ("8x4x2", "8"),
        ] {
            match text.parse::<PartialLayout>() {
                Err(ParseLayoutError::UnknownPart { part: named, .. }) => assert_eq!(named, part),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in ["", "-", " x "] {
            let error = text.parse::<PartialLayout>().unwrap_err();
            assert_eq!(error, ParseLayoutError::Empty(text.to_owned()));
        }
        for (text, expected) in [
            ("tp8-TP8", "`TP8` comes twice in layout `tp8-TP8`"),
            ("tp8-tp4", "`tp8` and `tp4` in layout `tp8-tp4` contradict each other"),
            ("cp2-a2a-ring", "`a2a` and `ring`"),
            ("sp-tp8-nosp", "`sp` and `nosp`"),
            ("fsdp8-zero1", "`fsdp8` and `zero1`"),
            ("fsdp8-dp4", "over groups of 8 is dp32-zero3-shard8"),
            ("dp2-fsdp4", "over groups of 4 is dp8-zero3-shard4"),
            ("tp99999999999", "`tp99999999999` in layout `tp99999999999` is beyond"),
            (
                "tp2.5-pp2",
                "`tp2.5` in layout `tp2.5-pp2` has no whole number\nhint: `tp2` or `tp3`",
            ),
            ("dp0.5", "`dp1` is the nearest"),
        ] {
            let error = text.parse::<PartialLayout>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
