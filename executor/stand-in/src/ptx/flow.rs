//! Data flow from parameters to addresses.

use std::collections::{BTreeMap, BTreeSet};

use super::param::{Param, type_bytes};
use super::text::{Body, Instruction, Item};

/// A set of parameters, a bit each.
type Origins = u128;

/// An address in shared, local or constant memory.
const OWN: Origins = 1 << 127;

/// The most bytes that one instruction moves, up to sm_90.
const MOST_AT_ONCE: u64 = 16;

/// Most parameters that are distinguished.
const MOST_PARAMS: usize = 127;

/// Sets the reads and writes through each parameter.
pub(super) fn trace(params: &mut [Param], name: &str, body: &str) {
    let body = Body::new(body);
    let instructions: Vec<Instruction<'_>> = body
        .items()
        .into_iter()
        .filter_map(|item| match item {
            Item::Instruction(instruction) => Some(instruction),
            _ => None,
        })
        .collect();
    let mut registers = Registers { name, origins: BTreeMap::new() };
    // Repeated, because in the order of the text a loop may use registers before they are written.
    while instructions.iter().filter(|next| registers.spread(next)).count() > 0 {}
    let mut uses = Uses { params, is_lost: false };
    for instruction in &instructions {
        uses.add(instruction, &registers);
    }
    uses.widen(&instructions, &registers);
    let is_lost = uses.is_lost || uses.params.len() > MOST_PARAMS;
    for param in params.iter_mut().filter(|param| is_lost && param.is_address()) {
        param.reads = true;
        param.writes = true;
    }
}

/// Returns whether an instruction accesses shared, local, constant or parameter memory.
fn is_own_memory(instruction: &Instruction<'_>) -> bool {
    ["shared", "local", "const", "param"].iter().any(|space| instruction.has(space))
}

/// Bytes that an instruction moves.
fn width(instruction: &Instruction<'_>) -> u64 {
    let words = instruction.words.iter().skip(1);
    let element = words.map(|word| type_bytes(word)).max().unwrap_or(0);
    let count = ["v2", "v4", "v8"].iter().find(|count| instruction.has(count));
    let count = count.map_or(1, |count| count[1..].parse().unwrap_or(1));
    (element * count) as u64
}

/// The factor of the index in each address register.
fn steps<'a>(instructions: &[Instruction<'a>]) -> BTreeMap<&'a str, u64> {
    let mut steps = BTreeMap::new();
    for instruction in instructions {
        let (name, operands) = (instruction.words[0], instruction.operands.as_slice());
        let step = match operands {
            [_, _, factor] if name == "mul" && instruction.has("wide") => factor.parse().ok(),
            [_, _, by] if name == "shl" => by.parse().ok().and_then(|by| 1_u64.checked_shl(by)),
            [_, a, b] if name == "add" => steps.get(a).or_else(|| steps.get(b)).copied(),
            _ => None,
        };
        if let Some(step) = step {
            steps.insert(operands[0], step);
        }
    }
    steps
}

/// The names in an operand, registers and others.
fn names(operand: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "%_$.".contains(c);
    operand.split(move |c: char| !is_part(c)).filter(|name| !name.is_empty())
}

/// Origins of the values of registers.
struct Registers<'a> {
    /// The kernel's name, with which the names of its parameters begin.
    name: &'a str,
    origins: BTreeMap<&'a str, Origins>,
}

impl<'a> Registers<'a> {
    /// The origins of the values in an operand.
    fn of(&self, operand: &str) -> Origins {
        names(operand).fold(0, |all, name| all | self.of_name(name))
    }

    fn of_name(&self, name: &str) -> Origins {
        if name.starts_with('%') {
            return self.origins.get(name).copied().unwrap_or_default();
        }
        let number = name.strip_prefix(self.name).and_then(|rest| rest.strip_prefix("_param_"));
        match number.and_then(|number| number.parse::<usize>().ok()) {
            Some(number) if number < MOST_PARAMS => 1 << number,
            // A constant, or a variable of the module, which is shared, local or constant memory.
            _ if name.starts_with(|c: char| c.is_ascii_digit()) => 0,
            _ => OWN,
        }
    }

    /// Propagates origins from an instruction's sources to its destination. Returns whether they changed.
    fn spread(&mut self, instruction: &Instruction<'a>) -> bool {
        let moves_memory =
            ["ld", "ldu", "ldmatrix", "atom", "wmma", "st", "red", "cp", "mbarrier", "call"];
        let is_param = instruction.words[0] == "ld" && instruction.has("param");
        let is_memory = moves_memory.contains(&instruction.words[0]) && !is_param;
        let Some((destination, sources)) = instruction.operands.split_first() else { return false };
        if is_memory || sources.is_empty() {
            return false;
        }
        let mut origins = sources.iter().fold(0, |all, source| all | self.of(source));
        if instruction.words[0] == "cvta" && is_own_memory(instruction) {
            origins |= OWN;
        }
        // Numbers that are computed from addresses are traced like addresses.
        let mut news = false;
        for name in names(destination).filter(|name| name.starts_with('%')) {
            let own = self.origins.entry(name).or_default();
            news |= *own | origins != *own;
            *own |= origins;
        }
        news
    }
}

/// Reads and writes through parameters.
struct Uses<'a> {
    params: &'a mut [Param],
    /// True where an access has no known parameter.
    is_lost: bool,
}

impl Uses<'_> {
    fn add(&mut self, instruction: &Instruction<'_>, registers: &Registers<'_>) {
        let operands = &instruction.operands;
        let at = |index: usize| operands.get(index).map_or(0, |operand| registers.of(operand));
        let width = width(instruction);
        match instruction.words[0] {
            "ld" | "ldu" if !is_own_memory(instruction) => self.mark(at(1), true, false, width),
            "st" => {
                if !is_own_memory(instruction) {
                    self.mark(at(0), false, true, width);
                }
                // A stored address may be used by code that loads it.
                if width >= 8 {
                    self.mark_known(at(1), true, true, 0);
                }
            }
            "atom" if !is_own_memory(instruction) => self.mark(at(1), true, true, width),
            "red" if !is_own_memory(instruction) => self.mark(at(0), true, true, width),
            "wmma" if !is_own_memory(instruction) => match instruction.words.get(1) {
                Some(&"load") => self.mark(at(1), true, false, 0),
                Some(&"store") => self.mark(at(0), false, true, 0),
                _ => {}
            },
            "cp" => {
                let copied = operands.get(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
                self.mark_known(at(0), false, true, copied);
                self.mark_known(at(1), true, false, copied);
            }
            "call" => operands.iter().for_each(|operand| {
                self.mark_known(registers.of(operand), true, true, 0);
            }),
            _ => {}
        }
    }

    /// Finds vectors that several instructions read or write, since no instruction moves more than 16 bytes. The
    /// accesses to such a vector fill the step from one index to the next.
    fn widen(&mut self, instructions: &[Instruction<'_>], registers: &Registers<'_>) {
        let steps = steps(instructions);
        let mut places: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
        for instruction in instructions {
            let at = match instruction.words[0] {
                "ld" => instruction.operands.get(1),
                "st" => instruction.operands.first(),
                _ => None,
            };
            let is_global = !is_own_memory(instruction) && width(instruction) == MOST_AT_ONCE;
            let Some(at) = at.filter(|_| is_global) else { continue };
            let inner = at.trim_start_matches('[').trim_end_matches(']');
            let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
            let Ok(offset) = offset.trim().parse() else { continue };
            places.entry((base.trim(), instruction.words[0])).or_default().insert(offset);
        }
        for ((base, _), offsets) in places {
            let Some(step) = steps.get(base).filter(|step| **step > MOST_AT_ONCE) else { continue };
            if offsets.iter().copied().eq((0..*step).step_by(MOST_AT_ONCE as usize)) {
                self.mark_known(registers.of(base), false, false, *step);
            }
        }
    }

    /// Records an access through the parameters of `origins`. Without any, the access may be through any parameter.
    fn mark(&mut self, origins: Origins, reads: bool, writes: bool, width: u64) {
        self.is_lost |= origins == 0;
        self.mark_known(origins, reads, writes, width);
    }

    fn mark_known(&mut self, origins: Origins, reads: bool, writes: bool, width: u64) {
        let params = self.params.iter_mut().take(MOST_PARAMS).enumerate();
        for (_, param) in params.filter(|(index, _)| origins & (1 << index) != 0) {
            param.reads |= reads;
            param.writes |= writes;
            param.width = param.width.max(width);
        }
    }
}
