//! Ways for replicas to come to their weights: what is read, what is sent, how old gradients get.

use ir::replication::{DataParallelMethod, GradientCompression, Outstanding, Straggler};
use proptest::prelude::*;

#[test]
fn what_is_printed_is_read_again() {
    for text in ["all-reduce", "parameter-server", "ring-averaging", "asynchronous:0"] {
        assert_eq!(text.parse::<DataParallelMethod>().unwrap().to_string(), text);
    }
    for text in ["top-k:0.01", "random-k:1", "int8", "int4", "sign"] {
        assert_eq!(text.parse::<GradientCompression>().unwrap().to_string(), text);
    }
}

#[test]
fn a_straggler_is_a_rank_and_a_factor() {
    assert_eq!("1:2.5".parse(), Ok(Straggler { rank: 1, factor: 2.5 }));
}

#[test]
fn what_cannot_be_is_refused_with_what_could() {
    let method = |text: &str| text.parse::<DataParallelMethod>().unwrap_err().to_string();
    let compression = |text: &str| text.parse::<GradientCompression>().unwrap_err().to_string();
    let straggler = |text: &str| text.parse::<Straggler>().unwrap_err().to_string();
    for (message, words) in [
        (straggler("1:0.5"), ["a rank and a factor from 1 to 1000", "such as 1:4, not `1:0.5`"]),
        (straggler("4"), ["a rank and a factor", "not `4`"]),
        (method("asynchronous:-1"), ["staleness `-1`", "hint: asynchronous:4"]),
        (method("gossip"), ["`gossip` is no data-parallel method", "ring-averaging"]),
        (compression("top-k:0"), ["share `0`", "above 0 and at most 1"]),
        (compression("random-k:1.5"), ["share `1.5`", "hint: top-k:0.01"]),
        (compression("top-k"), ["`top-k` is no gradient compression", "top-k:SHARE"]),
    ] {
        for word in words {
            assert!(message.contains(word), "no `{word}` in {message}");
        }
    }
}

#[test]
fn compressed_gradients_take_their_bytes() {
    for (text, bytes) in [
        ("top-k:0.01", 10 * (2 + 4)),
        ("random-k:0.01", 10 * 2),
        ("int8", 1000 + 4 * 16),
        ("int4", 500 + 4 * 16),
        ("sign", 125 + 4),
    ] {
        let compression: GradientCompression = text.parse().unwrap();
        assert_eq!(compression.bytes(1000, 2), bytes, "{text}");
        assert_eq!(compression.bytes(0, 2), 0, "{text}");
    }
}

proptest! {
    /// Whatever replicas do when they may, one always may go on, and none brings gradients that are too old.
    #[test]
    fn staleness_keeps_its_bound_and_nobody_waits_for_ever(
        replicas in 1u32..6, staleness in 0u32..6, choices in prop::collection::vec(any::<prop::sample::Index>(), 1..200),
    ) {
        let mut outstanding = Outstanding::default();
        let mut has_weights = vec![false; replicas as usize];
        for choice in choices {
            let may = |replica: &u32| if has_weights[*replica as usize] {
                outstanding.may_apply(*replica, staleness)
            } else {
                outstanding.may_take(staleness)
            };
            let enabled: Vec<u32> = (0..replicas).filter(may).collect();
            prop_assert!(!enabled.is_empty(), "{outstanding:?}");
            let replica = *choice.get(&enabled);
            let has = &mut has_weights[replica as usize];
            if *has {
                prop_assert!(outstanding.apply(replica) <= u64::from(staleness));
            } else {
                outstanding.take(replica);
            }
            *has = !*has;
        }
    }
}
