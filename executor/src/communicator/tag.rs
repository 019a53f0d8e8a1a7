//! What tells messages apart.

use std::fmt;

use ir::schedule::Action;
use traces::timeline::Stream;

/// What tells messages between two ranks apart. Messages with the same tag arrive in the order in
/// which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// The next message on a stream, as all those of collectives are.
    Stream(Stream),
    /// What an action sends; the receive that pairs with it may be named instead.
    Message(Action),
}

impl Tag {
    /// The stream on which its messages count.
    pub const fn stream(self) -> Stream {
        match self {
            Self::Stream(stream) => stream,
            Self::Message(_) => Stream::Send,
        }
    }

    /// The same for both sides: a receive becomes the send that it pairs with.
    pub(super) fn of_sender(self) -> Self {
        match self {
            Self::Message(action) if action.kind.is_message() && !action.kind.is_send() => {
                Self::Message(action.partner().unwrap_or(action))
            }
            tag => tag,
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(stream) => write!(f, "the {stream} stream"),
            Self::Message(action) => action.fmt(f),
        }
    }
}
