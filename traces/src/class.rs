//! What an event is shown as: its pass where it computes, its stream where it does not.

use ir::collective::Collective;
use ir::schedule::ActionKind;
use ir::units::Bytes;

use crate::palette::{Rgb, Theme};
use crate::timeline::{Activity, Event, Stream, Timeline};

/// A kind of event that pictures tell apart, in the order of a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Forward,
    Backward,
    InputGrad,
    WeightGrad,
    OptimizerStep,
    Waiting,
    Tensor,
    Context,
    Expert,
    Data,
    Send,
    Receive,
    Host,
}

impl Class {
    /// Its name in a legend.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::InputGrad => "input gradient",
            Self::WeightGrad => "weight gradient",
            Self::OptimizerStep => "optimizer step",
            Self::Waiting => "waiting for an exchange",
            Self::Tensor => Stream::Tensor.name(),
            Self::Context => Stream::Context.name(),
            Self::Expert => Stream::Expert.name(),
            Self::Data => Stream::Data.name(),
            Self::Send => Stream::Send.name(),
            Self::Receive => Stream::Receive.name(),
            Self::Host => Stream::Host.name(),
        }
    }

    /// All of them, in the order of a legend.
    pub(crate) const ALL: [Self; 13] = [
        Self::Forward,
        Self::Backward,
        Self::InputGrad,
        Self::WeightGrad,
        Self::OptimizerStep,
        Self::Waiting,
        Self::Tensor,
        Self::Context,
        Self::Expert,
        Self::Data,
        Self::Send,
        Self::Receive,
        Self::Host,
    ];

    /// Its colour.
    pub(crate) const fn color(self, theme: Theme) -> Rgb {
        match self {
            Self::Forward => theme.action(ActionKind::Forward),
            Self::Backward => theme.action(ActionKind::Backward),
            Self::InputGrad => theme.action(ActionKind::InputGrad),
            Self::WeightGrad => theme.action(ActionKind::WeightGrad),
            Self::OptimizerStep => theme.action(ActionKind::OptimizerStep),
            Self::Waiting => theme.waiting(),
            Self::Tensor => theme.stream(Stream::Tensor),
            Self::Context => theme.stream(Stream::Context),
            Self::Expert => theme.stream(Stream::Expert),
            Self::Data => theme.stream(Stream::Data),
            Self::Send => theme.stream(Stream::Send),
            Self::Receive => theme.stream(Stream::Receive),
            Self::Host => theme.stream(Stream::Host),
        }
    }

    /// How an event is shown.
    pub(crate) const fn of(event: &Event) -> Self {
        match event.stream {
            Stream::Compute => match event.activity {
                Activity::Wait(_) => Self::Waiting,
                activity => Self::of_kind(activity.action().kind),
            },
            Stream::Tensor => Self::Tensor,
            Stream::Context => Self::Context,
            Stream::Expert => Self::Expert,
            Stream::Send => Self::Send,
            Stream::Receive => Self::Receive,
            Stream::Data => Self::Data,
            Stream::Host => Self::Host,
        }
    }

    /// Whether it is on the compute stream, as work or as waiting.
    pub(crate) const fn is_computed(self) -> bool {
        self.is_pass() || matches!(self, Self::OptimizerStep | Self::Waiting)
    }

    /// Whether it is a pass of a micro-batch through a stage.
    pub(crate) const fn is_pass(self) -> bool {
        matches!(self, Self::Forward | Self::Backward | Self::InputGrad | Self::WeightGrad)
    }

    /// The stream that it is on.
    pub(crate) const fn stream(self) -> Stream {
        match self {
            Self::Tensor => Stream::Tensor,
            Self::Context => Stream::Context,
            Self::Expert => Stream::Expert,
            Self::Send => Stream::Send,
            Self::Receive => Stream::Receive,
            Self::Data => Stream::Data,
            Self::Host => Stream::Host,
            _ => Stream::Compute,
        }
    }

    /// Its name in a legend, as the lane of data parallelism is called.
    pub(crate) const fn name_beside(self, data: DataLane) -> &'static str {
        match self {
            Self::Data => data.name(),
            _ => self.name(),
        }
    }

    const fn of_kind(kind: ActionKind) -> Self {
        match kind {
            ActionKind::Forward => Self::Forward,
            ActionKind::Backward => Self::Backward,
            ActionKind::InputGrad => Self::InputGrad,
            ActionKind::WeightGrad => Self::WeightGrad,
            ActionKind::OptimizerStep => Self::OptimizerStep,
            ActionKind::SendForward | ActionKind::SendBackward => Self::Send,
            ActionKind::RecvForward | ActionKind::RecvBackward => Self::Receive,
            ActionKind::Unshard | ActionKind::Reshard | ActionKind::ReduceGrad => Self::Data,
        }
    }
}

/// What goes on among data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataLane {
    /// Gathering and reduction.
    Replicas,
    /// Nothing but what an update adds up over tensor-parallel and pipeline ranks too: gradients of which
    /// each has a summand, and their norm.
    GradientSums,
    /// Nothing but that norm, a number.
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

    const fn name(self) -> &'static str {
        match self {
            Self::Replicas => Stream::Data.name(),
            Self::GradientSums => "gradient sums",
            Self::GradientNorm => "gradient norm",
        }
    }

    /// The name of a stream's lane.
    pub(crate) const fn of_stream(self, stream: Stream) -> &'static str {
        match stream {
            Stream::Data => self.name(),
            _ => stream.name(),
        }
    }
}

/// A number, at most in double precision.
const NUMBER: Bytes = Bytes::new(8);

/// What an update adds up, if that is what an event does.
fn sum_of_update(event: &Event) -> Option<Bytes> {
    let Activity::Collective { collective: Collective::AllReduce, action } = event.activity else {
        return None;
    };
    (action.kind == ActionKind::OptimizerStep).then_some(event.bytes)
}
