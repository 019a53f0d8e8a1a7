//! Degrees among which a search may choose.

use std::fmt;
use std::str::FromStr;

/// The most degrees that can be listed.
const MOST: usize = 8;

/// Degrees among which a search may choose: `4`, `1,2,4`, `..8`, `2..8` or `2..`, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degrees {
    /// These; of fewer, the last are repeated.
    Listed([u32; MOST]),
    /// From the one to the other.
    Range {
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
}

impl Degrees {
    /// Whether a degree is among them.
    pub fn takes(&self, degree: u32) -> bool {
        match self {
            Self::Listed(all) => all.contains(&degree),
            Self::Range { least, most } => (*least..=*most).contains(&degree),
        }
    }

    /// The least of them.
    pub fn least(&self) -> u32 {
        match self {
            Self::Listed(all) => all.iter().copied().min().unwrap_or(1),
            Self::Range { least, .. } => *least,
        }
    }

    /// The only one, if there is but one.
    pub fn only(&self) -> Option<u32> {
        match self {
            Self::Listed(all) => all.iter().all(|it| it == &all[0]).then_some(all[0]),
            Self::Range { least, most } => (least == most).then_some(*least),
        }
    }
}

impl fmt::Display for Degrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(all) => {
                let mut listed = all.to_vec();
                listed.dedup();
                let listed: Vec<String> = listed.iter().map(u32::to_string).collect();
                f.pad(&listed.join(","))
            }
            Self::Range { least: 1, most } => f.pad(&format!("..{most}")),
            Self::Range { least, most: u32::MAX } => f.pad(&format!("{least}..")),
            Self::Range { least, most } => f.pad(&format!("{least}..{most}")),
        }
    }
}

/// A text that lists no degrees.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a whole number of at least 1, at most {MOST} with commas between them, or a range such as ..8, 2..8 or 2.."
)]
pub struct ParseDegreesError;

impl FromStr for Degrees {
    type Err = ParseDegreesError;

    fn from_str(text: &str) -> Result<Self, ParseDegreesError> {
        let number = |text: &str| {
            text.trim().parse::<u32>().ok().filter(|degree| *degree > 0).ok_or(ParseDegreesError)
        };
        if let Some((least, most)) = text.split_once("..") {
            let least = if least.trim().is_empty() { 1 } else { number(least)? };
            let most = if most.trim().is_empty() { u32::MAX } else { number(most)? };
            let is_range = least <= most && text.trim() != "..";
            return if is_range { Ok(Self::Range { least, most }) } else { Err(ParseDegreesError) };
        }
        let mut listed = text.split(',').map(number).collect::<Result<Vec<u32>, _>>()?;
        listed.sort_unstable();
        listed.dedup();
        let last = *listed.last().ok_or(ParseDegreesError)?;
        if listed.len() > MOST {
            return Err(ParseDegreesError);
        }
        listed.resize(MOST, last);
        listed.try_into().map(Self::Listed).map_err(|_| ParseDegreesError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_read_as_they_are_written() {
        for (text, takes, leaves_out) in [
            ("4", &[4][..], &[1, 2, 8][..]),
            ("1,2,4", &[1, 2, 4], &[3, 8]),
            ("..8", &[1, 3, 8], &[9]),
            ("2..8", &[2, 8], &[1, 16]),
            ("2..", &[2, 1 << 20], &[1]),
        ] {
            let degrees: Degrees = text.parse().unwrap();
            assert_eq!(degrees.to_string(), text);
            assert!(takes.iter().all(|degree| degrees.takes(*degree)), "{text}");
            assert!(!leaves_out.iter().any(|degree| degrees.takes(*degree)), "{text}");
        }
        assert_eq!("8".parse::<Degrees>().unwrap().only(), Some(8));
        assert_eq!("4,4".parse::<Degrees>().unwrap().only(), Some(4));
        assert_eq!("3..3".parse::<Degrees>().unwrap().only(), Some(3));
        for text in ["", "0", "1,0", "..", "8..2", "1,2,3,4,5,6,7,8,9", "a", "-1", "1,,2"] {
            text.parse::<Degrees>().unwrap_err();
        }
    }
}
