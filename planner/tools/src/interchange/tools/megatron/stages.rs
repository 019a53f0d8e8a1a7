//! Layers of each pipeline stage, in Megatron's options.

use std::fmt::Write as _;

use ir::schedule::{MOST_STAGES, ScheduleKind};

use crate::interchange::imported::{Imported, StatedStages};
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::stages::StageParts;

/// Stages in the letters of `--pipeline-model-parallel-layout`; runs of equal stages are written as `(..|)*n`.
pub(super) fn layout_text(stages: &[StageParts]) -> String {
    let of_stage = |stage: &StageParts| {
        let several = |letter: &str, count: u32| match count {
            0 => String::new(),
            1 => letter.to_owned(),
            _ => format!("{letter}*{count}"),
        };
        let [embedding, head] = [(stage.embedding, "E"), (stage.head, "L")]
            .map(|(has, letter)| if has { letter } else { "" });
        let layers = several("t", stage.layers);
        format!("{embedding}{layers}{}{head}", several("m", stage.prediction_modules))
    };
    let texts: Vec<String> = stages.iter().map(of_stage).collect();
    // A bar begins the next stage, so the last stage has no bar after it and is not part of a run.
    let Some((last, others)) = texts.split_last() else { return String::new() };
    let mut text = String::new();
    for run in others.chunk_by(|one, other| one == other) {
        if run.len() > 1 {
            let _ = write!(text, "({}|)*{}", run[0], run.len());
        } else {
            let _ = write!(text, "{}|", run[0]);
        }
    }
    text + last
}

/// Reads all options that set stages; the pipeline degree in `settings` must be read already. If the options do not
/// state the number of layers, the model's is used.
pub(super) fn read(
    given: &ParsedOptions,
    layers_of_model: Option<u32>,
    settings: &mut Imported,
) -> Result<(), OptionError> {
    let layout = &mut settings.layout;
    let layers = match given.count("--num-layers") {
        Err(OptionError::Unresolved { .. }) if layers_of_model.is_some() => layers_of_model,
        layers => layers?.or(layers_of_model),
    };
    (settings.stages, layout.virtual_stages) = stated(given, layers, layout.pipeline_parallel)?;
    if layout.virtual_stages > 1 {
        layout.schedule = ScheduleKind::Interleaved;
    }
    Ok(())
}

/// Layers of each stage, and the number of virtual stages of each pipeline rank.
fn stated(
    given: &ParsedOptions,
    layers: Option<u32>,
    pipeline: u32,
) -> Result<(StatedStages, u32), OptionError> {
    if let Some(text) = given.text("--pipeline-model-parallel-layout")? {
        let wrong =
            |works: &str| OptionError::value("--pipeline-model-parallel-layout", text, works);
        let counts = blocks_of(text).ok_or_else(|| {
            wrong("stages of `E`, `t`, `m` and `L` with `|` between them are expected, as in `Et*8|t*8L`")
        })?;
        let stages = counts.len() as u32;
        if !stages.is_multiple_of(pipeline) {
            return Err(wrong(&format!("{stages} stages do not divide over {pipeline} ranks")));
        }
        return Ok((StatedStages::Blocks(counts), stages / pipeline));
    }
    let [first, last] =
        ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"];
    let virtual_stages = given.count("--num-virtual-stages-per-pipeline-rank")?;
    // DeepSpeed's partition by class names counts both ends if embeddings are among the classes.
    let by_class = given.text_if_known("--pp-partition-method");
    let has_ends = by_class.is_some_and(|it| it.starts_with("type:") && it.contains("embed"));
    let accounts =
        ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
            .map(|name| has_ends || given.has(name));
    let per_stage: Option<u32> = given.count("--num-layers-per-virtual-pipeline-stage")?;
    let virtual_stages: u32 = match (virtual_stages, per_stage, layers) {
        (Some(stages), _, _) => stages,
        (None, Some(each), Some(layers)) => {
            let counted = layers.saturating_add(accounts.map(u32::from).iter().sum());
            let of_rank = counted / pipeline;
            if !counted.is_multiple_of(pipeline) || !of_rank.is_multiple_of(each) {
                return Err(OptionError::value(
                    "--num-layers-per-virtual-pipeline-stage",
                    each.to_string(),
                    format!("{counted} layers on {pipeline} ranks do not divide so"),
                ));
            }
            of_rank / each
        }
        _ => 1,
    };
    let [of_first, of_last]: [Option<u32>; 2] = [given.count(first)?, given.count(last)?];
    if pipeline == 1 {
        let one = [(first, of_first), (last, of_last)].into_iter().find(|it| it.1.is_some());
        if let Some((name, Some(of_one))) =
            one.filter(|it| layers.is_some_and(|all| it.1 != Some(all)))
        {
            let works = "with one pipeline rank this would be the number of layers of the whole model; `--pipeline-model-parallel-size` above 1 is expected";
            return Err(OptionError::value(name, of_one.to_string(), works));
        }
        return Ok((StatedStages::Even, 1));
    }
    let Some(layers) = layers else { return Ok((StatedStages::Even, virtual_stages)) };
    // The modules for multi-token prediction are on the last stage, in addition to its layers.
    let predicted = given.count_unless_0("--mtp-num-layers")?.unwrap_or(0);
    let of_ends = of_first.map(|it| (first, it)).or(of_last.map(|it| (last, it)));
    if let Some((name, of_one)) = of_ends {
        let of_both = of_first.unwrap_or(0).saturating_add(of_last.unwrap_or(0));
        let left = layers.checked_sub(of_both);
        let ranks = pipeline - u32::from(of_first.is_some()) - u32::from(of_last.is_some());
        let each = left.filter(|left| ranks == 0 || left.is_multiple_of(ranks));
        let each = each.map(|left| left.checked_div(ranks).unwrap_or(0));
        let of_rank = |rank: u32| match (rank, of_first, of_last) {
            (0, Some(first), _) => Some(first),
            (rank, _, Some(last)) if rank + 1 == pipeline => Some(last),
            _ => each,
        };
        let of_one = of_one.to_string();
        let uncounted = [1, 1 + predicted];
        return listed(pipeline, virtual_stages, of_rank, uncounted, [name, &of_one]);
    }
    if accounts != [false; 2] {
        let counted = layers.saturating_add(accounts.map(u32::from).iter().sum());
        let each = counted.is_multiple_of(pipeline).then_some(counted / pipeline);
        return listed(
            pipeline,
            virtual_stages,
            |_| each,
            [u32::from(!accounts[0]), u32::from(!accounts[1]) + predicted],
            ["--account-for-embedding-in-pipeline-split", ""],
        );
    }
    Ok((StatedStages::Even, virtual_stages))
}

/// Blocks of each stage if a rank has `of_rank` layers. `uncounted` blocks are added on the first and the last stage.
/// The option and its value are for errors.
fn listed(
    pipeline: u32,
    virtual_stages: u32,
    of_rank: impl Fn(u32) -> Option<u32>,
    uncounted: [u32; 2],
    [name, value]: [&str; 2],
) -> Result<(StatedStages, u32), OptionError> {
    let all = pipeline.saturating_mul(virtual_stages);
    if u64::from(all) > MOST_STAGES {
        let works = format!("{all} stages are more than the {MOST_STAGES} of any pipeline");
        return Err(OptionError::value(name, value, works));
    }
    let of_stage = |stage: u32| {
        let own = of_rank(stage % pipeline)?;
        let first = if stage == 0 { uncounted[0] } else { 0 };
        let last = if stage + 1 == all { uncounted[1] } else { 0 };
        own.is_multiple_of(virtual_stages).then(|| own / virtual_stages + first + last)
    };
    let blocks: Option<Vec<u32>> = (0..all).map(of_stage).collect();
    let blocks = blocks.ok_or_else(|| {
        let works = format!(
            "the layers that are left do not divide over {pipeline} ranks of {virtual_stages} stages"
        );
        OptionError::value(name, value, works)
    })?;
    Ok((StatedStages::Blocks(blocks), virtual_stages))
}

/// Blocks of each stage in a layout text.
fn blocks_of(text: &str) -> Option<Vec<u32>> {
    let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    let plain = expanded(&text)?;
    let is_known = plain.chars().all(|c| "EtmL|".contains(c));
    let stages: Vec<u32> = plain.split('|').map(|stage| stage.len() as u32).collect();
    (is_known && plain.starts_with('E') && plain.ends_with('L')).then_some(stages)
}

/// A layout text with its repetitions, `(..)*n` and `x*n`, written out.
fn expanded(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (unit, after) = match rest.strip_prefix('(') {
            Some(inner) => {
                let (inner, after) = inner.split_once(')')?;
                (expanded(inner)?, after)
            }
            None => (first.to_string(), &rest[first.len_utf8()..]),
        };
        let (times, after) = match after.strip_prefix('*') {
            Some(after) => {
                let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                (after[..end].parse::<usize>().ok().filter(|it| *it <= 4096)?, &after[end..])
            }
            None => (1, after),
        };
        if plain.len() + unit.len() * times > 1 << 20 {
            return None;
        }
        plain.push_str(&unit.repeat(times));
        rest = after;
    }
    Some(plain)
}
