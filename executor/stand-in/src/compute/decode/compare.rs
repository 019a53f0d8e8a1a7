//! Comparisons, and choices by them.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7.6 and 9.7.7.

use std::cmp::Ordering;

use super::words::Type;
use super::{Decoder, Result, Text, Unknown};
use crate::compute::function::{Function, three, two};
use crate::compute::lanes::{ones, signed};
use crate::number::Format;

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

/// What a comparison of registers says.
type Compare = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

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
        // Before anything is written, since what is written may be read too.
        let mut registers = [0; 4];
        for (register, source) in registers.iter_mut().zip(sources) {
            *register = self.source(source)?;
        }
        let (first, second) = (self.names.fresh(), self.names.fresh());
        let set = move |is_true: bool| match result {
            None => u64::from(is_true),
            Some(_) if !is_true => 0,
            Some(Type::Float(format)) => format.write(1.0, crate::number::Rounding::NearestEven),
            Some(ty) => ones(ty.bits()),
        };
        for (dest, negates) in [(first, false), (second, true)] {
            let compare = compare(comparison, ty, flushes)?;
            let is_true = move |a, b| compare(a, b) != negates;
            let function = match combination {
                None => two(move |a, b| set(is_true(a, b))),
                Some("and") => three(move |a, b, c| set(is_true(a, b) && c & 1 == 1)),
                Some("or") => three(move |a, b, c| set(is_true(a, b) || c & 1 == 1)),
                Some(_) => three(move |a, b, c| set(is_true(a, b) ^ (c & 1 == 1))),
            };
            self.push_compute(function, dest, registers);
        }
        let dest = self.dest(dest)?;
        self.push_compute(copy(), dest, [first; 4]);
        if let Some(dest) = dests.next() {
            let dest = self.dest(dest)?;
            self.push_compute(copy(), dest, [second; 4]);
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

fn copy() -> Function {
    crate::compute::function::one(|value| value)
}

/// What a comparison says of registers of a type.
fn compare(name: &str, ty: Type, flushes: bool) -> Result<Compare> {
    if let Type::Float(format) = ty {
        let read = move |value: u64| {
            let number = format.read(value);
            let is_flushed = flushes && (number as f32).is_subnormal();
            if is_flushed { 0.0 } else { number }
        };
        let compare = ordered(name)?;
        return Ok(Box::new(move |a, b| compare(read(a).partial_cmp(&read(b)))));
    }
    let bits = ty.bits();
    let has_sign = ty.is_signed();
    let number = move |value: u64| {
        if has_sign { i128::from(signed(value, bits)) } else { i128::from(value & ones(bits)) }
    };
    let compare: fn(&i128, &i128) -> bool = match name {
        "eq" => i128::eq,
        "ne" => i128::ne,
        "lt" | "lo" => i128::lt,
        "le" | "ls" => i128::le,
        "gt" | "hi" => i128::gt,
        "ge" | "hs" => i128::ge,
        _ => return Err(Unknown),
    };
    Ok(Box::new(move |a, b| compare(&number(a), &number(b))))
}

/// What a comparison says of numbers with a point, by their order; which they have not if one of
/// them is no number.
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
