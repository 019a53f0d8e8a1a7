//! Conversions.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, section 9.7.9.21, "cvt".

use super::float::saturated;
use super::unknown::{Result, Unknown};
use super::words::Type;
use super::{Decoder, Text};
use crate::compute::function::{Function, one, two};
use crate::compute::lanes::{ones, signed};
use crate::number::{Format, Rounding};

impl<'a> Decoder<'a> {
    pub(super) fn converts(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let words = &mut text.words;
        let to_integer = match words.one_of(&["rni", "rzi", "rmi", "rpi"]) {
            Some("rni") => Some(Rounding::NearestEven),
            Some("rzi") => Some(Rounding::Zero),
            Some("rmi") => Some(Rounding::Down),
            Some(_) => Some(Rounding::Up),
            None => None,
        };
        let rounding = words.rounding();
        let (flushes, saturates) = (words.take("ftz"), words.take("sat"));
        let relu = words.take("relu");
        let (to, from) = (words.ty()?, words.ty()?);
        words.finish()?;
        let (dest, sources) = text.instruction.operands.split_first().ok_or(Unknown)?;
        let function = match (to, from) {
            (Type::Pair(to), Type::Float(Format::F32)) => {
                let half = move |value: u64| {
                    let value = Format::F32.read(value);
                    let value = if relu && value < 0.0 { 0.0 } else { value };
                    to.write(value, rounding)
                };
                two(move |upper, lower| half(upper) << 16 | half(lower))
            }
            _ if relu => return Err(Unknown),
            (Type::Float(to), Type::Float(from)) => {
                floats(from, to, to_integer, rounding, (flushes, saturates))?
            }
            (Type::Float(to), from) => {
                let (bits, has_sign) = integer(from)?;
                one(move |value| to.write_integer(number(value, bits, has_sign), rounding))
            }
            (to, Type::Float(from)) => {
                let (bits, has_sign) = integer(to)?;
                let rounding = to_integer.ok_or(Unknown)?;
                let is_flushed = move |value: f64| flushes && (value as f32).is_subnormal();
                one(move |value| {
                    let value = from.read(value);
                    let value = if is_flushed(value) { 0.0 } else { value };
                    clamped(rounding.to_whole(value), bits, has_sign)
                })
            }
            (to, from) => {
                let ((to_bits, to_sign), (from_bits, from_sign)) = (integer(to)?, integer(from)?);
                one(move |value| {
                    let value = number(value, from_bits, from_sign);
                    let value = if saturates {
                        value.clamp(least(to_bits, to_sign), most(to_bits, to_sign))
                    } else {
                        value
                    };
                    value as u64 & ones(to_bits)
                })
            }
        };
        self.compute(function, dest, sources)
    }
}

/// The conversion from one floating-point format to another.
fn floats(
    from: Format,
    to: Format,
    to_integer: Option<Rounding>,
    rounding: Rounding,
    (flushes, saturates): (bool, bool),
) -> Result<Function> {
    if saturates && to != Format::F32 {
        return Err(Unknown);
    }
    if !(flushes || saturates) && to_integer.is_none() {
        match (from, to) {
            (Format::Bf16, Format::F32) => return Ok(one(|value| (value & 0xffff) << 16)),
            (Format::F32, Format::F64) => {
                return Ok(one(|value| f64::from(f32::from_bits(value as u32)).to_bits()));
            }
            _ => {}
        }
    }
    Ok(one(move |value| {
        let value = from.read(value);
        let is_flushed = flushes && (value as f32).is_subnormal();
        let value = if is_flushed { 0_f64.copysign(value) } else { value };
        let value = to_integer.map_or(value, |rounding| rounding.to_whole(value));
        let result = to.write(value, rounding);
        if saturates { saturated(result) } else { result }
    }))
}

fn integer(ty: Type) -> Result<(u32, bool)> {
    match ty {
        Type::Unsigned(bits) | Type::Bits(bits) => Ok((bits, false)),
        Type::Signed(bits) => Ok((bits, true)),
        _ => Err(Unknown),
    }
}

fn number(value: u64, bits: u32, has_sign: bool) -> i128 {
    if has_sign { i128::from(signed(value, bits)) } else { i128::from(value & ones(bits)) }
}

fn least(bits: u32, has_sign: bool) -> i128 {
    if has_sign { -(1_i128 << (bits - 1)) } else { 0 }
}

fn most(bits: u32, has_sign: bool) -> i128 {
    if has_sign { (1_i128 << (bits - 1)) - 1 } else { i128::from(ones(bits)) }
}

/// The nearest integer in range; zero for NaN.
fn clamped(value: f64, bits: u32, has_sign: bool) -> u64 {
    let whole = if value.is_nan() { 0 } else { value as i128 };
    whole.clamp(least(bits, has_sign), most(bits, has_sign)) as u64 & ones(bits)
}
