//! Values of one register in all threads of a warp.

/// Number of threads of a warp.
pub(super) const WIDTH: usize = 32;

/// The value of a register in each thread of a warp, as bits. A value of fewer than 64 bits is in the lower bits.
pub(super) type Lanes = [u64; WIDTH];

/// Threads of a warp, a bit each.
pub(super) type Mask = u32;

/// The lanes in a mask, ascending.
pub(super) fn lanes(mask: Mask) -> impl Iterator<Item = usize> {
    (0..WIDTH).filter(move |lane| mask >> lane & 1 == 1)
}

/// The threads in which a predicate is set.
pub(super) fn mask_of(predicate: &Lanes) -> Mask {
    predicate.iter().rev().fold(0, |mask, value| mask << 1 | (value & 1) as Mask)
}

/// A register that is one in the threads of a mask, and zero in the others.
pub(super) fn spread(mask: Mask) -> Lanes {
    std::array::from_fn(|lane| u64::from(mask >> lane & 1))
}

/// A number whose lower `bits` bits are set.
pub(super) fn ones(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The lower bits of a number, sign-extended.
pub(super) fn signed(value: u64, bits: u32) -> i64 {
    let unused = 64 - bits.min(64);
    (value << unused).cast_signed() >> unused
}
