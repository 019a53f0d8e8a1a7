//! Operators split one by one: closed forms of others, and what trying everything finds.

use ir::collective::Collective;
use ir::graph::{ByMeshAxis, Graph, Pass, ShardContext, Sharding, Sizes, SplitDim, SplitOp};
use ir::layout::ZeroStage;
use ir::units::{Bytes, Seconds};
use planner_core::operators::costs::{SplitCosts, SplitKernels};
use planner_core::operators::graph::{Operator, Operators};
use planner_core::operators::space::{SplitSpace, TermWeights};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Costs of a mesh by latency and inverse bandwidth of each axis alone, as in Alpa's tests: work costs so much that all
/// ranks share it, and memory and updates cost nothing.
struct AlphaBeta {
    mesh: ByMeshAxis<u32>,
    alpha: f64,
    beta: ByMeshAxis<f64>,
}

const PRICE_OF_FLOP: f64 = 100.0;

impl AlphaBeta {
    fn all_reduce(&self, axis: usize, bytes: u64) -> f64 {
        let axes = std::array::from_fn(|other| other == axis);
        self.exchange(Collective::AllReduce, axes, Bytes::new(bytes)).get()
    }
}

impl SplitCosts for AlphaBeta {
    fn exchange(&self, collective: Collective, axes: ByMeshAxis<bool>, bytes: Bytes) -> Seconds {
        let along = |axis: usize| if axes[axis] { self.mesh[axis] } else { 1 };
        let beta =
            (0..2).filter(|axis| axes[*axis]).map(|axis| self.beta[axis]).fold(0.0, f64::max);
        let volume = collective.volume_factor(along(0) * along(1));
        Seconds::new(self.alpha + beta * volume * bytes.as_f64())
    }

    fn kernels(&self, split: &SplitOp, _: &Operator<'_>, reads_data: bool) -> SplitKernels {
        let sizes = Sizes { micro_batch_size: 1, sequence_length: 1 };
        let setting = ShardContext { reads_data, ..ShardContext::plain(sizes, Sharding::NONE) };
        let kernels = split.block.work(&setting).kernels;
        let of = |is_forward: bool| {
            let of_pass = kernels.iter().filter(|it| (it.pass == Pass::Forward) == is_forward);
            Seconds::new(of_pass.map(|it| it.flops.get()).sum::<f64>() * PRICE_OF_FLOP)
        };
        SplitKernels { device: [of(true), of(false)], ..SplitKernels::default() }
    }

    fn gradient_sum(&self, _: Bytes) -> Seconds {
        Seconds::ZERO
    }

    fn fuses_projections(&self) -> bool {
        false
    }

    fn compute_bytes(&self) -> u64 {
        4
    }

    fn replication(&self, axes: ByMeshAxis<bool>, elements: u64) -> [Seconds; 2] {
        let time = self.exchange(Collective::AllReduce, axes, Bytes::new(4 * elements));
        [time, Seconds::ZERO]
    }

    fn update(&self, _: u64) -> Seconds {
        Seconds::ZERO
    }

    fn states(&self, _: u64, _: u64) -> f64 {
        0.0
    }

    fn zero(&self) -> ZeroStage {
        ZeroStage::None
    }
}

/// Everything counts as it is.
fn sums(operators: &Operators<'_>) -> TermWeights {
    let blocks = operators.all.last().unwrap().block + 1;
    TermWeights { kernels: 1.0, replication: 1.0, angles: vec![[[1.0, 0.0]; 2]; blocks], byte: 0.0 }
}

fn graph(nodes: &[Value]) -> Graph {
    let edges: Vec<Value> = nodes
        .windows(2)
        .map(|pair| json!({"from": pair[0]["name"], "to": pair[1]["name"]}))
        .collect();
    graph_of(nodes, &edges)
}

fn graph_of(nodes: &[Value], edges: &[Value]) -> Graph {
    let file = json!({
        "format": "planner-graph", "version": 1, "name": "test", "nodes": nodes, "edges": edges
    });
    ir::native::read(&file.to_string()).unwrap().1
}

/// The least sum of exchanges where all ranks share all work, and the splits that have it.
fn least(graph: &Graph, batch: u64, costs: &AlphaBeta) -> (f64, Vec<(String, Vec<SplitDim>)>) {
    let operators = Operators::new(graph);
    let sizes = Sizes { micro_batch_size: batch, sequence_length: 1 };
    let space = SplitSpace::new(costs, &operators, costs.mesh, sizes, 1);
    let solution = space.program(&sums(&operators)).least();
    assert!((solution.cost - solution.bound).abs() < 1e-6);
    let played = space.played(costs, &solution.choices, 0.0);
    assert!((solution.cost - played.kernels - played.communication).abs() < 1e-3, "{played:?}");
    let splits = operators.all.iter().zip(&space.choices).zip(&solution.choices);
    let splits = splits.map(|((operator, choices), choice)| {
        let splits = choices[*choice].split.splits;
        (operator.name.clone(), splits.into_iter().flatten().collect())
    });
    (played.communication, splits.collect())
}

fn mlp(layers: u64, hidden: u64) -> Graph {
    let mut nodes = vec![
        json!({"name": "x", "kind": "input", "dims": ["batch", "features"], "shape": ["b", hidden]}),
    ];
    for layer in 0..layers {
        let name = format!("dense {layer}");
        nodes.push(json!({"name": name, "kind": "linear", "out_features": hidden, "bias": false}));
        nodes.push(json!({"name": format!("relu {layer}"), "kind": "relu"}));
    }
    nodes.push(json!({"name": "loss", "kind": "mean_squared_error"}));
    graph(&nodes)
}

/// Alpa, `tests/shard_parallel/test_mlp.py`: a large batch is shared, and gradients of all layers are all-reduced.
#[test]
fn narrow_layers_of_a_large_batch_are_data_parallel() {
    for (layers, batch, hidden, ranks) in [(6, 256, 32, 4), (2, 512, 64, 8), (9, 64, 8, 2)] {
        let costs = AlphaBeta { mesh: [ranks, 1], alpha: 1.0, beta: [1.0; 2] };
        let (cost, splits) = least(&mlp(layers, hidden), batch, &costs);
        let expected = layers as f64 * costs.all_reduce(0, hidden * hidden * 4);
        assert!((cost - expected).abs() < 1e-6, "{cost} {expected} {splits:?}");
        assert!(splits.iter().all(|(_, dims)| *dims == [SplitDim::Batch]), "{splits:?}");
    }
}

/// The same: of wide layers columns and rows are split in turn, one all-reduce of activations between two layers, in
/// forward or in backward, and none of gradients.
#[test]
fn wide_layers_of_a_small_batch_alternate_columns_and_rows() {
    for (layers, batch, hidden, ranks) in [(6, 32, 256, 4), (5, 8, 128, 2), (2, 64, 1024, 8)] {
        let costs = AlphaBeta { mesh: [ranks, 1], alpha: 1.0, beta: [1.0; 2] };
        let (cost, splits) = least(&mlp(layers, hidden), batch, &costs);
        let expected = (layers - 1) as f64 * costs.all_reduce(0, batch * hidden * 4);
        assert!((cost - expected).abs() < 1e-6, "{cost} {expected} {splits:?}");
        let dense = splits.iter().filter(|(name, _)| name.starts_with("dense"));
        let dense: Vec<SplitDim> = dense.map(|(_, dims)| dims[0]).collect();
        let turns = [SplitDim::OutFeatures, SplitDim::InFeatures];
        let expected: Vec<SplitDim> = turns.into_iter().cycle().take(dense.len()).collect();
        assert_eq!(dense, expected);
    }
}

/// The same on a mesh of 2 x 2 whose second axis is ten times as fast: gradients along the first, activations along the
/// second.
#[test]
fn a_mesh_of_two_axes_has_data_and_tensor_parallelism() {
    for (layers, batch, hidden) in [(6, 256, 32), (4, 512, 64), (8, 1024, 128)] {
        let costs = AlphaBeta { mesh: [2, 2], alpha: 1.0, beta: [1.0, 0.1] };
        let (cost, splits) = least(&mlp(layers, hidden), batch, &costs);
        let expected = layers as f64 * costs.all_reduce(0, hidden * hidden * 4 / 2)
            + (layers - 1) as f64 * costs.all_reduce(1, batch * hidden * 4 / 2);
        assert!((cost - expected).abs() < 1e-6, "{cost} {expected} {splits:?}");
    }
}

fn convolutions(layers: u64, [channels, side]: [u64; 2], groups: u64) -> Vec<Value> {
    let mut nodes = vec![json!({
        "name": "image", "kind": "input", "dims": ["batch", "channels", "height", "width"],
        "shape": ["b", channels, side, side]
    })];
    for layer in 0..layers {
        nodes.push(json!({
            "name": format!("conv {layer}"), "kind": "conv2d", "out_channels": channels, "kernel": 3,
            "padding": 1, "groups": groups, "bias": false
        }));
        nodes.push(json!({"name": format!("relu {layer}"), "kind": "relu"}));
    }
    nodes
}

/// Alpa, `tests/shard_parallel/test_conv.py`: convolutions are data-parallel for large batches and split over channels
/// for small ones.
#[test]
fn convolutions_change_from_batch_to_channels() {
    for (batch, channels, side, is_batch) in [(64, 8, 16, true), (4, 512, 2, false)] {
        let costs = AlphaBeta { mesh: [4, 1], alpha: 1.0, beta: [1.0; 2] };
        let mut nodes = convolutions(4, [channels, side], 1);
        nodes.push(json!({"name": "loss", "kind": "mean_squared_error"}));
        let (cost, splits) = least(&graph(&nodes), batch, &costs);
        let gradients = 4.0 * costs.all_reduce(0, channels * channels * 9 * 4);
        let activations = 3.0 * costs.all_reduce(0, batch * channels * side * side * 4);
        let expected = if is_batch { gradients } else { activations };
        assert!((cost - expected).abs() < 1e-6, "{cost} {expected} {splits:?}");
    }
}

/// The same: of a wide convolution, a depthwise one and one that narrows again, the last alone needs an all-reduce.
#[test]
fn a_depthwise_tower_needs_one_all_reduce() {
    for (channels, side, batch, ranks) in [(256, 8, 4, 4), (128, 4, 2, 8)] {
        let costs = AlphaBeta { mesh: [ranks, 1], alpha: 1.0, beta: [1.0; 2] };
        let mut nodes = convolutions(0, [channels, side], 1);
        let wide = 8 * channels;
        for (name, out, groups) in
            [("wide", wide, 1), ("depthwise", wide, wide), ("narrow", channels, 1)]
        {
            nodes.push(json!({
                "name": name, "kind": "conv2d", "out_channels": out, "kernel": 3, "padding": 1, "groups": groups,
                "bias": false
            }));
        }
        nodes.push(json!({"name": "relu", "kind": "relu"}));
        nodes.push(json!({"name": "norm", "kind": "batch_norm"}));
        nodes.push(json!({"name": "loss", "kind": "mean_squared_error"}));
        let (cost, splits) = least(&graph(&nodes), batch, &costs);
        let expected = costs.all_reduce(0, batch * channels * side * side * 4);
        assert!((cost - expected).abs() < 1e-6, "{cost} {expected} {splits:?}");
    }
}

/// Operators of a random graph: each reads one that came before, or adds two of one shape.
fn random_graphs() -> impl Strategy<Value = (Graph, u64, ByMeshAxis<u32>)> {
    let layer = (0..4_u8, any::<u8>(), any::<u8>(), prop::sample::select(vec![4_u64, 8, 12]));
    let layers = prop::collection::vec(layer, 1..6);
    let meshes = prop::sample::select(vec![[2, 1], [4, 1], [2, 2]]);
    (layers, prop::sample::select(vec![2_u64, 4, 12]), meshes).prop_map(|(layers, batch, mesh)| {
        let shape = json!({"dims": ["batch", "features"], "shape": ["b", 8]});
        let mut nodes = vec![json!({"name": "n0", "kind": "input", "dims": shape["dims"], "shape": shape["shape"]})];
        let mut edges = Vec::new();
        let mut widths = vec![8];
        for (kind, first, second, width) in layers {
            let name = format!("n{}", nodes.len());
            let first = usize::from(first) % widths.len();
            let second = usize::from(second) % widths.len();
            let mut edge = |from: usize| edges.push(json!({"from": format!("n{from}"), "to": name}));
            edge(first);
            let is_sum = kind == 0 && first != second && widths[first] == widths[second];
            if is_sum {
                edge(second);
            }
            nodes.push(match kind {
                _ if is_sum => json!({"name": name, "kind": "add"}),
                1 => json!({"name": name, "kind": "relu"}),
                _ => json!({"name": name, "kind": "linear", "out_features": width, "bias": kind == 2}),
            });
            widths.push(if is_sum || kind == 1 { widths[first] } else { width });
        }
        (graph_of(&nodes, &edges), batch, mesh)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What is found costs what the best of all combinations costs.
    #[test]
    fn nothing_is_better_than_what_is_found((graph, batch, mesh) in random_graphs(), alpha in 0..2000_u32) {
        let costs = AlphaBeta { mesh, alpha: f64::from(alpha), beta: [1.0, 0.3] };
        let operators = Operators::new(&graph);
        let sizes = Sizes { micro_batch_size: batch, sequence_length: 1 };
        let space = SplitSpace::new(&costs, &operators, mesh, sizes, 1);
        let counts: Vec<usize> = space.choices.iter().map(|choices| choices.len()).collect();
        prop_assume!(counts.iter().product::<usize>() < 20_000);
        let solution = space.program(&sums(&operators)).least();
        let cost = |mut index: usize| {
            let mut choices = Vec::new();
            for count in &counts {
                choices.push(index % count);
                index /= count;
            }
            let played = space.played(&costs, &choices, 0.0);
            played.kernels + played.communication
        };
        let best = (0..counts.iter().product()).map(cost).fold(f64::INFINITY, f64::min);
        prop_assert!((solution.cost - best).abs() < 1e-6 * best.max(1.0), "{} {best}", solution.cost);
    }
}
