//! The micro-batches that a rank works on.

use std::ops::Range;
use std::sync::Arc;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::graph::{DimName, ElementType, OpKind};

use crate::block::{Env, Further, MicroBatch, SharedMicroBatch};
use crate::data::masking::{IGNORED, Masking, num_masked};
use crate::data::{DataError, Samples, SyntheticSamples};
use crate::program::{Objective, Program};

/// Training data of a model.
#[derive(Debug)]
pub enum Source {
    /// Windows of tokens.
    Tokens(Samples),
    /// Windows, in this order, each of one token more than a sequence; after the last window, the first follows again.
    Windows(Vec<Vec<u32>>),
    /// Samples, in this order, each an input and its class; after the last sample, the first follows again.
    Samples(Vec<(Vec<f64>, u32)>),
    /// Made-up samples, for models that take no tokens.
    Synthetic(SyntheticSamples),
}

impl Source {
    /// Number of targets of a step: tokens, or samples.
    pub(crate) fn num_targets(&self, program: &Program) -> u64 {
        let all = program.tokens_per_step();
        match (self, program.objective()) {
            (Self::Tokens(_), Objective::FillIn) => {
                program.global_batch_size * num_masked(program.sequence_length as usize) as u64
            }
            _ => all,
        }
    }

    /// The rank's part of a micro-batch of step `step`, counting from 0.
    ///
    /// A step has the same micro-batches whatever the number of replicas.
    pub(crate) fn micro_batch<B: Kernels>(
        &self,
        program: &Program,
        env: &Env<B>,
        step: u64,
        micro_batch: u32,
    ) -> Result<SharedMicroBatch<B>, DataError> {
        let size = env.micro_batch_size as u64;
        let index = program.micro_batch_of_step(env.place.data, micro_batch);
        let first = step * program.global_batch_size + index * size;
        let samples = first..first + size;
        let batch = match self {
            Self::Tokens(source) => {
                let windows = samples.map(|sample| source.window(sample));
                let windows = windows.collect::<Result<Vec<_>, _>>()?;
                let masking = Masking { vocab_size: source.vocab_size(), seed: env.seed };
                match program.objective() {
                    Objective::NextToken => of_windows(program, env, first, &windows),
                    Objective::FillIn => {
                        let (masked, targets) = all_masked(first, &windows, masking);
                        let [tokens, targets] = [masked, targets].map(|all| of_segments(env, &all));
                        MicroBatch { first_sample: first, tokens, targets, ..MicroBatch::default() }
                    }
                    Objective::Restore => {
                        let (masked, _) = all_masked(first, &windows, masking);
                        let decoder = of_windows(program, env, first, &windows);
                        MicroBatch {
                            tokens: of_segments(env, &masked),
                            decoder_tokens: Some(decoder.tokens),
                            ..decoder
                        }
                    }
                }
            }
            Self::Windows(windows) => {
                let window = |sample: u64| windows[sample as usize % windows.len()].clone();
                of_windows(program, env, first, &samples.map(window).collect::<Vec<_>>())
            }
            Self::Samples(all) => {
                let sample = |sample: u64| &all[sample as usize % all.len()];
                let chosen: Vec<_> = samples.map(sample).collect();
                let shape = [&[env.micro_batch_size], &input_shape(program)[..]].concat();
                let inputs = chosen.iter().flat_map(|(input, _)| input).copied().collect();
                let inputs = Some(Array::from_f64(inputs, &shape, env.element, &env.device));
                let targets = chosen.iter().map(|(_, class)| *class).collect();
                MicroBatch { first_sample: first, targets, inputs, ..MicroBatch::default() }
            }
            Self::Synthetic(source) => synthetic(*source, program, env, samples),
        };
        Ok(Arc::new(batch))
    }
}

/// The rank's segments of windows: the tokens, and as targets the token after each.
fn of_windows<B: Kernels>(
    program: &Program,
    env: &Env<B>,
    first_sample: u64,
    windows: &[Vec<u32>],
) -> MicroBatch<B> {
    // The token at the given distance after each token, or `none` past the end.
    let after = |places: usize, none: u32| {
        let places_here = |window: &Vec<u32>| {
            let of_segment = |segment: &Range<usize>| {
                let at = segment.clone().map(|place| window.get(place + places));
                at.map(|token| token.copied().unwrap_or(none)).collect::<Vec<u32>>()
            };
            env.segments.iter().flat_map(of_segment).collect::<Vec<u32>>()
        };
        windows.iter().flat_map(places_here).collect::<Vec<u32>>()
    };
    let further = (1..=program.most_ahead())
        .map(|ahead| Further { tokens: after(ahead, 0), targets: after(ahead + 1, IGNORED) });
    MicroBatch {
        first_sample,
        tokens: after(0, 0),
        targets: after(1, IGNORED),
        further: further.collect(),
        ..MicroBatch::default()
    }
}

/// All but the last token of each window, some of them masked; and the targets.
fn all_masked(
    first_sample: u64,
    windows: &[Vec<u32>],
    masking: Masking,
) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let masked = (first_sample..).zip(windows).map(|(sample, window)| {
        let (_, tokens) = window.split_last().expect("a window has a token more than a sequence");
        masking.masked(sample, tokens)
    });
    masked.unzip()
}

/// The rank's segments of sequences.
fn of_segments<B: Kernels>(env: &Env<B>, sequences: &[Vec<u32>]) -> Vec<u32> {
    let mut own = Vec::new();
    for sequence in sequences {
        for segment in &env.segments {
            own.extend(&sequence[segment.clone()]);
        }
    }
    own
}

fn synthetic<B: Kernels>(
    source: SyntheticSamples,
    program: &Program,
    env: &Env<B>,
    samples: Range<u64>,
) -> MicroBatch<B> {
    let input = input_shape(program);
    let last = &program.block(program.chain.len() - 1).block;
    let loss = last.nodes().last().expect("a block has operators");
    let output = sample_shape(last.inputs(loss.id).first().map(|id| &last.op(*id).output));
    let array = |shape: &[usize], values: Vec<f64>| {
        let shape = [&[env.micro_batch_size], shape].concat();
        Array::from_f64(values, &shape, env.element, &env.device)
    };
    let (first_sample, len) = (samples.start, input.iter().product());
    let inputs = samples.clone().flat_map(|sample| source.input(sample, len)).collect();
    let (mut targets, mut values) = (Vec::new(), None);
    if let OpKind::CrossEntropy { .. } = loss.op.kind {
        let classes = *output.last().expect("logits have classes") as u32;
        targets = samples.map(|sample| source.class(sample, classes)).collect();
    } else {
        let len = output.iter().product();
        let all = samples.flat_map(|sample| source.target(sample, len)).collect();
        values = Some(array(&output, all));
    }
    let inputs = Some(array(&input, inputs));
    MicroBatch { first_sample, targets, inputs, values, ..MicroBatch::default() }
}

/// Sizes of the model's input of one sample.
fn input_shape(program: &Program) -> Vec<usize> {
    sample_shape(program.block(0).block.nodes().find_map(|node| {
        let is_data = node.op.kind == OpKind::Input && node.op.output.element != ElementType::Index;
        is_data.then_some(&node.op.output)
    }))
}

/// Sizes of a tensor for one sample.
fn sample_shape(tensor: Option<&ir::graph::Tensor>) -> Vec<usize> {
    let dims = tensor.expect("a model takes data and ends in a loss").dims.iter();
    let dims = dims.filter(|dim| dim.name != DimName::Batch);
    let sizes = dims.map(|dim| dim.extent.fixed().expect("made-up samples have a fixed shape"));
    sizes.map(|size| size as usize).collect()
}
