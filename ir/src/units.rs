//! Quantities with their units in their types, and only the operators that units permit.
//!
//! Memory is counted, so [`Bytes`] is an exact integer. Work is measured, so [`Flops`] is a float:
//! a 1T-parameter model on 6M tokens takes 3.8e19, which a `u64` cannot hold.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A number of bytes, exact. Prints in GiB, MiB or KiB.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// The size in GiB (2^30 bytes).
    pub fn as_gib(self) -> f64 {
        self.as_f64() / f64::from(1u32 << 30)
    }

    /// The nearest whole number of bytes to `count`, which must not be negative.
    pub fn from_f64(count: f64) -> Self {
        Self(count.round() as u64)
    }

    /// Size of the largest of `parts` equal shards of these bytes.
    pub const fn shard(self, parts: u64) -> Self {
        Self(self.0.div_ceil(parts))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.as_f64();
        let text = match self.0 {
            0..0x400 => format!("{} B", self.0),
            0x400..0x10_0000 => format!("{:.1} KiB", value / 1024.0),
            0x10_0000..0x4000_0000 => format!("{:.1} MiB", value / 1024.0 / 1024.0),
            _ => format!("{:.2} GiB", self.as_gib()),
        };
        f.pad(&text)
    }
}

/// Defines the operators of a counted quantity. Sums and products saturate; a negative difference is a bug.
macro_rules! counted_quantity {
    ($name:ident) => {
        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// A quantity of `count` units.
            pub const fn new(count: u64) -> Self {
                Self(count)
            }

            /// Number of units.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Number of units as a float, for rates and ratios.
            pub fn as_f64(self) -> f64 {
                self.0 as f64
            }

            /// The difference, or zero where `other` is larger.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                debug_assert!(self >= other, "what is counted is not negative");
                self.saturating_sub(other)
            }
        }

        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, factor: u64) -> Self {
                Self(self.0.saturating_mul(factor))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

counted_quantity!(Bytes);
counted_quantity!(Nanos);

/// A time or duration in a timeline: whole nanoseconds, so that sums are exact and independent of order. Prints like
/// [`Seconds`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(u64);

impl From<Nanos> for Seconds {
    fn from(time: Nanos) -> Self {
        Self(time.as_f64() * 1e-9)
    }
}

impl From<Seconds> for Nanos {
    /// Rounds to the nearest whole number; zero for negative numbers and NaN.
    fn from(time: Seconds) -> Self {
        Self((time.0 * 1e9).round() as u64)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Seconds::from(*self).fmt(f)
    }
}

/// Defines a float quantity: its constructor, accessor and the operators that every quantity has.
macro_rules! float_quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(f64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0.0);

            #[doc = concat!("`value` ", $unit, ".")]
            pub const fn new(value: f64) -> Self {
                Self(value)
            }

            #[doc = concat!("The number of ", $unit, ".")]
            pub const fn get(self) -> f64 {
                self.0
            }

            /// The larger of the two.
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// The smaller of the two.
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }

            /// A total order, so that sorting results cannot panic.
            pub fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }

        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }

        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

float_quantity!(
    /// Floating-point operations; a fused multiply-add counts as two.
    Flops,
    "floating-point operations"
);
float_quantity!(
    /// A duration in formulas. Timelines use integer nanoseconds instead.
    Seconds,
    "seconds"
);
float_quantity!(
    /// A bandwidth: one direction, per rank, unless a name says otherwise.
    BytesPerSecond,
    "bytes per second"
);
float_quantity!(
    /// A rate of computation.
    FlopsPerSecond,
    "floating-point operations per second"
);

impl Seconds {
    /// A difference of times, with its sign.
    pub fn signed(self) -> String {
        let sign = if self.0 < 0.0 { '-' } else { '+' };
        format!("{sign}{}", Self(self.0.abs()))
    }
}

impl Div<BytesPerSecond> for Bytes {
    type Output = Seconds;
    fn div(self, bandwidth: BytesPerSecond) -> Seconds {
        Seconds(self.as_f64() / bandwidth.0)
    }
}

impl Div<FlopsPerSecond> for Flops {
    type Output = Seconds;
    fn div(self, rate: FlopsPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<Seconds> for Flops {
    type Output = FlopsPerSecond;
    fn div(self, time: Seconds) -> FlopsPerSecond {
        FlopsPerSecond(self.0 / time.0)
    }
}

impl Div<Seconds> for Bytes {
    type Output = BytesPerSecond;
    fn div(self, time: Seconds) -> BytesPerSecond {
        BytesPerSecond(self.as_f64() / time.0)
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0.abs() {
            0.0 => "0 s".to_owned(),
            t if t < 1e-3 => format!("{:.1} us", self.0 * 1e6),
            t if t < 1.0 => format!("{:.2} ms", self.0 * 1e3),
            _ => format!("{:.2} s", self.0),
        };
        f.pad(&text)
    }
}

/// Prints three digits of `value`, with the decimal prefix that leaves one to three of the digits before the point.
fn write_decimal(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    const PREFIXES: [(f64, &str); 6] =
        [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) =
        PREFIXES.into_iter().find(|(scale, _)| value.abs() >= 0.9995 * scale).unwrap_or((1.0, ""));
    let scaled = value / scale;
    let decimals = match scaled.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    f.pad(&format!("{scaled:.decimals$} {prefix}{unit}"))
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, "FLOP")
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, "B/s")
    }
}

impl fmt::Display for FlopsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, "FLOP/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_with_their_units() {
        assert_eq!(Bytes::new(80 << 30).to_string(), "80.00 GiB");
        assert_eq!(Seconds::new(0.001_04).to_string(), "1.04 ms");
        assert_eq!(BytesPerSecond::new(450e9).to_string(), "450 GB/s");
        assert_eq!(FlopsPerSecond::new(989e12).to_string(), "989 TFLOP/s");
        assert_eq!(Flops::new(3.8e19).to_string(), "38.0 EFLOP");
    }

    #[test]
    fn a_size_over_a_bandwidth_is_a_time() {
        assert_eq!(Bytes::new(1000) / BytesPerSecond::new(500.0), Seconds::new(2.0));
        assert_eq!(Flops::new(10.0) / Seconds::new(2.0), FlopsPerSecond::new(5.0));
    }
}
