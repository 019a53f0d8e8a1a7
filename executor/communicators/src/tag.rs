//! Tags, which distinguish messages between two ranks.

use std::fmt;

use ir::schedule::{Action, ParseActionError};
use serde::{Deserialize, Serialize};
use traces::timeline::Stream;

/// The sequence to which a message between two ranks belongs. Messages with the same tag arrive in the order in which
/// they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Tag {
    /// The next message on a stream, such as each message of a collective.
    Stream(Stream),
    /// The arrays that an action sends; the receive that pairs with it may be named instead.
    Message(Action),
}

impl Tag {
    /// The stream to whose traffic messages with this tag are counted.
    pub const fn stream(self) -> Stream {
        match self {
            Self::Stream(stream) => stream,
            Self::Message(_) => Stream::Send,
        }
    }

    /// The sender's tag: a receive becomes the send that it pairs with.
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

/// The name of its stream, or its action as in `0SEND_F0`: between processes, tags are text.
impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        match tag {
            Tag::Stream(stream) => stream.name().to_owned(),
            Tag::Message(action) => action.to_string(),
        }
    }
}

impl TryFrom<String> for Tag {
    type Error = ParseActionError;

    fn try_from(text: String) -> Result<Self, ParseActionError> {
        match Stream::ALL.into_iter().find(|stream| stream.name() == text) {
            Some(stream) => Ok(Self::Stream(stream)),
            None => text.parse().map(Self::Message),
        }
    }
}
