//! Small kernels and a buffer of global memory.

use crate::compute::{DecodedKernel, Fault, Global, Grid, Tf32, run};
use crate::ptx::KernelAttributes;
use crate::recording::Usage;

/// Address of the only buffer.
pub(super) const START: u64 = 0x1000;

/// Global memory with one buffer.
pub(super) struct Buffer(pub(super) Vec<u8>);

impl Global for Buffer {
    fn bytes(&mut self, start: u64, len: usize, _usage: Usage) -> Option<&mut [u8]> {
        let start = start.checked_sub(START)? as usize;
        self.0.get_mut(start..start.checked_add(len)?)
    }
}

impl Buffer {
    pub(super) fn of(words: &[u32]) -> Self {
        Self(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    pub(super) fn words(&self) -> Vec<u32> {
        let words = self.0.chunks_exact(4);
        words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    }
}

/// A module with a kernel of this body. The kernel has the buffer's address in `%rd1`.
fn module(body: &str) -> String {
    format!(
        ".version 8.8\n.extern .shared .align 128 .b8 dynamic[];\n\
         .visible .entry k(\n.param .u64 k_param_0,\n.param .align 4 .b8 k_param_1[8]\n)\n{{\n\
         .reg .b64 %rd<9>;\nld.param.u64 %rd1, [k_param_0];\n{body}\n}}\n"
    )
}

pub(super) fn decode(body: &str) -> Result<DecodedKernel, Fault> {
    let module = module(body);
    let kernel = KernelAttributes::parse(&module, "k").expect("it is there");
    DecodedKernel::decode(&module, "k", &kernel, Tf32::Rounded)
}

/// Executes a body in blocks of threads.
pub(super) fn play(
    body: &str,
    (blocks, threads): (u32, u32),
    buffer: &mut Buffer,
) -> Result<(), Fault> {
    let program = decode(body)?;
    let grid = Grid { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: 1024 };
    let mut params = START.to_le_bytes().to_vec();
    params.extend([7, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
    run(&program, &grid, &params, buffer)
}

/// The content of a buffer of `threads` words after one block has run. Before, the buffer holds 0, 1, 2, ... `%r1` is
/// the thread's number, and `%rd3` the address of its word, to which `%r9` is written at the end.
pub(super) fn words(body: &str, threads: u32) -> Vec<u32> {
    let mut buffer = Buffer::of(&(0..threads).collect::<Vec<_>>());
    let body = format!(
        "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n{body}\n\
         st.global.u32 [%rd3], %r9;\nret;"
    );
    play(&body, (1, threads), &mut buffer).expect("it comes to its end");
    buffer.words()
}
