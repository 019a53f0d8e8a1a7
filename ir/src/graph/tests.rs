//! A GPT block, from its operators to the published formulas.

use super::*;
use crate::collective::Collective;
use crate::units::Bytes;

const B: u64 = 4;
const S: u64 = 2048;
const H: u64 = 6144;
const A: u64 = 64;

/// A GPT-3 block as in Korthikanti et al. 2022: unfused attention, dropout, GELU.
fn gpt_block() -> Result<Block, GraphError> {
    let hidden = Dim::fixed(DimName::Hidden, H);
    let heads = |name| vec![Dim::fixed(name, A), Dim::fixed(DimName::HeadDim, H / A)];
    let inner = vec![Dim::fixed(DimName::Intermediate, 4 * H)];
    let linear = |contracted: &[DimName], produced: Vec<Dim>| OpKind::Linear {
        contracted: contracted.to_vec(),
        produced,
        bias: true,
    };
    let norm = OpKind::Norm {
        kind: NormKind::LayerNorm,
        over: vec![DimName::Hidden],
        weight: true,
        bias: true,
        epsilon: 1e-5.into(),
        unit_offset: false,
    };
    let mut block = BlockBuilder::new("layer");
    let x = block.input("x", Tensor::new([Dim::BATCH, Dim::SEQUENCE, hidden]));
    let y = block.push("norm.1", norm.clone(), &[x])?;
    let q = block.push("query", linear(&[DimName::Hidden], heads(DimName::Heads)), &[y])?;
    let k = block.push("key", linear(&[DimName::Hidden], heads(DimName::KvHeads)), &[y])?;
    let v = block.push("value", linear(&[DimName::Hidden], heads(DimName::KvHeads)), &[y])?;
    let scores = block.push("scores", OpKind::AttentionScores, &[q, k])?;
    let softmax = block.push("softmax", OpKind::Softmax { over: DimName::Context }, &[scores])?;
    let dropped = block.push("dropout.scores", OpKind::Dropout { rate: 0.1.into() }, &[softmax])?;
    let attended = block.push("values", OpKind::AttentionValues, &[dropped, v])?;
    for value in [scores, softmax, dropped] {
        block.recompute_selectively(value);
    }
    block.end_selective_region(attended);
    let both = [DimName::Heads, DimName::HeadDim];
    let y = block.push("projection", linear(&both, vec![hidden]), &[attended])?;
    let y = block.push("dropout.attention", OpKind::Dropout { rate: 0.1.into() }, &[y])?;
    let x = block.push("residual.1", OpKind::Add, &[x, y])?;
    let y = block.push("norm.2", norm, &[x])?;
    let y = block.push("up", linear(&[DimName::Hidden], inner), &[y])?;
    let y = block.push("gelu", OpKind::Activation(Activation::Gelu), &[y])?;
    let y = block.push("down", linear(&[DimName::Intermediate], vec![hidden]), &[y])?;
    let y = block.push("dropout.mlp", OpKind::Dropout { rate: 0.1.into() }, &[y])?;
    let x = block.push("residual.2", OpKind::Add, &[x, y])?;
    Ok(block.finish([x]))
}

fn work(sharding: Sharding) -> BlockWork {
    let sizes = Sizes { micro_batch_size: B, sequence_length: S };
    gpt_block().unwrap().work(&ShardContext::plain(sizes, sharding))
}

fn sequence_parallel(degree: u32) -> Sharding {
    Sharding { sequence_parallel: true, ..Sharding::tensor(degree) }
}

/// Saved bytes without the statistics of norms, which the paper neglects.
fn activation_bytes(sharding: Sharding, recompute: BlockRecompute) -> u64 {
    let mut work = work(sharding);
    work.saved.retain(|saved| saved.part != SavedPart::Statistics);
    work.saved_bytes(recompute).get()
}

/// Korthikanti et al. 2022 (arXiv 2205.05198), table 2 and equations 1 to 6.
#[test]
fn a_gpt_block_keeps_what_korthikanti_et_al_count() {
    let sbh = S * B * H;
    let scores = 5 * A * S * S * B;
    assert_eq!(activation_bytes(Sharding::NONE, BlockRecompute::None), 34 * sbh + scores);
    assert_eq!(activation_bytes(Sharding::NONE, BlockRecompute::Full), 2 * sbh);
    for degree in [2, 4, 8] {
        let (tensor, t) = (Sharding::tensor(degree), u64::from(degree));
        assert_eq!(
            activation_bytes(tensor, BlockRecompute::None),
            10 * sbh + 24 * sbh / t + scores / t
        );
        assert_eq!(activation_bytes(tensor, BlockRecompute::Selective), 10 * sbh + 24 * sbh / t);
        assert_eq!(activation_bytes(tensor, BlockRecompute::Full), 2 * sbh);
        let both = sequence_parallel(degree);
        assert_eq!(activation_bytes(both, BlockRecompute::None), (34 * sbh + scores) / t);
        assert_eq!(activation_bytes(both, BlockRecompute::Selective), 34 * sbh / t);
    }
}

/// Narayanan et al. 2021 (arXiv 2104.04473), appendix: `24 B s h^2 (1 + s / (6 h))`, backward twice.
#[test]
fn a_gpt_block_executes_the_published_flops() {
    let (b, s, h) = (B as f64, S as f64, H as f64);
    let forward = 24.0 * b * s * h * h * (1.0 + s / (6.0 * h));
    for t in [1, 2, 8] {
        let work = work(Sharding::tensor(t));
        let flops = |passes: &[Pass]| -> f64 {
            let kernels = work.kernels.iter().filter(|kernel| passes.contains(&kernel.pass));
            kernels.map(|kernel| kernel.flops.get()).sum()
        };
        let share = forward / f64::from(t);
        assert!((flops(&[Pass::Forward]) / share - 1.0).abs() < 1e-12);
        assert!((flops(&[Pass::InputGrad, Pass::WeightGrad]) / (2.0 * share) - 1.0).abs() < 1e-12);
    }
}

/// The collectives of a block, as `(operator, pass, collective)`.
fn exchanges(sharding: Sharding) -> Vec<(String, Pass, Collective)> {
    let block = gpt_block().unwrap();
    let work = work(sharding);
    let full = Bytes::new(2 * B * S * H);
    assert!(work.exchanges.iter().all(|exchange| exchange.bytes == full));
    let mut list: Vec<_> = work
        .exchanges
        .iter()
        .map(|e| (block.op(e.op).name.clone(), e.pass, e.collective))
        .collect();
    list.sort();
    list
}

/// Shoeybi et al. 2019 (arXiv 1909.08053), figure 3: two all-reduces in forward, two in backward.
#[test]
fn tensor_parallelism_needs_the_all_reduces_of_megatron() {
    use Collective::AllReduce;
    let expected = [
        ("dropout.attention", Pass::Forward, AllReduce),
        ("dropout.mlp", Pass::Forward, AllReduce),
        ("query", Pass::InputGrad, AllReduce),
        ("up", Pass::InputGrad, AllReduce),
    ];
    assert_eq!(exchanges(Sharding::tensor(8)), expected.map(|(op, p, c)| (op.to_owned(), p, c)));
    assert_eq!(exchanges(Sharding::NONE), []);
}

/// Korthikanti et al. 2022, section 4.2.2: an all-gather and a reduce-scatter in the place of each
/// all-reduce, and the gathered input again for the gradient of the weight.
#[test]
fn sequence_parallelism_turns_them_into_gathers_and_scatters() {
    use Collective::{AllGather, ReduceScatter};
    let expected = [
        ("dropout.attention", Pass::Forward, ReduceScatter),
        ("dropout.attention", Pass::InputGrad, AllGather),
        ("dropout.mlp", Pass::Forward, ReduceScatter),
        ("dropout.mlp", Pass::InputGrad, AllGather),
        ("query", Pass::Forward, AllGather),
        ("query", Pass::InputGrad, ReduceScatter),
        ("query", Pass::WeightGrad, AllGather),
        ("up", Pass::Forward, AllGather),
        ("up", Pass::InputGrad, ReduceScatter),
        ("up", Pass::WeightGrad, AllGather),
    ];
    let expected = expected.map(|(op, p, c)| (op.to_owned(), p, c));
    assert_eq!(exchanges(sequence_parallel(8)), expected);
}

/// Where the gathered inputs of both sharded products are saved whole, none is gathered again: seven eighths of `2 s b
/// h` bytes more of each.
#[test]
fn gathered_inputs_that_are_kept_are_not_gathered_again() {
    let sizes = Sizes { micro_batch_size: B, sequence_length: S };
    let setting = ShardContext::plain(sizes, sequence_parallel(8));
    let [part, whole] = [false, true].map(|keeps_gathered| {
        let work = gpt_block().unwrap().work(&ShardContext { keeps_gathered, ..setting });
        let again = work.exchanges.iter().filter(|it| it.pass == Pass::WeightGrad).count();
        (work.saved_bytes(BlockRecompute::None).get(), again)
    });
    assert_eq!(whole, (part.0 + 2 * (2 * B * S * H) * 7 / 8, 0));
    assert_eq!(part.1, 2);
}

#[test]
fn tensor_parallelism_shards_all_but_norms_and_output_biases() {
    let whole = work(Sharding::NONE).parameters.dense;
    assert_eq!(whole, gpt_block().unwrap().num_parameters());
    let replicated = 2 * 2 * H + 2 * H;
    assert_eq!(work(Sharding::tensor(8)).parameters.dense, (whole - replicated) / 8 + replicated);
    assert_eq!(work(sequence_parallel(8)).parameters.partial_gradients, 4 * H);
}

#[test]
fn query_key_and_value_run_as_one_product() {
    let work = work(Sharding::tensor(4));
    let wide = Kernel::MatMul { batch: 1, m: B * S, n: 3 * H / 4, k: H };
    assert!(work.kernels.iter().any(|k| k.pass == Pass::Forward && k.kernel == wide));
}

/// Jacobs et al. 2023 (arXiv 2309.14509), section 3.2: `4 M / P` for a message of `M` elements on `P` ranks, in
/// all-to-alls of queries, keys, values and output; operations as with a ring.
#[test]
fn an_exchange_of_heads_sends_what_jacobs_et_al_count() {
    for degree in [2, 4] {
        let with = |context_parallel_kind| {
            let ring = Sharding { context_parallel: degree, ..Sharding::NONE };
            work(Sharding { context_parallel_kind, ..ring })
        };
        let [ring, exchanged] = ContextParallelKind::ALL.map(with);
        for pass in [Pass::Forward, Pass::InputGrad] {
            let own = exchanged.exchanges.iter().filter(|it| it.pass == pass);
            let bytes: Bytes = own.map(|it| it.bytes).sum();
            assert_eq!(bytes, Bytes::new(4 * 2 * S * B * H / u64::from(degree)));
        }
        assert!(exchanged.exchanges.iter().all(|it| it.collective == Collective::AllToAll));
        let flops = |work: &BlockWork| work.kernels.iter().map(|it| it.flops.get()).sum::<f64>();
        assert!((flops(&ring) / flops(&exchanged) - 1.0).abs() < 1e-12);
        let saved = |work: &BlockWork| work.saved_bytes(BlockRecompute::None);
        assert_eq!(saved(&ring), saved(&exchanged), "unfused, nothing is kept twice");
    }
}
