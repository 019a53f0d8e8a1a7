//! Layouts on ranks that are processes compute what one rank computes: `mpirun -n N` with N of 4 or 8.
//!
//! Without `mpirun` there is one rank and nothing to compare.

#![expect(clippy::print_stdout, reason = "a test harness says what it did")]
#![expect(clippy::unwrap_used, reason = "a test without the harness is a test")]

use std::process::ExitCode;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local, mpi};
use executor_kernels::array::Element;
use executor_runtime::rank::{RunError, StepResult};
use ir::graph::Recompute;
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;
use serde_json::Value;

#[path = "common/training.rs"]
mod training;

use training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE, program, steps};

/// MPI starts once in a process, so all layouts of a number of ranks run one after the other.
fn cases(num_ranks: u32) -> Vec<(String, LayoutCase)> {
    let zero3 = ZeroStage::Parameters;
    let own: Vec<(&str, LayoutCase)> = match num_ranks {
        4 => vec![
            (LLAMA, LayoutCase { tensor: 2, sequence: true, pipeline: 2, ..ONE }),
            (LLAMA, LayoutCase { data: 4, zero: zero3, ..ONE }),
            (GPT, LayoutCase { data: 4, bucket_bytes: 1 << 10, ..ONE }),
            (GPT, LayoutCase { pipeline: 4, schedule: ScheduleKind::ZbH1, ..ONE }),
            (GPT, LayoutCase { context: 2, tensor: 2, recompute: Recompute::Selective, ..ONE }),
            (MIXTRAL, LayoutCase { expert: 2, data: 2, pipeline: 2, ..ONE }),
            (LLAMA, LayoutCase { pipeline: 4, schedule: ScheduleKind::DualPipe, ..ONE }),
        ],
        8 => vec![
            (
                LLAMA,
                LayoutCase { tensor: 2, sequence: true, pipeline: 2, data: 2, zero: zero3, ..ONE },
            ),
            (GPT, LayoutCase { data: 8, zero: ZeroStage::Gradients, shard: 4, ..ONE }),
            (MIXTRAL, LayoutCase { expert: 4, data: 4, tensor: 2, ..ONE }),
            (GPT, LayoutCase { context: 4, pipeline: 2, recompute: Recompute::Full, ..ONE }),
        ],
        _ => Vec::new(),
    };
    let own = own.into_iter().map(|(model, case)| (model.to_owned(), case));
    let tensor = LayoutCase { tensor: 2, sequence: true, dropout: true, ..ONE };
    let families = match num_ranks {
        4 => {
            vec![
                ("t5", LayoutCase { pipeline: 2, ..tensor }),
                ("gpt_oss", LayoutCase { context: 2, ..tensor }),
            ]
        }
        8 => {
            let spread = LayoutCase { expert: 2, data: 2, pipeline: 2, zero: zero3, ..tensor };
            vec![("deepseek_v3_modules", spread)]
        }
        _ => Vec::new(),
    };
    own.chain(families.into_iter().map(|(name, case)| (family(name), case))).collect()
}

/// A family's configuration, with the tokens that training reads, and dropout.
fn family(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/families");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    let mut recorded: Value = serde_json::from_str(&text).unwrap();
    let config = recorded["config"].as_object_mut().unwrap();
    config.insert("vocab_size".to_owned(), 256.into());
    for rate in ["attention_dropout", "dropout_rate"] {
        if config.contains_key(rate) {
            config.insert(rate.to_owned(), 0.25.into());
        }
    }
    recorded["config"].to_string()
}

fn main() -> ExitCode {
    let outcome = mpi::run(|_| FlexDevice, |rank: Arc<dyn Communicator<Flex>>| check(&rank));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn check(rank: &Arc<dyn Communicator<Flex>>) -> Result<(), RunError> {
    if rank.num_ranks() == 1 {
        println!("skipped: `mpirun` starts 4 or 8 ranks");
        return Ok(());
    }
    let cases = cases(rank.num_ranks());
    assert!(!cases.is_empty(), "there are layouts for 4 and for 8 ranks, not {}", rank.num_ranks());
    for (model, case) in &cases {
        let found = run(model, *case, Arc::clone(rank))?;
        // Every process computes the reference itself, on a thread.
        let alone = LayoutCase { dropout: case.dropout, ..ONE };
        let one = local::run(1, &[FlexDevice], |rank| run(model, alone, rank));
        let one = one.unwrap_or_else(|failure| panic!("{failure}")).remove(0);
        for (found, expected) in found.iter().zip(&one) {
            let difference = (found.loss - expected.loss).abs();
            assert!(difference < 1e-9, "losses differ by {difference:.1e}: {case:?}");
        }
    }
    if rank.rank() == 0 {
        println!("{} layouts on {} ranks compute what one does", cases.len(), rank.num_ranks());
    }
    Ok(())
}

fn run(
    model: &str,
    case: LayoutCase,
    communicator: Arc<dyn Communicator<Flex>>,
) -> Result<Vec<StepResult>, RunError> {
    let (results, _) = steps(&Arc::new(program(model, case, Element::F64)), communicator)?;
    Ok(results)
}
