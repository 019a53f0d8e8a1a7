//! What kernels do with their parameters, read from their text.
//!
//! The text is that of NVRTC, in which a register is written once and addresses are sums of a
//! parameter and an offset. What is not understood counts as read and written, so that an error here
//! reports too much, not too little.

mod flow;
mod param;
#[cfg(test)]
mod tests;
mod text;

pub use param::Param;
pub(crate) use param::type_bytes;
pub(crate) use text::{Body, Instruction, Item};

/// A kernel, as far as its launches are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// In the order of the arguments.
    pub params: Vec<Param>,
    /// How many threads a block may have, if the text says so.
    pub max_threads: Option<u64>,
    /// Bytes of shared memory that each block has, whatever the launch gives it.
    pub shared_bytes: u64,
}

impl Kernel {
    /// The kernel of a name in a module; none if the module has no such kernel.
    pub fn parse(module: &str, name: &str) -> Option<Self> {
        let (_, params, head, body) = cut(module, name)?;
        let mut kernel = Self {
            params: params.split(',').filter_map(Param::parse).collect(),
            max_threads: ["maxntid", "reqntid"].iter().find_map(|word| threads(head, word)),
            shared_bytes: body.lines().filter_map(shared_bytes).sum(),
        };
        flow::trace(&mut kernel.params, name, body);
        Some(kernel)
    }

    /// Where each parameter begins among all of them, and how many bytes it has.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut end = 0_usize;
        let place = |param: &Param| {
            let start = end.next_multiple_of(param.align.max(1));
            end = start + param.bytes;
            (start, param.bytes)
        };
        self.params.iter().map(place).collect()
    }
}

/// What stands before a kernel, its parameters, what stands before its body, and its body.
fn cut<'a>(module: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str, &'a str)> {
    let (before, after) = module.split_once(&format!(".entry {name}("))?;
    let (params, after) = after.split_once(')')?;
    let (head, body) = after.split_once('{')?;
    Some((before, params, head, &body[..end_of_scope(body)]))
}

/// Where the scope ends of which a text is the inside.
fn end_of_scope(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut is_comment = false;
    for (place, c) in text.char_indices() {
        match c {
            '\n' => is_comment = false,
            '/' => is_comment |= text[place..].starts_with("//"),
            '{' if !is_comment => depth += 1,
            '}' if !is_comment && depth == 0 => return place,
            '}' if !is_comment => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// What stands in a module before a kernel, and the kernel's body.
pub(crate) fn body<'a>(module: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    cut(module, name).map(|(before, _, _, body)| (before, body))
}

/// The product of the numbers that follow `.maxntid` or `.reqntid`.
fn threads(head: &str, word: &str) -> Option<u64> {
    let line = head.lines().find_map(|line| line.trim().strip_prefix(&format!(".{word}")))?;
    line.split(',').map(|number| number.trim().parse::<u64>().ok()).product()
}

/// The size of `.shared .align 16 .b8 name[64];`.
fn shared_bytes(line: &str) -> Option<u64> {
    let text = line.trim().strip_prefix(".shared")?;
    let size = text.split_whitespace().map(type_bytes).max()? as u64;
    let count = text.split_once('[')?.1.split(']').next()?.parse::<u64>().ok()?;
    Some(size * count)
}
