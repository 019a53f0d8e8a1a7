//! Floating-point formats of GPUs, with exact rounding.
//!
//! # Source
//!
//! IEEE 754-2019, sections 3.4 and 4.3, for binary16, binary32 and binary64; NVIDIA, *PTX ISA* 8.8, section 5.2.3, for
//! `.bf16`, which is the upper half of binary32, and `.tf32`, which has the exponents of binary32 and ten fraction
//! bits.

/// Rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// `.rn`: to the nearest, ties to even.
    NearestEven,
    /// `.rna`: to the nearest, ties away from zero.
    NearestAway,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: downwards.
    Down,
    /// `.rp`: upwards.
    Up,
}

impl Rounding {
    /// `value` rounded to a whole number.
    pub fn to_whole(self, value: f64) -> f64 {
        match self {
            Self::NearestEven => value.round_ties_even(),
            Self::NearestAway => value.round(),
            Self::Zero => value.trunc(),
            Self::Down => value.floor(),
            Self::Up => value.ceil(),
        }
    }
}

/// A floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// binary32 without its last 13 bits.
    Tf32,
    /// binary32.
    F32,
    /// binary64.
    F64,
}

impl Format {
    /// Bytes of a number in memory.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Number of binary digits, least and greatest exponent.
    fn shape(self) -> (i32, i32, i32) {
        match self {
            Self::F16 => (11, -14, 15),
            Self::Bf16 => (8, -126, 127),
            Self::Tf32 => (11, -126, 127),
            Self::F32 => (24, -126, 127),
            Self::F64 => (53, -1022, 1023),
        }
    }

    /// The value of bits. All values are exact in binary64.
    pub fn read(self, bits: u64) -> f64 {
        match self {
            Self::F16 => read_half(bits as u16),
            Self::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
            Self::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits),
        }
    }

    /// The bits of a number, rounded.
    pub fn write(self, value: f64, rounding: Rounding) -> u64 {
        let value = if self == Self::F64 { value } else { self.round(value, rounding) };
        match self {
            Self::F16 => u64::from(write_half(value)),
            // NaN has all bits after the sign bit set.
            Self::Bf16 if value.is_nan() => 0x7fff,
            Self::F32 | Self::Tf32 if value.is_nan() => 0x7fff_ffff,
            Self::Bf16 => u64::from((value as f32).to_bits() >> 16),
            Self::Tf32 | Self::F32 => u64::from((value as f32).to_bits()),
            Self::F64 => value.to_bits(),
        }
    }

    /// The bits of an integer, rounded once.
    pub fn write_integer(self, value: i128, rounding: Rounding) -> u64 {
        // Integers have at most 64 bits: digits that binary64 cannot hold are replaced by one sticky bit, so that any
        // later rounding takes them into account (Boldo and Melquiond 2008, rounding to odd).
        let magnitude = value.unsigned_abs();
        let unused = 128 - magnitude.leading_zeros();
        let excess = unused.saturating_sub(53);
        let kept = magnitude >> excess << excess;
        let odd = if kept == magnitude { kept } else { kept | 1 << excess };
        let exact = odd as f64;
        self.write(if value < 0 { -exact } else { exact }, rounding)
    }

    /// The number rounded to the format.
    pub fn round(self, value: f64, rounding: Rounding) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        let (digits, least, greatest) = self.shape();
        let exponent = exponent(value).max(least);
        let quantum = power_of_two(exponent - (digits - 1));
        let scaled = value / quantum;
        let result = (rounding.to_whole(scaled) * quantum).copysign(value);
        let most = (2.0 - power_of_two(1 - digits)) * power_of_two(greatest);
        if result.abs() <= most {
            return result;
        }
        let is_inwards = match rounding {
            Rounding::NearestEven | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => value > 0.0,
            Rounding::Up => value < 0.0,
        };
        if is_inwards { most.copysign(value) } else { f64::INFINITY.copysign(value) }
    }
}

/// The exponent of the greatest power of two that is not greater than a number's magnitude.
fn exponent(value: f64) -> i32 {
    let field = ((value.to_bits() >> 52) & 0x7ff) as i32;
    // Subnormal numbers of binary64 are also below the least number of every other format.
    field.max(1) - 1023
}

/// Two to a power of at least -1074.
fn power_of_two(exponent: i32) -> f64 {
    if exponent < -1022 {
        return f64::from_bits(1 << (exponent + 1074));
    }
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

fn read_half(bits: u16) -> f64 {
    let (field, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match field {
        0 => fraction * power_of_two(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * power_of_two(field - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The bits of a number of binary16.
fn write_half(value: f64) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = u16::from(value.is_sign_negative()) << 15;
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | 0x7c00;
    }
    let field = (exponent(magnitude) + 15).max(0);
    if field == 0 {
        return sign | (magnitude / power_of_two(-24)) as u16;
    }
    let fraction = (magnitude / power_of_two(field - 25)) as u16 & 0x3ff;
    sign | (field as u16) << 10 | fraction
}

/// At most eight bytes as a little-endian number.
pub fn word(bytes: &[u8]) -> u64 {
    match bytes {
        [a, b, c, d] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
        _ => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        }
    }
}

/// `a b + c` in binary32, rounded once.
pub fn fma(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    if rounding == Rounding::NearestEven {
        return a.mul_add(b, c);
    }
    // The product is exact, and the error of the sum is known (Knuth, *The Art of Computer Programming* 2, section
    // 4.2.2, theorem B).
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let part = sum - product;
    let missing = (product - (sum - part)) + (c - part);
    round_sum(sum, missing, rounding)
}

/// A sum rounded to binary32, where `missing` is its error, less than a unit in the last place of binary64.
fn round_sum(sum: f64, missing: f64, rounding: Rounding) -> f32 {
    let rounded = Format::F32.round(sum, rounding) as f32;
    let is_exact = f64::from(rounded).to_bits() == sum.to_bits();
    if !is_exact || missing == 0.0 || !sum.is_finite() {
        return rounded;
    }
    match rounding {
        Rounding::Down if missing < 0.0 => rounded.next_down(),
        Rounding::Up if missing > 0.0 => rounded.next_up(),
        Rounding::Zero if missing < 0.0 && sum > 0.0 => rounded.next_down(),
        Rounding::Zero if missing > 0.0 && sum < 0.0 => rounded.next_up(),
        _ => rounded,
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, Rounding, fma};

    /// Every number of 16 bits is read and written as itself.
    #[test]
    fn numbers_of_16_bits_survive() {
        for format in [Format::F16, Format::Bf16] {
            for bits in 0..=u64::from(u16::MAX) {
                let value = format.read(bits);
                if !value.is_nan() {
                    assert_eq!(format.write(value, Rounding::NearestEven), bits, "{format:?}");
                    assert_eq!(format.write(value, Rounding::Down), bits, "{format:?}");
                }
            }
        }
        assert!((Format::F16.read(0x3555) - 0.333_251_953_125).abs() < f64::EPSILON);
        assert!((Format::F16.read(0x7bff) - 65_504.0).abs() < f64::EPSILON);
    }

    #[track_caller]
    fn check(format: Format, value: f64, rounding: Rounding, expected: f64) {
        let found = format.read(format.write(value, rounding));
        assert!(found.to_bits() == expected.to_bits(), "{value} to {found}, not {expected}");
    }

    #[test]
    fn what_falls_between_is_rounded_as_asked() {
        let (low, high) = (1.0, 1.0 + 1.0 / 128.0);
        let half = f64::midpoint(low, high);
        check(Format::Bf16, half, Rounding::NearestEven, low);
        check(Format::Bf16, half, Rounding::NearestAway, high);
        check(Format::Bf16, -half, Rounding::Down, -high);
        check(Format::Bf16, -half, Rounding::Zero, -low);
        check(Format::Bf16, half, Rounding::Up, high);
        check(Format::F16, 65_520.0, Rounding::NearestEven, f64::INFINITY);
        check(Format::F16, 65_519.0, Rounding::NearestEven, 65_504.0);
        check(Format::F16, 1e9, Rounding::Zero, 65_504.0);
        check(Format::F16, 2_f64.powi(-25), Rounding::NearestEven, 0.0);
        check(Format::F16, 2_f64.powi(-25), Rounding::Up, 2_f64.powi(-24));
        check(Format::Tf32, 1.0 + 2_f64.powi(-11), Rounding::NearestAway, 1.0 + 2_f64.powi(-10));
    }

    /// The processor rounds binary64 to binary32 itself.
    #[test]
    fn binary32_is_rounded_as_the_processor_does() {
        for bits in (0..=u64::MAX - 977).step_by(1_000_003 << 38) {
            let value = f64::from_bits(bits);
            if !value.is_nan() {
                let found = Format::F32.write(value, Rounding::NearestEven);
                assert_eq!(found, u64::from((value as f32).to_bits()), "{value:e}");
            }
        }
    }

    #[test]
    fn products_and_sums_are_rounded_once() {
        let tiny = 2_f32.powi(-80);
        assert_eq!(fma(1.0, 1.0, -tiny, Rounding::Down).to_bits(), 1_f32.next_down().to_bits());
        assert_eq!(fma(1.0, 1.0, tiny, Rounding::Up).to_bits(), 1_f32.next_up().to_bits());
        assert_eq!(fma(1.0, 1.0, tiny, Rounding::Down).to_bits(), 1_f32.to_bits());
        assert_eq!(fma(-1.0, 1.0, tiny, Rounding::Zero).to_bits(), (-1_f32).next_up().to_bits());
        assert_eq!(fma(3.0, 5.0, 0.5, Rounding::Down).to_bits(), 15.5_f32.to_bits());
    }
}
