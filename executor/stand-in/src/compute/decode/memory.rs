//! Loads, stores, copies and atomics.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7.9 and 9.7.13.

use super::literal::integer as parse_integer;
use super::unknown::{Result, Unknown};
use super::words::{Type, Words};
use super::{Decoder, Text};
use crate::compute::function::one;
use crate::compute::lanes::{ones, signed};
use crate::compute::program::{Address, Change, Operation, Space};
use crate::compute::space::window;
use crate::number::{Format, Rounding};

/// Cache and ordering modifiers, which have no effect where instructions execute in order.
const HOW: [&str; 20] = [
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "weak", "relaxed", "acquire",
    "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "unified",
];

impl<'a> Decoder<'a> {
    pub(super) fn memory(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        match text.words.name() {
            "cvta" => return self.windows(text),
            "cp" => return self.copies(text),
            // There are no caches.
            "prefetch" => {
                self.push(Operation::Nothing);
                return Ok(());
            }
            "isspacep" => return Err(Unknown),
            _ => {}
        }
        text.words.ignore(&HOW);
        let space = space(&mut text.words)?;
        if ["atom", "red"].contains(&text.words.name()) {
            return self.atomic(text, space);
        }
        let count = match text.words.one_of(&["v2", "v4", "v8"]) {
            Some(word) => word[1..].parse().map_err(|_| Unknown)?,
            None => 1,
        };
        let ty = text.words.ty()?;
        text.words.finish()?;
        let is_load = text.words.name() != "st";
        let [first, second] = text.instruction.operands.as_slice() else { return Err(Unknown) };
        let bytes = ty.bytes();
        if !(1..=8).contains(&bytes) {
            return Err(Unknown);
        }
        if is_load {
            let dests = self.dests(first)?;
            let at = self.address(second)?;
            if dests.len() != count {
                return Err(Unknown);
            }
            self.push(Operation::Load { space, bytes, is_signed: ty.is_signed(), dests, at });
        } else {
            let at = self.address(first)?;
            let sources = self.sources(second)?;
            if sources.len() != count || space == Space::Param {
                return Err(Unknown);
            }
            self.push(Operation::Store { space, bytes, sources, at });
        }
        Ok(())
    }

    /// The address in `[name]`, `[name+8]` or `[name+-8]`.
    pub(super) fn address(&mut self, operand: &str) -> Result<Address> {
        let inner = operand.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let inner = inner.ok_or(Unknown)?;
        let (name, offset) = match inner.split_once('+') {
            Some((name, offset)) => (name.trim(), parse_integer(offset.trim()).ok_or(Unknown)?),
            None => (inner.trim(), 0),
        };
        Ok(Address { base: self.names.value(name)?, offset: signed(offset, 64) })
    }

    /// `cvta`: conversion between addresses of a space and generic addresses.
    fn windows(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let is_to = text.words.take("to");
        let start = window(space(&mut text.words)?);
        if text.words.ty()? != Type::Unsigned(64) {
            return Err(Unknown);
        }
        text.words.finish()?;
        let (dest, sources) = text.instruction.operands.split_first().ok_or(Unknown)?;
        let function =
            one(move |at| if is_to { at.wrapping_sub(start) } else { at.wrapping_add(start) });
        self.compute(function, dest, sources)
    }

    /// `cp.async`, which is executed at once.
    fn copies(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        if !words.take("async") {
            return Err(Unknown);
        }
        if words.one_of(&["commit_group", "wait_group", "wait_all"]).is_some() {
            words.finish()?;
            self.push(Operation::Nothing);
            return Ok(());
        }
        words.ignore(&HOW);
        if !(words.take("shared") || words.take("shared::cta")) || !words.take("global") {
            return Err(Unknown);
        }
        words.finish()?;
        let operands = &text.instruction.operands;
        let [to, from, bytes, rest @ ..] = operands.as_slice() else { return Err(Unknown) };
        let bytes = bytes.parse().map_err(|_| Unknown)?;
        if ![4, 8, 16].contains(&bytes) {
            return Err(Unknown);
        }
        let given = match rest {
            [] => None,
            [given] => Some(self.source(given)?),
            _ => return Err(Unknown),
        };
        let (to, from) = (self.address(to)?, self.address(from)?);
        self.push(Operation::Copy { bytes, given, to, from });
        Ok(())
    }

    /// `atom` and `red`.
    fn atomic(&mut self, mut text: Text<'_, 'a>, space: Space) -> Result<()> {
        let words = &mut text.words;
        let name = words
            .one_of(&["add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec"])
            .ok_or(Unknown)?;
        let ty = words.ty()?;
        words.finish()?;
        let gives = words.name() == "atom";
        let operands = text.instruction.operands.as_slice();
        let (dest, operands) = match (gives, operands) {
            (true, [dest, rest @ ..]) => (Some(self.dest(dest)?), rest),
            (false, rest) => (None, rest),
            _ => return Err(Unknown),
        };
        let (at, sources) = operands.split_first().ok_or(Unknown)?;
        let at = self.address(at)?;
        let expected = if name == "cas" { 2 } else { 1 };
        if sources.len() != expected {
            return Err(Unknown);
        }
        let first = self.source(sources[0])?;
        let second = sources.get(1).map_or(Ok(first), |source| self.source(source))?;
        let change = change(name, ty)?;
        let sources = [first, second];
        self.push(Operation::Atomic { space, bytes: ty.bytes(), change, dest, sources, at });
        Ok(())
    }
}

/// The state space among the words; generic if there is none.
pub(super) fn space(words: &mut Words<'_>) -> Result<Space> {
    Ok(match words.one_of(&["global", "shared", "shared::cta", "local", "param", "const"]) {
        Some("global") => Space::Global,
        Some("shared" | "shared::cta") => Space::Shared,
        Some("local") => Space::Local,
        Some("param") => Space::Param,
        Some(_) => return Err(Unknown),
        None => Space::Generic,
    })
}

/// The update of an atomic instruction, by its name.
pub(super) fn change(name: &str, ty: Type) -> Result<Change> {
    let (bits, all, has_sign) = (ty.bits(), ones(ty.bits()), ty.is_signed());
    let less = move |a: u64, b: u64| {
        if has_sign { signed(a, bits) < signed(b, bits) } else { a & all < b & all }
    };
    Ok(match (name, ty) {
        ("add", Type::Float(Format::F32)) => Box::new(|old, b, _| {
            let sum = f32::from_bits(old as u32) + f32::from_bits(b as u32);
            u64::from(sum.to_bits())
        }),
        ("add", Type::Float(format)) => Box::new(move |old, b, _| {
            format.write(format.read(old) + format.read(b), Rounding::NearestEven)
        }),
        ("add", Type::Pair(format)) => Box::new(move |old, b, _| {
            let half = |at: u32| {
                let sum = format.read(old >> at & 0xffff) + format.read(b >> at & 0xffff);
                format.write(sum, Rounding::NearestEven) << at
            };
            half(0) | half(16)
        }),
        ("exch", _) => Box::new(|_, b, _| b),
        ("cas", _) => Box::new(move |old, b, c| if old & all == b & all { c } else { old }),
        ("and", _) => Box::new(|old, b, _| old & b),
        ("or", _) => Box::new(|old, b, _| old | b),
        ("xor", _) => Box::new(|old, b, _| old ^ b),
        (_, Type::Float(_) | Type::Pair(_)) => return Err(Unknown),
        ("add", _) => Box::new(move |old, b, _| old.wrapping_add(b) & all),
        ("min", _) => Box::new(move |old, b, _| if less(b, old) { b } else { old }),
        ("max", _) => Box::new(move |old, b, _| if less(old, b) { b } else { old }),
        ("inc", _) => {
            Box::new(move |old, b, _| if old & all >= b & all { 0 } else { (old + 1) & all })
        }
        ("dec", _) => Box::new(
            move |old, b, _| {
                if old & all == 0 || old & all > b & all { b } else { old - 1 }
            },
        ),
        _ => return Err(Unknown),
    })
}
