use std::collections::BTreeMap;

use super::{Element, Exchange, Kind, Reduction};
use crate::number::{Format, Rounding};

const F32: Element = Element::Float(Format::F32);

/// The outputs of all ranks of a call, from each rank's numbers.
fn play(
    kind: impl Fn(u32) -> Kind,
    numbers: &[&[f64]],
    format: Format,
    part: usize,
) -> Vec<Vec<f64>> {
    let write = |value: &f64| {
        let bits = format.write(*value, Rounding::NearestEven);
        bits.to_le_bytes()[..format.bytes()].to_vec()
    };
    let own: Vec<Vec<u8>> =
        numbers.iter().map(|list| list.iter().flat_map(write).collect()).collect();
    let exchange = |rank: u32| Exchange {
        kind: kind(rank),
        part_bytes: part * format.bytes(),
        rank,
        num_ranks: numbers.len() as u32,
    };
    let mut mail: BTreeMap<u32, BTreeMap<u32, Vec<u8>>> = BTreeMap::new();
    for (from, own) in (0..).zip(&own) {
        for (to, range) in exchange(from).outgoing() {
            mail.entry(to).or_default().insert(from, own[range].to_vec());
        }
    }
    let read = |bytes: &[u8]| {
        format.read(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    };
    (0..)
        .zip(&own)
        .map(|(rank, own)| {
            let received = mail.remove(&rank).unwrap_or_default();
            let from: Vec<u32> = received.keys().copied().collect();
            assert_eq!(from, exchange(rank).incoming(), "what is sent is what is waited for");
            let result = exchange(rank).result(own, &received).unwrap_or_default();
            result.chunks_exact(format.bytes()).map(read).collect()
        })
        .collect()
}

#[test]
fn all_ranks_get_the_same_sum() {
    let kind = |_| Kind::AllReduce(F32, Reduction::Sum);
    let found = play(kind, &[&[1.0, 2.0], &[10.0, 20.0], &[100.0, 200.0]], Format::F32, 2);
    assert_eq!(found, [[111.0, 222.0], [111.0, 222.0], [111.0, 222.0]]);
}

#[test]
fn parts_go_where_they_belong() {
    let numbers: [&[f64]; 2] = [&[1.0, 2.0], &[10.0, 20.0]];
    let scatter = |_| Kind::ReduceScatter(F32, Reduction::Sum);
    assert_eq!(play(scatter, &numbers, Format::F32, 1), [[11.0], [22.0]]);
    assert_eq!(
        play(|_| Kind::AllGather, &numbers, Format::F32, 2),
        [[1.0, 2.0, 10.0, 20.0], [1.0, 2.0, 10.0, 20.0]]
    );
    let reduce = |_| Kind::Reduce(F32, Reduction::Max, 1);
    assert_eq!(play(reduce, &numbers, Format::F32, 2), [vec![], vec![10.0, 20.0]]);
    assert_eq!(
        play(|_| Kind::Broadcast(1), &numbers, Format::F32, 2),
        [[10.0, 20.0], [10.0, 20.0]]
    );
    let message = |rank| if rank == 0 { Kind::Send(1) } else { Kind::Receive(0) };
    assert_eq!(play(message, &numbers, Format::F32, 2), [vec![], vec![1.0, 2.0]]);
}

/// 257 needs nine binary digits; bf16 has eight.
#[test]
fn sums_are_rounded_to_their_type() {
    let kind = |_| Kind::AllReduce(Element::Float(Format::Bf16), Reduction::Sum);
    let found = play(kind, &[&[256.0], &[1.0], &[1.0]], Format::Bf16, 1);
    assert_eq!(found[0], [256.0]);
    let mean = |_| Kind::AllReduce(F32, Reduction::Mean);
    assert_eq!(play(mean, &[&[1.0], &[4.0]], Format::F32, 1), [[2.5], [2.5]]);
}

#[test]
fn integers_keep_their_sign() {
    let parts = [vec![0xff_u8, 3], vec![1, 4]];
    assert_eq!(Reduction::Sum.reduce(Element::Integer(1, true), &parts), [0, 7]);
    assert_eq!(Reduction::Max.reduce(Element::Integer(1, true), &parts), [1, 4]);
    assert_eq!(Reduction::Max.reduce(Element::Integer(1, false), &parts), [0xff, 4]);
}
