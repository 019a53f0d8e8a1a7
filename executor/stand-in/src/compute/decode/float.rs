//! Floating-point functions.
//!
//! Functions that PTX calls approximate are computed in binary64 and rounded, which is more exact than any GPU.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7.3 to 9.7.5.

use super::unknown::{Result, Unknown};
use super::words::{Type, Words};
use crate::compute::function::{Function, one, three, two};
use crate::number::{Format, Rounding, fma};

/// A register as a binary32 number.
fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// Flushes a subnormal number to zero, with its sign.
fn flushed(bits: u64) -> u64 {
    if single(bits).is_subnormal() { bits & 0x8000_0000 } else { bits }
}

/// A function of the numbers in registers: of one number, or of both of a pair.
fn map<const N: usize>(
    ty: Type,
    rounding: Rounding,
    f: impl Fn([f64; N]) -> f64,
) -> Result<impl Fn([u64; N]) -> u64> {
    let (format, is_pair) = match ty {
        Type::Float(format) => (format, false),
        Type::Pair(format) => (format, true),
        _ => return Err(Unknown),
    };
    let half =
        move |values: [u64; N]| format.write(f(values.map(|bits| format.read(bits))), rounding);
    Ok(move |values: [u64; N]| {
        if is_pair {
            half(values.map(|bits| bits & 0xffff))
                | half(values.map(|bits| bits >> 16 & 0xffff)) << 16
        } else {
            half(values)
        }
    })
}

/// The function of an opcode.
pub(super) fn function(name: &str, words: &mut Words<'_>) -> Result<Function> {
    let (flushes, saturates) = (words.take("ftz"), words.take("sat"));
    let relu = words.take("relu");
    let rounding = words.rounding();
    let is_nan_kept = words.take("NaN");
    words.ignore(&["approx", "full"]);
    let ty = words.ty()?;
    if relu || (saturates && ty != Type::Float(Format::F32)) {
        return Err(Unknown);
    }
    let function = match ty {
        Type::Float(Format::F32) => match name {
            "min" | "max" if is_nan_kept => wide(name, ty, rounding, true)?,
            _ => f32_function(name, rounding)?,
        },
        _ => wide(name, ty, rounding, is_nan_kept)?,
    };
    let flushes_values = flushes && ty == Type::Float(Format::F32);
    Ok(if flushes_values || saturates {
        with_flush_and_clamp(function, flushes_values, saturates)
    } else {
        function
    })
}

/// A function of binary32 whose subnormal inputs and outputs are flushed to zero if `flushes`, and whose output is
/// clamped to the range from zero to one if `saturates`.
fn with_flush_and_clamp(function: Function, flushes: bool, saturates: bool) -> Function {
    let before = move |value: u64| if flushes { flushed(value) } else { value };
    let after = move |value: u64| {
        let value = if flushes { flushed(value) } else { value };
        if saturates { saturated(value) } else { value }
    };
    match function {
        Function::One(f) => Function::One(Box::new(move |a| f(&a.map(before)).map(after))),
        Function::Two(f) => {
            Function::Two(Box::new(move |a, b| f(&a.map(before), &b.map(before)).map(after)))
        }
        Function::Three(f) => Function::Three(Box::new(move |a, b, c| {
            f(&a.map(before), &b.map(before), &c.map(before)).map(after)
        })),
        Function::Four(f) => Function::Four(f),
    }
}

/// The number clamped to zero to one; zero for NaN.
pub(super) fn saturated(value: u64) -> u64 {
    let value = single(value);
    if value.is_nan() { 0 } else { bits(value.clamp(0.0, 1.0) + 0.0) }
}

/// The functions of binary32, the most frequent type.
fn f32_function(name: &str, rounding: Rounding) -> Result<Function> {
    let is_nearest = rounding == Rounding::NearestEven;
    Ok(match name {
        "add" if is_nearest => two(|a, b| bits(single(a) + single(b))),
        "sub" if is_nearest => two(|a, b| bits(single(a) - single(b))),
        "mul" if is_nearest => two(|a, b| bits(single(a) * single(b))),
        "fma" | "mad" if is_nearest => {
            three(|a, b, c| bits(single(a).mul_add(single(b), single(c))))
        }
        "add" => two(move |a, b| bits(fma(single(a), 1.0, single(b), rounding))),
        "sub" => two(move |a, b| bits(fma(single(b), -1.0, single(a), rounding))),
        "mul" => two(move |a, b| bits(fma(single(a), single(b), 0.0, rounding))),
        "fma" | "mad" => three(move |a, b, c| bits(fma(single(a), single(b), single(c), rounding))),
        "min" => two(|a, b| bits(least(single(a), single(b)))),
        "max" => two(|a, b| bits(-least(-single(a), -single(b)))),
        "neg" => one(|a| a & 0xffff_ffff ^ 0x8000_0000),
        "abs" => one(|a| a & 0x7fff_ffff),
        "copysign" => two(|a, b| a & 0x8000_0000 | b & 0x7fff_ffff),
        "div" if is_nearest => two(|a, b| bits(single(a) / single(b))),
        "sqrt" if is_nearest => one(|a| bits(single(a).sqrt())),
        "rcp" if is_nearest => one(|a| bits(1.0 / single(a))),
        _ if is_nearest => return wide(name, Type::Float(Format::F32), rounding, false),
        _ => return Err(Unknown),
    })
}

/// The lesser of two numbers, where negative zero is less than positive zero. If one is NaN, the other number.
fn least(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        return b;
    }
    if b.is_nan() || a < b || (a == 0.0 && b == 0.0 && a.is_sign_negative()) { a } else { b }
}

/// The functions of all formats, computed in binary64.
fn wide(name: &str, ty: Type, rounding: Rounding, is_nan_kept: bool) -> Result<Function> {
    let one_of = |f: fn(f64) -> f64| -> Result<Function> {
        let f = map(ty, rounding, move |[a]: [f64; 1]| f(a))?;
        Ok(one(move |a| f([a])))
    };
    let two_of = |f: fn(f64, f64) -> f64| -> Result<Function> {
        let f = map(ty, rounding, move |[a, b]: [f64; 2]| {
            if is_nan_kept && (a.is_nan() || b.is_nan()) { f64::NAN } else { f(a, b) }
        })?;
        Ok(two(move |a, b| f([a, b])))
    };
    let three_of = |f: fn(f64, f64, f64) -> f64| -> Result<Function> {
        let f = map(ty, rounding, move |[a, b, c]: [f64; 3]| f(a, b, c))?;
        Ok(three(move |a, b, c| f([a, b, c])))
    };
    if ty == Type::Float(Format::F64) && rounding != Rounding::NearestEven {
        return Err(Unknown);
    }
    match name {
        "add" => two_of(|a, b| a + b),
        "sub" => two_of(|a, b| a - b),
        "mul" => two_of(|a, b| a * b),
        "div" => two_of(|a, b| a / b),
        "fma" | "mad" => three_of(f64::mul_add),
        "min" => two_of(f64::min),
        "max" => two_of(f64::max),
        "neg" => one_of(|a| -a),
        "abs" => one_of(f64::abs),
        "copysign" => two_of(|a, b| b.copysign(a)),
        "sqrt" => one_of(f64::sqrt),
        "rcp" => one_of(f64::recip),
        "rsqrt" => one_of(|a| a.sqrt().recip()),
        "ex2" => one_of(f64::exp2),
        "lg2" => one_of(f64::log2),
        "sin" => one_of(f64::sin),
        "cos" => one_of(f64::cos),
        "tanh" => one_of(f64::tanh),
        _ => Err(Unknown),
    }
}
