//! Traces of PyTorch's profiler, written by Kineto: Chrome traces with their own categories and arguments.
//!
//! ```text
//! cat kernel            a kernel: args.stream, and by args."External id" the operator that launched it; of NCCL
//!                       args."Collective name", "In msg nelems", "Out msg nelems", dtype, "Group size"
//! cat cpu_op            an operator: with `record_shapes=True` args."Input Dims", "Input type", "Concrete Inputs"
//! cat user_annotation   ProfilerStep#N, Optimizer.step#AdamW.step
//! deviceProperties      the GPU; distributedInfo: the rank
//! ```
//!
//! # Source
//!
//! pytorch/kineto, `libkineto/src/output_json.cpp`; PyTorch, `torch/csrc/profiler/util.cpp` for the arguments of NCCL.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ir::collective::Collective;
use ir::units::{Bytes, Nanos};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::UnusableFile;
use super::operators::{Call, bytes_of};
use super::profile::{
    Class, Phase, Profile, ProfiledCollective, ProfiledKernel, ProfiledWork, Purpose,
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Trace<'a> {
    #[serde(borrow, rename = "traceEvents")]
    events: Vec<Event<'a>>,
    #[serde(rename = "deviceProperties")]
    devices: Vec<Device>,
    #[serde(rename = "distributedInfo")]
    distributed: Option<Distributed>,
    #[serde(rename = "otherData")]
    other: Value,
}

#[derive(Deserialize)]
struct Device {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Distributed {
    rank: Option<u32>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    ts: Option<f64>,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    #[serde(rename = "External id")]
    external_id: Option<Value>,
    #[serde(rename = "Input Dims", alias = "Input dims")]
    dims: Vec<Value>,
    #[serde(rename = "Input type")]
    types: Vec<Value>,
    #[serde(rename = "Concrete Inputs")]
    values: Vec<Value>,
    #[serde(rename = "Collective name")]
    collective: Option<String>,
    #[serde(rename = "In msg nelems")]
    sent: Option<u64>,
    #[serde(rename = "Out msg nelems")]
    received: Option<u64>,
    dtype: Option<String>,
    #[serde(rename = "Group size")]
    group_size: Option<u32>,
    #[serde(rename = "Process Group Ranks")]
    ranks: Option<Value>,
    #[serde(rename = "Process Group Description")]
    description: Option<String>,
}

/// An operator on the host.
struct Operator {
    start: f64,
    thread: String,
    work: Option<ProfiledWork>,
}

/// Reads a trace.
///
/// # Errors
///
/// Why the text is not a trace of PyTorch's profiler with kernels of a GPU; for a truncated trace, where it ends.
pub fn read(text: &str) -> Result<Profile, UnusableFile> {
    let trimmed = text.trim_start_matches('\u{feff}').trim_start();
    let trace: Trace<'_> = if trimmed.starts_with('[') {
        serde_json::from_str(trimmed).map(|events| Trace { events, ..Trace::default() })
    } else {
        serde_json::from_str(trimmed)
    }
    .map_err(|error| {
        UnusableFile(if error.is_eof() {
            format!(
                "the trace is cut off: its JSON ends at byte {}, in the midst of a value\nhint: let the profiler finish \
                 writing, and copy it whole",
                text.len()
            )
        } else {
            format!("not a Chrome trace: {error}")
        })
    })?;
    if trace.other.get("format").is_some_and(|it| it == "planner timeline") {
        return Err(UnusableFile(
            "a timeline of this program, not a trace of PyTorch's profiler\nhint: `planner chart` draws it".to_owned(),
        ));
    }
    // Times are relative to the first event, so that floats represent them to the nanosecond.
    let starts = trace.events.iter().filter_map(|event| event.ts);
    let zero = starts.fold(f64::INFINITY, f64::min);
    let span = |event: &Event<'_>| {
        let (start, duration) = (event.ts?, event.dur?);
        let whole = duration >= 0.0 && (start + duration - zero).is_finite();
        let nanos = |micros: f64| Nanos::new(((micros - zero) * 1e3).round() as u64);
        whole.then(|| [nanos(start), nanos(start + duration)])
    };
    let mut host = Host::default();
    let mut launched = Vec::new();
    let mut categories: BTreeMap<String, usize> = BTreeMap::new();
    for event in trace.events.iter().filter(|event| event.ph == "X") {
        let Some(span) = span(event) else { continue };
        let category = event.cat.to_ascii_lowercase();
        match category.as_str() {
            "kernel" => launched.push((span, event)),
            "cpu_op" | "operator" => host.add_operator(event),
            "user_annotation" => host.add_annotation(span, event),
            _ => {}
        }
        *categories.entry(category).or_default() += 1;
    }
    let operators = categories.get("cpu_op").or(categories.get("operator")).copied().unwrap_or(0);
    match (launched.len(), operators) {
        (0, 0) => {
            let named = categories.into_keys().map(|name| {
                let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
                format!("`{shown}`")
            });
            let some: Vec<String> = named.take(6).collect();
            let categories = if some.is_empty() { "none".to_owned() } else { some.join(", ") };
            return Err(UnusableFile(format!(
                "not a trace of PyTorch's profiler: no event is of category `kernel` or `cpu_op`; there are {categories}\n\
                 hint: `torch.profiler.profile(..).export_chrome_trace(FILE)` writes one"
            )));
        }
        (0, operators) => {
            return Err(UnusableFile(format!(
                "the trace has {operators} operators and no kernel of a GPU\nhint: \
                 `profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)`"
            )));
        }
        _ => {}
    }
    host.sort();
    let mut kernels: Vec<ProfiledKernel> = launched
        .iter()
        .zip(0..)
        .map(|((span, event), nth)| host.kernel(*span, event, nth))
        .collect();
    kernels.sort_by_key(|kernel| kernel.span);
    Ok(Profile {
        rank: trace.distributed.and_then(|it| it.rank),
        gpu: trace.devices.into_iter().find_map(|device| device.name),
        steps: host.steps,
        kernels,
        has_shapes: host.has_shapes,
    })
}

/// Operators and annotations on the host.
#[derive(Default)]
struct Host {
    operators: BTreeMap<u64, Operator>,
    /// Spans in which a thread computes gradients, and spans in which it runs the update, by thread.
    gradients: Spans,
    updates: Spans,
    steps: Vec<[Nanos; 2]>,
    has_shapes: bool,
}

/// Start and end in microseconds, by thread.
type Spans = BTreeMap<String, Vec<[f64; 2]>>;

impl Host {
    fn add_annotation(&mut self, span: [Nanos; 2], event: &Event<'_>) {
        if event.name.starts_with("ProfilerStep#") {
            self.steps.push(span);
        } else if event.name.starts_with("Optimizer.step#") {
            add(&mut self.updates, event);
        }
    }

    fn add_operator(&mut self, event: &Event<'_>) {
        let Some(start) = event.ts else { return };
        if event.name.starts_with("autograd::engine::evaluate_function") {
            add(&mut self.gradients, event);
        }
        let arguments = arguments(event);
        let Some(id) = arguments.external_id.as_ref().and_then(number) else { return };
        let dims: Vec<Vec<u64>> = arguments.dims.iter().map(sizes).collect();
        self.has_shapes |= dims.iter().any(|dims| !dims.is_empty());
        let (types, values) = (words(&arguments.types), words(&arguments.values));
        let call = Call { name: &event.name, dims: &dims, types: &types, values: &values };
        let work = call.work().or_else(|| arguments.exchange().map(ProfiledWork::Collective));
        self.operators.insert(id, Operator { start, thread: thread(event), work });
    }

    fn kernel(&self, span: [Nanos; 2], event: &Event<'_>, nth: u64) -> ProfiledKernel {
        let arguments = arguments(event);
        let class = Class::of_kernel(&event.name);
        let id = arguments.external_id.as_ref().and_then(number);
        let operator = id.and_then(|id| self.operators.get(&id));
        let own = arguments.exchange().map(ProfiledWork::Collective);
        let work = own.or_else(|| operator.and_then(|it| it.work)).filter(|work| class.does(work));
        ProfiledKernel {
            span,
            class,
            phase: operator.map_or(Phase::Forward, |it| self.phase(it, class)),
            // Kernels without an operator count as separate calls.
            call: id.filter(|_| operator.is_some()).unwrap_or(u64::MAX - nth),
            work,
        }
    }

    fn phase(&self, operator: &Operator, class: Class) -> Phase {
        let is_in = |spans: &Spans| {
            let spans = spans.get(&operator.thread).map_or(&[][..], Vec::as_slice);
            // Of nested spans, the last one that starts before the operator, or one that contains that span.
            let before = spans.partition_point(|[start, _]| *start <= operator.start);
            spans[..before].iter().rev().take(DEEPEST).any(|[_, end]| operator.start < *end)
        };
        match () {
            () if class == Class::Update || is_in(&self.updates) => Phase::Update,
            () if is_in(&self.gradients) => Phase::Backward,
            () => Phase::Forward,
        }
    }

    fn sort(&mut self) {
        self.steps.sort();
        let all = self.gradients.values_mut().chain(self.updates.values_mut());
        all.for_each(|spans| spans.sort_by(|[a, _], [b, _]| a.total_cmp(b)));
    }
}

/// Deepest nesting of spans in a thread.
const DEEPEST: usize = 16;

fn add(spans: &mut Spans, event: &Event<'_>) {
    let (Some(start), Some(duration)) = (event.ts, event.dur) else { return };
    spans.entry(thread(event)).or_default().push([start, start + duration]);
}

fn thread(event: &Event<'_>) -> String {
    format!("{} {}", event.pid, event.tid)
}

/// Arguments of an event; the default if they have another form.
fn arguments(event: &Event<'_>) -> Arguments {
    event.args.and_then(|args| serde_json::from_str(args.get()).ok()).unwrap_or_default()
}

/// A number; older traces write numbers as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The sizes of a tensor; empty for a list of tensors.
fn sizes(value: &Value) -> Vec<u64> {
    let sizes = value.as_array().map_or(&[][..], Vec::as_slice).iter().map(Value::as_u64);
    sizes.collect::<Option<_>>().unwrap_or_default()
}

fn words(values: &[Value]) -> Vec<String> {
    values.iter().map(|value| value.as_str().unwrap_or_default().to_owned()).collect()
}

impl Arguments {
    /// The collective that the arguments describe, if any.
    fn exchange(&self) -> Option<ProfiledCollective> {
        let name = self.collective.as_deref()?.trim_start_matches('_');
        let (collective, elements) = match name {
            "allreduce" | "allreduce_coalesced" => (Collective::AllReduce, self.sent?),
            _ if name.starts_with("allgather") || name.starts_with("all_gather") => {
                (Collective::AllGather, self.received?)
            }
            _ if name.starts_with("reduce_scatter") => (Collective::ReduceScatter, self.sent?),
            _ if name.starts_with("all_to_all") || name.starts_with("alltoall") => {
                (Collective::AllToAll, self.sent?)
            }
            "broadcast" => (Collective::Broadcast, self.sent?),
            "send" => (Collective::SendReceive, self.sent?),
            "recv" => (Collective::SendReceive, self.received?),
            _ => return None,
        };
        let bytes = elements.checked_mul(bytes_of(self.dtype.as_deref()?)?)?;
        let num_ranks = if collective == Collective::SendReceive { 2 } else { self.group_size? };
        let stride = self.ranks.as_ref().and_then(stride);
        let purpose = self.description.as_deref().and_then(Purpose::of);
        (bytes > 0 && num_ranks > 1).then(|| ProfiledCollective {
            collective,
            bytes: Bytes::new(bytes),
            num_ranks,
            stride,
            purpose,
        })
    }
}

/// The stride of a list of ranks, or of the text of such a list, if it is uniform.
fn stride(ranks: &Value) -> Option<u32> {
    let text = ranks.as_str();
    let listed = text.and_then(|text| serde_json::from_str(text).ok());
    let ranks: Vec<u32> = match listed {
        Some(ranks) => ranks,
        None => serde_json::from_value(ranks.clone()).ok()?,
    };
    let stride = ranks.get(1)?.checked_sub(*ranks.first()?)?;
    let is_even = ranks.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(stride));
    (is_even && stride > 0).then_some(stride)
}

#[cfg(test)]
mod tests;
