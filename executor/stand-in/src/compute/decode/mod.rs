//! Decoding of a kernel's PTX to a program.

mod collective;
mod compare;
mod convert;
mod float;
mod integer;
mod literal;
mod memory;
mod names;
mod unknown;
mod words;

use std::collections::BTreeMap;

use super::fault::Fault;
use super::function::{Function, one};
use super::program::{Decoded, DecodedKernel, Operation, Register, Tf32};
use crate::ptx::{Body, Instruction, Item, KernelAttributes, body};
use names::Names;
use unknown::{Result, Unknown};
use words::Words;

/// An instruction's text and opcode words before decoding.
struct Text<'t, 'a> {
    instruction: &'t Instruction<'a>,
    words: Words<'a>,
}

/// The state of the decoder.
struct Decoder<'a> {
    names: Names<'a>,
    instructions: Vec<Decoded>,
    /// Branches whose targets are not known yet: instruction and label.
    jumps: Vec<(usize, &'a str)>,
    labels: BTreeMap<&'a str, usize>,
    /// The guard predicate of the instruction that is being decoded.
    guard: Option<(Register, bool)>,
    text: &'a str,
    tf32: Tf32,
}

impl DecodedKernel {
    /// Decodes a kernel of a module.
    ///
    /// # Errors
    ///
    /// An instruction or operand is unknown.
    pub fn decode(
        module: &str,
        name: &str,
        kernel: &KernelAttributes,
        tf32: Tf32,
    ) -> std::result::Result<Self, Fault> {
        let not_there = || Fault::Unknown(format!(".entry {name}"));
        let (before, text) = body(module, name).ok_or_else(not_there)?;
        let body = Body::new(text);
        let before = Body::new(before);
        let mut decoder = Decoder {
            names: Names::new(name, kernel),
            instructions: Vec::new(),
            jumps: Vec::new(),
            labels: BTreeMap::new(),
            guard: None,
            text: "",
            tf32,
        };
        for item in before.items() {
            if let Item::Declaration(text) = item {
                decoder.names.declare_in_module(text);
            }
        }
        for item in body.items() {
            match item {
                Item::Open => decoder.names.open(),
                Item::Close => decoder.names.close(),
                Item::Label(label) => {
                    decoder.labels.insert(label, decoder.instructions.len());
                }
                Item::Declaration(text) => {
                    decoder
                        .names
                        .declare(text)
                        .map_err(|Unknown| Fault::Unknown(text.to_owned()))?;
                }
                Item::Instruction(instruction) => {
                    // The instruction borrows from the body.
                    decoder
                        .add(&instruction)
                        .map_err(|Unknown| Fault::Unknown(instruction.text.to_owned()))?;
                }
            }
        }
        decoder.finish(kernel)
    }
}

impl<'a> Decoder<'a> {
    /// Decodes an instruction.
    fn add(&mut self, instruction: &Instruction<'a>) -> Result<()> {
        self.text = instruction.text;
        self.guard = match instruction.guard {
            Some(guard) => match guard.strip_prefix('!') {
                Some(predicate) => Some((self.names.register(predicate)?, true)),
                None => Some((self.names.register(guard)?, false)),
            },
            None => None,
        };
        let text = Text { instruction, words: Words::new(&instruction.words, self.tf32) };
        self.decode(text)
    }

    fn decode(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let name = text.words.name();
        match name {
            "bra" => return self.branch(text),
            "ret" | "exit" => {
                text.words.take("uni");
                text.words.finish()?;
                self.push(Operation::Exit);
                return Ok(());
            }
            "mov" => return self.moves(text),
            "ld" | "ldu" | "st" | "atom" | "red" | "cvta" | "cp" | "prefetch" | "isspacep" => {
                return self.memory(text);
            }
            "setp" | "set" | "selp" => return self.compares(text),
            "cvt" => return self.converts(text),
            "bar" | "barrier" | "membar" | "fence" | "shfl" | "vote" | "match" | "redux"
            | "activemask" | "elect" | "wmma" | "mma" | "ldmatrix" => return self.collective(text),
            _ => {}
        }
        let function = if text.words.is_float() {
            float::function(name, &mut text.words)?
        } else {
            integer::function(name, &mut text.words)?
        };
        text.words.finish()?;
        let operands = &text.instruction.operands;
        let (dest, sources) = operands.split_first().ok_or(Unknown)?;
        self.compute(function, dest, sources)
    }

    /// An instruction that applies a function to its operands.
    fn compute(&mut self, function: Function, dest: &str, sources: &[&str]) -> Result<()> {
        if function.arity() != sources.len() {
            return Err(Unknown);
        }
        let dest = self.dest(dest)?;
        let mut registers = [dest; 4];
        for (register, source) in registers.iter_mut().zip(sources) {
            *register = self.source(source)?;
        }
        self.push_compute(function, dest, registers);
        Ok(())
    }

    fn push_compute(&mut self, function: Function, dest: Register, sources: [Register; 4]) {
        self.push(Operation::Compute { function, dest, sources });
    }

    fn push(&mut self, operation: Operation) {
        let (guard, text) = (self.guard, self.text.to_owned());
        self.instructions.push(Decoded { guard, operation, text });
    }

    /// The register of a destination operand.
    fn dest(&mut self, operand: &str) -> Result<Register> {
        if operand == "_" { Ok(self.names.fresh()) } else { self.names.register(operand) }
    }

    /// The register that holds a source operand.
    fn source(&mut self, operand: &str) -> Result<Register> {
        if let Some(predicate) = operand.strip_prefix('!') {
            let (register, negated) = (self.names.register(predicate)?, self.names.fresh());
            self.push_compute(one(|value| value & 1 ^ 1), negated, [register; 4]);
            return Ok(negated);
        }
        self.names.value(operand)
    }

    fn sources(&mut self, operand: &str) -> Result<Vec<Register>> {
        list(operand).into_iter().map(|name| self.source(name)).collect()
    }

    fn dests(&mut self, operand: &str) -> Result<Vec<Register>> {
        list(operand).into_iter().map(|name| self.dest(name)).collect()
    }

    fn branch(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        text.words.take("uni");
        text.words.finish()?;
        let [target] = text.instruction.operands.as_slice() else { return Err(Unknown) };
        self.jumps.push((self.instructions.len(), target));
        self.push(Operation::Branch(0));
        Ok(())
    }

    /// `mov`, which also packs and unpacks.
    fn moves(&mut self, mut text: Text<'_, 'a>) -> Result<()> {
        let kind = text.words.ty()?;
        text.words.finish()?;
        let [dest, source] = text.instruction.operands.as_slice() else { return Err(Unknown) };
        let (dests, sources) = (list(dest), list(source));
        let (num_dests, num_sources) = (dests.len() as u32, sources.len() as u32);
        if num_sources > 1 {
            let bits = kind.bits() / num_sources;
            let dest = self.dest(dests[0])?;
            let whole = self.names.fresh();
            for (index, source) in (0..).zip(&sources) {
                let source = self.source(source)?;
                let first = index == 0;
                let place = super::function::two(move |old, part| {
                    let part = (part & super::lanes::ones(bits)) << (bits * index);
                    if first { part } else { old | part }
                });
                self.push_compute(place, whole, [whole, source, whole, whole]);
            }
            self.push_compute(one(|value| value), dest, [whole; 4]);
            return Ok(());
        }
        let bits = kind.bits() / num_dests;
        let source = self.source(sources[0])?;
        // One of the destinations may be the source.
        let whole = self.names.fresh();
        if num_dests > 1 {
            self.push_compute(one(|value| value), whole, [source; 4]);
        }
        let source = if num_dests > 1 { whole } else { source };
        for (index, dest) in (0..).zip(dests) {
            let dest = self.dest(dest)?;
            let part = move |value: u64| value >> (bits * index) & super::lanes::ones(bits);
            self.push_compute(one(part), dest, [source; 4]);
        }
        Ok(())
    }

    /// Resolves branch targets and assembles the program.
    fn finish(mut self, kernel: &KernelAttributes) -> std::result::Result<DecodedKernel, Fault> {
        // A thread that reaches the end of the kernel exits.
        self.guard = None;
        self.text = "the end of the kernel";
        self.push(Operation::Exit);
        for (place, label) in &self.jumps {
            let found = self.labels.get(label);
            let target = *found.ok_or_else(|| Fault::Unknown((*label).to_owned()))?;
            self.instructions[*place].operation = Operation::Branch(target);
        }
        let params = kernel.places();
        Ok(DecodedKernel {
            instructions: self.instructions,
            num_registers: self.names.num_registers(),
            constants: self.names.constants(),
            specials: self.names.specials(),
            shared_bytes: self.names.shared_bytes(),
            local_bytes: self.names.local_bytes(),
            params,
        })
    }
}

/// The registers of `{a, b}`, or a single register.
fn list(operand: &str) -> Vec<&str> {
    match operand.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(inner) => inner.split(',').map(str::trim).collect(),
        None => vec![operand],
    }
}
