//! Flat parameters: the parameters of a block that are gathered, reduced and updated together.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Group, JobHandle};
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::layout::Offload;
use ir::schedule::ActionKind;

use crate::gradient::{Gradient, GradientSums};
use crate::host::{Host, HostArray, Placed};
use crate::mesh::ReplicaGroups;
use crate::parameters::LocalParameter;
use crate::settings::Settings;
use crate::sharded::Sharded;
use crate::states::{PlacedStates, States};
use crate::weight::Weight;

/// The parameters of a block that are gathered, reduced and updated together, as one flat array. ZeRO shards it evenly
/// over ranks, so it is padded to a multiple of their number.
#[derive(Debug)]
pub(crate) struct FlatParameter<B: Kernels> {
    pub(crate) parameters: Vec<LocalParameter>,
    /// Offset of each parameter in the flat array.
    offsets: Vec<usize>,
    /// Elements of the flat array, with padding.
    pub(crate) len: usize,
    pub(crate) replicas: ReplicaGroups,
    /// True where parameters are freed after use (ZeRO-3).
    pub(crate) frees_weights: bool,
    /// This rank's index among the ranks that shard.
    pub(crate) shard_index: usize,
    /// Ranks of the stages that have the same tied table, this rank included.
    pub(crate) tied: Option<Group>,
    /// Role of this rank's copy among the replicas' copies.
    pub(crate) role: Role,
    /// True where the shard is on the host, and copied to the device to be gathered.
    keeps_shard_on_host: bool,

    /// All weights that kernels read; none where they are sharded and not gathered.
    weights: Option<Array<B>>,
    /// This rank's shard of the weights; empty where all weights are on the device and the host updates them.
    shard: Placed<B>,
    /// Optimizer states of the shard.
    pub(crate) states: PlacedStates<B>,
    /// Number of updates so far.
    pub(crate) num_updates: u64,
    /// Gradients of whole parameters, accumulated over micro-batches.
    gradients: GradientSums<B>,
}

/// Work that is left after an update until kernels read the new weights.
pub(crate) enum Renewal<B: Kernels> {
    /// Nothing.
    Done,
    /// A gather of the shards of all ranks.
    Gather(Placed<B>),
    /// A copy of this rank's shard to the device; the shard is gathered when it is needed.
    Copy(JobHandle<Array<B>>),
}

/// Role of a rank's copy of a unit among the replicas' copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The copy that the norm of all gradients counts, and that checkpoints save.
    First,
    /// A copy that always equals the first.
    Copy,
    /// A copy with its own gradients and norm.
    Independent,
    /// A copy that the first replica updates: this rank holds only the weights that kernels read.
    Served,
}

impl Role {
    pub(crate) fn counts_in_norm(self) -> bool {
        matches!(self, Self::First | Self::Independent)
    }
}

/// A flat parameter before it has values.
#[derive(Debug)]
pub(crate) struct FlatParameterPlan {
    pub(crate) parameters: Vec<LocalParameter>,
    pub(crate) replicas: ReplicaGroups,
    pub(crate) rank: u32,
    pub(crate) frees_weights: bool,
    pub(crate) tied: Option<Group>,
    pub(crate) role: Role,
    pub(crate) offload: Offload,
}

impl FlatParameterPlan {
    /// The flat parameter with this number, with the values that `values` gives for each parameter's part.
    pub(crate) fn build<B: Kernels, E>(
        self,
        number: usize,
        num_moments: usize,
        [compute, master, moment]: [Element; 3],
        (device, host): (&B::Device, Option<&Arc<Host<B>>>),
        mut values: impl FnMut(&LocalParameter) -> Result<Vec<f64>, E>,
    ) -> Result<FlatParameter<B>, E> {
        let shards = self.replicas.shard.len();
        let num_elements = self.parameters.iter().map(LocalParameter::num_elements).sum::<usize>();
        let len = num_elements.next_multiple_of(shards);
        let shard_index = self.replicas.shard.position(self.rank).expect("a rank has a shard");
        let shard_len = len / shards;
        let mut flat = Vec::with_capacity(len);
        let mut offsets = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            offsets.push(flat.len());
            flat.extend(values(parameter)?);
        }
        flat.resize(len, 0.0);
        let own = flat[shard_index * shard_len..(shard_index + 1) * shard_len].to_vec();
        let elements = [master, moment];
        let (states, shard, weights) = if let Some(host) = host.filter(|_| self.offload.optimizer) {
            let states = States::<Flex>::new(own, num_moments, elements, &FlexDevice);
            let read = states.master.clone().cast(compute);
            let there = |array: &HostArray| Array::from_data(array.clone().into_data(), device);
            let (shard, weights) = if self.offload.parameters {
                (Placed::Host(read, Arc::clone(host)), None)
            } else if self.frees_weights {
                (Placed::Device(there(&read)), None)
            } else {
                let all = Array::from_f64(flat, &[len], master, device).cast(compute);
                (Placed::Device(Array::zeros(&[0], compute, device)), Some(all))
            };
            (PlacedStates::Host(Box::new(states), Arc::clone(host), number), shard, weights)
        } else {
            let states = States::new(own, num_moments, elements, device);
            let shard = states.master.clone().cast(compute);
            let weights = (!self.frees_weights).then(|| {
                if shards == 1 {
                    shard.clone()
                } else {
                    Array::from_f64(flat, &[len], master, device).cast(compute)
                }
            });
            let is_served = self.role == Role::Served;
            let states = if is_served { States::none(master, device) } else { states };
            (PlacedStates::Device(states), Placed::Device(shard), weights)
        };
        Ok(FlatParameter {
            gradients: GradientSums::new(self.parameters.len()),
            parameters: self.parameters,
            offsets,
            len,
            replicas: self.replicas,
            frees_weights: self.frees_weights,
            shard_index,
            tied: self.tied,
            role: self.role,
            keeps_shard_on_host: self.offload.parameters,
            weights,
            shard,
            states,
            num_updates: 0,
        })
    }
}

impl<B: Kernels> FlatParameter<B> {
    /// Elements of a shard.
    pub(crate) fn shard_len(&self) -> usize {
        self.len / self.replicas.shard.len()
    }

    /// This rank's range of the flat array.
    pub(crate) fn shard_range(&self) -> Range<usize> {
        let len = self.shard_len();
        self.shard_index * len..(self.shard_index + 1) * len
    }

    /// The parameters with elements in a range of the flat array: for each, the range of these elements in the
    /// parameter, and their range relative to the start of the given range.
    pub(crate) fn parameters_in(
        &self,
        Range { start: from, end: to }: Range<usize>,
    ) -> impl Iterator<Item = (&LocalParameter, Range<usize>, Range<usize>)> {
        self.parameters.iter().zip(&self.offsets).filter_map(move |(parameter, offset)| {
            let start = (*offset).max(from);
            let end = (offset + parameter.num_elements()).min(to);
            (start < end)
                .then(|| (parameter, start - offset..end - offset, start - from..end - from))
        })
    }

    /// This rank's shard of the weights that kernels read, where it is on the device.
    ///
    /// # Panics
    ///
    /// If the shard is on the host.
    pub(crate) fn shard_on_device(&self) -> Array<B> {
        match &self.shard {
            Placed::Device(shard) => shard.clone(),
            Placed::Host(..) => panic!("a shard was expected on the device"),
        }
    }

    /// Stores this rank's shard, copied to the device.
    pub(crate) fn set_shard(&mut self, shard: Array<B>) {
        self.shard = Placed::Device(shard);
    }

    /// Updates this rank's shard by the reduced gradients; none if there are no reduced gradients. `rates` are the
    /// learning rate and the factor of gradients.
    pub(crate) fn update(
        &mut self,
        settings: &Settings,
        rates: [f64; 2],
        device: &B::Device,
    ) -> Option<Renewal<B>> {
        let number = self.num_updates + 1;
        if !self.states.has_reduced() {
            return None;
        }
        // In-place updates require that nothing else holds the arrays.
        self.weights = None;
        self.shard = Placed::Device(Array::zeros(&[0], settings.compute, device));
        self.states.update(settings, rates, number);
        self.num_updates = number;
        Some(self.renew(settings.compute))
    }

    /// Replaces the weights that kernels read by the current master weights.
    pub(crate) fn renew(&mut self, compute: Element) -> Renewal<B> {
        self.weights = None;
        match &self.states {
            PlacedStates::Host(states, host, _) => {
                let read = states.master.clone().cast(compute);
                if self.keeps_shard_on_host {
                    self.shard = Placed::Host(read, Arc::clone(host));
                    Renewal::Done
                } else if self.frees_weights {
                    Renewal::Copy(host.to_device(read, ActionKind::OptimizerStep))
                } else {
                    Renewal::Gather(Placed::Host(read, Arc::clone(host)))
                }
            }
            PlacedStates::Device(states) => {
                let shard = states.master.clone().cast(compute);
                self.shard = Placed::Device(shard.clone());
                if self.frees_weights {
                    Renewal::Done
                } else if self.replicas.shard.len() == 1 {
                    self.weights = Some(shard);
                    Renewal::Done
                } else {
                    Renewal::Gather(Placed::Device(shard))
                }
            }
        }
    }

    /// Stores the weights that kernels read, from the rank that updates them.
    pub(crate) fn set_served(&mut self, weights: Array<B>) {
        self.shard = Placed::Device(weights.clone());
        self.weights = Some(weights);
    }

    /// Moves the optimizer states to the server that updates the weights for all replicas.
    pub(crate) fn hand_over(&mut self) -> States<B> {
        self.role = Role::Served;
        self.states.on_device_mut().take()
    }

    /// Takes back the states that [`Self::hand_over`] gave, after `num_updates` updates.
    pub(crate) fn take_back(&mut self, states: States<B>, num_updates: u64, compute: Element) {
        self.role = Role::First;
        self.num_updates = num_updates;
        self.states = PlacedStates::Device(states);
        self.renew(compute);
    }

    /// Sums of the squares of the gradients that this rank counts in the norm: on the device, and on the host.
    pub(crate) fn squares(&self) -> (Vec<Array<B>>, f64) {
        self.states.squares(self.ranges_in_norm())
    }

    /// Takes the reduced gradients, which are on the device; zeros where there are none.
    pub(crate) fn take_reduced(&mut self, element: Element, device: &B::Device) -> Array<B> {
        let len = self.shard_len();
        let reduced = self.states.on_device_mut().reduced.take();
        reduced.unwrap_or_else(|| Array::zeros(&[len], element, device))
    }

    /// Adds a gradient of a parameter's part.
    pub(crate) fn add_gradient(&mut self, index: usize, gradient: Gradient<B>, element: Element) {
        self.gradients.add(index, gradient, element, [self.offsets[index], self.len]);
    }

    /// Returns whether there are gradients that were not taken.
    pub(crate) fn has_gradients(&self) -> bool {
        self.gradients.is_some()
    }

    /// Numbers of neighbouring tensor-parallel ranks over which gradients have to be summed, each number once.
    pub(crate) fn summed_over(&self) -> BTreeSet<usize> {
        self.parameters.iter().map(|it| it.summed_over).filter(|count| *count > 1).collect()
    }

    /// The gradients of the parameters whose gradients have to be summed over `count` tensor-parallel ranks, as one
    /// array; none if there are none.
    pub(crate) fn partial_gradients(&self, count: usize) -> Option<Array<B>> {
        let partial = self.partial_indices(count);
        let part = |index: usize| {
            let (start, shape) = (self.offsets[index], self.parameters[index].shape());
            self.gradients.get(index, start, &shape).map(Array::flatten)
        };
        let parts: Option<Vec<Array<B>>> = partial.into_iter().map(part).collect();
        parts.filter(|parts| !parts.is_empty()).map(|parts| Array::concat(parts, 0))
    }

    /// Returns whether the parameters are those of experts.
    pub(crate) fn is_of_experts(&self) -> bool {
        self.parameters.iter().any(|parameter| parameter.is_expert)
    }

    /// Stores the sums of the gradients that [`Self::partial_gradients`] gave.
    pub(crate) fn set_partial_gradients(&mut self, count: usize, sums: &Array<B>) {
        let mut start = 0;
        for index in self.partial_indices(count) {
            let (len, shape) =
                (self.parameters[index].num_elements(), self.parameters[index].shape());
            self.gradients.set(index, sums.narrow(0, start..start + len).reshape(&shape));
            start += len;
        }
    }

    fn partial_indices(&self, count: usize) -> Vec<usize> {
        let parameters = self.parameters.iter().enumerate();
        parameters.filter(|(_, p)| p.summed_over == count).map(|(index, _)| index).collect()
    }

    /// Takes all gradients as one flat array.
    pub(crate) fn take_gradients(&mut self, element: Element, device: &B::Device) -> Array<B> {
        let lens = self.parameters.iter().map(LocalParameter::num_elements);
        let parts = self.offsets.iter().zip(lens).map(|(start, len)| [*start, len]);
        self.gradients.take(parts, self.len, element, device)
    }

    /// The ranges of the shard whose parameters this rank counts in the norm: all but copies of what an earlier
    /// tensor-parallel rank has.
    pub(crate) fn ranges_in_norm(&self) -> Vec<Range<usize>> {
        if !self.role.counts_in_norm() {
            return Vec::new();
        }
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let own = self.parameters_in(self.shard_range());
        for (_, _, range) in own.filter(|(parameter, ..)| !parameter.is_tensor_copy) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }
}

impl<B: Kernels> Sharded<B> for FlatParameter<B> {
    fn replicas(&self) -> &ReplicaGroups {
        &self.replicas
    }

    fn is_gathered(&self) -> bool {
        self.weights.is_some()
    }

    fn shards(&self) -> Vec<Placed<B>> {
        vec![self.shard.clone()]
    }

    fn set_gathered(&mut self, mut arrays: Vec<Array<B>>) {
        self.weights = arrays.pop();
    }

    fn free(&mut self) {
        if self.frees_weights {
            self.weights = None;
        }
    }

    fn weight(&self, index: usize) -> Weight<B> {
        let parameter = &self.parameters[index];
        let weights = self.weights.as_ref().expect("weights are gathered before they are read");
        let range = self.offsets[index]..self.offsets[index] + parameter.num_elements();
        Weight::Plain(weights.narrow(0, range).reshape(&parameter.shape()))
    }

    /// Bytes that the unit holds on the device and on the host: weights, master weights and moments, gradients. An
    /// array that is both the master and the kernels' weights, or both the shard and the whole, counts once.
    fn num_bytes(&self) -> [u64; 2] {
        let is_sharded = self.replicas.shard.len() > 1;
        let is_master_read = match (&self.states, &self.shard) {
            (PlacedStates::Device(states), Placed::Device(shard)) => {
                self.role != Role::Served && states.master.element() == shard.element()
            }
            (PlacedStates::Host(states, ..), Placed::Host(shard, _)) => {
                states.master.element() == shard.element()
            }
            _ => false,
        };
        let [mut on_device, mut on_host] = self.states.num_bytes();
        let weights = self.weights.as_ref().map_or(0, Array::num_bytes);
        let [shard, shard_on_host] = self.shard.num_bytes();
        let is_whole_here = !is_sharded && !matches!(self.shard, Placed::Host(..));
        on_device += match (is_whole_here, is_master_read) {
            (false, true) => weights,
            (false, false) => weights + shard,
            (true, true) => 0,
            (true, false) => weights.max(shard),
        };
        on_device += self.gradients.num_bytes();
        on_host += if is_master_read { 0 } else { shard_on_host };
        [on_device, on_host]
    }
}
