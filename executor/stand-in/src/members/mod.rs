//! Checks that the members of a communicator make matching calls.
//!
//! NCCL pairs the calls of ranks by their order alone. Ranks that call in another order, or with other counts or types,
//! hang or read wrong data.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A rank's membership of a communicator, and its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Identifier of the communicator.
    pub communicator: String,
    /// The rank within it.
    pub rank: u32,
    /// Number of ranks of the communicator.
    pub num_ranks: u32,
    /// End of the membership.
    pub ending: MemberState,
    /// Calls in order.
    pub calls: Vec<MemberCall>,
}

/// End of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The membership has not ended.
    Open,
    /// Aborted.
    Aborted,
}

/// A call that pairs with calls of other members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCall {
    /// The function.
    pub function: String,
    /// Number of elements.
    pub count: u64,
    /// Number of the element type in NCCL.
    pub element: i32,
    /// The root, or the rank at the other end.
    pub peer: Option<i32>,
    /// Number of the reduction in NCCL.
    pub reduction: Option<i32>,
}

/// Two members whose calls do not match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The communicator.
    pub communicator: String,
    /// The two ranks.
    pub ranks: [u32; 2],
    /// Index of the call among the calls that pair, from zero.
    pub position: usize,
    /// The call of each rank; none if the rank made fewer calls.
    pub calls: [Option<String>; 2],
}

impl fmt::Display for MemberCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} elements of type {}", self.function, self.count, self.element)?;
        if let Some(peer) = self.peer {
            write!(f, ", rank {peer}")?;
        }
        self.reduction.map_or(Ok(()), |reduction| write!(f, ", reduction {reduction}"))
    }
}

impl MemberCall {
    fn is_to_one(&self) -> bool {
        ["ncclSend", "ncclRecv"].contains(&self.function.as_str())
    }

    /// The values that must be equal at both ends of a message.
    fn message(&self) -> (u64, i32) {
        (self.count, self.element)
    }
}

/// The first mismatch of each pair of members, for the members of all processes of a job.
///
/// Members that were aborted may have made fewer calls than others.
pub fn mismatches<'a>(members: impl IntoIterator<Item = &'a Member>) -> Vec<Mismatch> {
    let mut communicators: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for member in members {
        communicators.entry(&member.communicator).or_default().push(member);
    }
    communicators.values().flat_map(|members| among(members)).collect()
}

fn among(members: &[&Member]) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for (index, first) in members.iter().enumerate() {
        for second in &members[index + 1..] {
            // All collectives are equal if each equals the first member's.
            if index == 0 {
                let collectives = |member: &Member| -> Vec<MemberCall> {
                    let calls = member.calls.iter().filter(|call| !call.is_to_one());
                    calls.cloned().collect()
                };
                let equal = |a: &MemberCall, b: &MemberCall| a == b;
                found.extend(differ(
                    first,
                    second,
                    &collectives(first),
                    &collectives(second),
                    equal,
                ));
            }
            for (from, to) in [(first, second), (second, first)] {
                let sent = messages(from, "ncclSend", to.rank);
                let received = messages(to, "ncclRecv", from.rank);
                let equal = |a: &MemberCall, b: &MemberCall| a.message() == b.message();
                found.extend(differ(from, to, &sent, &received, equal));
            }
        }
    }
    found
}

/// A member's sends to a rank, or its receives from it.
fn messages(member: &Member, function: &str, peer: u32) -> Vec<MemberCall> {
    let is_one =
        |call: &&MemberCall| call.function == function && call.peer == Some(peer.cast_signed());
    member.calls.iter().filter(is_one).cloned().collect()
}

fn differ(
    first: &Member,
    second: &Member,
    a: &[MemberCall],
    b: &[MemberCall],
    equal: impl Fn(&MemberCall, &MemberCall) -> bool,
) -> Option<Mismatch> {
    let shared = a.len().min(b.len());
    let may_lack = [first, second].iter().any(|member| member.ending == MemberState::Aborted);
    let position = match (0..shared).find(|index| !equal(&a[*index], &b[*index])) {
        Some(position) => position,
        None if a.len() == b.len() || may_lack => return None,
        None => shared,
    };
    let text = |calls: &[MemberCall]| calls.get(position).map(ToString::to_string);
    Some(Mismatch {
        communicator: first.communicator.clone(),
        ranks: [first.rank, second.rank],
        position,
        calls: [text(a), text(b)],
    })
}

#[cfg(test)]
mod tests;
