//! Compression of replicas' gradients, with error feedback: the compression error is saved for the next step.

use std::collections::BTreeMap;
use std::sync::Mutex;

use executor_communicators::{CommunicationError, Communicator, Group, Reduction};
use executor_kernels::array::{Array, Element, ElementExt};
use executor_kernels::ops::Kernels;
use executor_kernels::random::hash;
use ir::collective::Collective;
use ir::graph::WeightFormat;
use ir::replication::GradientCompression;
use traces::timeline::Stream;

use crate::exchange::{GradientExchange, Link, Sums, UnitGradient};
use crate::mesh::ReplicaGroups;
use crate::quantised::{Codes, quantised, restored};

/// A compressed gradient: numbers and bytes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Code {
    numbers: Vec<f64>,
    bytes: Vec<u8>,
}

/// Compression error of a unit's gradients, and the number of gradients that the unit has sent.
struct LeftOut<B: Kernels> {
    gradient: Array<B>,
    num_sent: u64,
}

/// Sums compressed gradients of replicas.
pub(crate) struct Compressor<B: Kernels> {
    compression: GradientCompression,
    seed: u64,
    left_out: Mutex<BTreeMap<usize, LeftOut<B>>>,
}

impl<B: Kernels> Compressor<B> {
    pub(crate) fn new(compression: GradientCompression, seed: u64) -> Self {
        Self { compression, seed, left_out: Mutex::default() }
    }

    /// Returns whether compressed gradients are summed by an all-reduce.
    fn is_reducible(&self) -> bool {
        self.compression.is_reducible()
    }

    /// The sum over the group of the compressed gradients of unit `unit`.
    ///
    /// With error feedback: the compressed `p = g + e` is sent, and `e` of the next step is `p` less the sent value.
    ///
    /// # Source
    ///
    /// See [`GradientCompression`].
    fn sum_of(
        &self,
        communicator: &dyn Communicator<B>,
        group: &Group,
        unit: usize,
        gradient: Array<B>,
    ) -> Result<Array<B>, CommunicationError> {
        let (element, device) = (gradient.element(), gradient.device());
        let len = gradient.num_elements();
        let before = self.left_out.lock().expect("no other thread has failed").remove(&unit);
        let num_sent = before.as_ref().map_or(0, |before| before.num_sent);
        let wide = gradient.widened();
        let full = before.map_or(wide.clone(), |before| wide + before.gradient);
        let values = full.to_f64();
        // The same elements on all ranks.
        let key = hash([self.seed, unit as u64, num_sent]);
        let code = encode(self.compression, &values, key);
        let numbers_of = self.numbers_element(element);
        let num_numbers = code.numbers.len();
        let numbers = Array::from_f64(code.numbers, &[num_numbers], numbers_of, &device);
        let own = Code { numbers: numbers.to_f64(), bytes: code.bytes };
        let sent = decode(self.compression, &own, len, key);
        let left = values.iter().zip(&sent).map(|(value, sent)| value - sent).collect();
        let left = Array::from_f64(left, &[len], element.widened(), &device);
        let entry = LeftOut { gradient: left, num_sent: num_sent + 1 };
        self.left_out.lock().expect("no other thread has failed").insert(unit, entry);

        let mut sum = vec![0.0; len];
        if self.is_reducible() {
            let numbers =
                communicator.on(group, Stream::Data).all_reduce(numbers, Reduction::Sum)?;
            let all = Code { numbers: numbers.to_f64(), bytes: Vec::new() };
            sum = decode(self.compression, &all, len, key);
        } else {
            let bytes = Array::from_bytes(own.bytes.clone(), &[own.bytes.len()], &device);
            let numbers = communicator.on(group, Stream::Data).all_gather(numbers, None)?;
            let bytes = communicator.on(group, Stream::Data).all_gather(bytes, None)?;
            for (numbers, bytes) in numbers.into_iter().zip(bytes) {
                let bytes = bytes.into_data().to_vec().expect("bytes are bytes");
                let code = Code { numbers: numbers.to_f64(), bytes };
                for (sum, value) in sum.iter_mut().zip(decode(self.compression, &code, len, key)) {
                    *sum += value;
                }
            }
        }
        Ok(Array::from_f64(sum, &[len], element, &device))
    }

    /// Bytes of the whole buffer of a compressed gradient, as a collective counts it.
    fn buffer_bytes(&self, gradient: &Array<B>, group: &Group) -> u64 {
        let element = gradient.element().num_bytes();
        let own = self.compression.bytes(gradient.num_elements() as u64, element);
        if self.is_reducible() { own } else { own * group.len() as u64 }
    }

    /// Element type of the numbers that are sent: the gradient's own for its elements, fp32 for scales.
    fn numbers_element(&self, element: Element) -> Element {
        match self.compression {
            GradientCompression::TopK(_) | GradientCompression::RandomK(_) => element,
            _ => Element::F32,
        }
    }
}

impl<B: Kernels> GradientExchange<B> for Compressor<B> {
    fn sum(
        &self,
        link: &Link<B>,
        replicas: &ReplicaGroups,
        bucket: Vec<UnitGradient<B>>,
    ) -> Result<Sums<B>, CommunicationError> {
        let (communicator, group) = (link.communicator.as_ref(), &replicas.replicate);
        let kind = if self.is_reducible() { Collective::AllReduce } else { Collective::AllGather };
        let sum = |UnitGradient { unit, gradient }: UnitGradient<B>| {
            link.reduce(kind, self.buffer_bytes(&gradient, group), || {
                self.sum_of(communicator, group, unit, gradient).map(Some)
            })
        };
        bucket.into_iter().map(sum).collect::<Result<_, _>>().map(Sums::Each)
    }

    fn num_bytes(&self) -> u64 {
        let left_out = self.left_out.lock().expect("no other thread has failed");
        left_out.values().map(|left| left.gradient.num_bytes()).sum()
    }
}

/// The compressed form of `values`.
fn encode(compression: GradientCompression, values: &[f64], key: u64) -> Code {
    let len = values.len();
    match compression {
        GradientCompression::TopK(share) => {
            let count = share.of(len as u64) as usize;
            let mut places: Vec<usize> = (0..len).collect();
            let larger =
                |a: &usize, b: &usize| values[*b].abs().total_cmp(&values[*a].abs()).then(a.cmp(b));
            if count < len {
                places.select_nth_unstable_by(count, larger);
                places.truncate(count);
            }
            places.sort_unstable();
            let numbers = places.iter().map(|place| values[*place]).collect();
            let bytes = places.iter().flat_map(|place| (*place as u32).to_le_bytes()).collect();
            Code { numbers, bytes }
        }
        GradientCompression::RandomK(share) => {
            let places = random_places(len, share.of(len as u64) as usize, key);
            let numbers = places.into_iter().map(|place| values[place]).collect();
            Code { numbers, bytes: Vec::new() }
        }
        GradientCompression::Int8 | GradientCompression::Int4 => {
            let Codes { bytes, scales } = quantised(values, len, format(compression));
            Code { numbers: scales.into_iter().map(f64::from).collect(), bytes }
        }
        GradientCompression::Sign => {
            let magnitude = values.iter().map(|value| value.abs()).sum::<f64>() / len.max(1) as f64;
            let bits = |values: &[f64]| {
                let bit = |(place, value): (usize, &f64)| u8::from(*value >= 0.0) << place;
                values.iter().enumerate().map(bit).sum()
            };
            Code { numbers: vec![magnitude], bytes: values.chunks(8).map(bits).collect() }
        }
    }
}

/// The gradient of `len` elements that `code` encodes.
fn decode(compression: GradientCompression, code: &Code, len: usize, key: u64) -> Vec<f64> {
    let sparse = |places: Vec<usize>| {
        let mut values = vec![0.0; len];
        for (place, value) in places.into_iter().zip(&code.numbers) {
            values[place] = *value;
        }
        values
    };
    match compression {
        GradientCompression::TopK(_) => {
            let (places, _) = code.bytes.as_chunks();
            sparse(places.iter().map(|place| u32::from_le_bytes(*place) as usize).collect())
        }
        GradientCompression::RandomK(_) => sparse(random_places(len, code.numbers.len(), key)),
        GradientCompression::Int8 | GradientCompression::Int4 => {
            let scales = code.numbers.iter().map(|scale| *scale as f32).collect();
            let codes = Codes { bytes: code.bytes.clone(), scales };
            restored(&codes, len, format(compression))
        }
        GradientCompression::Sign => {
            let magnitude = code.numbers[0];
            let is_positive = |place: usize| code.bytes[place / 8] >> (place % 8) & 1 == 1;
            let value = |place| if is_positive(place) { magnitude } else { -magnitude };
            (0..len).map(value).collect()
        }
    }
}

/// The format of codes for int8 and int4.
fn format(compression: GradientCompression) -> WeightFormat {
    match compression {
        GradientCompression::Int8 => WeightFormat::Int8,
        _ => WeightFormat::Int4,
    }
}

/// `count` distinct indices below `len`, in ascending order, drawn uniformly.
///
/// # Source
///
/// Floyd's algorithm: Bentley and Floyd 1987, *A Sample of Brilliance*.
fn random_places(len: usize, count: usize, key: u64) -> Vec<usize> {
    let mut chosen = std::collections::BTreeSet::new();
    for last in len - count..len {
        let place = (hash([key, last as u64]) % (last as u64 + 1)) as usize;
        if !chosen.insert(place) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}
