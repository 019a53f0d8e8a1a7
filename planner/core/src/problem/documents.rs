//! Sequences that a step makes from documents, by random draws of their lengths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ir::documents::{DocumentLengths, Documents, Packing};
use ir::graph::DocumentSizes;
use simulator::{normal_deviates, uniform_deviates};

use crate::step::Memo;

/// Random draws of the documents of a step.
const DRAWS: usize = 16;

/// Seed of the draws.
const SEED: u64 = 2;

/// Standard deviations above the mean that the logarithm of the length exceeds for one document in a million. Runs have
/// about a million documents, and fail at the first micro-batch that does not fit.
const RAREST: f64 = 4.75;

/// Number of documents from which the mean length is computed.
const OF_MEAN: usize = 1 << 14;

/// Sequences that are tried for a document, before it is left for the next step.
const TRIES: usize = 64;

/// Largest numbers of sequences and of documents in a draw; in a larger step, they stand for all.
const MOST_SEQUENCES: u64 = 1 << 16;
const MOST_DOCUMENTS: f64 = (1 << 20) as f64;

/// Sequences that first-fit packing keeps open.
const OPEN_SEQUENCES: usize = 32;

/// Division of the sequences of a step among replicas and micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BatchSplit {
    pub(crate) replicas: u32,
    pub(crate) num_micro_batches: u32,
    pub(crate) micro_batch_size: u32,
    pub(crate) pipeline_parallel: u32,
}

impl BatchSplit {
    /// All sequences of a step one after the other.
    pub(crate) fn whole(batch: u64) -> Self {
        let num_micro_batches = u32::try_from(batch).unwrap_or(u32::MAX);
        Self { replicas: 1, num_micro_batches, micro_batch_size: 1, pipeline_parallel: 1 }
    }

    /// The same split with at most `most` sequences: fewer micro-batches, smaller ones, and fewer replicas, in this
    /// order.
    fn within(self, most: u64) -> Self {
        let fewer = |count: u32, others: u64| {
            let most = u32::try_from(most / others.max(1)).unwrap_or(u32::MAX);
            count.clamp(1, most.max(1))
        };
        let Self { replicas, micro_batch_size, .. } = self;
        let [replicas, size] = [replicas, micro_batch_size].map(u64::from);
        let num_micro_batches = fewer(self.num_micro_batches, replicas * size);
        let micro_batch_size = fewer(micro_batch_size, replicas);
        Self { num_micro_batches, micro_batch_size, replicas: fewer(self.replicas, 1), ..self }
    }
}

/// Sequences made from documents, for any split over replicas and micro-batches.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// The documents.
    pub documents: Documents,
    /// Tokens of a sequence; without packing, the most tokens of a document.
    whole: u64,
    /// Quantile of the draws that is evaluated: the share of draws that are at most as bad. `None` for the one that
    /// plans are made for.
    quantile: Option<f64>,
    /// Sequences of all draws, by the number of sequences in a step.
    packed: Arc<Memo<usize, Arc<Vec<Vec<Sequence>>>>>,
    /// Sizes of all draws, each in ascending order.
    drawn: Arc<Memo<BatchSplit, Arc<Drawn>>>,
}

/// Sizes of all draws, in ascending order.
#[derive(Debug, Default)]
struct Drawn {
    attended: Vec<u64>,
    padded: Vec<u64>,
    longest: Vec<u64>,
    /// Mean ratio of the tokens of documents to the tokens of whole sequences.
    filled: f64,
}

/// A sequence: its number of tokens, and the sum of the squares of its documents' numbers of tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Sequence {
    tokens: u64,
    squares: f64,
}

impl Sequence {
    fn add(&mut self, length: u64) {
        self.tokens += length;
        self.squares += length as f64 * length as f64;
    }
}

impl Sequences {
    pub(super) fn new(documents: Documents, whole: u64) -> Self {
        Self { documents, whole, quantile: None, packed: Arc::default(), drawn: Arc::default() }
    }

    /// The documents at a quantile of the draws.
    pub(super) fn at(&self, quantile: f64) -> Self {
        Self { quantile: Some(quantile), ..self.clone() }
    }

    /// Sizes of the sequences of the replica that all others wait for.
    pub(crate) fn of(&self, split: BatchSplit) -> DocumentSizes {
        let drawn = self.drawn(split);
        let at = |all: &[u64]| {
            let quantile = self.quantile.unwrap_or(0.5);
            all[((all.len() - 1) as f64 * quantile).round() as usize]
        };
        let longest = match self.quantile {
            Some(_) => at(&drawn.longest),
            None => self.longest(),
        };
        DocumentSizes { attended: at(&drawn.attended), padded: at(&drawn.padded), longest }
    }

    /// Tokens of the longest sequence of a run, for which there has to be memory.
    fn longest(&self) -> u64 {
        let longest = match (&self.documents.packing, &self.documents.lengths) {
            (Packing::FirstFit | Packing::Balanced, _) => self.whole,
            (Packing::None, DocumentLengths::LogNormal { mean, sigma }) => {
                (mean.ln() - sigma * sigma / 2.0 + sigma * RAREST).exp().round() as u64
            }
            (Packing::None, DocumentLengths::Counted(counted)) => {
                counted.last().map_or(self.whole, |(length, _)| *length)
            }
        };
        longest.clamp(1, self.whole)
    }

    /// Ratio of the tokens of documents in a step to the tokens of its sequences at full length.
    pub(crate) fn real_share(&self, batch: u64) -> f64 {
        match self.documents.packing {
            Packing::None => {
                let sum: u64 = self.lengths().take(OF_MEAN).sum();
                sum as f64 / OF_MEAN as f64 / self.whole as f64
            }
            _ => self.drawn(BatchSplit::whole(batch)).filled,
        }
    }

    fn drawn(&self, split: BatchSplit) -> Arc<Drawn> {
        let documents = (self.whole as f64 / self.documents.lengths.mean()).max(1.0);
        let most = MOST_SEQUENCES.min((MOST_DOCUMENTS / documents) as u64).max(1);
        let split = split.within(most);
        self.drawn.get(split, || Arc::new(self.sizes(split)))
    }

    /// Sequences of all draws, of a step with `num_sequences`.
    fn packed(&self, num_sequences: usize) -> Arc<Vec<Vec<Sequence>>> {
        self.packed.get(num_sequences, || {
            let mut lengths = self.lengths();
            let draws = (0..DRAWS).map(|_| self.pack(&mut *lengths, num_sequences));
            Arc::new(draws.collect())
        })
    }

    fn sizes(&self, split: BatchSplit) -> Drawn {
        let BatchSplit { replicas, num_micro_batches, micro_batch_size, pipeline_parallel } = split;
        let replicas = replicas as usize;
        let num_sequences = num_micro_batches as usize * micro_batch_size as usize * replicas;
        let whole = self.whole;
        let mut drawn = Drawn::default();
        for sequences in self.packed(num_sequences).iter() {
            let tokens: u64 = sequences.iter().map(|it| it.tokens).sum();
            drawn.filled += tokens as f64 / (num_sequences as u64 * whole) as f64 / DRAWS as f64;
            let (mut squares, mut padded, mut longest) = (0.0_f64, 0.0_f64, 0);
            for replica in self.spread(sequences, replicas, num_micro_batches as usize) {
                let all = || replica.chunks(micro_batch_size as usize);
                let of_all = all().map(|all| all.iter().map(|it| it.squares).sum::<f64>());
                let longest_of_all = || all().map(|all| all.iter().map(|it| it.tokens).max());
                let of_longest = longest_of_all().map(|it| it.unwrap_or(0) as f64);
                squares = squares.max(flow(of_all, pipeline_parallel));
                padded = padded.max(flow(of_longest, pipeline_parallel));
                longest = longest.max(longest_of_all().flatten().max().unwrap_or(0));
            }
            let of_sequence = squares / f64::from(micro_batch_size);
            // Padding of a packed sequence attends to nothing; that of a single document is computed with it.
            let [attended, padded, longest] = match self.documents.packing {
                Packing::FirstFit | Packing::Balanced => {
                    [of_sequence / whole as f64, whole as f64, whole as f64]
                }
                Packing::None => [padded, padded, longest as f64],
            }
            .map(|tokens| (tokens.round() as u64).clamp(1, whole));
            drawn.attended.push(attended);
            drawn.padded.push(padded);
            drawn.longest.push(longest);
        }
        for all in [&mut drawn.attended, &mut drawn.padded, &mut drawn.longest] {
            all.sort_unstable();
        }
        drawn
    }

    /// Random lengths of documents, without end.
    fn lengths(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match &self.documents.lengths {
            DocumentLengths::LogNormal { mean, sigma } => {
                let middle = mean.ln() - sigma * sigma / 2.0;
                let length = move |deviate: f64| (middle + sigma * deviate).exp().round();
                let longest = self.whole;
                Box::new(normal_deviates(SEED).map(move |it| (length(it) as u64).clamp(1, longest)))
            }
            DocumentLengths::Counted(counted) => {
                let mut sum = 0_u64;
                let ends = counted.iter().map(|(length, count)| {
                    sum = sum.saturating_add(*count);
                    (sum, *length)
                });
                let ends: Vec<(u64, u64)> = ends.collect();
                let place = move |uniform: f64| (uniform * sum as f64) as u64;
                Box::new(uniform_deviates(SEED).map(move |uniform| {
                    let place = place(uniform);
                    ends[ends.partition_point(|(end, _)| *end <= place).min(ends.len() - 1)].1
                }))
            }
        }
    }

    /// Sequences made of the next documents.
    fn pack(&self, lengths: &mut dyn Iterator<Item = u64>, num_sequences: usize) -> Vec<Sequence> {
        let of_one = |length: u64| Sequence { tokens: length, squares: (length as f64).powi(2) };
        if self.documents.packing == Packing::None {
            return lengths.take(num_sequences).map(of_one).collect();
        }
        let (mut closed, mut open) = (Vec::with_capacity(num_sequences), Vec::<Sequence>::new());
        let mut documents = Vec::new();
        for length in lengths {
            let fits = |it: &&mut Sequence| it.tokens + length <= self.whole;
            if let Some(sequence) = open.iter_mut().find(fits) {
                sequence.add(length);
            } else if closed.len() + open.len() == num_sequences {
                break;
            } else {
                if open.len() == OPEN_SEQUENCES {
                    let fullest = (0..open.len()).max_by_key(|index| open[*index].tokens);
                    closed.push(open.swap_remove(fullest.unwrap_or(0)));
                }
                open.push(of_one(length));
            }
            documents.push(length);
        }
        closed.append(&mut open);
        if self.documents.packing == Packing::Balanced {
            return self.repack(documents, num_sequences);
        }
        closed
    }

    /// Sequences of the same documents: the longest first, each into the sequence with the least attention of those
    /// that have room. A document that fits no sequence is left for the next step.
    fn repack(&self, mut documents: Vec<u64>, num_sequences: usize) -> Vec<Sequence> {
        documents.sort_unstable_by_key(|length| Reverse(*length));
        let mut sequences = vec![Sequence::default(); num_sequences];
        let mut by_squares: BinaryHeap<Reverse<(u64, usize)>> =
            (0..num_sequences).map(|index| Reverse((0, index))).collect();
        let mut without_room = Vec::new();
        for length in documents {
            while let Some(Reverse((squares, index))) = by_squares.pop() {
                let sequence = &mut sequences[index];
                if sequence.tokens + length <= self.whole {
                    sequence.add(length);
                    by_squares.push(Reverse((sequence.squares as u64, index)));
                    break;
                }
                without_room.push(Reverse((squares, index)));
                if without_room.len() == TRIES {
                    break;
                }
            }
            by_squares.extend(without_room.drain(..));
        }
        sequences
    }

    /// Sequences of each replica, in the order of its micro-batches: in turn, in the order in which they come, or
    /// balanced by attention.
    fn spread(
        &self,
        sequences: &[Sequence],
        replicas: usize,
        num_micro_batches: usize,
    ) -> Vec<Vec<Sequence>> {
        if self.documents.packing != Packing::Balanced {
            let of = |replica: usize| sequences.iter().skip(replica).step_by(replicas).copied();
            return (0..replicas).map(|replica| of(replica).collect()).collect();
        }
        let mut sorted = sequences.to_vec();
        sorted.sort_by(|a, b| b.squares.total_cmp(&a.squares));
        let of_replicas = to_and_fro(&sorted, replicas);
        of_replicas.iter().map(|all| to_and_fro(all, num_micro_batches).concat()).collect()
    }
}

/// Deals sorted sequences out to groups, from the first group to the last and then back.
fn to_and_fro(sorted: &[Sequence], groups: usize) -> Vec<Vec<Sequence>> {
    let mut dealt = vec![Vec::new(); groups];
    for (round, sequences) in sorted.chunks(groups).enumerate() {
        for (place, sequence) in sequences.iter().enumerate() {
            let group = if round % 2 == 0 { place } else { groups - 1 - place };
            dealt[group].push(*sequence);
        }
    }
    dealt
}

/// Mean time of micro-batches that gives the time of the whole pipeline. With equal stages, `m` micro-batches take the
/// sum of their times, plus the longest time once for each further stage.
///
/// # Source
///
/// The makespan of a permutation flow shop whose jobs take equally long on every machine (Pinedo, *Scheduling*, 6.1).
fn flow(times: impl Iterator<Item = f64>, pipeline_parallel: u32) -> f64 {
    let (sum, longest, count) = times.fold((0.0, 0.0_f64, 0.0), |(sum, longest, count), time| {
        (sum + time, longest.max(time), count + 1.0)
    });
    let further = f64::from(pipeline_parallel - 1);
    (sum + further * longest) / (count + further)
}
