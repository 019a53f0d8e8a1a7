//! What kernels do with their parameters, read from their text.
//!
//! The text is that of NVRTC, in which a register is written once and addresses are sums of a
//! parameter and an offset. What is not understood counts as read and written, so that an error here
//! reports too much, not too little.

mod flow;
mod param;
#[cfg(test)]
mod tests;

pub use param::Param;
use param::type_bytes;

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
        let (_, after) = module.split_once(&format!(".entry {name}("))?;
        let (params, after) = after.split_once(')')?;
        let (head, body) = after.split_once('{')?;
        let body = body.split("\n}").next().unwrap_or(body);
        let mut kernel = Self {
            params: params.split(',').filter_map(Param::parse).collect(),
            max_threads: ["maxntid", "reqntid"].iter().find_map(|word| threads(head, word)),
            shared_bytes: body.lines().filter_map(shared_bytes).sum(),
        };
        flow::trace(&mut kernel.params, name, body);
        Some(kernel)
    }
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
