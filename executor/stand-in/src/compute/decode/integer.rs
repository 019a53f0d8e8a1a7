//! Functions of integers and bits.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA* 8.8, sections 9.7.1 and 9.7.8.

use super::unknown::{Result, Unknown};
use super::words::Words;
use crate::compute::function::{Function, four, one, three, two};
use crate::compute::lanes::{ones, signed};

/// The function of an opcode, for the type among its words.
pub(super) fn function(name: &str, words: &mut Words<'_>) -> Result<Function> {
    let ty = words.ty()?;
    let (bits, all, has_sign) = (ty.bits(), ones(ty.bits()), ty.is_signed());
    let number =
        move |value: u64| if has_sign { signed(value, bits) } else { (value & all).cast_signed() };
    Ok(match name {
        "add" => two(move |a, b| a.wrapping_add(b) & all),
        "sub" => two(move |a, b| a.wrapping_sub(b) & all),
        "mul" | "mad" => return product(name, words, bits, has_sign),
        "mul24" | "mad24" => return Err(Unknown),
        "div" => two(move |a, b| divide(number(a), number(b), (bits, has_sign)).0 & all),
        "rem" => two(move |a, b| divide(number(a), number(b), (bits, has_sign)).1 & all),
        "min" if has_sign => two(move |a, b| if number(a) < number(b) { a & all } else { b & all }),
        "max" if has_sign => two(move |a, b| if number(a) > number(b) { a & all } else { b & all }),
        "min" => two(move |a, b| (a & all).min(b & all)),
        "max" => two(move |a, b| (a & all).max(b & all)),
        "abs" => one(move |a| number(a).unsigned_abs() & all),
        "neg" => one(move |a| a.wrapping_neg() & all),
        "and" => two(|a, b| a & b),
        "or" => two(|a, b| a | b),
        "xor" => two(|a, b| a ^ b),
        "not" => one(move |a| !a & all),
        "cnot" => one(move |a| u64::from(a & all == 0)),
        "shl" => two(move |a, by| shift(by, bits).map_or(0, |by| a << by & all)),
        "shr" if has_sign => two(move |a, by| {
            (number(a) >> shift(by, bits).unwrap_or(bits - 1)).cast_unsigned() & all
        }),
        "shr" => two(move |a, by| shift(by, bits).map_or(0, |by| (a & all) >> by)),
        "popc" => one(move |a| u64::from((a & all).count_ones())),
        "clz" => one(move |a| u64::from((a & all).leading_zeros() - (64 - bits))),
        "brev" => one(move |a| (a & all).reverse_bits() >> (64 - bits)),
        "bfe" => three(move |a, start, len| extract(a, start, len, bits, has_sign) & all),
        "bfi" => four(move |part, whole, start, len| {
            let (start, len) = (start & 0xff, (len & 0xff) as u32);
            let place = if start >= 64 { 0 } else { ones(len) << start & all };
            let part = if start >= 64 { 0 } else { part << start };
            whole & all & !place | part & place
        }),
        "lop3" => {
            return Ok(four(move |a, b, c, table| {
                (0..8).filter(|row| table >> row & 1 == 1).fold(0, |result, row| {
                    let pick =
                        |value: u64, bit: u64| if row >> bit & 1 == 1 { value } else { !value };
                    result | pick(a, 2) & pick(b, 1) & pick(c, 0) & all
                })
            }));
        }
        "prmt" => three(|a, b, order| {
            let bytes = b << 32 | a & 0xffff_ffff;
            (0..4).fold(0, |result, index| {
                let pick = order >> (4 * index) & 0xf;
                let byte = bytes >> (8 * (pick & 7)) & 0xff;
                let byte = if pick & 8 == 0 { byte } else { 0xff * (byte >> 7) };
                result | byte << (8 * index)
            })
        }),
        "shf" => return funnel(words),
        _ => return Err(Unknown),
    })
}

/// The shift distance; none if no bit is left.
fn shift(by: u64, bits: u32) -> Option<u32> {
    let by = by as u32;
    (by < bits).then_some(by)
}

/// Quotient and remainder. CUDA does not define a division by zero; here it sets all bits.
fn divide(a: i64, b: i64, (bits, has_sign): (u32, bool)) -> (u64, u64) {
    if b == 0 {
        return (u64::MAX, u64::MAX);
    }
    if has_sign || bits < 64 {
        return (a.wrapping_div(b).cast_unsigned(), a.wrapping_rem(b).cast_unsigned());
    }
    let (a, b) = (a.cast_unsigned(), b.cast_unsigned());
    (a / b, a % b)
}

/// `mul` and `mad`: the lower half of a product, its upper half, or all of it.
fn product(name: &str, words: &mut Words<'_>, bits: u32, has_sign: bool) -> Result<Function> {
    let part = words.one_of(&["lo", "hi", "wide"]).ok_or(Unknown)?;
    let all = ones(bits);
    let number = move |value: u64| {
        if has_sign { i128::from(signed(value, bits)) } else { i128::from(value & all) }
    };
    let adds = name == "mad";
    Ok(match (part, adds) {
        ("lo", false) => two(move |a, b| a.wrapping_mul(b) & all),
        ("lo", true) => three(move |a, b, c| a.wrapping_mul(b).wrapping_add(c) & all),
        ("wide", false) if bits <= 32 && !has_sign => two(move |a, b| (a & all) * (b & all)),
        ("wide", false) if bits <= 32 => {
            two(move |a, b| (signed(a, bits) * signed(b, bits)).cast_unsigned() & ones(2 * bits))
        }
        ("wide", true) if bits <= 32 => {
            three(move |a, b, c| ((number(a) * number(b)) as u64).wrapping_add(c) & ones(2 * bits))
        }
        ("hi", false) => {
            two(move |a, b| ((number(a).wrapping_mul(number(b))) >> bits) as u64 & all)
        }
        ("hi", true) => three(move |a, b, c| {
            (((number(a).wrapping_mul(number(b))) >> bits) as u64).wrapping_add(c) & all
        }),
        _ => return Err(Unknown),
    })
}

/// `bfe`: a bit field, sign-extended if the type is signed.
fn extract(a: u64, start: u64, len: u64, bits: u32, has_sign: bool) -> u64 {
    let (start, len, a) = ((start & 0xff) as u32, (len & 0xff) as u32, a & ones(bits));
    let last = (start + len).saturating_sub(1).min(bits - 1);
    let is_negative = has_sign && len > 0 && a >> last & 1 == 1;
    let field = if start >= bits { 0 } else { a >> start & ones(len) };
    let have = bits.saturating_sub(start).min(len);
    if is_negative { field | !ones(have) } else { field }
}

/// `shf`: a funnel shift of two registers.
fn funnel(words: &mut Words<'_>) -> Result<Function> {
    let is_left = words.one_of(&["l", "r"]).ok_or(Unknown)? == "l";
    let wraps = words.one_of(&["wrap", "clamp"]).ok_or(Unknown)? == "wrap";
    Ok(three(move |low, high, by| {
        let by = if wraps { by & 31 } else { (by & 0xffff_ffff).min(32) };
        let both = high << 32 | low & 0xffff_ffff;
        let result = if is_left { (u128::from(both) << by >> 32) as u64 } else { both >> by };
        result & 0xffff_ffff
    }))
}
