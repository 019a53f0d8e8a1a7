//! Classes of events with different colours in pictures: by pass on the compute stream, by stream elsewhere.

use ir::collective::Collective;
use ir::schedule::ActionKind;
use ir::units::Bytes;

use crate::palette::{Rgb, Theme};
use crate::timeline::{Activity, Event, Stream, Timeline};

/// A class of events, in the order of a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// A pass of a micro-batch, or an optimizer step.
    Compute(ActionKind),
    /// A wait of the compute stream for an exchange.
    Waiting,
    /// An exchange, a message or a copy, on a stream other than compute.
    Exchange(Stream),
}

impl Class {
    /// All classes, in the order of a legend.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let kinds = ActionKind::ALL.into_iter();
        let computed = kinds.map(Self::of_kind).filter(|class| class.is_computed());
        let streams = Stream::ALL.into_iter().filter(|stream| *stream != Stream::Compute);
        computed.chain([Self::Waiting]).chain(streams.map(Self::Exchange))
    }

    /// Class of an event.
    pub(crate) const fn of(event: &Event) -> Self {
        match (event.stream, event.activity) {
            (Stream::Compute, Activity::Wait(_)) => Self::Waiting,
            (Stream::Compute, activity) => Self::of_kind(activity.action().kind),
            (stream, _) => Self::Exchange(stream),
        }
    }

    const fn of_kind(kind: ActionKind) -> Self {
        match kind {
            ActionKind::SendForward | ActionKind::SendBackward => Self::Exchange(Stream::Send),
            ActionKind::RecvForward | ActionKind::RecvBackward => Self::Exchange(Stream::Receive),
            ActionKind::Unshard | ActionKind::Reshard | ActionKind::ReduceGrad => {
                Self::Exchange(Stream::Data)
            }
            _ => Self::Compute(kind),
        }
    }

    /// Name in a legend.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Compute(kind) => action_name(kind),
            Self::Waiting => "waiting for an exchange",
            Self::Exchange(stream) => stream.name(),
        }
    }

    /// Name in a legend, with that of the data-parallel lane replaced.
    pub(crate) const fn name_with(self, data: DataLane) -> &'static str {
        match self {
            Self::Exchange(stream) => data.of_stream(stream),
            _ => self.name(),
        }
    }

    pub(crate) const fn color(self, theme: Theme) -> Rgb {
        match self {
            Self::Compute(kind) => theme.action(kind),
            Self::Waiting => theme.waiting(),
            Self::Exchange(stream) => theme.stream(stream),
        }
    }

    /// True for work and waits on the compute stream.
    pub(crate) const fn is_computed(self) -> bool {
        !matches!(self, Self::Exchange(_))
    }

    /// True for passes of a micro-batch through a stage.
    pub(crate) const fn is_pass(self) -> bool {
        matches!(self, Self::Compute(kind) if kind.is_compute())
    }
}

/// Name of an action in words.
pub(crate) const fn action_name(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Forward => "forward",
        ActionKind::Backward => "backward",
        ActionKind::InputGrad => "input gradient",
        ActionKind::WeightGrad => "weight gradient",
        ActionKind::SendForward => "send activations",
        ActionKind::RecvForward => "receive activations",
        ActionKind::SendBackward => "send gradients",
        ActionKind::RecvBackward => "receive gradients",
        ActionKind::Unshard => "gather parameters",
        ActionKind::Reshard => "free parameters",
        ActionKind::ReduceGrad => "reduce gradients",
        ActionKind::OptimizerStep => "optimizer step",
    }
}

/// Contents of the lane of data-parallel exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataLane {
    /// Gathers and reductions over replicas.
    Replicas,
    /// Only the sums of an update over tensor-parallel and pipeline ranks: partial gradients, and their norm.
    GradientSums,
    /// Only the gradient norm, one number.
    GradientNorm,
}

impl DataLane {
    pub(crate) fn of(timelines: &[&Timeline]) -> Self {
        let tracks = timelines.iter().flat_map(|timeline| &timeline.tracks);
        let events = tracks.flat_map(|track| &track.events);
        let events = events.filter(|event| event.stream == Stream::Data);
        let most = events.map(sum_of_update).reduce(|a, b| Some(a?.max(b?)));
        match most.flatten() {
            None => Self::Replicas,
            Some(bytes) if bytes <= NUMBER => Self::GradientNorm,
            Some(_) => Self::GradientSums,
        }
    }

    /// Name of a stream's lane.
    pub(crate) const fn of_stream(self, stream: Stream) -> &'static str {
        match (stream, self) {
            (Stream::Data, Self::GradientSums) => "gradient sums",
            (Stream::Data, Self::GradientNorm) => "gradient norm",
            _ => stream.name(),
        }
    }
}

/// Size of a number in double precision.
const NUMBER: Bytes = Bytes::new(8);

/// Bytes that an event of an update all-reduces, if it does.
fn sum_of_update(event: &Event) -> Option<Bytes> {
    let Activity::Collective { collective: Collective::AllReduce, action } = event.activity else {
        return None;
    };
    (action.kind == ActionKind::OptimizerStep).then_some(event.bytes)
}
