//! Shares of the tokens that routers send to experts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Spread of tokens over experts by routers (`--expert-load`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpertLoad {
    /// Evenly, as benchmarks force them to.
    #[default]
    Balanced,
    /// Log-normal distribution: the logarithms of the experts' shares have this standard deviation.
    LogNormal(f64),
    /// Counts of tokens: one row for all layers with experts, or one row for each.
    Counts(Vec<Vec<u64>>),
}

/// Standard deviation of the logarithm of an expert's share where nothing else is known.
///
/// # Source
///
/// A run of Qwen3-30B-A3B with its own router (pith-train, issue 79) has a load-balancing loss of 1.87, where 1 is
/// balanced. That loss is the number of experts times the sum of their squared shares, which for log-normal shares is
/// `exp(sigma^2)`. Of the distributions tried on the ranks' loads of DeepSeek-V3, the log-normal fits best (DeepEP,
/// issue 393).
pub const USUAL_SIGMA: f64 = 0.79;

/// Standard deviation of the logarithm of an expert's share where routers correct the scores for the choice by the
/// experts' load, as DeepSeek-V3's do.
///
/// # Source
///
/// Wang et al. 2024, *Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts* (arXiv 2408.15664), table 2:
/// the busiest of 64 experts has 4 % more than the mean. The largest of 64 log-normal shares is `exp(2.4 sigma)` times
/// the mean. DeepSeek-V3's own training took 20 s per step (arXiv 2412.19437, table 1), which is the prediction for
/// balanced experts.
pub const CORRECTED_SIGMA: f64 = 0.02;

/// With a spread above this, one expert gets all tokens.
const LARGEST_SIGMA: f64 = 5.0;

/// Reason why a text is no router load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpertLoadError {
    /// A name that is none.
    #[error(
        "`{0}` is neither `balanced`, nor `lognormal:SIGMA` with a number from 0 to 5, as in `lognormal:0.8`, nor a file of \
         counts"
    )]
    Name(String),
    /// A file without counts.
    #[error(
        "it has no counts\nhint: a row for each layer with experts, and in each row the tokens of each expert"
    )]
    Empty,
    /// A field that is no count.
    #[error(
        "line {line}: `{field}` is not a count of tokens\nhint: whole numbers with spaces or commas between them"
    )]
    Count {
        /// The line, from 1.
        line: usize,
        /// The field.
        field: String,
    },
    /// Rows of unlike lengths.
    #[error(
        "line {line} has {found} counts, the first has {first}\nhint: each row has a count for each expert"
    )]
    Rows {
        /// The line, from 1.
        line: usize,
        /// Counts in it.
        found: usize,
        /// Counts in the first row.
        first: usize,
    },
    /// A layer with tokens for fewer experts than each token goes to.
    #[error(
        "row {line}: {used} experts have tokens, but each token goes to {top_k} different ones"
    )]
    Few {
        /// The row, from 1.
        line: usize,
        /// Experts with tokens.
        used: usize,
        /// Experts of a token.
        top_k: u64,
    },
    /// A layer to whose experts no token goes.
    #[error("line {line}: no token goes to any expert")]
    Nothing {
        /// The line, from 1.
        line: usize,
    },
}

impl ExpertLoad {
    /// True if all experts have the same share.
    pub fn is_balanced(&self) -> bool {
        matches!(self, Self::Balanced) || *self == Self::LogNormal(0.0)
    }

    /// Checks what the readers below do not check: ranges, and that at least `top_k` experts have tokens.
    ///
    /// # Errors
    ///
    /// [`ExpertLoadError`], whose line is the row of counts.
    pub fn check(&self, top_k: u64) -> Result<(), ExpertLoadError> {
        match self {
            Self::Balanced => Ok(()),
            Self::LogNormal(sigma) if (0.0..=LARGEST_SIGMA).contains(sigma) => Ok(()),
            Self::LogNormal(_) => Err(ExpertLoadError::Name(self.to_string())),
            Self::Counts(rows) => {
                let first = rows.first().ok_or(ExpertLoadError::Empty)?.len();
                for (line, row) in (1..).zip(rows) {
                    if row.len() != first {
                        return Err(ExpertLoadError::Rows { line, found: row.len(), first });
                    }
                    let used = row.iter().filter(|count| **count > 0).count();
                    if (used as u64) < top_k.max(1) {
                        return Err(ExpertLoadError::Few { line, used, top_k });
                    }
                }
                Ok(())
            }
        }
    }

    /// Reads counts of tokens: a row for each layer, with spaces or commas between the experts' counts; or, if every
    /// row has one count, a row for each expert of all layers.
    ///
    /// # Errors
    ///
    /// [`ExpertLoadError`], with the line.
    pub fn from_counts(text: &str) -> Result<Self, ExpertLoadError> {
        let mut rows: Vec<(usize, Vec<u64>)> = Vec::new();
        for (line, row) in (1..).zip(text.lines()) {
            let fields = row.split([' ', '\t', ',', ';']).filter(|field| !field.is_empty());
            let counts: Result<Vec<u64>, ExpertLoadError> = fields
                .map(|field| {
                    let wrong = || ExpertLoadError::Count { line, field: field.to_owned() };
                    field.parse().map_err(|_| wrong())
                })
                .collect();
            let counts = counts?;
            if !counts.is_empty() {
                rows.push((line, counts));
            }
        }
        let first = rows.first().ok_or(ExpertLoadError::Empty)?.1.len();
        if let Some((line, row)) = rows.iter().find(|(_, row)| row.len() != first) {
            return Err(ExpertLoadError::Rows { line: *line, found: row.len(), first });
        }
        if first == 1 {
            let all = rows.iter().map(|(_, row)| row[0]).collect();
            rows = vec![(rows[0].0, all)];
        }
        let is_nothing = |row: &Vec<u64>| row.iter().all(|count| *count == 0);
        if let Some((line, _)) = rows.iter().find(|(_, row)| is_nothing(row)) {
            return Err(ExpertLoadError::Nothing { line: *line });
        }
        Ok(Self::Counts(rows.into_iter().map(|(_, row)| row).collect()))
    }
}

impl fmt::Display for ExpertLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balanced => f.write_str("balanced"),
            Self::LogNormal(sigma) => write!(f, "lognormal:{sigma}"),
            Self::Counts(rows) => write!(f, "counts of {} layers", rows.len()),
        }
    }
}

impl FromStr for ExpertLoad {
    type Err = ExpertLoadError;

    /// Parses `balanced` or `lognormal:SIGMA`.
    fn from_str(text: &str) -> Result<Self, ExpertLoadError> {
        if text == "balanced" {
            return Ok(Self::Balanced);
        }
        let sigma = text.strip_prefix("lognormal:").and_then(|sigma| sigma.parse().ok());
        let sigma = sigma.filter(|sigma| (0.0..=LARGEST_SIGMA).contains(sigma));
        sigma.map(Self::LogNormal).ok_or_else(|| ExpertLoadError::Name(text.to_owned()))
    }
}
