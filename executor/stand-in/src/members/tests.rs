use super::{Member, MemberCall, MemberState, mismatches};

/// A member of a communicator of two, from a list of its calls: `all_reduce 8`, `send 8`.
fn member(rank: u32, calls: &str) -> Member {
    let call = |text: &str| {
        let (name, count) = text.trim().split_once(' ').expect("a name and a count");
        let function = match name {
            "send" => "ncclSend",
            "recv" => "ncclRecv",
            other => other,
        };
        MemberCall {
            function: function.to_owned(),
            count: count.parse().expect("a count"),
            element: 7,
            peer: function.starts_with("nccl").then_some(1 - rank.cast_signed()),
            reduction: None,
        }
    };
    let calls = calls.split(',').filter(|text| !text.trim().is_empty()).map(call).collect();
    Member { communicator: "c".to_owned(), rank, num_ranks: 2, ending: MemberState::Open, calls }
}

/// Compares the mismatches of two ranks with lines of `position: first | second`.
#[track_caller]
fn check(first: &str, second: &str, expected: &[&str]) {
    let members = [member(0, first), member(1, second)];
    let name = |call: &Option<String>| call.clone().unwrap_or_else(|| "nothing".to_owned());
    let lines: Vec<String> = mismatches(&members)
        .iter()
        .map(|m| format!("{}: {} | {}", m.position, name(&m.calls[0]), name(&m.calls[1])))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn ranks_that_call_in_another_order_are_found() {
    check("gather 8, reduce 8", "gather 8, reduce 8", &[]);
    check(
        "gather 8, reduce 4",
        "reduce 4, gather 8",
        &["0: gather of 8 elements of type 7 | reduce of 4 elements of type 7"],
    );
}

#[test]
fn ranks_that_call_with_another_count_or_less_often_are_found() {
    let eight = "reduce of 8 elements of type 7";
    check("reduce 8", "reduce 4", &[&format!("0: {eight} | reduce of 4 elements of type 7")]);
    check("reduce 8, reduce 8", "reduce 8", &[&format!("1: {eight} | nothing")]);
}

#[test]
fn messages_pair_by_their_order() {
    // Each rank sends before it receives, which is no mistake: the two directions are separate.
    check("send 8, recv 4", "send 4, recv 8", &[]);
    check(
        "send 8, send 4",
        "recv 8, recv 2",
        &["1: ncclSend of 4 elements of type 7, rank 1 | ncclRecv of 2 elements of type 7, rank 0"],
    );
    check("send 8", "", &["0: ncclSend of 8 elements of type 7, rank 1 | nothing"]);
}

/// A rank that aborted has made fewer calls than the others.
#[test]
fn ranks_that_aborted_may_have_called_less() {
    let mut members = [member(0, "reduce 8, reduce 8"), member(1, "reduce 8")];
    members[1].ending = MemberState::Aborted;
    assert_eq!(mismatches(&members), []);
}
