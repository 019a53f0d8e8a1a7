//! Steps as execution traces: what another reader finds in the files, held against the simulator and the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use ir::collective::Collective;
use ir::plan::Breakdown;
use planner_core::plan::CheckedPlan;
use serde_json::Value;
use tempfile::TempDir;
use traces::timeline::{Activity, Stream, Track};

use crate::cli::{planner, run};

/// A node as it stands in a file, read without the code that writes it.
#[derive(Debug, Default)]
struct Node {
    id: u64,
    name: String,
    kind: u64,
    control: Vec<u64>,
    data: Vec<u64>,
    micros: u64,
    numbers: BTreeMap<String, u64>,
    group: Option<String>,
}

// Values of `NodeType` and of `CollectiveCommType`.
const LOAD: u64 = 2;
const STORE: u64 = 3;
const COMPUTE: u64 = 4;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;
const ALL_GATHER: u64 = 2;

impl Node {
    fn number(&self, name: &str) -> u64 {
        *self.numbers.get(name).unwrap_or_else(|| panic!("no `{name}`: {self:?}"))
    }

    fn is_of_host(&self) -> bool {
        self.number("is_cpu_op") == 1
    }

    /// Source, destination, tag and size of a message.
    fn message(&self) -> [u64; 4] {
        ["comm_src", "comm_dst", "comm_tag", "comm_size"].map(|name| self.number(name))
    }

    /// The whole buffer of a collective of `size` ranks.
    fn whole(&self, size: usize) -> u64 {
        let parts = if self.number("comm_type") == ALL_GATHER { size as u64 } else { 1 };
        self.number("comm_size") * parts
    }

    /// What it waits for: simulators read data alone.
    fn dependencies(&self) -> impl Iterator<Item = u64> {
        assert!(self.control.iter().all(|it| self.data.contains(it)), "{self:?}");
        self.data.iter().copied()
    }
}

/// The wire format of protobuf.
struct Wire<'a>(&'a [u8]);

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().expect("a whole number");
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
        }
        panic!("a number of more than 64 bits");
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number() as usize;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// Fields with their numbers.
    fn fields(mut self) -> Vec<(u64, Field<'a>)> {
        let mut fields = Vec::new();
        while !self.0.is_empty() {
            let key = self.number();
            let field = match key & 7 {
                0 => Field::Number(self.number()),
                2 => Field::Bytes(self.bytes()),
                kind => panic!("no field of a trace has the wire type {kind}"),
            };
            fields.push((key >> 3, field));
        }
        fields
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let mut wire = Wire(bytes);
    let mut numbers = Vec::new();
    while !wire.0.is_empty() {
        numbers.push(wire.number());
    }
    numbers
}

fn read_node(bytes: &[u8]) -> Node {
    let mut node = Node::default();
    for (number, field) in Wire(bytes).fields() {
        match (number, field) {
            (1, Field::Number(id)) => node.id = id,
            (2, Field::Bytes(name)) => node.name = text(name),
            (3, Field::Number(kind)) => node.kind = kind,
            (4, Field::Bytes(ids)) => node.control = numbers(ids),
            (5, Field::Bytes(ids)) => node.data = numbers(ids),
            (7, Field::Number(micros)) => node.micros = micros,
            (10, Field::Bytes(attribute)) => {
                let mut name = String::new();
                for (number, field) in Wire(attribute).fields() {
                    match (number, field) {
                        (1, Field::Bytes(bytes)) => name = text(bytes),
                        // int32, int64, uint64, bool.
                        (7 | 9 | 13 | 27, Field::Number(value)) => {
                            node.numbers.insert(name.clone(), value);
                        }
                        (29, Field::Bytes(value)) => node.group = Some(text(value)),
                        (number, _) => panic!("an attribute has no field {number} here"),
                    }
                }
            }
            (number, _) => panic!("a node has no field {number} here"),
        }
    }
    node
}

/// The nodes of a file; before them its version.
fn read_trace(path: &Path) -> Vec<Node> {
    let bytes = fs::read(path).unwrap();
    let mut wire = Wire(&bytes);
    let metadata = Wire(wire.bytes()).fields();
    assert!(matches!(metadata[0], (1, Field::Bytes(b"1.0.0"))), "{}", path.display());
    let mut nodes = Vec::new();
    while !wire.0.is_empty() {
        nodes.push(read_node(wire.bytes()));
    }
    nodes
}

/// All traces of a plan with its groups, and the plan.
struct Exported {
    plan: CheckedPlan,
    json: Value,
    ranks: Vec<Vec<Node>>,
    groups: BTreeMap<String, Vec<u64>>,
}

fn plan(args: &str, path: &Path) {
    let run = run(&format!("evaluate {args} --quiet -o {}", path.display()));
    assert_eq!(run.code, Some(0), "{args}: {run:?}");
}

fn export(args: &str) -> Exported {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("plan.json");
    plan(args, &path);
    let job = folder.path().join("job");
    let [from, to] = [&path, &job].map(|path| path.to_str().unwrap());
    let run = planner(&["export", from, "--to", "chakra", "-o", to]);
    assert_eq!(run.code, Some(0), "{args}: {run:?}");
    let written = fs::read_to_string(&path).unwrap();
    let checked = planner_core::plan::read(&written).unwrap();
    let json = serde_json::from_str(&written).unwrap();
    let rank = |rank| read_trace(&job.join(format!("step.{rank}.et")));
    let ranks = (0..checked.plan.num_gpus).map(rank).collect();
    let groups = fs::read_to_string(job.join("groups.json")).unwrap();
    Exported { plan: checked, json, ranks, groups: serde_json::from_str(&groups).unwrap() }
}

/// Each node depends on nodes before it.
fn check_dependencies(exported: &Exported) {
    for nodes in &exported.ranks {
        for (node, id) in nodes.iter().zip(1..) {
            assert_eq!(node.id, id);
            assert!(node.dependencies().all(|other| (1..id).contains(&other)), "{node:?}");
        }
    }
}

/// Each message that is sent is received once, where it is sent to.
fn check_messages(exported: &Exported) {
    let mut messages: [BTreeSet<[u64; 4]>; 2] = Default::default();
    for (nodes, rank) in exported.ranks.iter().zip(0..) {
        for node in nodes.iter().filter(|node| [SEND, RECEIVE].contains(&node.kind)) {
            let message = node.message();
            let end = usize::from(node.kind == RECEIVE);
            assert_eq!(message[end], rank, "{node:?}");
            assert!(messages[end].insert(message), "twice: {node:?}");
        }
    }
    let [sent, received] = messages;
    assert_eq!(sent, received);
}

/// All ranks of a group run the same collectives in it.
fn check_collectives(exported: &Exported) {
    let mut runs: BTreeMap<&str, BTreeMap<u64, Vec<[u64; 2]>>> = BTreeMap::new();
    for (nodes, rank) in exported.ranks.iter().zip(0..) {
        for node in nodes.iter().filter(|node| node.kind == COLLECTIVE) {
            let group = node.group.as_deref().expect("a group");
            let what = ["comm_type", "comm_size"].map(|name| node.number(name));
            runs.entry(group).or_default().entry(rank).or_default().push(what);
        }
    }
    assert_eq!(
        runs.keys().copied().collect::<Vec<_>>(),
        exported.groups.keys().collect::<Vec<_>>()
    );
    for (group, by_rank) in runs {
        let members = &exported.groups[group];
        assert_eq!(&by_rank.keys().copied().collect::<Vec<u64>>(), members, "group {group}");
        let first = &by_rank[&members[0]];
        assert!(by_rank.values().all(|other| other == first), "group {group}");
    }
}

/// A simulator that lets a rank have one exchange under way, as ASTRA-sim does, the first that can begin, comes to the
/// end of all ranks, whichever rank it looks at first.
fn check_progress(exported: &Exported, backwards: bool) {
    let num_ranks = exported.ranks.len();
    let mut done: Vec<Vec<bool>> =
        exported.ranks.iter().map(|it| vec![false; it.len() + 1]).collect();
    let mut under_way: Vec<Option<usize>> = vec![None; num_ranks];
    let mut arrived = BTreeSet::new();
    let mut first_left = vec![0; num_ranks];
    loop {
        let mut is_stuck = true;
        for turn in 0..num_ranks {
            let rank = if backwards { num_ranks - 1 - turn } else { turn };
            let nodes = &exported.ranks[rank];
            for (index, node) in nodes.iter().enumerate().skip(first_left[rank]) {
                let id = node.id as usize;
                let is_ready = || node.dependencies().all(|other| done[rank][other as usize]);
                if done[rank][id] || !is_ready() {
                    continue;
                }
                let is_over = match node.kind {
                    COMPUTE | LOAD | STORE => true,
                    SEND => under_way[rank].is_none() && arrived.insert(node.message()),
                    RECEIVE => arrived.contains(&node.message()),
                    _ => {
                        under_way[rank].get_or_insert(index);
                        false
                    }
                };
                if is_over {
                    done[rank][id] = true;
                    is_stuck = false;
                }
            }
            while first_left[rank] < nodes.len() && done[rank][first_left[rank] + 1] {
                first_left[rank] += 1;
            }
        }
        for members in exported.groups.values() {
            let at = |rank: &u64| {
                let rank = *rank as usize;
                under_way[rank].map(|index| &exported.ranks[rank][index])
            };
            let group = at(&members[0]).and_then(|node| node.group.clone());
            let is_whole = members.iter().all(|rank| {
                at(rank).is_some_and(|node| {
                    node.group == group && exported.groups[group.as_ref().unwrap()] == *members
                })
            });
            if is_whole {
                for rank in members {
                    let rank = *rank as usize;
                    let index = under_way[rank].take().unwrap();
                    done[rank][exported.ranks[rank][index].id as usize] = true;
                }
                is_stuck = false;
            }
        }
        if is_stuck {
            break;
        }
    }
    for (rank, done) in done.iter().enumerate() {
        let left = done.iter().skip(1).position(|done| !done);
        assert!(left.is_none(), "rank {rank} stops at {:?}", exported.ranks[rank][left.unwrap()]);
    }
}

/// The first rank of each pipeline rank, with what the simulator has of it.
fn pipeline_ranks(exported: &Exported) -> impl Iterator<Item = (&[Node], &Track, &Breakdown)> {
    let simulated = &exported.plan.simulated;
    let tracks = simulated.simulation.timeline.tracks.iter().zip(&simulated.breakdown_by_rank);
    tracks.map(|(track, spent)| (exported.ranks[track.rank as usize].as_slice(), track, spent))
}

/// What is exchanged is what the simulator's timeline has: of collectives, of messages between stages, of rings.
fn check_volume(exported: &Exported) {
    for (nodes, track, _) in pipeline_ranks(exported) {
        let mut written = [0_u64; 3];
        for node in nodes {
            match node.kind {
                COLLECTIVE => {
                    let size = exported.groups[node.group.as_ref().unwrap()].len();
                    written[0] += node.whole(size);
                }
                SEND if node.name.contains("SEND_") => written[1] += node.number("comm_size"),
                SEND => written[2] += node.number("comm_size"),
                _ => {}
            }
        }
        let mut simulated = [0_u64; 3];
        for event in &track.events {
            let bytes = event.bytes.get();
            match (event.stream, event.activity) {
                (_, Activity::Collective { collective: Collective::SendReceive, .. }) => {
                    simulated[2] += bytes;
                }
                (Stream::Data, _) | (_, Activity::Collective { .. }) => simulated[0] += bytes,
                (Stream::Send, _) => simulated[1] += bytes,
                _ => {}
            }
        }
        for (written, simulated) in written.into_iter().zip(simulated) {
            // Shards are rounded up to whole bytes.
            let off = written.abs_diff(simulated);
            assert!(
                off as f64 <= simulated as f64 * 1e-6,
                "{}: {written}, {simulated}",
                track.name
            );
        }
    }
}

/// Kernels and waits for the host take as long as the simulator has them at full rate: `share` of what they take in
/// its step at least.
fn check_times(exported: &Exported, share: f64) {
    for (nodes, track, spent) in pipeline_ranks(exported) {
        let seconds = |of_host| {
            let of =
                nodes.iter().filter(|node| node.kind == COMPUTE && node.is_of_host() == of_host);
            of.map(|node| node.micros).sum::<u64>() as f64 * 1e-6
        };
        let passes = spent.compute_seconds + spent.recompute_seconds;
        // What is computed again waits for the host too, which may update.
        let offload = exported.json["layout"]["offload"].as_str().unwrap();
        let update = spent.optimizer_seconds;
        let [on_device, on_host] =
            if offload.contains("optimizer") { [0.0, update] } else { [update, 0.0] };
        let kernels = passes + on_device;
        let least_host = spent.host_seconds + on_host;
        let host = [least_host, least_host + spent.recompute_seconds];
        for (name, written, [least, most]) in
            [("kernels", seconds(false), [kernels * share, kernels]), ("host", seconds(true), host)]
        {
            let is_within = written > least - 1e-6 && written < most + 1e-6;
            assert!(is_within, "{} {name}: {written}, {least} to {most}", track.name);
        }
    }
}

/// The groups are those of the layout, by the order of ranks: tensor, context, data, pipeline, fastest first.
fn check_groups(exported: &Exported) {
    let degree = |name: &str| exported.json["layout"][name].as_u64().unwrap();
    let [tp, cp, dp, pp] =
        ["tensor_parallel", "context_parallel", "data_parallel", "pipeline_parallel"].map(degree);
    let [ep, etp] = ["expert_parallel", "expert_tensor_parallel"].map(degree);
    let shard = degree("zero_shard");
    let stage = tp * cp * dp;
    let all = stage * pp;
    // Groups of `size` ranks, `stride` apart.
    let along = |size: u64, stride: u64| -> BTreeSet<Vec<u64>> {
        let first = |rank: &u64| (rank / stride).is_multiple_of(size);
        let group = |rank: u64| (0..size).map(|place| rank + place * stride).collect();
        (0..all).filter(first).map(group).filter(|it: &Vec<u64>| it.len() > 1).collect()
    };
    let expected: BTreeSet<Vec<u64>> = [
        along(tp, 1),
        along(cp, tp),
        along(cp * dp, tp),
        along(shard, tp),
        along(cp * dp / shard, tp * shard),
        along(ep, etp),
        along(etp, 1),
        along(stage / (ep * etp), ep * etp),
        along(2, stage * pp.saturating_sub(1).max(1)),
        along(all, 1),
    ]
    .into_iter()
    .flatten()
    .collect();
    let written: BTreeSet<Vec<u64>> = exported.groups.values().cloned().collect();
    let schedule = exported.json["layout"]["schedule"].as_str().unwrap();
    // No norm is taken of gradients of different steps.
    let all_ranks = if schedule == "async-1f1b" { BTreeSet::new() } else { along(all, 1) };
    let copies = schedule == "dualpipe";
    for group in &written {
        assert!(copies || expected.contains(group), "{group:?} is none of {expected:?}");
    }
    for axis in [along(tp, 1), along(shard, tp), all_ranks] {
        assert!(axis.is_subset(&written), "{axis:?} are missing in {written:?}");
    }
}

fn check(args: &str, share: f64) {
    let exported = export(args);
    check_dependencies(&exported);
    check_messages(&exported);
    check_collectives(&exported);
    check_progress(&exported, false);
    check_progress(&exported, true);
    check_times(&exported, share);
    check_groups(&exported);
    // Parts that are gathered, and shards that are summed, are more than the one transfer of the timeline.
    if !args.contains("sequence-parallel false") && !args.contains("zero-shard") {
        check_volume(&exported);
    }
}

/// Where no exchange is within a pass, kernels take what they do in the simulator's step.
#[test]
fn traces_of_pipelines_and_replicas() {
    for args in [
        "models/gpt2 --gpus 4 --layout dp4 --zero 0 --global-batch-size 32",
        "models/gpt2 --gpus 8 --layout pp2-dp4 --zero 1 --schedule 1f1b --global-batch-size 32",
        "models/gpt2 --gpus 8 --layout dp8 --zero 3 --global-batch-size 32",
        "models/gpt2 --gpus 8 --layout dp8 --zero 3 --zero-shard 4 --global-batch-size 32",
        "models/gpt2 --gpus 8 --layout pp4-dp2 --zero 2 --schedule interleaved-1f1b --virtual-stages 2 \
         --global-batch-size 16 --micro-batch-size 1 --framework ideal",
        "models/gpt2 --gpus 8 --layout pp4-dp2 --schedule zb-h1 --zero 1 --global-batch-size 16 --micro-batch-size 1",
        "models/gpt2 --gpus 8 --layout pp4-dp2 --schedule zbv --zero 0 --global-batch-size 16 --micro-batch-size 1 \
         --framework torchtitan",
        "models/gpt2 --gpus 8 --layout pp4-dp2 --schedule async-1f1b --zero 0 --global-batch-size 16 \
         --micro-batch-size 1 --framework ideal",
        "models/gpt2 --gpus 8 --layout pp2-dp4 --zero 1 --global-batch-size 32 --framework deepspeed",
    ] {
        check(args, 1.0);
    }
}

/// Exchanges within passes slow kernels down, which the traces leave to whoever plays them.
#[test]
fn traces_of_tensor_context_and_expert_parallelism() {
    for args in [
        "models/llama-3.1-8b --gpus 8 --layout tp2-pp2-dp2 --zero 1 --global-batch-size 8",
        "models/llama-3.1-8b --gpus 8 --layout tp2-pp2-dp2 --zero 1 --sequence-parallel false --global-batch-size 8",
        "models/llama-3.1-8b --gpus 8 --layout cp4-pp2 --zero 1 --seq-len 16384 --global-batch-size 4",
        "models/mixtral-8x7b --gpus 32 --layout ep8-pp2-dp16 --zero 1 --schedule 1f1b --global-batch-size 32",
        "models/llama-3.1-8b --gpus 8 --layout tp2-dp4 --recompute full --zero 1 --global-batch-size 8",
        "models/llama-3.1-8b --gpus 4 --layout dp4 --offload optimizer --zero 1 --recompute full --global-batch-size 8",
        "models/llama-3.1-8b --gpus 8 --layout dp8 --offload activations:20 --zero 1 --recompute none \
         --global-batch-size 8",
    ] {
        check(args, 0.7);
    }
}

/// Two passes beside each other take less than one after the other.
#[test]
fn traces_of_passes_that_overlap() {
    for schedule in ["dualpipe", "dualpipev"] {
        let args = format!(
            "models/gpt2 --gpus 8 --layout pp4-dp2 --schedule {schedule} --zero 0 --global-batch-size 32 \
             --micro-batch-size 1 --framework ideal"
        );
        check(&args, 0.7);
    }
}

/// The first nodes of a rank in the middle, to be read.
#[test]
fn a_trace_in_words() {
    let exported = export(
        "models/gpt2 --gpus 4 --layout tp2-sp-pp2 --zero 0 --schedule 1f1b --global-batch-size 2 --micro-batch-size 1 \
         --stages 6,6",
    );
    let line = |node: &Node| {
        let group = node.group.as_ref().map(|group| format!(" group {group}")).unwrap_or_default();
        let numbers: Vec<String> = node
            .numbers
            .iter()
            .filter(|(name, _)| *name != "is_cpu_op")
            .map(|(name, value)| format!(" {name} {value}"))
            .collect();
        format!(
            "{} {}{group}{} after {:?} {:?}\n",
            node.id,
            node.name,
            numbers.concat(),
            node.data,
            node.control
        )
    };
    let first: String = exported.ranks[2].iter().take(8).map(line).collect();
    assert_snapshot!(first, @r"
    1 1F0 receive comm_dst 2 comm_size 786432 comm_src 0 comm_tag 0 after [] []
    2 1F0 kernels num_ops 1 tensor_size 1572864 after [1] []
    3 1F0 all_gather group 5 comm_size 786432 comm_type 2 after [2] []
    4 1F0 kernels num_ops 3222011904 tensor_size 11796480 after [2, 3] []
    5 1F0 reduce_scatter group 5 comm_size 1572864 comm_type 7 after [3, 4] [3]
    6 1F0 kernels num_ops 1 tensor_size 3932160 after [4, 5] []
    7 1F0 all_gather group 5 comm_size 786432 comm_type 2 after [5, 6] [5]
    8 1F0 kernels num_ops 4831838208 tensor_size 20447232 after [6, 7] []
    ");
    let groups: Vec<String> =
        exported.groups.iter().map(|(name, ranks)| format!("{name} {ranks:?}")).collect();
    assert_snapshot!(groups.join("\n"), @r"
    1 [0, 1]
    2 [0, 1, 2, 3]
    3 [0, 2]
    4 [1, 3]
    5 [2, 3]
    ");
}

/// What the command says: of all ranks, of some, of too many, and of what cannot be written.
#[test]
fn which_traces_are_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("plan.json");
    plan("models/gpt2 --gpus 8 --layout dp8 --zero 1 --global-batch-size 8", &path);
    let job = folder.path().join("job");
    let [from, to] = [&path, &job].map(|path| path.to_str().unwrap());
    let export = |more: &[&str]| planner(&[&["export", from, "--to", "chakra"], more].concat());
    let some = export(&["-o", to, "--ranks", "6-7,0,6"]);
    assert_eq!(some.code, Some(0), "{some:?}");
    assert!(some.stdout.contains("ASTRA-sim wants all 8 ranks"), "{some:?}");
    let mut files: Vec<String> = fs::read_dir(&job)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["groups.json", "step.0.et", "step.6.et", "step.7.et"]);
    for (more, expected) in [
        (&["-o", to, "--ranks", "0-8"][..], "the plan has no rank 8\nhint: 0 to 7"),
        (&["-o", to, "--ranks", "7-0"], "must be ranks and ranges, such as `0-7,64`"),
        (&[], "hint: `-o DIR` names a folder"),
        (&["-o", to, "--approximate"], "`--approximate` is for training tools"),
    ] {
        let run = export(more);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
    let megatron = planner(&["export", from, "--to", "megatron", "--ranks", "0"]);
    assert_eq!(megatron.code, Some(2), "{megatron:?}");
    assert!(megatron.stderr.contains("`--ranks` is for `--to chakra`"), "{megatron:?}");
}
