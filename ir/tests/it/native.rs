//! Native graphs: the shipped ones count right, wrong ones are told why, none panics.

#![expect(clippy::needless_pass_by_value, reason = "checks are called with `json!`")]

use ir::graph::{Block, Extent, Graph, OpKind, SavedPart, ShardContext, Sharding, Sizes};
use ir::native;
use serde_json::{Value, json};

mod laws;
mod torch;

const RESNET: &str = include_str!("../../../models/resnet-50.json");
const ALEXNET: &str = include_str!("../../../models/alexnet.json");
const VGG: &str = include_str!("../../../models/vgg-19.json");
const TOY: &str = include_str!("../../../models/toy-mlp.json");

/// torchvision's `_meta["num_params"]` and `_ops` (in 10^9 multiply-accumulates) of the weights
/// `IMAGENET1K_V1`; the toy by hand, 10 x 10 + 10 + 10 x 5 + 5.
#[test]
fn shipped_models_count_as_torchvision_counts() {
    check_counts(RESNET, "resnet-50", 25_557_032, "4.09");
    check_counts(ALEXNET, "alexnet", 61_100_840, "0.71");
    check_counts(VGG, "vgg-19", 143_667_240, "19.63");
    check_counts(TOY, "toy-mlp", 165, "0.00");
}

fn check_counts(text: &str, name: &str, num_parameters: u64, giga_macs: &str) {
    let (read_name, graph) = native::read(text).unwrap();
    assert_eq!(read_name, name);
    assert_eq!(graph.parameter_counts().total, num_parameters, "{name}");
    let macs: u64 = graph.blocks().map(|class| multiply_accumulates(graph.class(class))).sum();
    assert_eq!(format!("{:.2}", macs as f64 / 1e9), giga_macs, "{name}: {macs}");
}

/// Of convolutions and linear layers, for one sample: elements that come out times those summed.
fn multiply_accumulates(block: &Block) -> u64 {
    let sizes = Sizes { micro_batch_size: 1, sequence_length: 1 };
    let contracted = |id| {
        let input = &block.op(block.inputs(id)[0]).output;
        match &block.op(id).kind {
            OpKind::Linear { contracted, .. } => {
                let dims = input.dims.iter().filter(|dim| contracted.contains(&dim.name));
                dims.map(|dim| dim.extent.resolve(sizes)).product()
            }
            OpKind::Conv2d { window, groups, .. } => {
                let Extent::Fixed(channels) = input.dims[1].extent else { unreachable!() };
                channels / groups * window.kernel[0] * window.kernel[1]
            }
            _ => 0,
        }
    };
    block
        .nodes()
        .filter(|node| node.op.kind != OpKind::Input)
        .map(|node| contracted(node.id) * node.op.output.num_elements(sizes))
        .sum()
}

/// Data that a later block takes first is saved for its weight's gradient and needs none itself; a tensor and its view
/// are one.
#[test]
fn data_of_later_blocks_and_views_are_saved_once() {
    let saved = |nodes: Value, edges: &[[&str; 2]]| -> Vec<u64> {
        let edges: Vec<Value> =
            edges.iter().map(|[from, to]| json!({"from": from, "to": to})).collect();
        let text = json!({"format": "planner-graph", "version": 1, "name": "m", "nodes": nodes, "edges": edges});
        let (_, graph) = native::read(&text.to_string()).unwrap();
        let sizes = Sizes { micro_batch_size: 1, sequence_length: 1 };
        let work = |(index, block): (usize, ir::graph::ClassId)| {
            let setting = ShardContext {
                reads_data: index == 0,
                ..ShardContext::plain(sizes, Sharding::NONE)
            };
            let all = graph.class(block).work(&setting).saved;
            let own = all
                .iter()
                .filter(|it| it.part == SavedPart::Value && !it.is_shared && !it.is_start);
            own.map(|it| it.bytes.get() / 2).sum()
        };
        graph.blocks().enumerate().map(work).collect()
    };
    let linear =
        |name: &str, width: u64| json!({"name": name, "kind": "linear", "out_features": width});
    let input = |name: &str, width: u64| json!({"name": name, "kind": "input", "dims": ["batch", "features"], "shape": ["b", width]});
    let nodes = json!([
        input("a", 64), linear("la", 64), {"name": "ra", "kind": "relu"}, input("b", 512), linear("lb", 64),
        {"name": "s", "kind": "add"}, linear("lo", 5), {"name": "loss", "kind": "mean_squared_error"},
    ]);
    let edges = [
        ["a", "la"],
        ["la", "ra"],
        ["b", "lb"],
        ["ra", "s"],
        ["lb", "s"],
        ["s", "lo"],
        ["lo", "loss"],
    ];
    // Data and the rectifier's output; the other data, the sum, and what the loss takes.
    assert_eq!(saved(nodes, &edges).iter().sum::<u64>(), 64 + 64 + 512 + 64 + 5);
    let image = json!({"name": "x", "kind": "input", "dims": ["batch", "channels", "height", "width"],
        "shape": ["b", 4, 8, 8]});
    let nodes = json!([
        image, {"name": "c", "kind": "conv2d", "out_channels": 8, "kernel": 3, "padding": 1},
        {"name": "r", "kind": "relu"}, {"name": "f", "kind": "flatten"}, linear("l", 3),
        {"name": "loss", "kind": "mean_squared_error"},
    ]);
    let edges = [["x", "c"], ["c", "r"], ["r", "f"], ["f", "l"], ["l", "loss"]];
    assert_eq!(saved(nodes, &edges).iter().sum::<u64>(), 4 * 64 + 8 * 64 + 3);
}

#[test]
fn models_are_cut_where_one_tensor_goes_on() {
    check_chain(TOY, "net1 | net2");
    check_chain(
        ALEXNET,
        "features.0 | features.2 | features.3 | features.5 | features.6 | features.8 | features.10 | \
         features.12 | avgpool | classifier.1 | classifier.4 | classifier.6",
    );
    check_chain(
        RESNET,
        "conv1 | maxpool | layer1.0.conv1 | layer1.1.conv1 x2 | layer2.0.conv1 | \
         layer2.1.conv1 x3 | layer3.0.conv1 | layer3.1.conv1 x5 | layer4.0.conv1 | \
         layer4.1.conv1 x2 | avgpool | fc",
    );
}

fn check_chain(text: &str, expected: &str) {
    assert_eq!(chain(&native::read(text).unwrap().1), expected);
}

fn chain(graph: &Graph) -> String {
    let runs = graph.chain().iter().map(|run| match (graph.class(run.class).name(), run.count) {
        (name, 1) => name.to_owned(),
        (name, count) => format!("{name} x{count}"),
    });
    runs.collect::<Vec<_>>().join(" | ")
}

/// A second output in the middle must reach the end, so nothing after it is cut.
#[test]
fn outputs_in_the_middle_leave_from_the_last_block() {
    let nodes =
        json!([features(4), linear("a"), linear("b"), linear("aux"), linear("c"), linear("d")]);
    let edges =
        json!([edge("x", "a"), edge("a", "b"), edge("b", "aux"), edge("b", "c"), edge("c", "d")]);
    let (_, graph) = native::read(&file(&nodes, &edges)).unwrap();
    assert_eq!(chain(&graph), "a | b | aux");
    let (_, last) = graph.classes().last().unwrap();
    let outputs: Vec<_> = last.outputs().iter().map(|id| last.op(*id).name.as_str()).collect();
    assert_eq!(outputs, ["aux", "d"]);
}

#[test]
fn inputs_are_taken_as_listed_or_by_slot() {
    let nodes = json!([
        features(4),
        {"name": "wide", "kind": "linear", "out_features": 8, "out_dims": ["hidden"]},
        {"name": "up", "kind": "linear", "out_features": 8, "out_dims": ["hidden"]},
        {"name": "gated", "kind": "gated_activation", "activation": "silu"},
    ]);
    let gated = |first: Value, second: Value| {
        let edges = json!([edge("x", "wide"), edge("x", "up"), first, second]);
        let (_, graph) = native::read(&file(&nodes, &edges)).unwrap();
        let (_, block) = graph.classes().next().unwrap();
        let last = block.nodes().last().unwrap().id;
        let names = block.inputs(last).iter().map(|id| block.op(*id).name.clone());
        names.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(gated(edge("wide", "gated"), edge("up", "gated")), "wide, up");
    assert_eq!(gated(edge("up", "gated"), edge("wide", "gated")), "up, wide");
    let slotted = |from: &str, slot: u64| json!({"from": from, "to": "gated", "slot": slot});
    assert_eq!(gated(slotted("wide", 1), slotted("up", 0)), "up, wide");
}

/// Nodes may be listed in any order.
#[test]
fn order_of_nodes_does_not_matter_to_a_chain() {
    let mut value: Value = serde_json::from_str(VGG).unwrap();
    let whole = chain(&native::read(VGG).unwrap().1);
    value["nodes"].as_array_mut().unwrap().reverse();
    assert_eq!(chain(&native::read(&value.to_string()).unwrap().1), whole);
}

#[test]
fn an_error_says_what_and_what_would_work() {
    check_text(
        "{\n  \"format\": 1,,\n}",
        "not a native graph, line 2, column 15: key must be a string",
    );
    check_text("[]", "`format` is missing; that of a native graph is \"planner-graph\"");
    check_text("{}", "`format` is missing; that of a native graph is \"planner-graph\"");
    check_text(
        r#"{"format": "planner-graph", "version": 2}"#,
        "`version` is 2; this build reads version 1",
    );
    check(
        json!([features(4), {"name": "a", "kind": "conv3d"}]),
        json!([edge("x", "a")]),
        "node `a`: `kind` is `conv3d`, but must be one of `input`, `linear`, `grouped_linear`, `conv2d`, `conv_transpose2d`, `upsample2d`, `max_pool2d`, \
         `average_pool2d`, `adaptive_average_pool2d`, `gather`, `flatten`, `batch_norm`, `group_norm`, \
         `layer_norm`, `rms_norm`, `gelu`, `gelu_tanh`, `relu`, `silu`, `tanh`, `sigmoid`, `gated_activation`, \
         `scale`, `soft_cap`, `clamp`, `dropout`, `softmax`, `add`, `multiply`, `elementwise`, `product`, \
         `reduce`, `reshape`, `pad`, `take`, `concat`, `slice`, `embedding`, `embedding_bag`, `attention`, \
         `attention_scores`, `attention_values`, `rotary`, `parameter`, `add_parameter`, `prepend_parameter`, \
         `patches_to_sequence`, `first_token`, `router`, `dispatch`, `combine`, `cross_entropy`, \
         `mean_squared_error`\nhint: `conv2d` is the nearest",
    );
    check_node(
        json!({"name": "a", "kind": "linear", "out_featurs": 4}),
        "node `a`: `out_featurs` is not a field that is known; it may have `out_features`, `out_dims`, `over`, \
         `bias`\nhint: `out_features` is the nearest",
    );
    check_node(json!({"name": "a", "kind": "linear"}), "node `a`: `out_features` is missing");
    check_node(
        json!({"name": "a", "kind": "relu", "p": 1}),
        "node `a`: `p` is not a field that is known; it may have no field",
    );
    check_node(json!({"kind": "relu"}), "node `#1`: `name` is missing");
    check_node(
        json!({"name": "a", "kind": "linear", "out_features": "4"}),
        "node `a`: `out_features` is an integer or a list, as in 512 or [8, 64]",
    );
    check_node(
        json!({"name": "a", "kind": "linear", "out_features": 0}),
        "node `a`: `out_features` is 0, but must be from 1 to 1099511627776",
    );
    check_node(
        json!({"name": "a", "kind": "linear", "out_features": u64::MAX}),
        "node `a`: `out_features` is 18446744073709551615, but must be from 1 to 1099511627776",
    );
    check_node(
        json!({"name": "a", "kind": "linear", "out_features": 4, "out_dims": ["hidden"], "over": ["batch"]}),
        "node `a`: its weight would depend on the batch, which is not fixed",
    );
    check_node(
        json!({"name": "a", "kind": "linear", "out_features": [2, 2]}),
        "node `a`: `out_features` has 2 sizes: name them in `out_dims`",
    );
    check_node(
        json!({"name": "a", "kind": "batch_norm"}),
        "node `a`: needs a dimension `channels`, but is given [batch b, features 4]",
    );
    check_node(
        json!({"name": "x", "kind": "relu"}),
        "two nodes are called `x`: numbers 0 and 1 of `nodes`, from 0",
    );
}

#[test]
fn wrong_edges_are_named() {
    check(
        json!([features(4), linear("a")]),
        json!([edge("x", "a"), edge("a", "c")]),
        "edge `a` -> `c`: there is no node `c`",
    );
    check(
        json!([features(4), {"name": "sum", "kind": "add"}, linear("a"), linear("b")]),
        json!([edge("x", "sum"), edge("b", "sum"), edge("sum", "a"), edge("a", "b")]),
        "nodes form a cycle: `sum` -> `a` -> `b` -> `sum`",
    );
    check(
        json!([features(4), linear("a")]),
        json!([{"from": "x", "to": "a", "shape": ["b", 5]}]),
        "edge `x` -> `a` states shape [b, 5], but `x` puts out [batch b, features 4]",
    );
    check(
        json!([features(4), linear("a")]),
        json!([edge("x", "a"), edge("a", "x")]),
        "node `x`: is an input, but `a` leads to it",
    );
    check(
        json!([features(4), {"name": "y", "kind": "input", "dims": ["batch"], "shape": ["b"]}, linear("a")]),
        json!([edge("x", "a")]),
        "input `y` is not used: no edge leads from it",
    );
    check(
        json!([features(4), linear("a"), {"name": "sum", "kind": "add"}]),
        json!([edge("x", "a"), {"from": "x", "to": "sum", "slot": 1}, edge("a", "sum")]),
        "the 2 edges into `sum` state slots 1, -, but must state each of 0 to 1 once, or none at all",
    );
    check(
        json!([features(4), linear("a"), {"name": "alone", "kind": "relu"}]),
        json!([edge("x", "a")]),
        "node `alone`: no edge leads to it",
    );
    check(json!([features(4)]), json!([]), "the graph has no operators (inputs: 1)");
    check(json!([]), json!([]), "the graph has no operators (inputs: 0)");
}

#[test]
fn operators_that_do_not_fit_are_named() {
    check(
        json!([features(4), {"name": "a", "kind": "linear", "out_features": 5}, {"name": "sum", "kind": "add"}]),
        json!([edge("x", "a"), edge("x", "sum"), edge("a", "sum")]),
        "operator `sum`: cannot join shapes [batch b, features 4] and [batch b, features 5]",
    );
    check_image(
        json!({"name": "a", "kind": "conv2d", "out_channels": 8, "kernel": [3, 64]}),
        "operator `a`: a kernel of 3 x 64 does not fit an image of 32 x 32",
    );
    check_image(
        json!({"name": "a", "kind": "conv2d", "out_channels": 8, "kernel": 3, "groups": 2}),
        "operator `a`: 3 channels in and 8 out do not divide into 2 groups",
    );
    check_image(
        json!({"name": "a", "kind": "conv2d", "out_channels": 8, "kernel": 3, "stride": 0}),
        "node `a`: `stride` is 0, but must be from 1 to 1099511627776",
    );
    let huge = 1u64 << 39;
    check_image(
        json!({"name": "a", "kind": "conv2d", "out_channels": huge, "kernel": 1, "padding": huge}),
        "node `a`: its output, for each sample, would exceed 1099511627776 elements, the most that \
         is read",
    );
    check(
        json!([features(huge), {"name": "a", "kind": "linear", "out_features": huge}]),
        json!([edge("x", "a")]),
        "node `a`: the parameters up to here would exceed 1125899906842624 elements, the most that is \
         read",
    );
}

#[test]
fn kinds_that_join_or_reshape_tensors_say_what_does_not_fit() {
    let with = |node: Value| json!([features(6), {"name": "y", "kind": "linear", "out_features": 4, "out_dims": ["hidden"]}, node]);
    let check_two = |node: Value, expected: &str| {
        check(with(node), json!([edge("x", "y"), edge("x", "a"), edge("y", "a")]), expected);
    };
    check_two(
        json!({"name": "a", "kind": "product", "over": ["hidden"]}),
        "operator `a`: needs a dimension `hidden`, but is given [batch b, features 6]",
    );
    check_two(
        json!({"name": "a", "kind": "elementwise", "function": "exp"}),
        "operator `a`: takes 1 input, but is given 2",
    );
    let check_one = |node: Value, expected: &str| {
        check(json!([features(6), node]), json!([edge("x", "a")]), expected);
    };
    check_one(
        json!({"name": "a", "kind": "reshape", "dims": ["batch", "hidden"], "shape": ["b", 5]}),
        "operator `a`: [batch b, features 6] has not as many elements as [batch b, hidden 5]",
    );
    check_one(
        json!({"name": "a", "kind": "reshape", "dims": ["hidden"], "shape": [6]}),
        "operator `a`: [batch b, features 6] has not as many elements as [hidden 6]",
    );
    check_one(
        json!({"name": "a", "kind": "pad", "dim": "features", "size": 5}),
        "operator `a`: cannot pad 6 features to 5",
    );
    check_one(
        json!({"name": "a", "kind": "linear", "out_features": 4, "tied_to": "b"}),
        "node `a`: `tied_to` names `b`, which no earlier node is called",
    );
    check_one(
        json!({"name": "a", "kind": "linear", "out_features": 4, "tied_to": "x"}),
        "node `a`: `x` has no parameter that it could be tied to",
    );
    check_image(
        json!({"name": "a", "kind": "group_norm", "groups": 2}),
        "node `a`: 3 channels do not divide into 2 groups",
    );
    check_image(
        json!({"name": "a", "kind": "conv_transpose2d", "out_channels": 1, "kernel": 1, "padding": 16}),
        "operator `a`: leaves no rows or columns, or more than can be counted",
    );
}

#[test]
fn a_node_that_is_tied_counts_no_parameters() {
    let nodes = json!([
        features(4), linear("a"), {"name": "b", "kind": "linear", "out_features": 4, "tied_to": "a"},
        {"name": "c", "kind": "linear", "out_features": 4, "tied_to": "b"}
    ]);
    let edges = json!([edge("x", "a"), edge("a", "b"), edge("b", "c")]);
    let (_, graph) = native::read(&file(&nodes, &edges)).unwrap();
    assert_eq!(graph.parameter_counts().total, 20);
}

/// Sizes that PyTorch's `max_pool2d` puts out, without and with `ceil_mode`: no window begins behind the padding.
#[test]
fn a_pooling_in_ceil_mode_has_windows_beyond_the_border() {
    let sides = |rows: u64, kernel: u64, stride: u64, padding: u64, rounds_up: bool| {
        let both = |size| [size, size];
        let window = ir::graph::Window2d {
            kernel: both(kernel),
            stride: both(stride),
            padding: both(padding),
            dilation: [1, 1],
            rounds_up,
        };
        window.output(both(rows)).unwrap()[0]
    };
    assert_eq!([sides(112, 3, 2, 0, false), sides(112, 3, 2, 0, true)], [55, 56]);
    assert_eq!([sides(5, 2, 2, 0, false), sides(5, 2, 2, 0, true)], [2, 3]);
    assert_eq!([sides(3, 2, 2, 1, false), sides(3, 2, 2, 1, true)], [2, 2]);
    assert_eq!([sides(7, 2, 3, 1, false), sides(7, 2, 3, 1, true)], [3, 3]);
}

/// The reader's words for the kinds are those of the schema.
#[test]
fn an_unknown_kind_is_told_all_kinds() {
    let text = file(&json!([{"name": "a", "kind": "?"}]), &json!([]));
    let error = native::read(&text).unwrap_err().to_string();
    let schema = native::schema();
    let variants = schema["$defs"]["Node"]["oneOf"].as_array().unwrap();
    let kinds = variants
        .iter()
        .map(|kind| format!("`{}`", kind["properties"]["kind"]["const"].as_str().unwrap()));
    assert!(error.contains(&kinds.collect::<Vec<_>>().join(", ")), "{error}");
}

fn check_node(node: Value, expected: &str) {
    check(json!([features(4), node]), json!([edge("x", "a")]), expected);
}

fn check_image(node: Value, expected: &str) {
    let image = json!({"name": "x", "kind": "input",
        "dims": ["batch", "channels", "height", "width"], "shape": ["b", 3, 32, 32]});
    check(json!([image, node]), json!([edge("x", "a")]), expected);
}

fn check(nodes: Value, edges: Value, expected: &str) {
    check_text(&file(&nodes, &edges), expected);
}

fn check_text(text: &str, expected: &str) {
    assert_eq!(native::read(text).unwrap_err().to_string(), expected);
}

fn file(nodes: &Value, edges: &Value) -> String {
    json!({"format": "planner-graph", "version": 1, "name": "test", "nodes": nodes, "edges": edges})
        .to_string()
}

fn features(size: u64) -> Value {
    json!({"name": "x", "kind": "input", "dims": ["batch", "features"], "shape": ["b", size]})
}

fn linear(name: &str) -> Value {
    json!({"name": name, "kind": "linear", "out_features": 4})
}

fn edge(from: &str, to: &str) -> Value {
    json!({"from": from, "to": to})
}
