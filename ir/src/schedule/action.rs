//! Actions of a rank, named as in PyTorch's pipelining.

use std::fmt;
use std::str::FromStr;

named_enum! {
    /// Kind of an action.
    pub enum ActionKind {
        /// From input to output of a stage.
        Forward = "F",
        /// Gradients of activations and of parameters together.
        Backward = "B",
        /// Gradients of activations.
        InputGrad = "I",
        /// Gradients of parameters.
        WeightGrad = "W",
        /// The stage's output goes to the next stage's rank.
        SendForward = "SEND_F",
        /// The stage's input comes from the previous stage's rank.
        RecvForward = "RECV_F",
        /// The gradient of the stage's input goes to the previous stage's rank.
        SendBackward = "SEND_B",
        /// The gradient of the stage's output comes from the next stage's rank.
        RecvBackward = "RECV_B",
        /// Sharded parameters of a stage are gathered.
        Unshard = "UNSHARD",
        /// They are freed again, except for the rank's shard.
        Reshard = "RESHARD",
        /// A stage's gradients are reduced over its replicas.
        ReduceGrad = "REDUCE_GRAD",
        /// A stage's parameters are updated.
        OptimizerStep = "STEP",
    }
}

impl ActionKind {
    /// True for forward, and for one or both parts of backward.
    pub const fn is_compute(self) -> bool {
        matches!(self, Self::Forward | Self::Backward | Self::InputGrad | Self::WeightGrad)
    }

    /// True for sends and receives.
    pub const fn is_message(self) -> bool {
        self.is_send() || matches!(self, Self::RecvForward | Self::RecvBackward)
    }

    /// True for sends.
    pub const fn is_send(self) -> bool {
        matches!(self, Self::SendForward | Self::SendBackward)
    }

    /// True if the action belongs to a micro-batch; the others concern a stage as a whole.
    pub const fn has_micro_batch(self) -> bool {
        !matches!(self, Self::Unshard | Self::Reshard | Self::ReduceGrad | Self::OptimizerStep)
    }
}

/// An action of a rank for a stage and, in most cases, a micro-batch.
///
/// Prints and parses as PyTorch writes it: `0F0` is the forward of micro-batch 0 on stage 0.
///
/// ```
/// use ir::schedule::{Action, ActionKind};
///
/// let action: Action = "2SEND_F7".parse()?;
/// assert_eq!(action, Action { stage: 2, kind: ActionKind::SendForward, micro_batch: 7 });
/// assert_eq!(action.to_string(), "2SEND_F7");
/// # Ok::<(), ir::schedule::ParseActionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// The stage: consecutive blocks of the model, counting from the embedding.
    pub stage: u32,
    /// Kind of action.
    pub kind: ActionKind,
    /// Micro-batch of the action; 0 where the kind has none.
    pub micro_batch: u32,
}

impl Action {
    /// The receive that matches a send, and vice versa; `None` for actions that are not messages.
    pub const fn partner(self) -> Option<Self> {
        use ActionKind as K;
        let Self { stage, kind, micro_batch } = self;
        let (stage, kind) = match kind {
            K::SendForward => (stage.checked_add(1), K::RecvForward),
            K::RecvForward => (stage.checked_sub(1), K::SendForward),
            K::SendBackward => (stage.checked_sub(1), K::RecvBackward),
            K::RecvBackward => (stage.checked_add(1), K::SendBackward),
            _ => return None,
        };
        match stage {
            Some(stage) => Some(Self { stage, kind, micro_batch }),
            None => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stage, self.kind.name())?;
        if self.kind.has_micro_batch() { write!(f, "{}", self.micro_batch) } else { Ok(()) }
    }
}

/// A text that is not an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no action; actions look like `2F0`: stage, {words}, micro-batch", words = ActionKind::ALL.map(ActionKind::name).join(" or "))]
pub struct ParseActionError {
    /// The text.
    pub text: String,
}

/// The first 40 characters of a text, with control characters escaped.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

impl FromStr for Action {
    type Err = ParseActionError;

    fn from_str(text: &str) -> Result<Self, ParseActionError> {
        let error = || ParseActionError { text: shown(text) };
        let is_digit = |c: char| c.is_ascii_digit();
        let word_start = text.find(|c| !is_digit(c)).ok_or_else(error)?;
        let word_end = text.rfind(|c| !is_digit(c)).map_or(0, |last| last + 1);
        let stage = text[..word_start].parse().map_err(|_| error())?;
        let word = text.get(word_start..word_end).ok_or_else(error)?;
        let kind =
            ActionKind::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(error)?;
        let number = text.get(word_end..).ok_or_else(error)?;
        let micro_batch = match (kind.has_micro_batch(), number) {
            (true, number) => number.parse().map_err(|_| error())?,
            (false, "") => 0,
            (false, _) => return Err(error()),
        };
        Ok(Self { stage, kind, micro_batch })
    }
}

/// A step of a rank: one action, or two that overlap (DualPipe).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScheduleStep {
    /// One action.
    One(Action),
    /// A forward overlapped with another micro-batch's backward, so that the computation of each hides the
    /// communication of the other: `(0F3;3B1)OVERLAP_F_B`.
    Overlapped(Action, Action),
}

impl ScheduleStep {
    /// The actions of the step.
    pub fn actions(self) -> impl Iterator<Item = Action> {
        let (first, second) = match self {
            Self::One(action) => (action, None),
            Self::Overlapped(forward, backward) => (forward, Some(backward)),
        };
        std::iter::once(first).chain(second)
    }
}

impl fmt::Display for ScheduleStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(action) => action.fmt(f),
            Self::Overlapped(forward, backward) => write!(f, "({forward};{backward})OVERLAP_F_B"),
        }
    }
}

impl FromStr for ScheduleStep {
    type Err = ParseActionError;

    fn from_str(text: &str) -> Result<Self, ParseActionError> {
        let Some(pair) = text.strip_prefix('(').and_then(|t| t.strip_suffix(")OVERLAP_F_B")) else {
            return text.parse().map(Self::One);
        };
        let (forward, backward) =
            pair.split_once(';').ok_or_else(|| ParseActionError { text: shown(text) })?;
        Ok(Self::Overlapped(forward.parse()?, backward.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_as_they_print() {
        for text in
            ["0F0", "12B345", "1SEND_F3", "0UNSHARD", "3REDUCE_GRAD", "(0F3;3B1)OVERLAP_F_B"]
        {
            assert_eq!(text.parse::<ScheduleStep>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        for text in [
            "",
            "F",
            "0",
            "0F",
            "F0",
            "0X0",
            "0UNSHARD1",
            "0é1",
            "99999999999F0",
            "(0F0)OVERLAP_F_B",
        ] {
            text.parse::<ScheduleStep>().unwrap_err();
        }
    }
}
