//! Recompute of some layers, and of some modules.

use ir::layout::ZeroStage;
use ir::schedule::ScheduleKind;

use super::parity::{check, check_against};
use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE};

/// Layers that come first in their stage, and chosen modules of all.
#[test]
fn recompute_of_some() {
    let again =
        |policy: &str, case: LayoutCase| LayoutCase { recompute: policy.parse().unwrap(), ..case };
    let pipeline = LayoutCase { pipeline: 2, ..ONE };
    let apart = LayoutCase { schedule: ScheduleKind::ZbH1, ..pipeline };
    let context = LayoutCase { context: 2, tensor: 2, sequence: true, ..ONE };
    let dense = [
        again("full:1", ONE),
        again("full:2", pipeline),
        again("full:2", LayoutCase { schedule: ScheduleKind::Zbv, virtual_stages: 2, ..pipeline }),
        again("full:1", LayoutCase { data: 2, zero: ZeroStage::Parameters, ..apart }),
        again("attention", ONE),
        again("attention", context),
        again("feed_forward", context),
        again("norms+activations", LayoutCase { tensor: 2, sequence: true, ..ONE }),
        again("attention+norms+feed_forward", apart),
    ];
    check(LLAMA, &dense);
    check(GPT, &dense[4..8]);
    let spread = LayoutCase { expert: 2, data: 2, ..ONE };
    let balanced =
        MIXTRAL.replace('{', r#"{"output_router_logits": true, "router_aux_loss_coef": 0.1, "#);
    let mixed = [
        again("experts", spread),
        again("experts", LayoutCase { tensor: 2, sequence: true, ..spread }),
        again("experts+norms", LayoutCase { pipeline: 2, schedule: ScheduleKind::ZbH1, ..spread }),
        again("expert_activations+attention", spread),
    ];
    check(MIXTRAL, &mixed);
    // A loss that balances the load is of micro-batches of one size.
    let one = LayoutCase { micro_batch_size: 2, ..ONE };
    let again = [again("experts", one), again("experts", LayoutCase { pipeline: 2, ..one })];
    check_against(&balanced, one, &again);
}
