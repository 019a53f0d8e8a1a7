//! Execution traces of a step in the format of MLCommons Chakra, which ASTRA-sim replays on a simulated network.
//!
//! A trace is the graph of a rank's tasks. Collectives and messages have sizes and groups but no times: the simulator
//! computes these. The format is length-delimited protobuf (`GlobalMetadata`, then each `Node`).

mod schema;

use std::collections::{BTreeMap, BTreeSet};

use ir::collective::Collective;
use ir::units::{Bytes, Flops, Nanos};
use traces::timeline::CopyDestination;

use planner_core::plan::CheckedPlan;
use planner_core::search::with_step;
use planner_core::step::{Members, Task, TaskKind, TasksError};
use schema::{Attribute, CollectiveType, GlobalMetadata, Node, NodeType, VERSION, Value};

/// Traces of all ranks of a plan.
#[derive(Clone, Debug)]
pub struct ChakraTraces {
    num_ranks: u32,
    /// Number of consecutive ranks that have the same pipeline rank, and so run the same tasks.
    stride: u32,
    /// Tasks of each pipeline rank.
    tasks: Vec<Vec<Task>>,
    /// Number of each group of ranks, counted from 1.
    groups: BTreeMap<Vec<u32>, u32>,
    /// Attributes, names and values, that every file begins with.
    about: Vec<[String; 2]>,
}

/// Prefix of the names of trace files.
const STEP: &str = "step";

/// Name of the file with the groups.
const GROUPS: &str = "groups.json";

impl ChakraTraces {
    /// The traces of a checked plan.
    ///
    /// # Errors
    ///
    /// [`TasksError`] if the ranks exchange data otherwise than by collectives and messages.
    pub fn new(checked: &CheckedPlan) -> Result<Self, TasksError> {
        let CheckedPlan { plan, problem, found, .. } = checked;
        if !plan.layout.micro_batches_by_group.is_empty() {
            let what = "replicas that lie in groups of unlike GPUs, and have steps of their own"
                .to_owned();
            return Err(TasksError::Opaque { what, works: "a plan on GPUs of one kind" });
        }
        let of_step = |step: &planner_core::step::Step<'_>| {
            Ok::<_, TasksError>((step.assignment.ranks.group.stride, step.tasks()?))
        };
        let (stride, tasks) = with_step(problem, found.layout, &found.stage_ends, of_step)?;
        let about = [
            ["model", &plan.model.name],
            ["layout", &plan.layout.to_string()],
            ["framework", &plan.framework.name],
            ["planner_version", &plan.provenance.planner_version],
        ];
        let about = about.map(|pair| pair.map(str::to_owned)).to_vec();
        let groups = groups(&tasks, stride);
        Ok(Self { num_ranks: plan.num_gpus, stride, tasks, groups, about })
    }

    /// Number of ranks.
    pub fn num_ranks(&self) -> u32 {
        self.num_ranks
    }

    /// Name of the trace file of a rank.
    pub fn name(rank: u32) -> String {
        format!("{STEP}.{rank}.et")
    }

    /// Name of the file with the groups.
    pub fn name_of_groups() -> &'static str {
        GROUPS
    }

    /// Options of ASTRA-sim that name the traces and groups in a folder.
    pub fn options(folder: &str) -> String {
        format!(
            "--workload-configuration={folder}/{STEP} --comm-group-configuration={folder}/{GROUPS}"
        )
    }

    /// Total size of all ranks' trace files, in bytes.
    pub fn num_bytes(&self) -> u64 {
        let firsts = (0..self.num_ranks).step_by(self.stride as usize);
        firsts.map(|rank| self.of_rank(rank).len() as u64 * u64::from(self.stride)).sum()
    }

    /// JSON of the groups of ranks that run collectives: the number and the ranks of each group.
    pub fn groups(&self) -> String {
        let by_number: BTreeMap<u32, &Vec<u32>> =
            self.groups.iter().map(|(ranks, number)| (*number, ranks)).collect();
        let lines = by_number.into_iter().map(|(number, ranks)| {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("  \"{number}\": [{}]", ranks.join(", "))
        });
        format!("{{\n{}\n}}\n", lines.collect::<Vec<String>>().join(",\n"))
    }

    /// Bytes of the trace file of a rank.
    ///
    /// # Panics
    ///
    /// If the plan has no such rank.
    pub fn of_rank(&self, rank: u32) -> Vec<u8> {
        let tasks = &self.tasks[(rank / self.stride) as usize];
        let mut bytes = Vec::new();
        let about = self.about.iter();
        let attributes =
            about.map(|[name, value]| Attribute::new(name, Value::String(value.clone())));
        let metadata =
            GlobalMetadata { version: VERSION.to_owned(), attributes: attributes.collect() };
        let mut clock = Clock::default();
        write(&mut bytes, &metadata);
        for (task, id) in tasks.iter().zip(FIRST_ID..) {
            write(&mut bytes, &self.node(rank, task, id, &mut clock));
        }
        bytes
    }

    fn node(&self, rank: u32, task: &Task, id: u64, clock: &mut Clock) -> Node {
        let (kind, what) = kind_of(&task.kind);
        let ids = |tasks: &[u32]| tasks.iter().map(|task| u64::from(*task) + FIRST_ID).collect();
        // ASTRA-sim waits for data dependencies only, so tasks that merely follow another depend on its data too.
        let mut all = [&task.needs[..], &task.follows].concat();
        all.sort_unstable();
        all.dedup();
        Node {
            id,
            name: format!("{} {what}", task.action),
            kind: kind.into(),
            control_dependencies: ids(&task.follows),
            data_dependencies: ids(&all),
            duration_micros: clock.micros(task),
            attributes: self.attributes(rank, &task.kind),
        }
    }

    fn attributes(&self, rank: u32, kind: &TaskKind) -> Vec<Attribute> {
        let size = |bytes: u64| Attribute::new("comm_size", Value::Int64(bytes.cast_signed()));
        let number = |name, rank: u32| Attribute::new(name, Value::Int32(rank.cast_signed()));
        let is_of_host = matches!(kind, TaskKind::Host);
        let mut attributes = vec![Attribute::new("is_cpu_op", Value::Bool(is_of_host))];
        attributes.extend(match kind {
            TaskKind::Host => Vec::new(),
            TaskKind::Compute { flops, touched } => vec![
                Attribute::new("num_ops", Value::Int64(operations(*flops))),
                Attribute::new("tensor_size", Value::Uint64(touched.get())),
            ],
            TaskKind::Copy { bytes, .. } => {
                vec![Attribute::new("tensor_size", Value::Uint64(bytes.get()))]
            }
            TaskKind::Collective { collective, members, bytes } => {
                let ranks = members.ranks(rank, self.stride);
                let own = own_size(*collective, *bytes, ranks.len() as u64);
                let (kind, _) = collective_type(*collective);
                vec![
                    Attribute::new("comm_type", Value::Int64(kind as i64)),
                    size(own),
                    Attribute::new("pg_name", Value::String(self.groups[&ranks].to_string())),
                ]
            }
            TaskKind::Send { to: other, tag, bytes }
            | TaskKind::Receive { from: other, tag, bytes } => {
                let other = other.rank(rank, self.stride);
                let is_send = matches!(kind, TaskKind::Send { .. });
                let [from, to] = if is_send { [rank, other] } else { [other, rank] };
                vec![
                    number("comm_src", from),
                    number("comm_dst", to),
                    number("comm_tag", *tag),
                    size(bytes.get()),
                ]
            }
        });
        attributes
    }
}

/// Id of the first node of each trace.
const FIRST_ID: u64 = 1;

/// Groups of ranks of all collectives, numbered from 1: ASTRA-sim reserves 0 for the group of all ranks.
fn groups(tasks: &[Vec<Task>], stride: u32) -> BTreeMap<Vec<u32>, u32> {
    let mut groups = BTreeSet::new();
    for (tasks, pipeline_rank) in tasks.iter().zip(0..) {
        let mut known: Vec<&Members> = Vec::new();
        for task in tasks {
            if let TaskKind::Collective { members, .. } = &task.kind
                && !known.contains(&members)
            {
                known.push(members);
            }
        }
        for rank in pipeline_rank * stride..(pipeline_rank + 1) * stride {
            groups.extend(known.iter().map(|members| members.ranks(rank, stride)));
        }
    }
    groups.into_iter().zip(1..).collect()
}

fn write(bytes: &mut Vec<u8>, message: &impl prost::Message) {
    message.encode_length_delimited(bytes).expect("a vector takes any number of bytes");
}

/// Type of a task's node, and the word for it in the node's name.
fn kind_of(kind: &TaskKind) -> (NodeType, &'static str) {
    match kind {
        TaskKind::Compute { .. } => (NodeType::Compute, "kernels"),
        TaskKind::Host => (NodeType::Compute, "host"),
        TaskKind::Collective { collective, .. } => {
            (NodeType::Collective, collective_type(*collective).1)
        }
        TaskKind::Send { .. } => (NodeType::Send, "send"),
        TaskKind::Receive { .. } => (NodeType::Receive, "receive"),
        TaskKind::Copy { to: CopyDestination::Device, .. } => (NodeType::MemoryLoad, "from host"),
        TaskKind::Copy { to: CopyDestination::Host, .. } => (NodeType::MemoryStore, "to host"),
    }
}

fn collective_type(collective: Collective) -> (CollectiveType, &'static str) {
    let kind = match collective {
        Collective::AllReduce => CollectiveType::AllReduce,
        Collective::AllGather => CollectiveType::AllGather,
        Collective::ReduceScatter => CollectiveType::ReduceScatter,
        Collective::AllToAll => CollectiveType::AllToAll,
        Collective::Broadcast | Collective::SendReceive => CollectiveType::Broadcast,
    };
    (kind, collective.name())
}

/// Bytes (`comm_size`) that a rank puts into a collective whose whole buffer has `bytes`: its shard for an all-gather,
/// otherwise the whole buffer.
///
/// # Source
///
/// ASTRA-sim, `astraccl/native_collectives/collective_algorithm/Ring.cc`: an all-gather ends with `data_size` times the
/// number of ranks.
fn own_size(collective: Collective, bytes: Bytes, num_ranks: u64) -> u64 {
    if collective == Collective::AllGather { bytes.shard(num_ranks).get() } else { bytes.get() }
}

/// Operations of a task's kernels, at least 1: ASTRA-sim's roofline divides by them.
fn operations(flops: Flops) -> i64 {
    flops.get().max(1.0) as i64
}

/// Rounds task times to microseconds. The sum over a rank's kernels, and the sum over its host tasks, is rounded once
/// only.
#[derive(Default)]
struct Clock {
    kernels: Nanos,
    host: Nanos,
}

impl Clock {
    fn micros(&mut self, task: &Task) -> u64 {
        let mut alone = Nanos::ZERO;
        let before = match task.kind {
            TaskKind::Compute { .. } => &mut self.kernels,
            TaskKind::Host => &mut self.host,
            _ => &mut alone,
        };
        let from = rounded(*before);
        *before += task.time;
        rounded(*before) - from
    }
}

/// Microseconds, rounded to the nearest.
const fn rounded(time: Nanos) -> u64 {
    (time.get() + 500) / 1000
}
