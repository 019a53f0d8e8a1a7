//! The registers of a warp.

use super::function::Function;
use super::lanes::{Lanes, Mask, WIDTH};
use super::program::{Address, DecodedKernel, Register, Space};
use super::space::resolve;

/// All registers of a warp.
pub(super) struct Registers(Vec<Lanes>);

impl Registers {
    /// The registers of a program, with its constants.
    pub(super) fn new(program: &DecodedKernel) -> Self {
        let mut registers = vec![[0; WIDTH]; program.num_registers];
        for (register, value) in &program.constants {
            registers[*register] = [*value; WIDTH];
        }
        Self(registers)
    }

    pub(super) fn get(&self, register: Register) -> &Lanes {
        &self.0[register]
    }

    pub(super) fn set(&mut self, register: Register, values: Lanes) {
        self.0[register] = values;
    }

    /// Sets a register in the threads of a mask.
    pub(super) fn set_some(&mut self, register: Register, values: &Lanes, mask: Mask) {
        let own = &mut self.0[register];
        if mask == Mask::MAX {
            *own = *values;
            return;
        }
        for (lane, (own, value)) in own.iter_mut().zip(values).enumerate() {
            *own = if mask >> lane & 1 == 1 { *value } else { *own };
        }
    }

    /// Sets a register in one thread.
    pub(super) fn set_lane(&mut self, register: Register, lane: usize, value: u64) {
        self.0[register][lane] = value;
    }

    /// The space and address of a thread's memory operand.
    pub(super) fn resolve(&self, space: Space, at: &Address, lane: usize) -> (Space, u64) {
        resolve(space, self.get(at.base)[lane].wrapping_add_signed(at.offset))
    }

    /// The result of a function of registers.
    pub(super) fn compute(&self, function: &Function, sources: &[Register; 4]) -> Lanes {
        let [a, b, c, d] = sources;
        match function {
            Function::One(f) => f(self.get(*a)),
            Function::Two(f) => f(self.get(*a), self.get(*b)),
            Function::Three(f) => f(self.get(*a), self.get(*b), self.get(*c)),
            Function::Four(f) => f(self.get(*a), self.get(*b), self.get(*c), self.get(*d)),
        }
    }
}
