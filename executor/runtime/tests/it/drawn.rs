//! Families and layouts drawn at random: any layout of any family computes what one rank computes.

use std::collections::BTreeMap;

use executor_kernels::array::Element;
use executor_runtime::program::{Program, ProgramError};
use ir::graph::{ContextParallelKind, Recompute, WeightFormat};
use ir::layout::{Offload, ZeroStage};
use ir::model::Model;
use ir::schedule::ScheduleKind;
use serde_json::{Value, json};

use super::families;
use super::parity::{alone, check_alike, disagreement, train};
use super::training::{LayoutCase, ONE, parts};

/// Number of draws: a twentieth of them by default.
const ALL: u64 = 500;
const FEW: u64 = 25;

/// The share of elements that dropout zeroes.
const RATE: f64 = 0.25;

/// Number of layouts that a draw may ask for in vain: those that the executor refuses count.
const MOST_TRIES: u64 = 200;

/// A number below `count` for a question of a draw.
struct Draw {
    seed: u64,
    asked: u64,
}

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.asked += 1;
        let number = families::hashed("draw", self.seed.wrapping_mul(1 << 20) + self.asked);
        (number * count as f64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A layout of at most eight ranks.
    fn case(&mut self) -> LayoutCase {
        use ScheduleKind as K;
        loop {
            let pipeline = self.of(&[1, 1, 2]);
            let tensor = self.of(&[1, 2, 2, 4]);
            let (schedule, virtual_stages) = if pipeline == 1 {
                (K::OneFOneB, 1)
            } else {
                self.of(&[
                    (K::OneFOneB, 1),
                    (K::GPipe, 1),
                    (K::ZbH1, 1),
                    (K::Interleaved, 2),
                    (K::Zbv, 2),
                ])
            };
            let recompute = self.of(&[Recompute::None, Recompute::Selective, Recompute::Full]);
            let zero = self.of(&ZeroStage::ALL);
            let offload = Offload { optimizer: self.below(8) == 0, ..Offload::NONE };
            let case = LayoutCase {
                tensor,
                sequence: tensor > 1 && self.below(2) == 0,
                context: self.of(&[1, 1, 2]),
                context_kind: self.of(&ContextParallelKind::ALL),
                expert: self.of(&[1, 1, 2]),
                expert_tensor: self.of(&[0, 0, 1]),
                pipeline,
                data: self.of(&[1, 2]),
                micro_batch_size: self.of(&[1, 2]),
                zero,
                recompute,
                offload,
                schedule,
                virtual_stages,
                dropout: self.below(2) == 0,
                adapters: (self.below(5) == 0).then_some((2, "all-linear", WeightFormat::Plain)),
                ..ONE
            };
            let ranks = case.tensor * case.context * case.pipeline * case.data;
            let has_kind = case.context > 1 || case.context_kind == ContextParallelKind::Ring;
            if ranks <= 8 && has_kind {
                return case;
            }
        }
    }
}

/// Every rate of dropout that a configuration states, and that of MPT, which its has none of.
fn with_dropout(config: &mut Value) {
    let Value::Object(fields) = config else { return };
    if fields["model_type"] == "mpt" {
        fields["attn_config"]["attn_pdrop"] = RATE.into();
    }
    let rates = fields.iter_mut().filter(|(name, _)| {
        (name.contains("drop") || name.ends_with("pdrop")) && *name != "layerdrop"
    });
    for (_, rate) in rates {
        *rate = RATE.into();
    }
}

/// The models: those of the references, with the tokens that training reads and with dropout.
pub(super) fn models() -> Vec<(String, String)> {
    let mut models = families::configurations();
    for (_, config) in &mut models {
        with_dropout(config);
        if let Some(vocab_size) = config.get_mut("vocab_size") {
            *vocab_size = 256.into();
        }
    }
    models.into_iter().map(|(name, config)| (name, config.to_string())).collect()
}

#[test]
fn any_layout_of_any_family() {
    let models = models();
    let (mut failures, mut sharded, mut done) = (Vec::new(), 0, 0);
    let num_draws = if super::runs_slow_tests() { ALL } else { FEW };
    for seed in 0..num_draws {
        // In turn, so that no family is left out.
        let (name, model) = &models[(seed * 7) as usize % models.len()];
        let mut draw = Draw { seed, asked: 0 };
        let mut refused: BTreeMap<String, u32> = BTreeMap::new();
        let found = (0..MOST_TRIES).find_map(|_| {
            let case = draw.case();
            match Program::new(parts(model, case, Element::F64)) {
                Ok(program) => Some((case, program)),
                Err(error) => {
                    *refused.entry(error.to_string()).or_insert(0) += 1;
                    assert!(!matches!(error, ProgramError::Model(_)), "{name}: {error}");
                    None
                }
            }
        });
        let Some((case, program)) = found else { panic!("{name}: no layout runs: {refused:?}") };
        sharded += u64::from(case.tensor > 1);
        done += 1;
        // How tokens are put together is part of what a mixture of experts computes.
        let LayoutCase { micro_batch_size, adapters, dropout, .. } = case;
        let one = alone(model, LayoutCase { micro_batch_size, adapters, dropout, ..ONE });
        let run = std::panic::AssertUnwindSafe(|| train(program));
        let Ok(outcome) = std::panic::catch_unwind(run) else {
            failures.push(format!("{name}: panicked: {case:?}"));
            continue;
        };
        let failure = disagreement(&one, &outcome);
        failures.extend(failure.map(|failure| format!("{name}: {case:?}: {failure}")));
    }
    assert!(failures.is_empty(), "{} of {done}:\n{}", failures.len(), failures.join("\n"));
    assert!(2 * sharded >= done, "{sharded} of {done} with tensor parallelism");
}

/// Such a model can be planned, for transformers builds it; but what it computes fails, or depends on chance.
#[test]
fn what_transformers_builds_but_cannot_run() {
    let models = models();
    for (name, edits, word) in [
        ("gptj", json!({"rotary_dim": 7}), "rotation of 7 features"),
        ("deepseek_v3", json!({"n_group": 8}), "3 experts from 1 of 8 groups of 8"),
        ("opt", json!({"max_position_embeddings": 8}), "has 8 positions"),
        ("falcon_40b", json!({"parallel_attn": false}), "`new_decoder_architecture`"),
    ] {
        let (_, model) = models.iter().find(|(other, _)| other == name).unwrap();
        let mut config: Value = serde_json::from_str(model).unwrap();
        let edits = edits.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(edits.clone());
        let config = config.to_string();
        assert!(Model::from_json(&config, name).is_ok(), "{name} {edits:?}");
        match Program::new(parts(&config, ONE, Element::F64)) {
            Ok(_) => panic!("{name} {edits:?} runs"),
            Err(error) => assert!(error.to_string().contains(word), "{name} {edits:?}: {error}"),
        }
    }
}

/// Where there are fewer classes than tensor-parallel ranks, some have none.
#[test]
fn what_some_ranks_have_nothing_of() {
    let models = models();
    let (_, model) = models.iter().find(|(name, _)| name == "vit").unwrap();
    let pipeline = LayoutCase { tensor: 4, pipeline: 2, schedule: ScheduleKind::ZbH1, ..ONE };
    check_alike(model, ONE, &[LayoutCase { tensor: 4, ..ONE }, pipeline]);
}

/// The first layers of T5's stacks have biases that all of them read, wherever they are; its table is read thrice.
#[test]
fn what_many_stages_share() {
    let models = models();
    let (_, model) = models.iter().find(|(name, _)| name == "t5").unwrap();
    let cases = [
        LayoutCase { pipeline: 2, ..ONE },
        LayoutCase { pipeline: 4, ..ONE },
        // The head is a stage of its own.
        LayoutCase { pipeline: 7, ..ONE },
        LayoutCase { pipeline: 2, data: 2, zero: ZeroStage::Parameters, ..ONE },
        LayoutCase { pipeline: 2, tensor: 2, sequence: true, ..ONE },
        LayoutCase { pipeline: 2, virtual_stages: 2, schedule: ScheduleKind::Zbv, ..ONE },
    ];
    check_alike(model, ONE, &cases);
}
