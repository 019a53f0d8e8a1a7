//! Values of a field among which a search may choose.

use std::fmt;
use std::str::FromStr;

use crate::schedule::ScheduleKind;

/// The largest number of values in a list: the number of schedules.
const MOST_LISTED: usize = ScheduleKind::ALL.len();

/// The largest number of degrees in a list.
const MOST_DEGREES: usize = 8;

/// Values of a field among which a search may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice<T> {
    /// Any value: nothing is decided.
    #[default]
    Any,
    /// A single value.
    One(T),
    /// One of several values; the last value is repeated up to the length of the array.
    Listed([T; MOST_LISTED]),
    /// One of a range, both ends included; a missing end is unbounded.
    Range {
        /// The smallest value.
        least: Option<T>,
        /// The largest value.
        most: Option<T>,
    },
}

use Choice::{Any, Listed, One, Range};

impl<T: Copy + Ord> Choice<T> {
    /// A choice of several distinct values: the value itself where there is one, any where there are none.
    pub fn of(values: impl IntoIterator<Item = T>) -> Self {
        let mut listed: Vec<T> = values.into_iter().collect();
        match (listed.as_slice(), listed.last()) {
            ([one], _) => One(*one),
            (_, Some(last)) => {
                listed.resize(MOST_LISTED, *last);
                listed.try_into().map_or(Any, Listed)
            }
            _ => Any,
        }
    }

    /// True if nothing is decided.
    pub fn is_any(&self) -> bool {
        matches!(self, Any)
    }

    /// The value, where there is only one.
    pub fn one(&self) -> Option<T> {
        if let One(value) = self { Some(*value) } else { None }
    }

    /// The value where there is only one, else `usual`.
    pub fn unwrap_or(&self, usual: T) -> T {
        self.one().unwrap_or(usual)
    }

    /// The values, if they are listed or there is one; empty for a range.
    pub fn listed(&self) -> &[T] {
        match self {
            One(value) => std::slice::from_ref(value),
            Listed(all) => {
                let end = all.iter().position(|it| Some(it) == all.last()).unwrap_or(0);
                &all[..=end]
            }
            Any | Range { .. } => &[],
        }
    }

    /// The smallest value that is named, if any is.
    pub fn least(&self) -> Option<T> {
        match self {
            Range { least, .. } => *least,
            _ => self.listed().iter().min().copied(),
        }
    }

    /// True if `value` may be chosen.
    pub fn allows(&self, value: T) -> bool {
        match self {
            Any => true,
            One(one) => *one == value,
            Listed(all) => all.contains(&value),
            Range { least, most } => {
                least.is_none_or(|it| it <= value) && most.is_none_or(|it| value <= it)
            }
        }
    }

    /// Values to try: the single value, even if it is not in `free`; otherwise the values of `free` that may be
    /// chosen.
    pub fn among(&self, mut free: Vec<T>) -> Vec<T> {
        if let One(value) = self {
            return vec![*value];
        }
        free.retain(|value| self.allows(*value));
        free
    }

    /// The choice, or `usual` where nothing is decided.
    #[must_use]
    pub fn or(self, usual: T) -> Self {
        if self.is_any() { One(usual) } else { self }
    }

    /// The intersection; `None` where the values contradict each other. Where both are lists or ranges, `other`'s is
    /// taken.
    pub fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (_, Any) => Some(*self),
            (One(own), other) => other.allows(*own).then_some(*self),
            (own, One(value)) => own.allows(*value).then_some(*other),
            _ => Some(*other),
        }
    }
}

impl<T> From<T> for Choice<T> {
    fn from(value: T) -> Self {
        One(value)
    }
}

impl<T> From<Option<T>> for Choice<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Any, One)
    }
}

impl<T: Copy + Ord + fmt::Display> fmt::Display for Choice<T> {
    /// Formats values as an option takes them: `4`, `1,2,4` or `2..8`. Any value is the empty string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |end: &Option<T>| end.map_or_else(String::new, |it| it.to_string());
        let text = match self {
            Range { least, most } => format!("{}..{}", end(least), end(most)),
            _ => self.listed().iter().map(T::to_string).collect::<Vec<_>>().join(","),
        };
        f.pad(&text)
    }
}

/// A text that is not a list of degrees.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a whole number of at least 1, at most {MOST_DEGREES} with commas between them, or a range such as ..8, \
     2..8 or 2.."
)]
pub struct ParseDegreesError;

impl FromStr for Choice<u32> {
    type Err = ParseDegreesError;

    /// Reads degrees: `4`, `1,2,4`, `..8`, `2..8` or `2..`.
    fn from_str(text: &str) -> Result<Self, ParseDegreesError> {
        let number = |text: &str| {
            text.trim().parse::<u32>().ok().filter(|degree| *degree > 0).ok_or(ParseDegreesError)
        };
        if let Some((least, most)) = text.split_once("..") {
            let least = if least.trim().is_empty() { 1 } else { number(least)? };
            let most = if most.trim().is_empty() { u32::MAX } else { number(most)? };
            return match () {
                () if least > most || text.trim() == ".." => Err(ParseDegreesError),
                () if least == most => Ok(One(least)),
                () => {
                    let (least, most) = (Some(least).filter(|it| *it > 1), Some(most));
                    Ok(Range { least, most: most.filter(|it| *it < u32::MAX) })
                }
            };
        }
        let mut listed = text.split(',').map(number).collect::<Result<Vec<u32>, _>>()?;
        listed.sort_unstable();
        listed.dedup();
        if listed.len() > MOST_DEGREES { Err(ParseDegreesError) } else { Ok(Self::of(listed)) }
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
            let degrees: Choice<u32> = text.parse().unwrap();
            assert_eq!(degrees.to_string(), text);
            assert!(takes.iter().all(|degree| degrees.allows(*degree)), "{text}");
            assert!(!leaves_out.iter().any(|degree| degrees.allows(*degree)), "{text}");
        }
        for (text, only) in [("8", 8), ("4,4", 4), ("3..3", 3)] {
            assert_eq!(text.parse(), Ok(One(only)));
        }
        for text in ["", "0", "1,0", "..", "8..2", "1,2,3,4,5,6,7,8,9", "a", "-1", "1,,2"] {
            text.parse::<Choice<u32>>().unwrap_err();
        }
    }
}
