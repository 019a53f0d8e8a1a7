//! Literals of PTX.

use crate::compute::lanes::signed;

/// The bits of a numeric literal.
pub(super) fn number(text: &str) -> Option<u64> {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    if let Some(digits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return hex(digits).filter(|_| digits.len() == 8);
    }
    if let Some(digits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return hex(digits).filter(|_| digits.len() == 16);
    }
    integer(text)
}

/// The bits of an integer literal.
pub(super) fn integer(text: &str) -> Option<u64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let digits = digits.trim_end_matches('U');
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => {
            u64::from_str_radix(digits, 8).ok()?
        }
        None => digits.parse().ok()?,
    };
    Some(if sign < 0 { signed(magnitude, 64).wrapping_neg().cast_unsigned() } else { magnitude })
}
