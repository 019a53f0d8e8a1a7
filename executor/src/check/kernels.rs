//! Comparison of every operator that has its own kernels with fp64 on the CPU.

use burn::tensor::DType;
use executor_kernels::array::Element;
use executor_kernels::clock::Deadline;
use executor_kernels::comparison::{DeviceComparison, compare};
use executor_kernels::ops::Kernels;
use executor_kernels::ops::activation::Function;
use executor_kernels::ops::attention::KeyVisibility;
use executor_kernels::ops::experts::RoutingRule;
use executor_kernels::random::Plain;
use executor_kernels::trials::{
    Activations, Attend, AttentionSizes, CrossEntropy, MatrixProduct, MixtureSizes, Norms,
    OperatorTrial, Rotations, Squares, ToExperts, Update,
};
use ir::graph::{AttentionMask, ExpertGroups, NormKind, RotaryPairs};

use super::finding::{CheckFinding, caught};

/// An element type, its name, and the largest error of results in it: some units in the last place.
type Tolerated = (Element, &'static str, f64);

const FP32: Tolerated = (Element::F32, "fp32", 5e-6);
const FP16: Tolerated = (Element::F16, "fp16", 4e-3);
const BF16: Tolerated = (Element::BF16, "bf16", 3e-2);

/// Factor of the tolerance of attention and of experts, whose results are sums of rounded terms.
const OF_SUMS: f64 = 2.0;

/// Rows and their width: one shape has no multiples of tiles, planes, cubes or vectors, the other has multiples of all
/// but tiles.
const SHAPES: [[usize; 2]; 2] = [[37, 1003], [136, 1024]];

/// Name of a shape.
fn of_width([_, width]: [usize; 2]) -> String {
    format!("rows of {width}")
}

/// The element types that a device has, with their tolerances.
pub fn elements<B: Kernels>(device: &B::Device) -> Vec<(Element, &'static str, f64)> {
    let all = [FP32, FP16, BF16].into_iter();
    all.filter(|(element, ..)| B::supports_dtype(device, DType::from(*element))).collect()
}

/// Compares every operator with fp64 on the CPU, in every element type that the device supports.
pub fn kernels<B: Kernels>(
    device: &B::Device,
    deadline: Deadline,
    found: &mut dyn FnMut(CheckFinding),
) {
    let all = elements::<B>(device);
    let mut check =
        Check::<B> { device, all: &all, allowance: 1.0, hint: OF_PRODUCTS, deadline, found };
    check.products();
    check.hint = OF_KERNELS;
    check.rows();
    check.allowance = OF_SUMS;
    check.experts();
    check.attention();
}

/// Hints of findings where operators are wrong.
const OF_PRODUCTS: &str = "where fp32 alone is wrong, tensor cores round it to 10 bits (TF32)";
const OF_KERNELS: &str = "report it with the name of the device and its driver";

/// A comparison of operators, and the receiver of its findings.
struct Check<'a, B: Kernels> {
    device: &'a B::Device,
    all: &'a [Tolerated],
    /// Factor of tolerances.
    allowance: f64,
    /// Hint of findings where an operator is wrong.
    hint: &'static str,
    deadline: Deadline,
    found: &'a mut dyn FnMut(CheckFinding),
}

impl<B: Kernels> Check<'_, B> {
    fn products(&mut self) {
        for sizes in [[75, 85, 130], [256, 128, 512]] {
            let [m, n, k] = sizes;
            let name = format!("product {m} x {n} x {k}");
            self.hold(&name, &MatrixProduct, &MatrixProduct::inputs(sizes));
        }
    }

    fn rows(&mut self) {
        use Function as F;
        for (name, function) in
            [("SiLU", F::Silu), ("GELU", F::Gelu), ("GELU by tanh", F::GeluTanh), ("ReLU", F::Relu)]
        {
            let trial = Activations(function);
            for shape in SHAPES {
                let name = format!("{name}, and gated by it, {}", of_width(shape));
                self.hold(&name, &trial, &Activations::inputs(&shape));
            }
        }
        for (name, kind) in [("layer norm", NormKind::LayerNorm), ("RMS norm", NormKind::RmsNorm)] {
            for shape in SHAPES {
                let name = format!("{name}, {}", of_width(shape));
                self.hold(&name, &Norms(kind), &Norms::inputs(shape));
            }
        }
        for (name, pairs) in [
            ("rotary, halves", RotaryPairs::Halves),
            ("rotary, neighbours", RotaryPairs::Neighbours),
        ] {
            for (width, turned) in [(24, 20), (80, 64)] {
                let name = format!("{name}, {turned} of {width}");
                self.hold(&name, &Rotations { pairs, turned }, &Rotations::inputs(width));
            }
        }
        for shape in SHAPES {
            let trial = CrossEntropy { first_class: 500, num_classes: 2000 };
            let name = format!("cross-entropy, a shard, {}", of_width(shape));
            self.hold(&name, &trial, &CrossEntropy::inputs(shape));
            let name = format!("sum of squares, {}", of_width(shape));
            self.hold(&name, &Squares, &Squares::inputs(shape));
        }
        for shape in SHAPES {
            self.hold(&format!("AdamW, {}", of_width(shape)), &Update, &Update::inputs(&shape));
        }
    }

    fn experts(&mut self) {
        let all = |top_k, normalise| RoutingRule::likeliest(top_k, normalise);
        let groups = Some(ExpertGroups { count: 8, chosen: 3, scored_by: 2 });
        let of_groups = RoutingRule { scaling: 2.5, groups, ..all(4, true) };
        for (name, rule, rows, experts, widths) in [
            ("2 of 6 experts, 85 by 130", all(2, true), 75, 6, [85, 130]),
            ("3 of 5 experts, 72 by 200", all(3, false), 300, 5, [72, 200]),
            ("4 of 32 experts, in 3 of 8 groups", of_groups, 40, 32, [64, 64]),
        ] {
            let inputs = ToExperts::inputs(MixtureSizes { rows, experts, widths });
            self.hold(name, &ToExperts(rule), &inputs);
        }
    }

    fn attention(&mut self) {
        let sizes = |queries, keys, heads, kv_heads, width| AttentionSizes {
            queries,
            keys,
            heads,
            kv_heads,
            width,
            value_width: width,
        };
        let at_start = |mask| KeyVisibility { mask, query_start: 0, key_start: 0 };
        let causal = Attend::plain(at_start(AttentionMask::Causal));
        let window = AttentionMask::SlidingWindow { window: 33 };
        let part = KeyVisibility { mask: AttentionMask::Causal, query_start: 60, key_start: 10 };
        let grouped = sizes(75, 75, 4, 2, 20);
        for (name, trial, sizes) in [
            ("attention", Attend::plain(KeyVisibility::FULL), sizes(75, 85, 2, 2, 20)),
            ("attention, causal", causal, sizes(75, 75, 2, 2, 20)),
            ("attention, window of 33", Attend::plain(at_start(window)), sizes(75, 75, 2, 2, 20)),
            ("attention, grouped heads", causal, grouped),
            ("attention, a part of a ring", Attend::plain(part), sizes(75, 85, 4, 2, 20)),
            ("attention, sinks", Attend { has_sinks: true, ..causal }, grouped),
            ("attention, soft cap", Attend { soft_cap: Some(0.7), ..causal }, grouped),
            ("attention, slopes", Attend { has_slopes: true, ..causal }, grouped),
            ("attention, heads of 64", causal, sizes(128, 128, 4, 2, 64)),
            ("attention, heads of 128", causal, sizes(128, 128, 2, 1, 128)),
        ] {
            self.hold(name, &trial, &Attend::inputs(sizes));
        }
    }

    /// Compares an operator with fp64 in all element types, and reports the errors.
    fn hold(&mut self, name: &str, trial: &impl OperatorTrial, inputs: &[Plain]) {
        if self.deadline.is_over() {
            return (self.found)(CheckFinding::out_of_time(name));
        }
        let mut said = Vec::new();
        let mut numbers = Vec::new();
        let mut is_right = true;
        for (element, type_name, tolerance) in self.all {
            let tolerance = tolerance * self.allowance;
            match caught(|| compare::<B>(trial, inputs, *element, self.device)) {
                Ok(DeviceComparison { error, place: [output, index], actual, expected }) => {
                    numbers.push((format!("{type_name}_error"), error));
                    said.push(if error <= tolerance {
                        format!("{type_name} {error:.1e} of {tolerance:.0e}")
                    } else {
                        is_right = false;
                        format!(
                            "{type_name} {error:.1e} above {tolerance:.0e}: output {output} has {actual:.4e} for \
                             {expected:.4e} at {index}"
                        )
                    });
                }
                Err(message) => {
                    is_right = false;
                    said.push(format!("{type_name} fails: {message}"));
                }
            }
        }
        let said = said.join(", ");
        let finding = CheckFinding::judged(name, said, is_right, self.hint);
        let numbers = numbers.into_iter();
        (self.found)(numbers.fold(finding, |finding, (key, error)| finding.with(key, error)));
    }
}
