//! The words of an opcode: name, modifiers and types.

use super::unknown::{Result, Unknown};
use crate::compute::program::Tf32;
use crate::number::{Format, Rounding};

/// A type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Unsigned(u32),
    Signed(u32),
    Bits(u32),
    Float(Format),
    /// Two numbers in a register of 32 bits.
    Pair(Format),
    Predicate,
}

impl Type {
    pub(super) fn parse(word: &str) -> Option<Self> {
        let bits = |digits: &str| -> Option<u32> {
            digits.parse().ok().filter(|bits| [8, 16, 32, 64, 128].contains(bits))
        };
        Some(match word {
            "pred" => Self::Predicate,
            "f16" => Self::Float(Format::F16),
            "bf16" => Self::Float(Format::Bf16),
            "tf32" => Self::Float(Format::Tf32),
            "f32" => Self::Float(Format::F32),
            "f64" => Self::Float(Format::F64),
            "f16x2" => Self::Pair(Format::F16),
            "bf16x2" => Self::Pair(Format::Bf16),
            _ => match word.split_at_checked(1)? {
                ("u", digits) => Self::Unsigned(bits(digits)?),
                ("s", digits) => Self::Signed(bits(digits)?),
                ("b", digits) => Self::Bits(bits(digits)?),
                _ => return None,
            },
        })
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Unsigned(bits) | Self::Signed(bits) | Self::Bits(bits) => bits,
            Self::Float(format) => 8 * format.bytes() as u32,
            Self::Pair(_) => 32,
            Self::Predicate => 1,
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    pub(super) fn is_signed(self) -> bool {
        matches!(self, Self::Signed(_))
    }
}

/// The words of an opcode that were not taken yet.
pub(super) struct Words<'a> {
    name: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(words: &[&'a str], tf32: Tf32) -> Self {
        let taken = |word: &&'a str| match (*word, tf32) {
            ("tf32", Tf32::Exact) => "f32",
            (word, _) => word,
        };
        Self { name: words[0], rest: words[1..].iter().map(taken).collect() }
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// Takes a word. Returns whether it was there.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let place = self.rest.iter().position(|own| *own == word);
        place.map(|place| self.rest.remove(place)).is_some()
    }

    /// Takes the first of some words that is there.
    pub(super) fn one_of<'b>(&mut self, words: &[&'b str]) -> Option<&'b str> {
        words.iter().find(|word| self.take(word)).copied()
    }

    /// Removes words that have no effect on results.
    pub(super) fn ignore(&mut self, words: &[&str]) {
        self.rest.retain(|own| {
            !words.contains(own) && !own.starts_with("L1::") && !own.starts_with("L2::")
        });
    }

    /// Takes the next word.
    pub(super) fn next(&mut self) -> Result<&'a str> {
        if self.rest.is_empty() { Err(Unknown) } else { Ok(self.rest.remove(0)) }
    }

    /// Takes the first type among the words.
    pub(super) fn ty(&mut self) -> Result<Type> {
        let place = self.rest.iter().position(|word| Type::parse(word).is_some());
        let word = self.rest.remove(place.ok_or(Unknown)?);
        Type::parse(word).ok_or(Unknown)
    }

    /// Returns whether the types are floating-point types.
    pub(super) fn is_float(&self) -> bool {
        let types = self.rest.iter().filter_map(|word| Type::parse(word));
        types.into_iter().any(|ty| matches!(ty, Type::Float(_) | Type::Pair(_)))
    }

    /// The rounding mode; to the nearest by default.
    pub(super) fn rounding(&mut self) -> Rounding {
        match self.one_of(&["rn", "rz", "rm", "rp", "rna"]) {
            Some("rz") => Rounding::Zero,
            Some("rm") => Rounding::Down,
            Some("rp") => Rounding::Up,
            Some("rna") => Rounding::NearestAway,
            _ => Rounding::NearestEven,
        }
    }

    /// Fails unless all words were taken.
    pub(super) fn finish(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Unknown) }
    }
}
