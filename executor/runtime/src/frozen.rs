//! Frozen parameters: weights without gradients, which are never updated.

use std::sync::Arc;

use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::graph::WeightFormat;

use crate::host::Placed;
use crate::mesh::ReplicaGroups;
use crate::parameters::LocalParameter;
use crate::quantised::{Codes, quantised};
use crate::sharded::Sharded;
use crate::weight::{Quantised, Weight};

/// Flat arrays of a unit's weights, all of them or a shard: plain weights, and the codes and scales of quantised ones.
#[derive(Clone, Debug)]
pub(crate) struct Stored<B: Kernels> {
    plain: Array<B>,
    codes: Array<B>,
    scales: Array<B>,
}

impl<B: Kernels> Stored<B> {
    fn num_bytes(&self) -> u64 {
        [&self.plain, &self.codes, &self.scales].into_iter().map(Array::num_bytes).sum()
    }

    /// The arrays that have elements.
    fn filled(&self) -> impl Iterator<Item = &Array<B>> {
        let all = [&self.plain, &self.codes, &self.scales].into_iter();
        all.filter(|array| array.num_elements() > 0)
    }

    /// A copy in which `filled` replaces each array of [`Self::filled`].
    fn with_filled(&self, filled: Vec<Array<B>>) -> Self {
        let mut filled = filled.into_iter();
        let mut next = |array: &Array<B>| {
            let is_filled = array.num_elements() > 0;
            if is_filled { filled.next().expect("an array for each") } else { array.clone() }
        };
        Self { plain: next(&self.plain), codes: next(&self.codes), scales: next(&self.scales) }
    }

    fn of_shard(&self, index: usize, shards: usize) -> Self {
        let part = |array: &Array<B>| {
            let len = array.num_elements() / shards;
            array.narrow(0, index * len..(index + 1) * len)
        };
        Self { plain: part(&self.plain), codes: part(&self.codes), scales: part(&self.scales) }
    }
}

/// Offsets of a parameter in the flat arrays.
#[derive(Clone, Copy, Debug)]
struct Start {
    plain: usize,
    codes: usize,
    scales: usize,
}

/// The frozen parameters of a block. ZeRO-3 shards them as it does trained ones.
#[derive(Debug)]
pub(crate) struct FrozenParameter<B: Kernels> {
    parameters: Vec<LocalParameter>,
    starts: Vec<Start>,
    element: Element,
    replicas: ReplicaGroups,
    /// This rank's shard; all weights where they are not sharded.
    shard: Stored<B>,
    /// All weights; none where they are sharded and not gathered.
    whole: Option<Stored<B>>,
    is_cut: bool,
}

/// A frozen unit before it has values.
#[derive(Debug)]
pub(crate) struct FrozenParameterPlan {
    pub(crate) parameters: Vec<LocalParameter>,
    pub(crate) replicas: ReplicaGroups,
    pub(crate) rank: u32,
    /// True where weights are sharded over ranks, and gathered for use (ZeRO-3).
    pub(crate) is_cut: bool,
}

impl FrozenParameterPlan {
    /// The unit, with the values that `values` gives for each parameter's part.
    pub(crate) fn build<B: Kernels, E>(
        self,
        element: Element,
        device: &B::Device,
        mut values: impl FnMut(&LocalParameter) -> Result<Vec<f64>, E>,
    ) -> Result<FrozenParameter<B>, E> {
        let (mut plain, mut all) = (Vec::new(), Codes::default());
        let mut starts = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            starts.push(Start {
                plain: plain.len(),
                codes: all.bytes.len(),
                scales: all.scales.len(),
            });
            let values = values(parameter)?;
            if parameter.format == WeightFormat::Plain {
                plain.extend(values);
            } else {
                let rows = parameter.in_rows(&values);
                let Codes { bytes, scales } =
                    quantised(&rows, parameter.rows().len, parameter.format);
                all.bytes.extend(bytes);
                all.scales.extend(scales);
            }
        }
        let shards = if self.is_cut { self.replicas.shard.len() } else { 1 };
        plain.resize(plain.len().next_multiple_of(shards), 0.0);
        all.bytes.resize(all.bytes.len().next_multiple_of(shards), 0);
        all.scales.resize(all.scales.len().next_multiple_of(shards), 0.0);
        let scales: Vec<f64> = all.scales.into_iter().map(f64::from).collect();
        let lens = [plain.len(), all.bytes.len(), scales.len()];
        let whole = Stored {
            plain: Array::from_f64(plain, &[lens[0]], element, device),
            codes: Array::from_bytes(all.bytes, &[lens[1]], device),
            scales: Array::from_f64(scales, &[lens[2]], Element::F32, device),
        };
        let index = self.replicas.shard.position(self.rank).expect("a rank has a shard");
        let is_cut = shards > 1;
        let shard = if is_cut { whole.of_shard(index, shards) } else { whole.clone() };
        Ok(FrozenParameter {
            parameters: self.parameters,
            starts,
            element,
            replicas: self.replicas,
            shard,
            whole: (!is_cut).then_some(whole),
            is_cut,
        })
    }
}

impl<B: Kernels> Sharded<B> for FrozenParameter<B> {
    fn replicas(&self) -> &ReplicaGroups {
        &self.replicas
    }

    fn is_gathered(&self) -> bool {
        self.whole.is_some()
    }

    fn shards(&self) -> Vec<Placed<B>> {
        self.shard.filled().cloned().map(Placed::Device).collect()
    }

    fn set_gathered(&mut self, arrays: Vec<Array<B>>) {
        self.whole = Some(self.shard.with_filled(arrays));
    }

    fn free(&mut self) {
        if self.is_cut {
            self.whole = None;
        }
    }

    fn weight(&self, index: usize) -> Weight<B> {
        let (parameter, start) = (&self.parameters[index], self.starts[index]);
        let whole = self.whole.as_ref().expect("weights are gathered before they are read");
        if parameter.format == WeightFormat::Plain {
            let range = start.plain..start.plain + parameter.num_elements();
            return Weight::Plain(whole.plain.narrow(0, range).reshape(&parameter.shape()));
        }
        let rows = parameter.rows();
        let codes = start.codes..start.codes + rows.num_code_bytes(parameter.format);
        let scales = start.scales..start.scales + rows.num_scales();
        Weight::Quantised(Arc::new(Quantised {
            codes: whole.codes.narrow(0, codes),
            scales: whole.scales.narrow(0, scales),
            rows,
            format: parameter.format,
            element: self.element,
            sizes: parameter.sizes_in_rows(),
            order: parameter.places_in_rows(),
        }))
    }

    fn num_bytes(&self) -> [u64; 2] {
        let gathered = self.whole.as_ref().filter(|_| self.is_cut);
        [self.shard.num_bytes() + gathered.map_or(0, Stored::num_bytes), 0]
    }
}
