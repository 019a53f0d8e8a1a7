//! Warp-synchronous operations.

use super::access::{self, WarpPosition};
use super::fragment::{self, Fragment};
use super::lanes::{Lanes, Mask, WIDTH, lanes};
use super::program::{Address, Register, Shuffle, Space, Together, Vote};
use super::registers::Registers;
use super::space::{Global, Memories};

/// Reason why an operation fails.
pub(super) enum Failed {
    Misuse(&'static str),
    Access(access::Failed),
}

/// Executes an operation in the lanes of a mask.
pub(super) fn act<G: Global>(
    warp: &mut Registers,
    what: &Together,
    mask: Mask,
    memories: &mut Memories<'_, G>,
    place: WarpPosition,
) -> Result<(), Failed> {
    let needs_all = matches!(
        what,
        Together::LoadFragment { .. }
            | Together::StoreFragment { .. }
            | Together::Multiply { .. }
            | Together::LoadRows { .. }
    );
    if needs_all && mask != Mask::MAX {
        return Err(Failed::Misuse("a warp works on a matrix without all of its threads"));
    }
    match what {
        Together::Wait => {}
        Together::Shuffle { mode, dest, is_valid, value, by, clamp } => {
            let (values, by, clamp) = (*warp.get(*value), *warp.get(*by), *warp.get(*clamp));
            let from: [(usize, bool); WIDTH] =
                std::array::from_fn(|lane| source(*mode, lane, by[lane], clamp[lane]));
            if lanes(mask).any(|lane| mask >> from[lane].0 & 1 == 0) {
                return Err(Failed::Misuse("a lane takes a value of one that does not take part"));
            }
            warp.set_some(*dest, &from.map(|(from, _)| values[from]), mask);
            if let Some(is_valid) = is_valid {
                warp.set_some(*is_valid, &from.map(|(_, valid)| u64::from(valid)), mask);
            }
        }
        Together::Vote { mode, dest, predicate } => {
            let values = vote(*mode, warp.get(*predicate), mask);
            warp.set_some(*dest, &values, mask);
        }
        Together::Reduce { change, dest, value } => {
            let values = warp.get(*value);
            let all = lanes(mask).map(|lane| values[lane]).reduce(|a, b| change(a, b, 0));
            warp.set_some(*dest, &[all.unwrap_or(0); WIDTH], mask);
        }
        Together::Elect { dest, is_elected } => {
            let first = mask.trailing_zeros() as usize;
            if let Some(dest) = dest {
                warp.set_some(*dest, &[first as u64; WIDTH], mask);
            }
            let values = std::array::from_fn(|lane| u64::from(lane == first));
            warp.set_some(*is_elected, &values, mask);
        }
        Together::LoadFragment { fragment, space, dests, at, stride } => {
            let matrix = Matrix { fragment, space: *space, at, stride: *stride };
            matrix.load(warp, dests, memories, place).map_err(Failed::Access)?;
        }
        Together::StoreFragment { fragment, space, sources, at, stride } => {
            let matrix = Matrix { fragment, space: *space, at, stride: *stride };
            matrix.store(warp, sources, memories, place).map_err(Failed::Access)?;
        }
        Together::Multiply { what, d, a, b, c } => {
            let get = |registers: &[Register]| -> Vec<Lanes> {
                registers.iter().map(|register| *warp.get(*register)).collect()
            };
            let results = what.compute([&get(a), &get(b), &get(c)]);
            for (register, values) in d.iter().zip(results) {
                warp.set(*register, values);
            }
        }
        Together::LoadRows { space, is_transposed, dests, at } => {
            load_rows(warp, (*space, at), *is_transposed, dests, memories, place)
                .map_err(Failed::Access)?;
        }
    }
    Ok(())
}

/// A matrix in memory, whose elements the lanes hold in registers.
struct Matrix<'a> {
    fragment: &'a Fragment,
    space: Space,
    at: &'a Address,
    stride: Register,
}

impl Matrix<'_> {
    /// The address of a lane's element.
    fn place(&self, warp: &Registers, lane: usize, index: usize) -> (Space, u64) {
        let (row, column) = self.fragment.place(lane, index);
        let stride = warp.get(self.stride)[lane] as u32 as usize;
        let (long, short) = if self.fragment.is_by_rows { (row, column) } else { (column, row) };
        let offset = (long * stride + short) * self.fragment.element.bytes();
        let (space, start) = warp.resolve(self.space, self.at, lane);
        (space, start + offset as u64)
    }

    fn load<G: Global>(
        &self,
        warp: &mut Registers,
        dests: &[Register],
        memories: &mut Memories<'_, G>,
        at: WarpPosition,
    ) -> Result<(), access::Failed> {
        let bytes = self.fragment.element.bytes();
        for lane in 0..WIDTH {
            let mut elements = Vec::with_capacity(self.fragment.per_lane);
            for index in 0..self.fragment.per_lane {
                let place = self.place(warp, lane, index);
                elements.push(access::load(memories, place, bytes, lane, at)?);
            }
            let words = fragment::pack(self.fragment.element, &elements);
            for (register, word) in dests.iter().zip(words) {
                warp.set_lane(*register, lane, word);
            }
        }
        Ok(())
    }

    fn store<G: Global>(
        &self,
        warp: &Registers,
        sources: &[Register],
        memories: &mut Memories<'_, G>,
        at: WarpPosition,
    ) -> Result<(), access::Failed> {
        let bytes = self.fragment.element.bytes();
        for lane in 0..WIDTH {
            let words = sources.iter().map(|register| warp.get(*register)[lane]);
            for (index, element) in fragment::unpack(self.fragment.element, words).enumerate() {
                let place = self.place(warp, lane, index);
                access::store(memories, place, bytes, element, lane, at)?;
            }
        }
        Ok(())
    }
}

/// `ldmatrix`: each group of eight lanes gives the row addresses of a matrix of 8 x 8 16-bit numbers. Each lane gets
/// two numbers of each matrix.
fn load_rows<G: Global>(
    warp: &mut Registers,
    (space, at): (Space, &Address),
    is_transposed: bool,
    dests: &[Register],
    memories: &mut Memories<'_, G>,
    place: WarpPosition,
) -> Result<(), access::Failed> {
    const ROW_BYTES: usize = 16;
    for (matrix, dest) in dests.iter().enumerate() {
        let mut rows = [[0_u64; 8]; 8];
        for (row, numbers) in rows.iter_mut().enumerate() {
            let lane = 8 * matrix + row;
            let start = warp.resolve(space, at, lane);
            access::Failed::aligned("reads", start, ROW_BYTES, lane)?;
            for (column, number) in numbers.iter_mut().enumerate() {
                let own = (start.0, start.1 + 2 * column as u64);
                *number = access::load(memories, own, 2, lane, place)?;
            }
        }
        let number = |lane: usize, index: usize| {
            let (row, column) = (lane / 4, 2 * (lane % 4) + index);
            if is_transposed { rows[column][row] } else { rows[row][column] }
        };
        warp.set(*dest, std::array::from_fn(|lane| number(lane, 0) | number(lane, 1) << 16));
    }
    Ok(())
}

/// The source lane of a shuffle, and whether it is within the lane's segment of the warp.
///
/// # Source
///
/// NVIDIA, *PTX ISA* 8.8, section 9.7.9.6, "shfl.sync".
fn source(mode: Shuffle, lane: usize, by: u64, clamp: u64) -> (usize, bool) {
    let (by, clamp, parts) = (by as usize & 31, clamp as usize & 31, clamp as usize >> 8 & 31);
    let most = (lane & parts) | (clamp & !parts);
    let (from, is_valid) = match mode {
        Shuffle::Up => (lane.wrapping_sub(by), lane >= by && lane - by >= most),
        Shuffle::Down => (lane + by, lane + by <= most),
        Shuffle::Butterfly => (lane ^ by, lane ^ by <= most),
        Shuffle::Index => {
            let from = (lane & parts) | (by & !parts);
            (from, from <= most)
        }
    };
    if is_valid { (from, true) } else { (lane, false) }
}

fn vote(mode: Vote, values: &Lanes, mask: Mask) -> Lanes {
    let set =
        lanes(mask).filter(|lane| values[*lane] & 1 == 1).fold(0, |all, lane| all | 1 << lane);
    let result = match mode {
        Vote::All => u64::from(set == mask),
        Vote::Any => u64::from(set != 0),
        Vote::Uniform => u64::from(set == mask || set == 0),
        Vote::Ballot => u64::from(set),
        Vote::MatchAny => {
            let same = |lane: usize| {
                let is_same = |other: &usize| values[*other] == values[lane];
                lanes(mask).filter(is_same).fold(0_u64, |all, lane| all | 1 << lane)
            };
            return std::array::from_fn(same);
        }
    };
    [result; WIDTH]
}
