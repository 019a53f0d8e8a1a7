use std::collections::BTreeMap;

use super::{NcclCall, NcclDataType, NcclFunction, ReduceOp};
use crate::number::{Format, Rounding};

const F32: NcclDataType = NcclDataType::Float(Format::F32);

/// The outputs of all ranks of a call, from each rank's numbers.
fn play(
    function: impl Fn(u32) -> NcclFunction,
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
    let call = |rank: u32| NcclCall {
        function: function(rank),
        part_bytes: part * format.bytes(),
        rank,
        num_ranks: numbers.len() as u32,
    };
    let mut mail: BTreeMap<u32, BTreeMap<u32, Vec<u8>>> = BTreeMap::new();
    for (from, own) in (0..).zip(&own) {
        for (to, range) in call(from).outgoing() {
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
            assert_eq!(from, call(rank).incoming(), "what is sent is what is waited for");
            let result = call(rank).result(own, &received).unwrap_or_default();
            result.chunks_exact(format.bytes()).map(read).collect()
        })
        .collect()
}

#[test]
fn all_ranks_get_the_same_sum() {
    let function = |_| NcclFunction::AllReduce(F32, ReduceOp::Sum);
    let found = play(function, &[&[1.0, 2.0], &[10.0, 20.0], &[100.0, 200.0]], Format::F32, 2);
    assert_eq!(found, [[111.0, 222.0], [111.0, 222.0], [111.0, 222.0]]);
}

#[test]
fn parts_go_where_they_belong() {
    let numbers: [&[f64]; 2] = [&[1.0, 2.0], &[10.0, 20.0]];
    let scatter = |_| NcclFunction::ReduceScatter(F32, ReduceOp::Sum);
    assert_eq!(play(scatter, &numbers, Format::F32, 1), [[11.0], [22.0]]);
    assert_eq!(
        play(|_| NcclFunction::AllGather, &numbers, Format::F32, 2),
        [[1.0, 2.0, 10.0, 20.0], [1.0, 2.0, 10.0, 20.0]]
    );
    let reduce = |_| NcclFunction::Reduce(F32, ReduceOp::Max, 1);
    assert_eq!(play(reduce, &numbers, Format::F32, 2), [vec![], vec![10.0, 20.0]]);
    assert_eq!(
        play(|_| NcclFunction::Broadcast(1), &numbers, Format::F32, 2),
        [[10.0, 20.0], [10.0, 20.0]]
    );
    let message = |rank| if rank == 0 { NcclFunction::Send(1) } else { NcclFunction::Receive(0) };
    assert_eq!(play(message, &numbers, Format::F32, 2), [vec![], vec![1.0, 2.0]]);
}

/// 257 needs nine binary digits; bf16 has eight.
#[test]
fn sums_are_rounded_to_their_type() {
    let function = |_| NcclFunction::AllReduce(NcclDataType::Float(Format::Bf16), ReduceOp::Sum);
    let found = play(function, &[&[256.0], &[1.0], &[1.0]], Format::Bf16, 1);
    assert_eq!(found[0], [256.0]);
    let mean = |_| NcclFunction::AllReduce(F32, ReduceOp::Mean);
    assert_eq!(play(mean, &[&[1.0], &[4.0]], Format::F32, 1), [[2.5], [2.5]]);
}

#[test]
fn integers_keep_their_sign() {
    let parts = [vec![0xff_u8, 3], vec![1, 4]];
    assert_eq!(ReduceOp::Sum.reduce(NcclDataType::Integer(1, true), &parts), [0, 7]);
    assert_eq!(ReduceOp::Max.reduce(NcclDataType::Integer(1, true), &parts), [1, 4]);
    assert_eq!(ReduceOp::Max.reduce(NcclDataType::Integer(1, false), &parts), [0xff, 4]);
}
