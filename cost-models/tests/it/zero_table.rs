//! Model states and volumes against the ZeRO paper.

use std::fs;
use std::path::Path;

use cost_models::Collective;
use cost_models::states::{ModelStates, StateBytes};
use ir::layout::ZeroStage;
use ir::units::Bytes;
use serde_json::Value;

/// The table's rows; `None`, with a message, where it is absent.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn table() -> Option<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/measured/runs/zero_memory_table1.json");
    let Ok(text) = fs::read_to_string(&path) else {
        eprintln!("skipped: no {}", path.display());
        return None;
    };
    Some(serde_json::from_str(&text).expect("a list of rows"))
}

/// One in the last decimal that is printed: the table rounds some of its values and cuts others.
fn last_place(printed: &Value) -> f64 {
    let text = printed.to_string();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    0.1f64.powi(i32::try_from(decimals).expect("a few decimals"))
}

/// Rajbhandari et al. 2020, *ZeRO* (arXiv 1910.02054), table 1: GB of 1e9 bytes on each rank.
#[test]
fn model_states_take_what_table_1_of_zero_says() {
    let Some(rows) = table() else { return };
    assert_eq!(rows.len(), 54);
    for row in rows {
        let field = |name: &str| row[name].as_f64().expect("a number");
        let zero = ZeroStage::try_from(field("zero_stage") as u8).expect("a stage");
        let states = ModelStates::new(
            field("n_params") as u64,
            zero,
            field("dp") as u64,
            StateBytes::MIXED_ADAM,
        );
        let gigabytes = states.total().as_f64() / 1e9;
        let off = (gigabytes - field("model_state_gb")).abs();
        assert!(off <= last_place(&row["model_state_gb"]), "{}: {gigabytes} GB", row["id"]);
        assert!((gigabytes - field("formula_value_gb")).abs() <= 0.0011, "{}", row["id"]);
    }
}

/// Rajbhandari et al. 2020, section 7: data parallelism moves `2 (d - 1) / d` times the gradients,
/// stages 1 and 2 the same (a reduce-scatter and a gathering of the parameters), stage 3 half as much
/// again (parameters are gathered in forward and in backward).
#[test]
fn zero_moves_what_section_7_says() {
    let gradients = Bytes::new(2 * 7_500_000_000);
    for d in [2u32, 4, 8, 64, 1024] {
        let volume = |kind: Collective| kind.volume_factor(d) * gradients.as_f64();
        let share = f64::from(d - 1) / f64::from(d);
        let plain = volume(Collective::AllReduce);
        let sharded = volume(Collective::ReduceScatter) + volume(Collective::AllGather);
        let fully = sharded + volume(Collective::AllGather);
        for (volume, multiple) in [(plain, 2.0), (sharded, 2.0), (fully, 3.0)] {
            assert!((volume / (multiple * share * gradients.as_f64()) - 1.0).abs() < 1e-9);
        }
    }
}

/// What a rank holds never grows with the stage, nor with the number of ranks, and all ranks
/// together hold everything.
#[test]
fn sharding_never_takes_more() {
    for parameters in [1, 999, 1_000_003, 70_553_706_496] {
        for zero in ZeroStage::ALL {
            let states =
                |shards| ModelStates::new(parameters, zero, shards, StateBytes::MIXED_ADAM).total();
            for shards in [1, 2, 3, 8, 1000] {
                assert!(states(shards + 1) <= states(shards));
                assert!(states(shards) * shards >= Bytes::new(16 * parameters));
            }
            assert_eq!(states(1), Bytes::new(16 * parameters));
        }
        for pair in ZeroStage::ALL.windows(2) {
            let total =
                |zero| ModelStates::new(parameters, zero, 8, StateBytes::MIXED_ADAM).total();
            assert!(total(pair[1]) <= total(pair[0]));
        }
    }
}
