//! Execution of a program by the blocks of a grid.

use std::collections::BTreeMap;

use super::access::WarpPosition;
use super::fault::Fault;
use super::hazard::Uses;
use super::lanes::{Mask, WIDTH, ones};
use super::program::{DecodedKernel, Special};
use super::space::{FILL, Global, Memories};
use super::warp::Warp;

const COLLIDED: &str = "two warps use the same shared memory without a barrier between them";

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks.
    pub blocks: [u32; 3],
    /// Number of threads of a block.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory of each block, in addition to the program's static shared memory.
    pub shared_bytes: u64,
}

/// Executes a program for all blocks of a grid, one after the other. `params` holds all parameters at the offsets of
/// [`DecodedKernel::params`].
///
/// # Errors
///
/// The first fault of a thread.
pub fn run<G: Global>(
    program: &DecodedKernel,
    grid: &Grid,
    params: &[u8],
    global: &mut G,
) -> Result<(), Fault> {
    let num_threads: u32 = grid.threads.iter().product();
    let num_warps = num_threads.div_ceil(WIDTH as u32);
    let shared_bytes = (program.shared_bytes + grid.shared_bytes) as usize;
    let local_bytes = program.local_bytes as usize;
    let mut memories = Memories {
        global,
        shared: vec![FILL; shared_bytes],
        uses: Uses::new(shared_bytes),
        has_collided: false,
        local: vec![FILL; local_bytes * num_warps as usize * WIDTH],
        local_bytes,
        params,
    };
    let mut warps: Vec<Warp> = (0..num_warps).map(|_| Warp::new(program)).collect();
    let [x, y, z] = grid.blocks;
    let mut is_first = true;
    for block in (0..z).flat_map(|k| (0..y).flat_map(move |j| (0..x).map(move |i| [i, j, k]))) {
        memories.shared.fill(FILL);
        for (number, warp) in (0..).zip(&mut warps) {
            let first = number * WIDTH as u32;
            let threads = (num_threads - first).min(WIDTH as u32);
            warp.start(ones(threads) as Mask);
            for (register, special) in &program.specials {
                // All other special registers are the same in each block.
                if is_first || matches!(special, Special::Block(_)) {
                    let value = |lane| special_value(*special, program, grid, block, first + lane);
                    warp.registers.set(*register, std::array::from_fn(|lane| value(lane as u32)));
                }
            }
        }
        is_first = false;
        memories.uses.pass();
        run_block(program, block, &mut warps, &mut memories)?;
    }
    Ok(())
}

/// Executes all warps of a block to their end.
fn run_block<G: Global>(
    program: &DecodedKernel,
    block: [u32; 3],
    warps: &mut [Warp],
    memories: &mut Memories<'_, G>,
) -> Result<(), Fault> {
    loop {
        for (number, warp) in warps.iter_mut().enumerate() {
            let place = WarpPosition { block, first_thread: number * WIDTH };
            warp.run(program, memories, place).map_err(|fault| match fault {
                Fault::Access { instruction, .. } if memories.has_collided => {
                    Fault::Misuse { what: COLLIDED, block, instruction }
                }
                other => other,
            })?;
        }
        let num_alive: u32 = warps.iter().map(Warp::num_alive).sum();
        if num_alive == 0 {
            return Ok(());
        }
        memories.uses.pass();
        if !release(warps, num_alive) {
            let place = warps.iter().find_map(Warp::where_it_waits).unwrap_or(0);
            let instruction = program.instructions[place].text.clone();
            return Err(Fault::Deadlock { block, instruction });
        }
    }
}

/// Releases the barriers at which all expected threads have arrived. Returns whether there was such a barrier.
fn release(warps: &mut [Warp], num_alive: u32) -> bool {
    let mut arrived: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    for (id, count) in warps.iter().flat_map(Warp::arrivals) {
        let (sum, wanted) = arrived.entry(id).or_default();
        (*sum, *wanted) = (*sum + 1, count);
    }
    let mut is_any_open = false;
    for (id, (count, wanted)) in arrived {
        let wanted = if wanted == 0 { num_alive } else { wanted as u32 };
        if count >= wanted {
            for warp in &mut *warps {
                warp.pass(id);
            }
            is_any_open = true;
        }
    }
    is_any_open
}

/// The value of a special register of a thread.
fn special_value(
    special: Special,
    program: &DecodedKernel,
    grid: &Grid,
    block: [u32; 3],
    thread: u32,
) -> u64 {
    let [x, y, _] = grid.threads;
    let index = [thread % x, thread / x % y, thread / x / y];
    let (lane, num_threads) = (thread % WIDTH as u32, grid.threads.iter().product::<u32>());
    let below = ones(lane) as u32;
    u64::from(match special {
        Special::Thread(dim) => index[dim],
        Special::NumThreads(dim) => grid.threads[dim],
        Special::Block(dim) => block[dim],
        Special::NumBlocks(dim) => grid.blocks[dim],
        Special::Lane => lane,
        Special::Warp => thread / WIDTH as u32,
        Special::NumWarps => num_threads.div_ceil(WIDTH as u32),
        Special::MaskBelow => below,
        Special::MaskUpTo => below | 1 << lane,
        Special::MaskAbove => !(below | 1 << lane),
        Special::MaskFrom => !below,
        Special::MaskOfLane => 1 << lane,
        Special::DynamicShared => program.shared_bytes as u32,
    })
}
