//! Values of options, read as people write them.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ir::graph::{ParseRecomputeError, Recompute};
use ir::layout::{Offload, ParseOffloadError, ZeroStage};
use ir::plan::Optimizer;

/// A number of things, of which there is at least one.
pub(super) fn parse_count<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    if text.chars().all(|c| c == '0') {
        return Err("must be at least 1".to_owned());
    }
    text.parse().map_err(|_| "must be a whole number, at least 1 and not too large".to_owned())
}

/// How many layers of each stage full recompute is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecomputeLayers {
    /// The first so many.
    First(u32),
    /// As few as fit.
    Fewest,
}

impl RecomputeLayers {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "fewest" {
            return Ok(Self::Fewest);
        }
        let count = text.parse().ok().filter(|count| *count > 0);
        count.map(Self::First).ok_or_else(|| {
            "must be a whole number, at least 1 (none: `--recompute none`), or `fewest`".to_owned()
        })
    }
}

/// A policy; the hint of an error on a line of its own.
pub(super) fn parse_recompute(text: &str) -> Result<Recompute, String> {
    text.parse().map_err(|error: ParseRecomputeError| error.to_string())
}

/// What lies on the host; the hint of an error on a line of its own.
pub(super) fn parse_offload(text: &str) -> Result<Offload, String> {
    text.parse().map_err(|error: ParseOffloadError| error.to_string())
}

/// The largest cost of an action: sums of millions of them still fit 64 bits.
pub(super) const LARGEST_COST: u64 = 1_000_000_000_000;

/// A whole number from `LEAST` to `MOST`.
pub(super) fn whole<T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    text: &str,
) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    let fitting = number.and_then(|number| T::try_from(number).ok());
    fitting.ok_or_else(|| format!("must be a whole number between {LEAST} and {MOST}"))
}

/// A number from 0 to `MOST`.
pub(super) fn number<const MOST: u32>(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=f64::from(MOST)).contains(number));
    number.ok_or_else(|| format!("must be a number from 0 to {MOST}"))
}

/// One of `all`, by its name.
pub(super) fn one_of<T, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let by_name = move |given: String| all.into_iter().find(|one| name(*one) == given);
    PossibleValuesParser::new(all.map(name)).try_map(move |it| by_name(it).ok_or("is unknown"))
}

/// A variable with its value.
pub(super) fn parse_variable(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let own = split.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.ok_or_else(|| "must be a name and a value, as in `NODES=8`".to_owned())
}

pub(super) fn parse_layers(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be whole numbers with commas between them".to_owned())
}

pub(super) fn parse_zero(text: &str) -> Result<ZeroStage, String> {
    let stage = text.parse::<u8>().ok().and_then(|number| ZeroStage::try_from(number).ok());
    stage.ok_or_else(|| "must be 0, 1, 2 or 3".to_owned())
}

pub(super) fn parse_optimizer(text: &str) -> Result<Optimizer, String> {
    match text {
        "adamw" | "adam" => Ok(Optimizer::AdamW),
        "momentum" => Ok(Optimizer::Momentum),
        "sgd" => Ok(Optimizer::Sgd),
        _ => Err("must be adamw, momentum or sgd".to_owned()),
    }
}

/// A number with its unit: seconds where there is none.
pub(super) fn parse_time_limit(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    let seconds = number.parse::<f64>().unwrap_or(0.0) * scale;
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) if limit > Duration::ZERO => Ok(limit),
        _ => Err("must be a time above 0, such as `5s`, `500ms` or `2m`".to_owned()),
    }
}

/// A number of tokens: `15T`, `300B`, `20M`, `1e12` or plain.
pub(super) fn parse_count_of(text: &str) -> Result<f64, String> {
    const UNITS: [(char, f64); 4] = [('T', 1e12), ('B', 1e9), ('M', 1e6), ('k', 1e3)];
    let unit =
        UNITS.into_iter().find(|(unit, _)| text.ends_with([*unit, unit.to_ascii_lowercase()]));
    let (number, scale) = match unit {
        Some((_, scale)) => (&text[..text.len() - 1], scale),
        None => (text, 1.0),
    };
    let count = number.trim().parse::<f64>().ok().map(|number| number * scale);
    let count = count.filter(|count| (1.0..=1e21).contains(count));
    count.ok_or_else(|| "must be a number of at least 1, such as 15T, 300B or 1e12".to_owned())
}
