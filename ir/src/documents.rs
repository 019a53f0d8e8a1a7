//! Lengths of documents, and the packing of documents into sequences.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

named_enum! {
    /// Packing of documents into sequences.
    #[derive(Default)]
    pub enum Packing {
        /// Each document, in order of arrival, goes into the first sequence with enough space. Attention stays within
        /// documents.
        #[default]
        FirstFit = "first-fit",
        /// Documents are placed longest first, each into the sequence with the least attention among those with enough
        /// space; sequences are assigned to micro-batches in the same way.
        Balanced = "balanced",
        /// Each document is a sequence, padded to the longest of its micro-batch.
        None = "none",
    }
}

/// A distribution of lengths, in tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DocumentLengths {
    /// Log-normal lengths; documents longer than the sequence are cut to it.
    LogNormal {
        /// The mean, in tokens.
        mean: f64,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    /// Lengths, each with its number of documents, in ascending order.
    Counted(Vec<(u64, u64)>),
}

/// Means above this number of tokens, and spreads above this value, are not those of documents.
const LARGEST_MEAN: f64 = 1e12;
const LARGEST_SIGMA: f64 = 5.0;

/// Documents of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documents {
    /// Lengths of the documents.
    pub lengths: DocumentLengths,
    /// Packing of the documents into sequences.
    pub packing: Packing,
}

/// Reason why a text has no lengths of documents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentsError {
    /// A name that is none.
    #[error(
        "`{0}` is neither a file of lengths nor `lognormal:MEAN,SIGMA` with a mean in tokens and a sigma from 0 to 5, as in \
         `lognormal:600,1.2`"
    )]
    Name(String),
    /// A file without lengths.
    #[error("it has no lengths\nhint: the tokens of a document in each line")]
    Empty,
    /// A line that is no length.
    #[error(
        "line {line}: `{field}` is not a number of tokens\nhint: whole numbers from 1, one in each line"
    )]
    Length {
        /// The line, from 1.
        line: usize,
        /// Text of the line.
        field: String,
    },
    /// A document that no sequence can hold.
    #[error(
        "line {line}: a document of {length} tokens, but sequences have {sequence}\nhint: `--seq-len {length}`, or \
         documents that are cut as they are for training"
    )]
    TooLong {
        /// The line, from 1.
        line: usize,
        /// Tokens of the document.
        length: u64,
        /// Tokens of a sequence.
        sequence: u64,
    },
}

impl DocumentLengths {
    /// Reads lengths, one per line, of at most `sequence` tokens.
    ///
    /// # Errors
    ///
    /// [`DocumentsError`], with the line.
    pub fn from_lines(text: &str, sequence: u64) -> Result<Self, DocumentsError> {
        let mut lengths = Vec::new();
        for (line, field) in (1..).zip(text.lines().map(str::trim)) {
            if field.is_empty() {
                continue;
            }
            let length = field.parse().ok().filter(|length| *length > 0);
            let length =
                length.ok_or_else(|| DocumentsError::Length { line, field: field.to_owned() })?;
            if length > sequence {
                return Err(DocumentsError::TooLong { line, length, sequence });
            }
            lengths.push(length);
        }
        lengths.sort_unstable();
        let alike = lengths.chunk_by(|a, b| a == b);
        let counted: Vec<(u64, u64)> = alike.map(|all| (all[0], all.len() as u64)).collect();
        if counted.is_empty() { Err(DocumentsError::Empty) } else { Ok(Self::Counted(counted)) }
    }

    /// Checks for contents of a file that the readers never produce: no lengths, or lengths of no tokens.
    ///
    /// # Errors
    ///
    /// [`DocumentsError`].
    pub fn check(&self) -> Result<(), DocumentsError> {
        match self {
            Self::LogNormal { mean, sigma } => {
                let is_length = (1.0..LARGEST_MEAN).contains(mean);
                let is_spread = (0.0..=LARGEST_SIGMA).contains(sigma);
                let wrong = || DocumentsError::Name(self.to_string());
                (is_length && is_spread).then_some(()).ok_or_else(wrong)
            }
            Self::Counted(counted) => {
                let is_sorted = counted.is_sorted_by(|a, b| a.0 < b.0);
                let has_all = counted.iter().all(|(length, count)| *length > 0 && *count > 0);
                (!counted.is_empty() && is_sorted && has_all)
                    .then_some(())
                    .ok_or(DocumentsError::Empty)
            }
        }
    }

    /// The longest length; for a distribution the mean, as longer documents are cut.
    pub fn longest(&self) -> f64 {
        match self {
            Self::LogNormal { mean, .. } => *mean,
            Self::Counted(counted) => counted.last().map_or(0.0, |(length, _)| *length as f64),
        }
    }

    /// The mean length, in tokens.
    pub fn mean(&self) -> f64 {
        match self {
            Self::LogNormal { mean, .. } => *mean,
            Self::Counted(counted) => {
                let sum = counted.iter().map(|(length, count)| *length as f64 * *count as f64);
                sum.sum::<f64>() / counted.iter().map(|(_, count)| *count as f64).sum::<f64>()
            }
        }
    }
}

impl fmt::Display for DocumentLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogNormal { mean, sigma } => write!(f, "lognormal:{mean},{sigma}"),
            Self::Counted(_) => write!(f, "of a file, {:.0} tokens on average", self.mean()),
        }
    }
}

impl FromStr for DocumentLengths {
    type Err = DocumentsError;

    /// Parses `lognormal:MEAN,SIGMA`.
    fn from_str(text: &str) -> Result<Self, DocumentsError> {
        let numbers = text.strip_prefix("lognormal:").and_then(|numbers| numbers.split_once(','));
        let parsed =
            numbers.and_then(|(mean, sigma)| Some((mean.parse().ok()?, sigma.parse().ok()?)));
        let lengths = parsed.map(|(mean, sigma)| Self::LogNormal { mean, sigma });
        let lengths = lengths.filter(|lengths| lengths.check().is_ok());
        lengths.ok_or_else(|| DocumentsError::Name(text.to_owned()))
    }
}
