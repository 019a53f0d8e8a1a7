//! Parsers of option values, lenient about spelling.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ir::graph::{ParseRecomputeError, Recompute};
use ir::layout::{Offload, ParseOffloadError, ZeroStage};
use ir::plan::Optimizer;
use ir::schedule::ScheduleKind;
use ir::units::Nanos;
use planner::names::{self, folded};

use planner_core::problem::MOST_GPUS;

use command_line::numbers::{counted, counted_up_to, quantity, seconds};

/// Parses a count of at least 1: `64`, `16,384` or `128k`.
pub(super) fn parse_count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let most = u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>().min(8));
    let count = counted_up_to(text, most)?;
    if count == 0 {
        return Err("must be at least 1".to_owned());
    }
    T::try_from(count).map_err(|_| format!("must be at least 1 and at most {most}"))
}

/// Adds a hint on `sweep` to an error if the text contains several values.
fn several(text: &str, what: &str, error: String) -> String {
    let range = text.replace(['-', ':'], "..").replace("....", "..");
    let parts: Vec<&str> =
        range.split(',').flat_map(|part| part.split("..")).map(str::trim).collect();
    let are_counts = parts.len() > 1 && parts.iter().all(|part| counted(part).is_ok());
    if are_counts {
        let values = range.replace(' ', "");
        format!("{error}; several are `planner sweep MODEL --over {what}={values}`")
    } else {
        error
    }
}

/// Parses a sequence length in tokens.
pub(super) fn parse_length(text: &str) -> Result<u64, String> {
    parse_count(text).map_err(|error| several(text, "seq-len", error))
}

/// Parses a batch in sequences. A number of tokens is refused, since another option sets the sequence length.
pub(super) fn parse_batch(text: &str) -> Result<u64, String> {
    const USUAL: u64 = 4096;
    const LONGER: u64 = 8192;
    let bare = text.trim().trim_end_matches("tokens").trim_end_matches("tok");
    let count = parse_count::<u64>(bare.trim_end_matches([' ', '-', '_']))
        .map_err(|error| several(text, "batch", error))?;
    if bare.len() == text.trim().len() {
        return Ok(count);
    }
    Err(match count / USUAL {
        0 => "must be a number of sequences, not of tokens".to_owned(),
        sequences => {
            let longer = count / LONGER;
            format!(
                "must be a number of sequences: {count} tokens are {sequences} of {USUAL}, or {longer} of {LONGER}"
            )
        }
    })
}

/// Parses a number of GPUs. Errors have hints for texts with several numbers, and for texts with a GPU and a number.
pub(super) fn parse_gpus(text: &str) -> Result<u32, String> {
    let count = counted_up_to(text, MOST_GPUS.into()).and_then(|_| parse_count(text));
    count.map_err(|error| match counted_gpus(text) {
        Some((gpu, count)) => {
            format!("{error}; {count} of a kind are `--gpus {count} --cluster {gpu}`")
        }
        None => several(text, "gpus", error),
    })
}

/// Cluster and number of GPUs in `8xH100` or `H100x8`.
pub(super) fn counted_gpus(text: &str) -> Option<(&'static str, u32)> {
    let (one, other) = text.split_once(['x', 'X'])?;
    let [one, other] = [one, other].map(str::trim);
    let (count, gpu) = if one.parse::<u32>().is_ok() { (one, other) } else { (other, one) };
    Some((names::cluster(gpu)?, count.parse().ok()?))
}

/// Number of layers of each stage that full recompute covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecomputeLayers {
    /// The first layers of each stage, by number.
    First(u32),
    /// The fewest layers with which a layout fits.
    Minimum,
}

impl RecomputeLayers {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("fewest") {
            return Ok(Self::Minimum);
        }
        let count = text.parse().ok().filter(|count| *count > 0);
        count.map(Self::First).ok_or_else(|| {
            "must be a whole number, at least 1 (none: `--recompute none`), or `fewest`".to_owned()
        })
    }
}

/// Parses a recompute policy; the hint of an error is on a separate line.
pub(super) fn parse_recompute(text: &str) -> Result<Recompute, String> {
    let small = text.to_ascii_lowercase();
    let usual = match small.as_str() {
        "off" | "no" | "false" => "none",
        "on" | "yes" | "true" | "all" => "full",
        other => other,
    };
    usual.parse().map_err(|error: ParseRecomputeError| error.to_string())
}

/// Parses what is offloaded to the host; the hint of an error is on a separate line.
pub(super) fn parse_offload(text: &str) -> Result<Offload, String> {
    text.to_ascii_lowercase().parse().map_err(|error: ParseOffloadError| error.to_string())
}

/// Parses a value whose names are hyphenated and in lower case: `Ring_Averaging` is `ring-averaging`.
pub(super) fn parse_named<T>(text: &str) -> Result<T, String>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let usual = text.trim().to_ascii_lowercase().replace(['_', ' '], "-");
    usual.parse().map_err(|error: T::Err| error.to_string())
}

/// Largest cost of an action; sums of millions of such costs still fit into 64 bits.
pub(super) const LARGEST_COST: u64 = 1_000_000_000_000;

/// Parses a whole number from `LEAST` to `MOST`.
pub(super) fn whole<T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    text: &str,
) -> Result<T, String> {
    let number = counted(text).ok().filter(|number| (LEAST..=MOST).contains(number));
    let fitting = number.and_then(|number| T::try_from(number).ok());
    fitting.ok_or_else(|| format!("must be a whole number between {LEAST} and {MOST}"))
}

/// Parses a seed for random numbers.
pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number between 0 and {}", u64::MAX))
}

/// Parses a number from 0 to `MOST`.
pub(super) fn number<const MOST: u32>(text: &str) -> Result<f64, String> {
    up_to::<MOST>(text, &[("", 1.0)], "")
}

/// Parses a number of hours, with or without a unit, or of days.
pub(super) fn parse_hours(text: &str) -> Result<f64, String> {
    const UNITS: &[(&str, f64)] =
        &[("", 1.0), ("h", 1.0), ("hours", 1.0), ("d", 24.0), ("days", 24.0)];
    up_to::<1_000_000_000>(text, UNITS, ", in hours")
}

/// Parses memory into GiB.
pub(super) fn parse_gib<const MOST: u32>(text: &str) -> Result<f64, String> {
    up_to::<MOST>(text, MEMORY, ", in GiB")
}

/// Units of memory, in GiB; a GB is 10^9 bytes, as in data sheets.
pub(super) const MEMORY: &[(&str, f64)] = &[
    ("", 1.0),
    ("GiB", 1.0),
    ("G", 1.0),
    ("GB", 1e9 / (1u64 << 30) as f64),
    ("MiB", 1.0 / 1024.0),
    ("MB", 1e6 / (1u64 << 30) as f64),
    ("TiB", 1024.0),
    ("TB", 1e12 / (1u64 << 30) as f64),
];

/// Parses power into watts.
pub(super) fn parse_watts(text: &str) -> Result<f64, String> {
    up_to::<1_000_000>(text, &[("", 1.0), ("W", 1.0), ("watts", 1.0), ("kW", 1e3)], ", in watts")
}

/// Parses a bandwidth into GB/s.
pub(super) fn parse_bandwidth(text: &str) -> Result<f64, String> {
    const UNITS: &[(&str, f64)] = &[
        ("", 1.0),
        ("GB/s", 1.0),
        ("MB/s", 1e-3),
        ("TB/s", 1e3),
        ("GiB/s", 1.073_741_824),
        ("Gb/s", 0.125),
        ("Gbps", 0.125),
        ("Gbit/s", 0.125),
    ];
    let bandwidth = quantity(text, UNITS).filter(|it| *it > 0.0 && *it <= 1e9);
    bandwidth.ok_or_else(|| "must be above 0, in GB/s, such as `200` or `2TB/s`".to_owned())
}

/// Parses a share of the time and a factor: `0.001,1.5` or `0.1%,1.5`.
pub(super) fn parse_slow_nodes(text: &str) -> Result<(f64, f64), String> {
    let parts = text.split_once([',', ':']);
    let read = |(share, factor): (&str, &str)| {
        let share = quantity(share, &[("", 1.0), ("%", 0.01)])?;
        Some((share, quantity(factor, &[("", 1.0), ("x", 1.0)])?))
    };
    let slow = parts
        .and_then(read)
        .filter(|(share, factor)| (0.0..=1.0).contains(share) && (1.0..=1000.0).contains(factor));
    slow.ok_or_else(|| {
        "must be a share of the time up to 1 and a factor from 1 to 1000, such as `0.1%,1.5`"
            .to_owned()
    })
}

/// Parses a price of a GPU hour, in any currency.
pub(super) fn parse_price(text: &str) -> Result<f64, String> {
    let bare = text.trim().trim_start_matches(['$', '€', '£']);
    let units = &[("", 1.0), ("/h", 1.0), ("/hour", 1.0), ("/hr", 1.0), ("$", 1.0), ("€", 1.0)];
    up_to::<1_000_000>(bare, units, ", for an hour of a GPU")
}

fn up_to<const MOST: u32>(text: &str, units: &[(&str, f64)], of_what: &str) -> Result<f64, String> {
    let number = quantity(text, units).filter(|number| (0.0..=f64::from(MOST)).contains(number));
    number.ok_or_else(|| format!("must be a number from 0 to {MOST}{of_what}"))
}

/// Parser of a value from a list, by its name in any spelling or by a synonym.
#[derive(Clone, Debug)]
pub(super) struct OneOf<T> {
    all: Vec<(T, &'static str)>,
}

/// Makes a parser of the values `all`, by their names in any spelling or by a synonym.
pub(super) fn one_of<T: Copy>(
    all: impl IntoIterator<Item = T>,
    name: fn(T) -> &'static str,
) -> OneOf<T> {
    OneOf { all: all.into_iter().map(|one| (one, name(one))).collect() }
}

impl<T: Copy + Send + Sync + 'static> TypedValueParser for OneOf<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<T, clap::Error> {
        let given = folded(&value.to_string_lossy());
        if let Some((one, _)) = self.all.iter().find(|(_, name)| names::is_called(name, &given)) {
            return Ok(*one);
        }
        // Clap's own error lists the names and the most similar one.
        let names = PossibleValuesParser::new(self.all.iter().map(|(_, name)| *name));
        let name = names.parse_ref(command, argument, value)?;
        let one = self.all.iter().find(|(_, known)| *known == name);
        Ok(one.expect("a possible value is one of all").0)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.all.iter().map(|(_, name)| PossibleValue::new(name))))
    }
}

/// A schedule argument: a family, or a file with the user's own schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedSchedule {
    /// A schedule family, by name.
    Family(ScheduleKind),
    /// A file with PyTorch's pipeline-order CSV.
    File(PathBuf),
}

/// Parser of a schedule family's name in any spelling, or of a file's path.
#[derive(Clone, Debug)]
pub(super) struct ScheduleParser(OneOf<ScheduleKind>);

impl Default for ScheduleParser {
    fn default() -> Self {
        Self(one_of(ScheduleKind::ALL, ScheduleKind::name))
    }
}

impl TypedValueParser for ScheduleParser {
    type Value = NamedSchedule;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<NamedSchedule, clap::Error> {
        let path = PathBuf::from(value);
        if path.extension().is_some_and(|it| it.eq_ignore_ascii_case("csv")) {
            return Ok(NamedSchedule::File(path));
        }
        let family = self.0.parse_ref(command, argument, value).map(NamedSchedule::Family);
        // For a file of another kind, an error about its kind is more useful than a list of families.
        family.or_else(
            |error| if path.is_file() { Ok(NamedSchedule::File(path)) } else { Err(error) },
        )
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// Parses a variable assignment, `NAME=VALUE`.
pub(super) fn parse_variable(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let own = split.map(|(name, value)| (name.to_owned(), value.to_owned()));
    own.ok_or_else(|| "must be a name and a value, as in `NODES=8`".to_owned())
}

pub(super) fn parse_layers(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| "must be whole numbers with commas between them".to_owned())
}

/// Parses a ZeRO stage: `3`, `zero-3`, `stage3`, or PyTorch's name, such as `fsdp`.
pub(super) fn parse_zero(text: &str) -> Result<ZeroStage, String> {
    let folded = folded(text);
    let number = match folded.as_str() {
        "none" | "off" | "ddp" => "0",
        "fsdp" | "fsdp2" | "fullshard" => "3",
        other => {
            other.trim_start_matches("zero").trim_start_matches("stage").trim_start_matches('z')
        }
    };
    let is_signed = text.trim_start().starts_with('-');
    let stage = number.parse::<u8>().ok().filter(|_| !is_signed);
    stage
        .and_then(|number| ZeroStage::try_from(number).ok())
        .ok_or_else(|| "must be 0, 1, 2 or 3".to_owned())
}

pub(super) fn parse_optimizer(text: &str) -> Result<Optimizer, String> {
    let given = folded(text);
    let known = Optimizer::ALL.into_iter().find(|it| names::is_called(it.name(), &given));
    known
        .ok_or_else(|| format!("must be one of {}", Optimizer::ALL.map(Optimizer::name).join(", ")))
}

/// Parses a time from the step's start; without a unit, in seconds.
pub(super) fn parse_moment(text: &str) -> Result<Nanos, String> {
    const UNITS: &[(&str, f64)] = &[
        ("", 1e9),
        ("ns", 1.0),
        ("us", 1e3),
        ("\u{b5}s", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("sec", 1e9),
        ("seconds", 1e9),
        ("min", 60e9),
    ];
    // 2^53 ns: later than the end of any step, and exactly representable as a float.
    const LATEST: f64 = (1_u64 << 53) as f64;
    let nanos = quantity(text, UNITS).filter(|nanos| (0.0..=LATEST).contains(nanos));
    let nanos = nanos.map(|nanos| Nanos::new(nanos.round() as u64));
    nanos.ok_or_else(|| "must be a time from 0 on, such as `1.5s`, `200ms` or `40us`".to_owned())
}

/// Parses a time limit: a number with a unit, in seconds without one; or several, as in `1h30m`.
pub(super) fn parse_time_limit(text: &str) -> Result<Duration, String> {
    match seconds(text).map(Duration::try_from_secs_f64) {
        Some(Ok(limit)) if limit > Duration::ZERO => Ok(limit),
        _ => Err("must be a time above 0, such as `5s`, `500ms`, `2m` or `1h30m`".to_owned()),
    }
}

/// Parses a number of tokens: `15T`, `300B`, `20M`, `1e12` or a plain number.
pub(super) fn parse_count_of(text: &str) -> Result<f64, String> {
    const UNITS: &[(&str, f64)] =
        &[("", 1.0), ("T", 1e12), ("B", 1e9), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    let bare = text.trim().trim_end_matches("tokens").trim_end_matches("tok").trim();
    let count = quantity(bare, UNITS).filter(|count| (1.0..=1e21).contains(count));
    count.ok_or_else(|| "must be a number of at least 1, such as 15T, 300B or 1e12".to_owned())
}
