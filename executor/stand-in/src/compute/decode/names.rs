//! Resolution of names: registers, variables and parameters.

use std::collections::BTreeMap;

use super::literal::number;
use super::unknown::{Result, Unknown};
use crate::compute::program::{Register, Special};
use crate::ptx::{KernelAttributes, type_bytes};

/// Registers and variables by name.
pub(super) struct Names<'a> {
    /// Registers of each scope, the innermost last.
    scopes: Vec<BTreeMap<String, Register>>,
    /// Addresses of variables and parameters, in their spaces.
    addresses: BTreeMap<String, VariableAddress>,
    constants: BTreeMap<u64, Register>,
    specials: BTreeMap<Special, Register>,
    num_registers: usize,
    shared_bytes: u64,
    local_bytes: u64,
    kernel: &'a str,
}

/// Location of a variable.
#[derive(Clone, Copy)]
enum VariableAddress {
    At(u64),
    /// After all shared memory of static size.
    Dynamic,
}

impl<'a> Names<'a> {
    pub(super) fn new(kernel: &'a str, facts: &KernelAttributes) -> Self {
        let addresses = facts.places().into_iter().enumerate().map(|(index, (start, _))| {
            (format!("{kernel}_param_{index}"), VariableAddress::At(start as u64))
        });
        Self {
            scopes: vec![BTreeMap::new()],
            addresses: addresses.collect(),
            constants: BTreeMap::new(),
            specials: BTreeMap::new(),
            num_registers: 0,
            shared_bytes: 0,
            local_bytes: 0,
            kernel,
        }
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(BTreeMap::new());
    }

    pub(super) fn close(&mut self) {
        self.scopes.pop();
    }

    /// A new register without a name.
    pub(super) fn fresh(&mut self) -> Register {
        self.num_registers += 1;
        self.num_registers - 1
    }

    /// Reads a declaration outside of kernels. Unknown declarations are reported when they are used.
    pub(super) fn declare_in_module(&mut self, text: &str) {
        if text.contains(".shared") && !text.contains(".entry") {
            // Variables of other kernels have different names.
            let _ = self.declare(text);
        }
    }

    /// Reads a declaration of registers or of memory.
    pub(super) fn declare(&mut self, text: &str) -> Result<()> {
        if text.starts_with(".pragma") {
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix(".reg") {
            let (_, names) = rest.trim_start().split_once(char::is_whitespace).ok_or(Unknown)?;
            for name in names.split(',').map(str::trim) {
                // Numbered registers are created at first use.
                if !name.contains('<') {
                    let register = self.fresh();
                    let scope = self.scopes.last_mut().ok_or(Unknown)?;
                    scope.insert(name.to_owned(), register);
                }
            }
            return Ok(());
        }
        let is_shared = text.contains(".shared");
        if !is_shared && !text.contains(".local") {
            return Err(Unknown);
        }
        let (head, count) = text.split_once('[').unwrap_or((text, "1]"));
        let name = head.split_whitespace().next_back().ok_or(Unknown)?;
        let mut words = head.split_whitespace();
        let mut align = 1;
        while let Some(word) = words.next() {
            if word == ".align" {
                align = words.next().and_then(|word| word.parse().ok()).ok_or(Unknown)?;
            }
        }
        let count = count.split(']').next().unwrap_or_default().trim();
        if text.starts_with(".extern") && count.is_empty() {
            self.addresses.insert(name.to_owned(), VariableAddress::Dynamic);
            return Ok(());
        }
        let count: u64 = count.parse().map_err(|_| Unknown)?;
        let element = head.split_whitespace().map(type_bytes).max().unwrap_or(0) as u64;
        let end = if is_shared { &mut self.shared_bytes } else { &mut self.local_bytes };
        let start = end.next_multiple_of(align.max(element));
        *end = start + count * element;
        self.addresses.insert(name.to_owned(), VariableAddress::At(start));
        Ok(())
    }

    /// The register of a name.
    pub(super) fn register(&mut self, name: &str) -> Result<Register> {
        if let Some(found) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Ok(*found);
        }
        let is_counted = name.starts_with('%') && name.ends_with(|c: char| c.is_ascii_digit());
        if !is_counted && !["%SP", "%SPL"].contains(&name) || name.contains('.') {
            return Err(Unknown);
        }
        let register = self.fresh();
        self.scopes[0].insert(name.to_owned(), register);
        Ok(register)
    }

    /// The register that holds a constant.
    pub(super) fn constant(&mut self, value: u64) -> Register {
        if let Some(register) = self.constants.get(&value) {
            return *register;
        }
        let register = self.fresh();
        self.constants.insert(value, register);
        register
    }

    /// The register of an operand's value: a register, a constant, or an address.
    pub(super) fn value(&mut self, operand: &str) -> Result<Register> {
        if let Some(special) = special(operand) {
            return Ok(self.special(special));
        }
        if operand == "WARP_SZ" {
            return Ok(self.constant(32));
        }
        if let Some(value) = number(operand) {
            return Ok(self.constant(value));
        }
        if let Some(place) = self.addresses.get(operand).copied() {
            return Ok(match place {
                VariableAddress::At(address) => self.constant(address),
                VariableAddress::Dynamic => self.special(Special::DynamicShared),
            });
        }
        self.register(operand)
    }

    fn special(&mut self, special: Special) -> Register {
        if let Some(register) = self.specials.get(&special) {
            return *register;
        }
        let register = self.fresh();
        self.specials.insert(special, register);
        register
    }

    pub(super) fn num_registers(&self) -> usize {
        self.num_registers
    }

    pub(super) fn constants(&self) -> Vec<(Register, u64)> {
        self.constants.iter().map(|(value, register)| (*register, *value)).collect()
    }

    pub(super) fn specials(&self) -> Vec<(Register, Special)> {
        self.specials.iter().map(|(special, register)| (*register, *special)).collect()
    }

    /// Bytes of static shared memory, padded so that the dynamic shared memory after it is aligned.
    pub(super) fn shared_bytes(&self) -> u64 {
        /// Alignment of dynamic shared memory in CubeCL's kernels.
        const ALIGN: u64 = 128;
        debug_assert!(!self.kernel.is_empty(), "a kernel has a name");
        self.shared_bytes.next_multiple_of(ALIGN)
    }

    pub(super) fn local_bytes(&self) -> u64 {
        self.local_bytes.next_multiple_of(16)
    }
}

/// The special register of a name.
fn special(name: &str) -> Option<Special> {
    let dim = |axis: &str| ["x", "y", "z"].iter().position(|own| *own == axis);
    Some(match name.strip_prefix('%')? {
        "laneid" => Special::Lane,
        "warpid" => Special::Warp,
        "nwarpid" => Special::NumWarps,
        "lanemask_lt" => Special::MaskBelow,
        "lanemask_le" => Special::MaskUpTo,
        "lanemask_gt" => Special::MaskAbove,
        "lanemask_ge" => Special::MaskFrom,
        "lanemask_eq" => Special::MaskOfLane,
        dotted => match dotted.split_once('.')? {
            ("tid", axis) => Special::Thread(dim(axis)?),
            ("ntid", axis) => Special::NumThreads(dim(axis)?),
            ("ctaid", axis) => Special::Block(dim(axis)?),
            ("nctaid", axis) => Special::NumBlocks(dim(axis)?),
            _ => return None,
        },
    })
}
