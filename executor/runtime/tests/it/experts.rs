//! Experts that are cut over some of the tensor-parallel ranks, and spread over the others.

use ir::collective::Collective;
use ir::graph::Recompute;
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::parity::check;
use super::traffic::{Traffic, exchanged};
use super::training::{LayoutCase, MIXTRAL, ONE};

/// Mixtral's kind, with a key head for each query head: tensor-parallel ranks may be as many.
pub(super) const MIXTRAL_OF_MANY_HEADS: &str = r#"{"model_type": "mixtral", "num_hidden_layers": 3,
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 24,
    "vocab_size": 256, "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64}"#;

const ZERO1: ZeroStage = ZeroStage::OptimizerState;
const ZERO2: ZeroStage = ZeroStage::Gradients;
const ZERO3: ZeroStage = ZeroStage::Parameters;

/// Qwen's kind: norms of queries and keys, experts of a width of their own.
const QWEN: &str = r#"{"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 32, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48, "vocab_size": 256,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": true,
    "max_position_embeddings": 64}"#;

/// Tensor-parallel ranks share the experts, each for its own part of the sequence.
#[test]
fn whole_experts() {
    use ScheduleKind as K;
    let folded = LayoutCase { tensor: 2, sequence: true, expert_tensor: 1, ..ONE };
    let cases = [
        LayoutCase { expert: 2, ..folded },
        LayoutCase { expert: 1, ..folded },
        LayoutCase { expert: 4, data: 2, ..folded },
        LayoutCase { expert: 2, data: 2, zero: ZERO1, ..folded },
        LayoutCase { expert: 4, data: 4, zero: ZERO3, ..folded },
        LayoutCase { expert: 4, data: 4, zero: ZERO2, shard: 2, ..folded },
        LayoutCase { expert: 2, data: 2, zero: ZERO3, shard: 1, ..folded },
        LayoutCase { expert: 4, context: 2, data: 2, recompute: Recompute::Full, ..folded },
        LayoutCase { expert: 4, data: 2, pipeline: 2, schedule: K::ZbH1, ..folded },
        LayoutCase { expert: 4, data: 2, pipeline: 2, schedule: K::DualPipe, ..folded },
    ];
    check(MIXTRAL, &cases);
}

/// Pairs of tensor-parallel ranks share each expert, in addition to all else that cuts and spreads.
#[test]
fn experts_over_pairs_of_tensor_ranks() {
    use ScheduleKind as K;
    let pairs = LayoutCase { tensor: 4, sequence: true, expert_tensor: 2, ..ONE };
    let cases = [
        LayoutCase { expert: 4, data: 2, zero: ZERO2, ..pairs },
        LayoutCase { expert: 2, data: 2, zero: ZERO3, shard: 1, ..pairs },
        LayoutCase { expert: 2, data: 4, zero: ZERO1, shard: 2, ..pairs },
        LayoutCase { expert: 4, context: 2, zero: ZERO3, recompute: Recompute::Full, ..pairs },
        LayoutCase { expert: 2, context: 2, recompute: Recompute::Selective, ..pairs },
        LayoutCase { expert: 2, pipeline: 2, schedule: K::ZbH1, ..pairs },
        LayoutCase { expert: 1, pipeline: 2, virtual_stages: 2, schedule: K::Zbv, ..pairs },
        LayoutCase { expert: 4, data: 2, pipeline: 2, zero: ZERO1, schedule: K::DualPipe, ..pairs },
        LayoutCase { recompute: "experts".parse().unwrap(), expert: 2, ..pairs },
        LayoutCase { recompute: "expert_activations".parse().unwrap(), expert: 2, ..pairs },
    ];
    check(MIXTRAL_OF_MANY_HEADS, &cases);
    // Four ranks cut all else; an expert's inner features divide by two alone.
    let narrow =
        MIXTRAL_OF_MANY_HEADS.replace(r#""intermediate_size": 24"#, r#""intermediate_size": 18"#);
    check(
        &narrow,
        &[LayoutCase { expert: 2, ..pairs }, LayoutCase { expert: 4, data: 2, ..pairs }],
    );
}

/// Every number of ranks that share an expert, with every number over which experts are spread.
#[test]
fn experts_over_any_tensor_ranks() {
    let mut cases = Vec::new();
    let zero_stages = ZeroStage::ALL.into_iter().cycle();
    for (tensor, expert_tensor) in [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4)] {
        for (expert, context, data) in [(1, 1, 2), (2, 1, 1), (2, 2, 1), (4, 1, 2), (4, 2, 1)] {
            let spread = LayoutCase { tensor, sequence: true, expert_tensor, expert, ..ONE };
            let ranks = tensor * context * data;
            if ranks % (expert * expert_tensor) == 0 {
                cases.push(LayoutCase { context, data, ..spread });
            }
        }
    }
    let cases: Vec<LayoutCase> = cases
        .into_iter()
        .zip(zero_stages)
        .map(|(case, zero)| LayoutCase { zero, ..case })
        .collect();
    check(QWEN, &cases);
}

/// What layers with experts exchange of their operators' inputs and outputs in a step, summed over ranks, is what the
/// plan's exchanges say, to the byte: experts take different numbers of rows, but all together as many as planned.
#[test]
fn traffic_of_experts_is_as_planned() {
    let layers_alone = LayoutCase { tensor: 4, sequence: true, pipeline: 3, ..ONE };
    for (expert_tensor, expert, data, recompute) in [
        (1, 4, 1, Recompute::None),
        (2, 1, 1, Recompute::None),
        (2, 2, 1, Recompute::None),
        (2, 4, 2, Recompute::None),
        (2, 4, 2, Recompute::Full),
        (4, 1, 1, Recompute::None),
        (4, 2, 2, Recompute::Full),
    ] {
        let case = LayoutCase { expert, expert_tensor, data, recompute, ..layers_alone };
        let (exchanged, planned) = exchanged(MIXTRAL_OF_MANY_HEADS, case);
        // Neither the ends, nor statistics and gradients.
        let of_layers = |mut traffic: Traffic| {
            traffic.retain(|(stage, _, kind), _| *stage == 1 && *kind != Collective::AllReduce);
            traffic
        };
        assert_eq!(of_layers(exchanged), of_layers(planned), "{case:?}");
    }
}
