//! Lengths of a kernel's buffers, from the metadata that CubeCL 0.10 passes to kernels.
//!
//! CubeCL cuts buffers out of large pages, so the driver's own allocations do not show where a buffer ends. But each
//! kernel gets a structure with the lengths. Its content is, in this order (`cubecl-core`, `info.rs` and
//! `codegen/metadata.rs`): scalars, each padded to eight bytes; then words of four bytes, or of eight in kernels with
//! large buffers:
//!
//! ```text
//! buffer_lengths [buffers]    in what the kernel reads or writes at once
//! lengths        [buffers]
//! ranks          [tensors]
//! shape_offsets  [tensors]    0, then the sums of the ranks before
//! stride_offsets [tensors]    the sum of all ranks, and the same
//! ```
//!
//! The structure does not contain the numbers of scalars and tensors, but they follow from the offsets. If there are
//! tensors, the kernel gets one more address, the last, which is that of their shapes and strides.

use crate::number::word;

/// Lengths in the structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Length of each buffer, in the vectors that the kernel reads or writes.
    pub buffers: Vec<u64>,
    /// Bytes of shapes and strides, if their address comes last.
    pub shapes_bytes: Option<u64>,
}

/// Padding of the structure's parts in bytes.
const ALIGN: usize = 8;

/// Upper bound of the number of dimensions, exclusive.
const MOST_DIMS: u64 = 16;

impl Lengths {
    /// The lengths for a kernel with this many addresses; none if the structure is not CubeCL's.
    pub fn read(info: &[u8], num_addresses: usize) -> Option<Self> {
        [4, 8].into_iter().find_map(|word| {
            let words = Words { info, word };
            let with_tensors = num_addresses.checked_sub(1).and_then(|num_buffers| {
                (1..=num_buffers).find_map(|tensors| words.with_tensors(num_buffers, tensors))
            });
            with_tensors.or_else(|| words.without_tensors(num_addresses))
        })
    }
}

/// The structure as words of 4 or 8 bytes.
struct Words<'a> {
    info: &'a [u8],
    word: usize,
}

impl Words<'_> {
    /// The last words of the structure, without padding.
    fn last(&self, count: usize) -> Option<Vec<u64>> {
        let bytes = (count * self.word).next_multiple_of(ALIGN);
        let start = self.info.len().checked_sub(bytes)?;
        let words = self.info[start..].chunks_exact(self.word).take(count);
        Some(words.map(word).collect())
    }

    fn with_tensors(&self, buffers: usize, tensors: usize) -> Option<Lengths> {
        let words = self.last(2 * buffers + 3 * tensors)?;
        let (lengths, extended) = words.split_at(2 * buffers);
        let (ranks, offsets) = extended.split_at(tensors);
        let (shapes, strides) = offsets.split_at(tensors);
        let all: u64 = ranks.iter().sum();
        let mut sum = 0;
        for ((rank, shape), stride) in ranks.iter().zip(shapes).zip(strides) {
            if !(1..MOST_DIMS).contains(rank) || *shape != sum || *stride != all + sum {
                return None;
            }
            sum += rank;
        }
        let shapes_bytes = Some(2 * all * self.word as u64);
        Some(Lengths { buffers: lengths[..buffers].to_vec(), shapes_bytes })
    }

    fn without_tensors(&self, buffers: usize) -> Option<Lengths> {
        let words = self.last(2 * buffers)?;
        let (own, used) = words.split_at(buffers);
        // The used part of a buffer is not longer than the buffer.
        let is_sound = own.iter().zip(used).all(|(own, used)| used <= own && *own < 1 << 48);
        is_sound.then(|| Lengths { buffers: own.to_vec(), shapes_bytes: None })
    }
}

#[cfg(test)]
mod tests {
    use super::Lengths;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn arrays_have_lengths_alone() {
        // Two scalars, three arrays.
        let info = bytes(&[7, 0, 9, 0, 64, 32, 16, 64, 32, 16]);
        let expected = Lengths { buffers: vec![64, 32, 16], shapes_bytes: None };
        assert_eq!(Lengths::read(&info, 3), Some(expected));
    }

    #[test]
    fn tensors_have_shapes_behind_the_last_address() {
        // A scalar, an array, and tensors of two and three dimensions; filled up by a word.
        let info = bytes(&[7, 0, 8, 6, 24, 8, 6, 24, 2, 3, 0, 2, 5, 7]);
        let expected = Lengths { buffers: vec![8, 6, 24], shapes_bytes: Some(40) };
        assert_eq!(Lengths::read(&info, 4), Some(expected));
    }

    #[test]
    fn words_may_have_eight_bytes() {
        let info: Vec<u8> =
            [5_u64, 5, 2, 0, 2].iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected = Lengths { buffers: vec![5], shapes_bytes: Some(32) };
        assert_eq!(Lengths::read(&info, 2), Some(expected));
    }

    #[test]
    fn other_structures_say_nothing() {
        assert_eq!(Lengths::read(&[], 1), None);
        assert_eq!(Lengths::read(&bytes(&[1, 2]), 2), None);
    }
}
