//! Units: the parameters of a block that are gathered, reduced and updated together.

use crate::array::{Array, Element};
use crate::communicator::Group;
use crate::mesh::Replicas;
use crate::ops::Kernels;
use crate::parameters::LocalParameter;

/// The parameters of a block that are gathered, reduced and updated together, as one flat array. ZeRO
/// cuts it evenly over the ranks that shard it; so it is padded to a multiple of their number.
#[derive(Debug)]
pub(crate) struct Unit<B: Kernels> {
    pub(crate) parameters: Vec<LocalParameter>,
    /// Where each parameter begins in the flat array.
    pub(crate) offsets: Vec<usize>,
    /// Elements of the flat array, with padding.
    pub(crate) len: usize,
    pub(crate) replicas: Replicas,
    /// Whether parameters are freed after use (ZeRO-3).
    pub(crate) frees_weights: bool,
    /// This rank's place among those that shard.
    pub(crate) shard_index: usize,
    /// Ranks of other stages that have the same table, this one included.
    pub(crate) tied: Option<Group>,
    /// What this rank's copy is among the replicas'.
    pub(crate) role: Role,

    /// All weights that kernels read; none where they are sharded and not gathered.
    weights: Option<Array<B>>,
    /// This rank's shard of them.
    shard: Array<B>,
    /// The shard of the weights that is updated, in higher precision.
    pub(crate) master: Array<B>,
    /// The optimizer's moments of the shard.
    pub(crate) moments: Vec<Array<B>>,
    /// Updates done.
    pub(crate) num_updates: u64,
    /// Gradients of whole parameters as they add up.
    gradients: Vec<Option<Array<B>>>,
    /// The shard of the gradients, summed over replicas.
    pub(crate) reduced: Option<Array<B>>,
}

/// What a rank's copy of a unit is among those of its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that the norm of all gradients counts, and checkpoints have.
    First,
    /// One that is always like the first.
    Copy,
    /// One with gradients and a norm of its own.
    Independent,
    /// One that the first updates: this rank holds what kernels read alone.
    Served,
}

impl Role {
    pub(crate) fn counts_in_norm(self) -> bool {
        matches!(self, Self::First | Self::Independent)
    }
}

/// What a unit is made of, before it has values.
#[derive(Debug)]
pub(crate) struct UnitPlan {
    pub(crate) parameters: Vec<LocalParameter>,
    pub(crate) replicas: Replicas,
    pub(crate) rank: u32,
    pub(crate) frees_weights: bool,
    pub(crate) tied: Option<Group>,
    pub(crate) role: Role,
}

impl UnitPlan {
    /// Elements before and with padding, and where each parameter begins.
    fn extent(&self) -> (usize, usize, Vec<usize>) {
        let mut offsets = Vec::with_capacity(self.parameters.len());
        let mut len = 0;
        for parameter in &self.parameters {
            offsets.push(len);
            len += parameter.num_elements();
        }
        (len, len.next_multiple_of(self.replicas.shard.len()), offsets)
    }

    /// The unit, with the values that `values` gives for each parameter's part.
    pub(crate) fn build<B: Kernels, E>(
        self,
        num_moments: usize,
        [compute, master, moment]: [Element; 3],
        device: &B::Device,
        mut values: impl FnMut(&LocalParameter) -> Result<Vec<f64>, E>,
    ) -> Result<Unit<B>, E> {
        let (_, len, offsets) = self.extent();
        let shards = self.replicas.shard.len();
        let shard_index = self.replicas.shard.position(self.rank).expect("a rank has a shard");
        let shard_len = len / shards;
        let mut flat = Vec::with_capacity(len);
        for parameter in &self.parameters {
            flat.extend(values(parameter)?);
        }
        flat.resize(len, 0.0);
        let own = flat[shard_index * shard_len..(shard_index + 1) * shard_len].to_vec();
        let master_shard = Array::from_f64(own, &[shard_len], master, device);
        let shard = master_shard.clone().cast(compute);
        let weights = (!self.frees_weights).then(|| {
            if shards == 1 {
                shard.clone()
            } else {
                Array::from_f64(flat, &[len], master, device).cast(compute)
            }
        });
        let zeros = || Array::zeros(&[shard_len], moment, device);
        let nothing = Array::zeros(&[0], master, device);
        Ok(Unit {
            gradients: self.parameters.iter().map(|_| None).collect(),
            parameters: self.parameters,
            offsets,
            len,
            replicas: self.replicas,
            frees_weights: self.frees_weights,
            shard_index,
            tied: self.tied,
            role: self.role,
            weights,
            shard,
            master: if self.role == Role::Served { nothing } else { master_shard },
            moments: (0..if self.role == Role::Served { 0 } else { num_moments })
                .map(|_| zeros())
                .collect(),
            num_updates: 0,
            reduced: None,
        })
    }
}

/// The one array of which a unit's weights are gathered.
pub(crate) fn only<B: Kernels>(mut gathered: Vec<Array<B>>) -> Array<B> {
    gathered.pop().expect("a unit's weights are one array")
}

impl<B: Kernels> Unit<B> {
    /// Elements of a shard.
    pub(crate) fn shard_len(&self) -> usize {
        self.len / self.replicas.shard.len()
    }

    /// The range of the flat array that this rank's shard is.
    pub(crate) fn shard_range(&self) -> std::ops::Range<usize> {
        let len = self.shard_len();
        self.shard_index * len..(self.shard_index + 1) * len
    }

    /// Whether all weights are here.
    pub(crate) fn is_gathered(&self) -> bool {
        self.weights.is_some()
    }

    /// This rank's part of the weights that kernels read.
    pub(crate) fn shard(&self) -> Array<B> {
        self.shard.clone()
    }

    /// Takes all weights, as they were gathered.
    pub(crate) fn set_weights(&mut self, weights: Array<B>) {
        self.weights = Some(weights);
    }

    /// Frees what other ranks have too, where that is the plan.
    pub(crate) fn free_weights(&mut self) {
        if self.frees_weights {
            self.weights = None;
        }
    }

    /// Weights and moments, to be updated in place: nothing else holds them then.
    pub(crate) fn take_states(&mut self) -> (Array<B>, Vec<Array<B>>) {
        let nothing = Array::zeros(&[0], self.shard.element(), &self.shard.device());
        self.weights = None;
        self.shard = nothing.clone();
        (std::mem::replace(&mut self.master, nothing), std::mem::take(&mut self.moments))
    }

    /// Takes what kernels read from the rank that updates it.
    pub(crate) fn set_served(&mut self, weights: Array<B>) {
        self.shard = weights.clone();
        self.weights = Some(weights);
    }

    /// Hands over what updates the unit to one that keeps it for all.
    pub(crate) fn hand_over(&mut self) -> (Array<B>, Vec<Array<B>>) {
        self.role = Role::Served;
        let nothing = Array::zeros(&[0], self.master.element(), &self.master.device());
        (std::mem::replace(&mut self.master, nothing), std::mem::take(&mut self.moments))
    }

    /// Takes back what [`Self::hand_over`] gave, after so many updates.
    pub(crate) fn take_back(
        &mut self,
        master: Array<B>,
        moments: Vec<Array<B>>,
        num_updates: u64,
        compute: Element,
    ) {
        self.role = Role::First;
        self.moments = moments;
        self.num_updates = num_updates;
        self.set_master(master, compute);
    }

    /// The sum of the squares of its gradients, of those that this rank counts in the norm.
    pub(crate) fn squares(&self, is_first_tensor_rank: bool) -> f64 {
        let Some(reduced) = &self.reduced else { return 0.0 };
        let squares = |range| {
            let part = reduced.narrow(0, range);
            part.widened().square().sum().item()
        };
        self.ranges_in_norm(is_first_tensor_rank).into_iter().map(squares).sum()
    }

    /// Takes its gradients; zeros where there are none.
    pub(crate) fn take_reduced(&mut self, device: &B::Device) -> Array<B> {
        let (len, element) = (self.shard_len(), self.shard.element());
        self.reduced.take().unwrap_or_else(|| Array::zeros(&[len], element, device))
    }

    /// Takes updated weights; whether those of the other shards must be gathered.
    pub(crate) fn set_master(&mut self, master: Array<B>, compute: Element) -> bool {
        self.shard = master.clone().cast(compute);
        self.master = master;
        if self.frees_weights {
            self.weights = None;
            return false;
        }
        if self.replicas.shard.len() == 1 {
            self.weights = Some(self.shard.clone());
            return false;
        }
        true
    }

    /// A parameter as kernels read it.
    ///
    /// # Panics
    ///
    /// If the weights are not gathered.
    pub(crate) fn view(&self, index: usize) -> Array<B> {
        let parameter = &self.parameters[index];
        let weights = self.weights.as_ref().expect("weights are gathered before they are read");
        let start = self.offsets[index];
        weights.narrow(0, start..start + parameter.num_elements()).reshape(&parameter.shape())
    }

    /// Adds a gradient of a parameter's part.
    pub(crate) fn add_gradient(&mut self, index: usize, gradient: Array<B>, element: Element) {
        let gradient = gradient.cast(element);
        let sum = &mut self.gradients[index];
        *sum = Some(match sum.take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
    }

    /// Whether there are gradients that were not taken.
    pub(crate) fn has_gradients(&self) -> bool {
        self.gradients.iter().any(Option::is_some)
    }

    /// The gradients of those parameters whose gradients are summands over tensor-parallel ranks, as
    /// one array; none if there are none.
    pub(crate) fn partial_gradients(&self) -> Option<Array<B>> {
        let partial = self.partial_indices();
        let parts: Option<Vec<Array<B>>> =
            partial.into_iter().map(|i| self.gradients[i].clone().map(Array::flatten)).collect();
        parts.filter(|parts| !parts.is_empty()).map(|parts| Array::concat(parts, 0))
    }

    /// Takes the sums of what [`Self::partial_gradients`] gave.
    pub(crate) fn set_partial_gradients(&mut self, sums: &Array<B>) {
        let mut start = 0;
        for index in self.partial_indices() {
            let (len, shape) =
                (self.parameters[index].num_elements(), self.parameters[index].shape());
            self.gradients[index] = Some(sums.narrow(0, start..start + len).reshape(&shape));
            start += len;
        }
    }

    fn partial_indices(&self) -> Vec<usize> {
        let parameters = self.parameters.iter().enumerate();
        parameters.filter(|(_, p)| p.has_partial_gradient).map(|(index, _)| index).collect()
    }

    /// All gradients as one flat array, and none are left here.
    pub(crate) fn take_gradients(&mut self, element: Element, device: &B::Device) -> Array<B> {
        let mut parts: Vec<Array<B>> = Vec::with_capacity(self.parameters.len() + 1);
        let mut len = 0;
        for (parameter, gradient) in self.parameters.iter().zip(&mut self.gradients) {
            len += parameter.num_elements();
            let zeros = || Array::zeros(&[parameter.num_elements()], element, device);
            parts.push(gradient.take().map_or_else(zeros, Array::flatten));
        }
        if len < self.len {
            parts.push(Array::zeros(&[self.len - len], element, device));
        }
        Array::concat(parts, 0)
    }

    /// Adds a reduced shard of the gradients.
    pub(crate) fn add_reduced(&mut self, shard: Array<B>) {
        self.reduced = Some(match self.reduced.take() {
            Some(sum) => sum + shard,
            None => shard,
        });
    }

    /// The ranges of the shard that belong to parameters which this rank counts in the norm: all but those
    /// that the first of the tensor-parallel ranks has too.
    pub(crate) fn ranges_in_norm(&self, is_first_tensor_rank: bool) -> Vec<std::ops::Range<usize>> {
        if !self.role.counts_in_norm() {
            return Vec::new();
        }
        let shard = self.shard_range();
        let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
        for (parameter, offset) in self.parameters.iter().zip(&self.offsets) {
            if parameter.is_tensor_copied && !is_first_tensor_rank {
                continue;
            }
            let start = (*offset).max(shard.start);
            let end = (offset + parameter.num_elements()).min(shard.end);
            if start >= end {
                continue;
            }
            let range = start - shard.start..end - shard.start;
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Bytes that the unit holds: weights, master weights and moments, gradients. Where kernels read what
    /// the optimizer updates, it is there once.
    pub(crate) fn num_bytes(&self) -> u64 {
        let is_sharded = self.replicas.shard.len() > 1;
        let is_master_read =
            self.role != Role::Served && self.master.element() == self.shard.element();
        let arrays = self.moments.iter().chain(self.gradients.iter().flatten());
        let arrays = arrays.chain(&self.reduced).chain([&self.master]);
        let weights = self.weights.iter().filter(|_| is_sharded || !is_master_read);
        let shard = (is_sharded && !is_master_read).then_some(&self.shard);
        arrays.chain(weights).chain(shard).map(Array::num_bytes).sum()
    }
}
