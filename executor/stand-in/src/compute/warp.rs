//! Execution of a program by the threads of a warp.

use super::access::{Failed, WarpPosition};
use super::fault::Fault;
use super::lanes::{Mask, WIDTH, lanes, mask_of};
use super::program::{Decoded, DecodedKernel, Operation, Register, Space, Together};
use super::registers::Registers;
use super::space::{Global, Memories};
use super::together;
use crate::number::word;
use crate::recording::Usage;

/// Upper bound of the number of instructions of a warp in a block: far more than any kernel of the executor needs.
const MOST_INSTRUCTIONS: u64 = 200_000_000;

/// A warp of a block.
pub(super) struct Warp {
    pub(super) registers: Registers,
    /// Next instruction of each thread.
    places: [usize; WIDTH],
    /// Threads that have not ended.
    alive: Mask,
    /// Threads that wait at a barrier of the block.
    at_barrier: Mask,
    /// The barrier at which each of these threads waits, and the number of threads that the barrier needs; zero if it
    /// needs all threads.
    barriers: [(u64, u64); WIDTH],
    /// Threads that wait for others of their warp.
    waiting: Mask,
    /// Number of executed instructions.
    count: u64,
}

/// Continuation after an instruction.
enum Next {
    /// The next instruction.
    On,
    /// A branch target, for all threads.
    At(usize),
    /// The threads have diverged.
    Parted,
}

impl Warp {
    pub(super) fn new(program: &DecodedKernel) -> Self {
        let registers = Registers::new(program);
        let (places, barriers) = ([0; WIDTH], [(0, 0); WIDTH]);
        Self { registers, places, alive: 0, at_barrier: 0, barriers, waiting: 0, count: 0 }
    }

    /// Puts threads at the start of the program.
    pub(super) fn start(&mut self, threads: Mask) {
        self.places = [0; WIDTH];
        (self.alive, self.at_barrier, self.waiting, self.count) = (threads, 0, 0, 0);
    }

    pub(super) fn num_alive(&self) -> u32 {
        self.alive.count_ones()
    }

    /// The instruction at which a thread waits, if one does.
    pub(super) fn where_it_waits(&self) -> Option<usize> {
        let stuck = if self.waiting == 0 { self.at_barrier } else { self.waiting };
        lanes(stuck).next().map(|lane| self.places[lane])
    }

    /// The barriers at which threads wait, and the numbers of threads that the barriers need.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = (u64, u64)> {
        lanes(self.at_barrier).map(|lane| self.barriers[lane])
    }

    /// Releases threads from a barrier.
    pub(super) fn pass(&mut self, id: u64) {
        for lane in lanes(self.at_barrier) {
            if self.barriers[lane].0 == id {
                self.at_barrier &= !(1 << lane);
                self.places[lane] += 1;
            }
        }
    }

    /// Executes until all threads have ended or wait.
    pub(super) fn run<G: Global>(
        &mut self,
        program: &DecodedKernel,
        memories: &mut Memories<'_, G>,
        place: WarpPosition,
    ) -> Result<(), Fault> {
        loop {
            let ready = self.alive & !self.at_barrier & !self.waiting;
            let Some(mut at) = lanes(ready).map(|lane| self.places[lane]).min() else {
                return Ok(());
            };
            let mask = lanes(ready)
                .filter(|lane| self.places[*lane] == at)
                .fold(0, |mask, lane| mask | 1 << lane);
            // The next instruction of the threads that are ahead, where both groups reconverge.
            let others = lanes(ready & !mask).map(|lane| self.places[lane]);
            let limit = others.min().unwrap_or(usize::MAX);
            loop {
                self.count += 1;
                let instruction = &program.instructions[at];
                if self.count > MOST_INSTRUCTIONS {
                    let instruction = instruction.text.clone();
                    return Err(Fault::Endless { block: place.block, instruction });
                }
                match self.step(instruction, at, mask, memories, place)? {
                    Next::On => at += 1,
                    Next::At(target) => at = target,
                    Next::Parted => break,
                }
                // Threads that branched back run until they reach the others.
                if at >= limit {
                    self.go(mask, at);
                    break;
                }
            }
        }
    }

    /// Sets the next instruction of threads.
    fn go(&mut self, mask: Mask, place: usize) {
        lanes(mask).for_each(|lane| self.places[lane] = place);
    }

    /// Executes the instruction at which some threads are.
    fn step<G: Global>(
        &mut self,
        instruction: &Decoded,
        at: usize,
        mask: Mask,
        memories: &mut Memories<'_, G>,
        place: WarpPosition,
    ) -> Result<Next, Fault> {
        let active = match instruction.guard {
            None => mask,
            Some((predicate, is_negated)) => {
                let set = mask_of(self.registers.get(predicate));
                mask & if is_negated { !set } else { set }
            }
        };
        if active == 0 {
            return Ok(Next::On);
        }
        match &instruction.operation {
            Operation::Compute { function, dest, sources } => {
                let values = self.registers.compute(function, sources);
                self.registers.set_some(*dest, &values, active);
            }
            Operation::Nothing => {}
            Operation::Branch(target) if active == mask => return Ok(Next::At(*target)),
            Operation::Branch(target) => {
                self.go(mask, at + 1);
                self.go(active, *target);
                return Ok(Next::Parted);
            }
            Operation::Exit => {
                self.go(mask, at + 1);
                self.alive &= !active;
                return Ok(Next::Parted);
            }
            Operation::Barrier { id, count } => {
                self.go(mask, at + 1);
                self.go(active, at);
                for lane in lanes(active) {
                    let count =
                        count.map_or(0, |count| self.registers.get(count)[lane] & 0xffff_ffff);
                    self.barriers[lane] = (self.registers.get(*id)[lane] & 0xffff_ffff, count);
                }
                self.at_barrier |= active;
                return Ok(Next::Parted);
            }
            Operation::Active(dest) => {
                self.registers.set_some(*dest, &[u64::from(active); WIDTH], active);
            }
            Operation::Together { members, what } => {
                return self.together(
                    *members,
                    what,
                    (at, mask, active),
                    instruction,
                    memories,
                    place,
                );
            }
            memory => self.access(memory, instruction, active, memories, place)?,
        }
        Ok(Next::On)
    }

    /// Executes a warp-synchronous operation, if all members have arrived.
    fn together<G: Global>(
        &mut self,
        members: Register,
        what: &Together,
        (at, mask, active): (usize, Mask, Mask),
        instruction: &Decoded,
        memories: &mut Memories<'_, G>,
        place: WarpPosition,
    ) -> Result<Next, Fault> {
        let same_place = |lane: &usize| self.places[*lane] == at;
        let before = lanes(self.waiting).filter(same_place).fold(0, |all, lane| all | 1 << lane);
        let arrived = active | before;
        let first = active.trailing_zeros() as usize;
        let wanted = self.registers.get(members)[first] as Mask & self.alive;
        self.go(mask, at + 1);
        if wanted & !arrived != 0 {
            self.go(active, at);
            self.waiting |= active;
            return Ok(Next::Parted);
        }
        together::act(&mut self.registers, what, arrived, memories, place).map_err(|fault| {
            match fault {
                together::Failed::Misuse(what) => {
                    let (block, instruction) = (place.block, instruction.text.clone());
                    Fault::Misuse { what, block, instruction }
                }
                together::Failed::Access(failed) => failed.fault(instruction, place),
            }
        })?;
        self.waiting &= !arrived;
        self.go(arrived, at + 1);
        Ok(Next::Parted)
    }

    /// Executes a memory access, one thread after the other.
    fn access<G: Global>(
        &mut self,
        operation: &Operation,
        instruction: &Decoded,
        active: Mask,
        memories: &mut Memories<'_, G>,
        place: WarpPosition,
    ) -> Result<(), Fault> {
        for lane in lanes(active) {
            self.access_one(operation, lane, memories, place)
                .map_err(|failed| failed.fault(instruction, place))?;
        }
        Ok(())
    }

    fn access_one<G: Global>(
        &mut self,
        operation: &Operation,
        lane: usize,
        memories: &mut Memories<'_, G>,
        at: WarpPosition,
    ) -> Result<(), Failed> {
        let thread = at.first_thread + lane;
        match operation {
            Operation::Load { space, bytes, is_signed, dests, at } => {
                let place = self.registers.resolve(*space, at, lane);
                let len = bytes * dests.len();
                let found = Failed::aligned("reads", place, len, lane)?;
                let found = memories.read(place, len, thread).ok_or(found)?;
                for (dest, part) in dests.iter().zip(found.chunks_exact(*bytes)) {
                    let value = word(part);
                    let value = if *is_signed {
                        super::lanes::signed(value, 8 * *bytes as u32).cast_unsigned()
                    } else {
                        value
                    };
                    self.registers.set_lane(*dest, lane, value);
                }
            }
            Operation::Store { space, bytes, sources, at } => {
                let place = self.registers.resolve(*space, at, lane);
                let len = bytes * sources.len();
                let failed = Failed::aligned("writes", place, len, lane)?;
                let found = memories.bytes(place, len, thread, Usage::Write).ok_or(failed)?;
                for (part, source) in found.chunks_exact_mut(*bytes).zip(sources) {
                    let value = self.registers.get(*source)[lane].to_le_bytes();
                    part.copy_from_slice(&value[..*bytes]);
                }
            }
            Operation::Atomic { space, bytes, change, dest, sources: [b, c], at } => {
                let place = self.registers.resolve(*space, at, lane);
                let failed = Failed::aligned("changes", place, *bytes, lane)?;
                let found =
                    memories.bytes(place, *bytes, thread, Usage::ReadWrite).ok_or(failed)?;
                let old = word(found);
                let new = change(old, self.registers.get(*b)[lane], self.registers.get(*c)[lane]);
                found.copy_from_slice(&new.to_le_bytes()[..*bytes]);
                if let Some(dest) = dest {
                    self.registers.set_lane(*dest, lane, old);
                }
            }
            Operation::Copy { bytes, given, to, from } => {
                let given =
                    given.map_or(*bytes, |given| self.registers.get(given)[lane] as u32 as usize);
                let (from, to) = (
                    self.registers.resolve(Space::Global, from, lane),
                    self.registers.resolve(Space::Shared, to, lane),
                );
                let failed = Failed::aligned("reads", from, *bytes, lane)?;
                let mut found = [0; 16];
                if given > 0 {
                    let given = given.min(*bytes);
                    let there = memories.read(from, given, thread).ok_or(failed)?;
                    found[..given].copy_from_slice(there);
                }
                let failed = Failed::aligned("writes", to, *bytes, lane)?;
                let place = memories.bytes(to, *bytes, thread, Usage::Write).ok_or(failed)?;
                place.copy_from_slice(&found[..*bytes]);
            }
            _ => {}
        }
        Ok(())
    }
}
