//! Parser of `planner sweep --over`.

use ir::text::count_of;
use planner::names::{folded, is_called};
use serde::Serialize;

use super::values::MEMORY;
use command_line::numbers::{counted, quantity};

/// The swept quantity and its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Over {
    pub(crate) what: Varied,
    pub(crate) values: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Varied {
    Gpus,
    SequenceLength,
    GlobalBatchSize,
    /// Factor on the bandwidth of links between nodes.
    Bandwidth,
    /// Memory of a GPU in GiB.
    Memory,
}

/// Names of a swept quantity.
pub(crate) struct Names {
    /// Name in `--over`.
    name: &'static str,
    /// Name for titles and headings.
    pub(crate) title: &'static str,
    /// Values for a hint.
    example: &'static str,
    /// The option that sets the quantity outside of a sweep; the values of quantities with an option are whole numbers.
    pub(crate) option: Option<&'static str>,
}

impl Varied {
    const ALL: [Self; 5] =
        [Self::Gpus, Self::SequenceLength, Self::GlobalBatchSize, Self::Bandwidth, Self::Memory];

    pub(crate) const fn names(self) -> Names {
        let (name, title, example, option) = match self {
            Self::Gpus => ("gpus", "number of GPUs", "8,16,32", Some("--gpus")),
            Self::SequenceLength => ("seq-len", "sequence length", "4k,8k,16k", Some("--seq-len")),
            Self::GlobalBatchSize => {
                ("batch", "batch", "256,512,1024", Some("--global-batch-size"))
            }
            Self::Bandwidth => ("bandwidth", "bandwidth between nodes", "0.5,1,2", None),
            Self::Memory => ("memory", "memory of a GPU", "40,80,141", None),
        };
        Names { name, title, example, option }
    }

    /// A value with its unit.
    pub(crate) fn describe(self, value: f64) -> String {
        match self {
            Self::Gpus => count_of(value as u64, "GPU", "GPUs"),
            Self::SequenceLength => format!("{value} tokens"),
            Self::GlobalBatchSize => format!("batch {value}"),
            Self::Bandwidth => format!("{value} \u{d7} bandwidth"),
            // A value that was given in GB is not a round number of GiB.
            Self::Memory => format!("{} GiB", (value * 100.0).round() / 100.0),
        }
    }
}

/// Largest plausible memory of a GPU in GiB; larger values were likely given in bytes.
const MOST_GIB: f64 = 1e5;

/// Largest number of values of a sweep.
const MOST_VALUES: usize = 64;

/// The values that begin with `first` and double until `last`, which must be one of them.
fn doubled(name: &str, first: f64, last: f64) -> Result<Vec<f64>, String> {
    if !(first > 0.0 && first < last) {
        return Err(format!(
            "{name}={first}..{last} is no range: it goes from a value above 0 to a larger one, doubling"
        ));
    }
    let doubling = std::iter::successors(Some(first), |value| Some(value * 2.0));
    let below = doubling.take(MOST_VALUES).take_while(|value| *value < last);
    Ok(below.chain([last]).collect())
}

impl std::str::FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "must be one of gpus, seq-len, batch, bandwidth (between nodes, as a multiple of the cluster's) and \
                    memory (GiB of a GPU), with values, such as gpus=8,16,32";
        let (name, values) = text.split_once('=').ok_or(form)?;
        let given = folded(name);
        let is_it = |what: &Varied| is_called(what.names().name, &given);
        let what = Varied::ALL.into_iter().find(is_it).ok_or(form)?;
        let Names { name, example, option, .. } = what.names();
        let value = |text: &str| match what {
            Varied::Memory => quantity(text, MEMORY),
            Varied::Bandwidth => quantity(text, &[("", 1.0), ("x", 1.0)]),
            _ => counted(text).ok().map(|count| count as f64).or_else(|| text.parse().ok()),
        };
        // `1,024` is refused, rather than read as 1 and 24.
        let is_of_thousands = |text: &&str| {
            text.len() > 1
                && text.starts_with('0')
                && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if let Some(group) = values.split(',').find(is_of_thousands) {
            return Err(format!(
                "`{group}` is no value of {name}: commas stand between values here, and 1,024 is written 1024"
            ));
        }
        let read = |text: &str| {
            value(text)
                .ok_or_else(|| format!("`{text}` is no value of {name}; they have commas between them, such as {name}={example}"))
        };
        let several = |part: &str| match part.split_once("..") {
            Some((first, last)) => doubled(name, read(first)?, read(last)?),
            None => Ok(vec![read(part)?]),
        };
        let values: Vec<Vec<f64>> = values.split(',').map(several).collect::<Result<_, _>>()?;
        let values = values.concat();
        let is_usable = |value: &f64| {
            (1e-6..=1e12).contains(value) && (option.is_none() || value.fract() == 0.0)
        };
        let is_bytes = |value: &&f64| what == Varied::Memory && **value > MOST_GIB;
        if let Some(value) = values.iter().find(is_bytes) {
            let gib = value / f64::from(1_u32 << 30);
            return Err(format!(
                "{name} is in GiB: {value} is too much, and {value} bytes are {gib:.1}"
            ));
        }
        if let Some(value) = values.iter().find(|value| !is_usable(value)) {
            return Err(format!("{name} cannot be {value}"));
        }
        if values.len() > MOST_VALUES {
            return Err(format!("takes {MOST_VALUES} values at most"));
        }
        Ok(Self { what, values })
    }
}
