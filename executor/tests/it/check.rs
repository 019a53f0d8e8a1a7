//! Parts of `executor check`: data sheets that are recognised, and errors that are seen.

use burn_flex::{Flex, FlexDevice};
use executor::check::{CheckFinding, Verdict, caught, first_line, recognised};
use executor_kernels::array::{Array, Element};
use executor_kernels::comparison::{compare, error};
use executor_kernels::ops::Kernels;
use executor_kernels::random::{Plain, random};
use executor_kernels::trials::OperatorTrial;
use ir::cluster::Cluster;
use ir::units::Bytes;

/// The clusters that the planner knows, which `executor check` asks it for.
fn clusters() -> Vec<Cluster> {
    cost_models::clusters::names().filter_map(cost_models::clusters::preset).collect()
}

/// Names as drivers say them, with multiprocessors and MiB as `nvidia-smi` does.
#[test]
fn gpus_are_recognised_by_what_their_driver_says() {
    let clusters = clusters();
    for (name, multiprocessors, mebibytes, expected) in [
        ("NVIDIA H100 80GB HBM3", 132, 81_559, Some("h100")),
        ("NVIDIA H100 PCIe", 114, 81_559, Some("h100-pcie")),
        ("NVIDIA H200", 132, 143_771, Some("h200")),
        ("NVIDIA A100-SXM4-80GB", 108, 81_920, Some("a100")),
        ("NVIDIA A100 80GB PCIe", 108, 81_920, Some("a100-pcie")),
        ("NVIDIA A100-SXM4-40GB", 108, 40_960, Some("a100-40gb")),
        ("Tesla V100-SXM2-16GB", 80, 16_160, Some("v100-16gb")),
        ("NVIDIA GeForce RTX 4090", 128, 24_564, Some("rtx-4090")),
        ("NVIDIA L4", 58, 23_034, Some("l4")),
        ("NVIDIA B200", 148, 183_359, Some("b200")),
        ("NVIDIA GeForce RTX 3060", 28, 12_288, None),
        ("stand-in sm_90", 132, 81_559, None),
    ] {
        let memory = Bytes::new(mebibytes << 20);
        let found = recognised(&clusters, name, multiprocessors, memory);
        assert_eq!(found.map(|it| it.name.as_str()), expected, "{name}");
    }
}

/// The same, but for one element on the device that `OFF` is added to.
struct Off(f64);

impl OperatorTrial for Off {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let x = inputs[0].clone();
        if x.element() == Element::F64 {
            return vec![x];
        }
        let device = x.device();
        let mut values = x.to_f64();
        values[3] += self.0;
        vec![Array::from_f64(values, &x.shape(), Element::F32, &device)]
    }
}

#[test]
fn an_element_that_is_off_is_found() {
    let inputs: [Plain; 1] = [random(&[2, 3], 1)];
    for (off, expected) in [(0.0, 0.0), (0.5, 0.5), (f64::NAN, f64::INFINITY)] {
        let found = compare::<Flex>(&Off(off), &inputs, Element::F32, &FlexDevice);
        let is_near =
            (found.error - expected).abs() < 0.3 || found.error.total_cmp(&expected).is_eq();
        assert!(is_near, "{off}: {found:?}");
        if expected > 0.0 {
            assert_eq!(found.place, [0, 3], "{found:?}");
        }
    }
}

#[test]
fn errors_are_relative_above_one() {
    for (actual, expected, is) in [
        (1.5, 1.0, 0.5),
        (150.0, 100.0, 0.5),
        (0.25, 0.0, 0.25),
        (f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0),
        (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY),
        (f64::NAN, 1.0, f64::INFINITY),
        (1.0, f64::NAN, f64::INFINITY),
    ] {
        assert!(error(actual, expected).total_cmp(&is).is_eq(), "{actual} for {expected}");
    }
}

#[test]
fn what_panics_is_a_message_and_what_is_no_number_is_left_out() {
    assert_eq!(caught(|| 3), Ok(3));
    assert_eq!(
        caught(|| -> u32 { panic!("\n  no {}\nmore", "memory") }),
        Err("no memory".to_owned())
    );
    assert_eq!(first_line(&"x".repeat(500)).len(), 162);
    let finding = CheckFinding::pass("sum", "3").with("a", f64::NAN).with("b_bytes", 2.0);
    let text = serde_json::to_string(&finding).unwrap();
    assert_eq!(text, r#"{"name":"sum","verdict":"pass","said":"3","numbers":{"b_bytes":2.0}}"#);
    assert_eq!(serde_json::from_str::<CheckFinding>(&text).unwrap(), finding);
    assert_eq!(CheckFinding::out_of_time("sum").verdict, Verdict::Skip);
}
