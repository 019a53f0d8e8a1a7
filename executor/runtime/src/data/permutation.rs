//! Random permutations that take constant memory.

use executor_kernels::random::hash;

/// Where halves are wide, four rounds make a permutation that cannot be told from a random one (Luby and Rackoff 1988);
/// narrow halves need more rounds.
const ROUNDS: u64 = 8;

/// A random permutation of the numbers below `len`. Takes constant memory, and a time per number that does not depend
/// on `len`.
///
/// A Feistel network permutes all numbers of an even number of bits, of which there are at most four times `len`. A
/// number out of range goes through the network again until it is in range, which keeps the permutation one to one.
///
/// # Source
///
/// Black and Rogaway 2002, *Ciphers with Arbitrary Finite Domains*: the cycle-walking cipher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    len: u64,
    key: u64,
    half_bits: u32,
}

impl Permutation {
    /// The permutation of the numbers below `len`, which must not be zero, that `key` selects.
    pub(super) fn new(len: u64, key: u64) -> Self {
        assert!(len > 0, "nothing has no order");
        let bits = u64::BITS - (len - 1).leading_zeros();
        Self { len, key, half_bits: bits.div_ceil(2) }
    }

    /// The number at a place below `len`.
    pub(super) fn at(&self, place: u64) -> u64 {
        assert!(place < self.len, "place {place} is not below {}", self.len);
        let mut number = self.network(place);
        while number >= self.len {
            number = self.network(number);
        }
        number
    }

    /// The Feistel network over numbers of `2 half_bits` bits.
    fn network(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let halves = (number >> self.half_bits, number & mask);
        let (left, right) = (0..ROUNDS).fold(halves, |(left, right), round| {
            (right, left ^ (hash([self.key, round, right]) & mask))
        });
        left << self.half_bits | right
    }
}
