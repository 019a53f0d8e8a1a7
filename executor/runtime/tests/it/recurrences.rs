//! Mamba-2, gated delta rules and short convolutions, in hybrids with attention: sharded over heads, groups and
//! channels, and over positions, which are exchanged for heads.

use executor_kernels::array::Element;
use executor_runtime::case;
use executor_runtime::program::Program;
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::parity::check_alike;
use super::training::{LayoutCase, ONE, parts};

/// Layouts that compute what one rank computes.
fn check(name: &str, cases: &[LayoutCase]) {
    let models = super::drawn::models();
    let (_, model) = models.iter().find(|(other, _)| other == name).unwrap();
    check_alike(model, ONE, cases);
}

const TENSOR: LayoutCase = LayoutCase { tensor: 2, ..ONE };

/// Layouts that shard heads, groups and channels, or nothing of them.
const OF_HEADS: [LayoutCase; 6] = [
    TENSOR,
    LayoutCase { sequence: true, data: 2, zero: ZeroStage::Parameters, ..TENSOR },
    LayoutCase { sequence: true, recompute: Recompute::Selective, ..TENSOR },
    LayoutCase { recompute: Recompute::Full, ..TENSOR },
    LayoutCase { pipeline: 2, schedule: ScheduleKind::ZbH1, ..TENSOR },
    LayoutCase { pipeline: 2, schedule: ScheduleKind::Zbv, virtual_stages: 2, ..ONE },
];

/// Layouts that exchange heads for positions, in a ring's order and in the sequence's.
const OF_POSITIONS: [LayoutCase; 4] = [
    LayoutCase { context: 2, ..ONE },
    LayoutCase { context: 2, recompute: Recompute::Full, ..ONE },
    LayoutCase { context: 2, pipeline: 2, schedule: ScheduleKind::ZbH1, ..ONE },
    LayoutCase { context: 2, context_kind: ContextParallelKind::AllToAll, ..ONE },
];

#[test]
fn mamba_2_hybrids_in_any_layout() {
    check("granitemoehybrid", &OF_HEADS);
    check("nemotron_h", &OF_POSITIONS);
}

#[test]
fn delta_net_hybrids_in_any_layout() {
    check("qwen3_next", &OF_HEADS);
    // With fewer heads of keys than ranks, neighbours have the same.
    check("qwen3_next", &[LayoutCase { tensor: 4, ..ONE }]);
    check("qwen3_next", &OF_POSITIONS);
}

#[test]
fn short_convolutions_in_any_layout() {
    check("lfm2", &OF_HEADS);
}

/// What cannot be exchanged is refused, with its number and what would work.
#[test]
fn positions_that_are_not_exchanged() {
    let models = super::drawn::models();
    for (name, case, expected) in [
        (
            "lfm2",
            OF_POSITIONS[0],
            "`context_parallel` 2 of a convolution that no recurrence follows",
        ),
        ("bamba", LayoutCase { context: 2, ..TENSOR }, "2 heads or groups"),
        ("qwen3_next", LayoutCase { context: 4, ..ONE }, "2 state heads do not divide"),
    ] {
        let (_, model) = models.iter().find(|(other, _)| other == name).unwrap();
        let refused = Program::new(parts(model, case, Element::F64)).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}

/// Recurrences that are planned alone are named.
#[test]
fn recurrences_that_are_not_computed() {
    for (model, word) in [
        (
            r#"{"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 256}"#,
            "selective scan",
        ),
        (
            r#"{"model_type": "kimi_linear", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 256}"#,
            "decays of each feature",
        ),
        (
            r#"{"model_type": "minimax", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 256}"#,
            "fixed decays",
        ),
    ] {
        let refused = case::parts(model, ONE, Element::F64).and_then(Program::new);
        let refused = refused.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
}
