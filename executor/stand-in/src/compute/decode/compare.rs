//! Comparisons and selections.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7.6 and 9.7.7.

use std::cmp::Ordering;

use super::unknown::{Result, Unknown};
use super::words::Type;
use super::{Decoder, Text};
use crate::compute::function::{Function, three};
use crate::compute::lanes::{Lanes, Mask, mask_of, ones, signed, spread};
use crate::number::{Format, Rounding};

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

/// The mask of threads in which a comparison of registers is true.
type Compare = Box<dyn Fn(&Lanes, &Lanes) -> Mask + Send + Sync>;

impl<'a> Decoder<'a> {
    /// `setp`, `set` and `selp`.
    pub(super) fn compares(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        if text.words.name() == "selp" {
            return self.select(text);
        }
        let words = &mut text.words;
        let flushes = words.take("ftz");
        let comparison = words.one_of(&COMPARISONS).ok_or(Unknown)?;
        let combination = words.one_of(&["and", "or", "xor"]);
        let sets_number = words.name() == "set";
        let result = if sets_number { Some(words.ty()?) } else { None };
        let ty = words.ty()?;
        words.finish()?;
        let operands = &text.instruction.operands;
        let (dest, sources) = operands.split_first().ok_or(Unknown)?;
        let expected = 2 + usize::from(combination.is_some());
        if sources.len() != expected || (flushes && ty != Type::Float(Format::F32)) {
            return Err(Unknown);
        }
        let mut dests = dest.split('|');
        let dest = dests.next().ok_or(Unknown)?;
        // Sources are read before anything is written, as a destination may be a source.
        let mut registers = [0; 4];
        for (register, source) in registers.iter_mut().zip(sources) {
            *register = self.source(source)?;
        }
        let true_bits = match result {
            None => 1,
            Some(Type::Float(format)) => format.write(1.0, Rounding::NearestEven),
            Some(ty) => ones(ty.bits()),
        };
        let second = dests.next().map(|dest| self.dest(dest)).transpose()?;
        let first = self.dest(dest)?;
        if second.is_some() && registers.contains(&first) {
            return Err(Unknown);
        }
        for (dest, negates) in [(Some(first), false), (second, true)] {
            let Some(dest) = dest else { continue };
            let compare = compare(comparison, ty, flushes)?;
            let combine: fn(Mask, Mask) -> Mask = match combination {
                None => |own, _| own,
                Some("and") => |own, other| own & other,
                Some("or") => |own, other| own | other,
                Some(_) => |own, other| own ^ other,
            };
            let own =
                move |a: &Lanes, b: &Lanes| compare(a, b) ^ if negates { Mask::MAX } else { 0 };
            let set = move |mask| spread(mask).map(|is_true| is_true * true_bits);
            let function = if combination.is_none() {
                Function::Two(Box::new(move |a, b| set(own(a, b))))
            } else {
                Function::Three(Box::new(move |a, b, c| set(combine(own(a, b), mask_of(c)))))
            };
            self.push_compute(function, dest, registers);
        }
        Ok(())
    }

    fn select(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let all = ones(text.words.ty()?.bits());
        text.words.finish()?;
        let (dest, sources) = text.instruction.operands.split_first().ok_or(Unknown)?;
        let function =
            three(move |a, b, is_first| if is_first & 1 == 1 { a & all } else { b & all });
        self.compute(function, dest, sources)
    }
}

/// The comparison of registers of a type, as a mask of threads.
fn compare(name: &str, ty: Type, flushes: bool) -> Result<Compare> {
    if let Type::Float(format) = ty {
        let read = move |value: u64| {
            let number = format.read(value);
            let is_flushed = flushes && (number as f32).is_subnormal();
            if is_flushed { 0.0 } else { number }
        };
        let holds = ordered(name)?;
        return Ok(compared(read, move |a, b| holds(a.partial_cmp(b))));
    }
    let (bits, has_sign) = (ty.bits(), ty.is_signed());
    // With the top bit flipped, unsigned numbers compare in the same order as signed numbers.
    let number = move |value: u64| {
        if has_sign { signed(value, bits) } else { ((value & ones(bits)) ^ 1 << 63).cast_signed() }
    };
    Ok(match name {
        "eq" => compared(number, |a, b| a == b),
        "ne" => compared(number, |a, b| a != b),
        "lt" | "lo" => compared(number, |a, b| a < b),
        "le" | "ls" => compared(number, |a, b| a <= b),
        "gt" | "hi" => compared(number, |a, b| a > b),
        "ge" | "hs" => compared(number, |a, b| a >= b),
        _ => return Err(Unknown),
    })
}

fn compared<T>(
    read: impl Fn(u64) -> T + Send + Sync + 'static,
    holds: impl Fn(&T, &T) -> bool + Send + Sync + 'static,
) -> Compare {
    Box::new(move |a, b| {
        let pairs = a.iter().zip(b).rev();
        pairs.fold(0, |mask, (a, b)| mask << 1 | Mask::from(holds(&read(*a), &read(*b))))
    })
}

/// The predicate of a floating-point comparison, from the order of its operands; none if one of them is NaN.
fn ordered(name: &str) -> Result<fn(Option<Ordering>) -> bool> {
    use Ordering::{Equal, Greater, Less};
    Ok(match name {
        "eq" => |order| order == Some(Equal),
        "ne" => |order| matches!(order, Some(Less | Greater)),
        "lt" => |order| order == Some(Less),
        "le" => |order| matches!(order, Some(Less | Equal)),
        "gt" => |order| order == Some(Greater),
        "ge" => |order| matches!(order, Some(Greater | Equal)),
        "equ" => |order| matches!(order, None | Some(Equal)),
        "neu" => |order| order != Some(Equal),
        "ltu" => |order| matches!(order, None | Some(Less)),
        "leu" => |order| order != Some(Greater),
        "gtu" => |order| matches!(order, None | Some(Greater)),
        "geu" => |order| order != Some(Less),
        "num" => |order| order.is_some(),
        "nan" => |order| order.is_none(),
        _ => return Err(Unknown),
    })
}
