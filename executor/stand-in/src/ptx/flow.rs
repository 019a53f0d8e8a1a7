//! From which parameters each address comes.

use std::collections::BTreeMap;

use super::param::{Param, type_bytes};

/// A set of parameters, a bit each.
type Origins = u128;

/// An address within the kernel's own memory: shared, local or constant.
const OWN: Origins = 1 << 127;

/// How many parameters are told apart.
const MOST_PARAMS: usize = 127;

/// Sets what is read and written through each parameter.
pub(super) fn trace(params: &mut [Param], name: &str, body: &str) {
    let statements = statements(body);
    let instructions: Vec<Instruction<'_>> =
        statements.iter().filter_map(|text| Instruction::parse(text)).collect();
    let mut registers = Registers { name, origins: BTreeMap::new() };
    // A loop's registers may be used, in the order of the text, before they are written.
    while instructions.iter().filter(|next| registers.spread(next)).count() > 0 {}
    let mut uses = Uses { params, is_lost: false };
    for instruction in &instructions {
        uses.add(instruction, &registers);
    }
    let is_lost = uses.is_lost || uses.params.len() > MOST_PARAMS;
    for param in params.iter_mut().filter(|param| is_lost && param.is_address()) {
        param.reads = true;
        param.writes = true;
    }
}

/// The statements of a body, without comments, labels and line numbers.
fn statements(body: &str) -> Vec<String> {
    let lines = body.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let is_code = |line: &&str| {
        !line.is_empty()
            && !line.ends_with(':')
            && ![".loc", ".file"].iter().any(|w| line.starts_with(w))
    };
    let text: Vec<&str> = lines.filter(is_code).collect();
    text.join(" ").split(';').map(str::to_owned).collect()
}

/// `opcode operand, operand, ..`.
struct Instruction<'a> {
    /// The words of the opcode.
    words: Vec<&'a str>,
    operands: Vec<&'a str>,
}

impl<'a> Instruction<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let is_bracket = |c: char| c == '{' || c == '}' || c.is_whitespace();
        let mut text = text.trim_start_matches(is_bracket).trim_end();
        if text.starts_with('@') {
            text = text.split_once(char::is_whitespace)?.1.trim_start();
        }
        if text.starts_with('.') || text.is_empty() {
            return None;
        }
        let (opcode, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        Some(Self { words: opcode.split('.').collect(), operands: operands(rest) })
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|own| own.split("::").next() == Some(word))
    }

    /// Whether the memory that it names is the kernel's own.
    fn is_own_memory(&self) -> bool {
        ["shared", "local", "const", "param"].iter().any(|space| self.has(space))
    }

    /// How many bytes it moves.
    fn width(&self) -> u64 {
        let element = self.words.iter().skip(1).map(|word| type_bytes(word)).max().unwrap_or(0);
        let count = ["v2", "v4", "v8"].iter().find(|count| self.has(count));
        let count = count.map_or(1, |count| count[1..].parse().unwrap_or(1));
        (element * count) as u64
    }
}

/// Splits at commas that are not in brackets.
fn operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (index, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// The names in an operand, registers and others.
fn names(operand: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "%_$.".contains(c);
    operand.split(move |c: char| !is_part(c)).filter(|name| !name.is_empty())
}

/// Where the values of registers come from.
struct Registers<'a> {
    /// That of the kernel, with which those of its parameters begin.
    name: &'a str,
    origins: BTreeMap<&'a str, Origins>,
}

impl<'a> Registers<'a> {
    /// Where the values that an operand names come from.
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
            // A number, or a variable of the module, which is shared, local or constant memory.
            _ if name.starts_with(|c: char| c.is_ascii_digit()) => 0,
            _ => OWN,
        }
    }

    /// Takes what an instruction reads to what it writes. Whether that was news.
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
        if instruction.words[0] == "cvta" && instruction.is_own_memory() {
            origins |= OWN;
        }
        // What is no address is not followed: numbers made of addresses are not addresses.
        let mut news = false;
        for name in names(destination).filter(|name| name.starts_with('%')) {
            let own = self.origins.entry(name).or_default();
            news |= *own | origins != *own;
            *own |= origins;
        }
        news
    }
}

/// Collects the uses of memory.
struct Uses<'a> {
    params: &'a mut [Param],
    /// Whether there is a use of which nobody knows through which parameter it is.
    is_lost: bool,
}

impl Uses<'_> {
    fn add(&mut self, instruction: &Instruction<'_>, registers: &Registers<'_>) {
        let operands = &instruction.operands;
        let at = |index: usize| operands.get(index).map_or(0, |operand| registers.of(operand));
        let width = instruction.width();
        match instruction.words[0] {
            "ld" | "ldu" if !instruction.is_own_memory() => self.mark(at(1), true, false, width),
            "st" => {
                if !instruction.is_own_memory() {
                    self.mark(at(0), false, true, width);
                }
                // An address that is stored may be used by whoever loads it.
                if width >= 8 {
                    self.mark_known(at(1), true, true, 0);
                }
            }
            "atom" if !instruction.is_own_memory() => self.mark(at(1), true, true, width),
            "red" if !instruction.is_own_memory() => self.mark(at(0), true, true, width),
            "wmma" if !instruction.is_own_memory() => match instruction.words.get(1) {
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

    /// A use through one of some parameters, and through any if it is none of them.
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
