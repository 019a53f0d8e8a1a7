//! Optimizer states of a shard of parameters: master weights, moments and gradients.

use std::ops::Range;
use std::sync::Arc;

use burn_flex::Flex;
use executor_communicators::CommunicationError;
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::schedule::ActionKind;

use crate::host::{Host, Placed};
use crate::optimizer;
use crate::settings::Settings;

/// Optimizer states of a shard of parameters, all in one memory.
#[derive(Clone, Debug)]
pub(crate) struct States<A: Kernels> {
    /// The master weights, in higher precision than the weights that kernels read.
    pub(crate) master: Array<A>,
    /// The optimizer's moments.
    pub(crate) moments: Vec<Array<A>>,
    /// The gradients, summed over replicas.
    pub(crate) reduced: Option<Array<A>>,
}

impl<A: Kernels> States<A> {
    /// The states of weights with these values, before any update.
    pub(crate) fn new(
        values: Vec<f64>,
        num_moments: usize,
        [master, moment]: [Element; 2],
        device: &A::Device,
    ) -> Self {
        let len = values.len();
        let zeros = || Array::zeros(&[len], moment, device);
        Self {
            master: Array::from_f64(values, &[len], master, device),
            moments: (0..num_moments).map(|_| zeros()).collect(),
            reduced: None,
        }
    }

    /// The states of no weights.
    pub(crate) fn none(master: Element, device: &A::Device) -> Self {
        Self { master: Array::zeros(&[0], master, device), moments: Vec::new(), reduced: None }
    }

    /// Takes the states, and leaves states of no weights.
    pub(crate) fn take(&mut self) -> Self {
        let none = Self::none(self.master.element(), &self.master.device());
        std::mem::replace(self, none)
    }

    /// Applies update `number`, counting from 1, in place, as nothing else holds the arrays; gradients are multiplied
    /// by `factor`.
    pub(crate) fn update(
        &mut self,
        settings: &Settings,
        [rate, factor]: [f64; 2],
        number: u64,
        gradient: Array<A>,
    ) {
        let Self { master, moments, .. } = self.take();
        let moments = moments.into_iter().map(|moment| moment.cast(settings.master)).collect();
        let rates = [rate, factor];
        let (master, moments) =
            optimizer::update(&settings.optimizer, rates, number, master, moments, gradient);
        let moments = moments.into_iter().map(|moment| moment.cast(settings.moments));
        *self = Self { master, moments: moments.collect(), reduced: None };
    }

    /// Adds a reduced shard of the gradients.
    pub(crate) fn add_reduced(&mut self, shard: Array<A>) {
        self.reduced = Some(match self.reduced.take() {
            Some(sum) => sum + shard,
            None => shard,
        });
    }

    /// The sums of the squares of gradients in each of these ranges, as arrays of one element.
    pub(crate) fn squares(&self, ranges: Vec<Range<usize>>) -> Vec<Array<A>> {
        let Some(reduced) = &self.reduced else { return Vec::new() };
        let squares = |range| A::sum_of_squares(reduced.narrow(0, range));
        ranges.into_iter().map(squares).collect()
    }

    /// Values of the weights (state 0), or of a moment (from state 1 on).
    pub(crate) fn values(&self, state: usize, range: Range<usize>) -> Vec<f64> {
        let array = if state == 0 { &self.master } else { &self.moments[state - 1] };
        array.narrow(0, range).to_f64()
    }

    /// Replaces the values of the weights and of each moment.
    pub(crate) fn restore(&mut self, weights: Vec<f64>, moments: Vec<Vec<f64>>) {
        let like = |values: Vec<f64>, element| {
            let len = values.len();
            Array::from_f64(values, &[len], element, &self.master.device())
        };
        let master = like(weights, self.master.element());
        let moments = moments.into_iter().zip(&self.moments);
        let moments = moments.map(|(values, old)| like(values, old.element())).collect();
        *self = Self { master, moments, reduced: None };
    }

    /// Bytes of the states.
    pub(crate) fn num_bytes(&self) -> u64 {
        let arrays = self.moments.iter().chain(&self.reduced).chain([&self.master]);
        arrays.map(Array::num_bytes).sum()
    }
}

/// The states of a unit, on the device or on the host.
#[derive(Debug)]
pub(crate) enum PlacedStates<B: Kernels> {
    /// On the device.
    Device(States<B>),
    /// On the host, which updates them (ZeRO-Offload), with the unit's number.
    Host(Box<States<Flex>>, Arc<Host<B>>, usize),
}

/// Runs an expression on states wherever they are.
macro_rules! wherever {
    ($placed:expr, $states:ident => $done:expr) => {
        match $placed {
            PlacedStates::Device($states) => $done,
            PlacedStates::Host($states, ..) => $done,
        }
    };
}

impl<B: Kernels> PlacedStates<B> {
    /// The states on the device.
    ///
    /// # Panics
    ///
    /// If the states are on the host. Features that need them on the device are refused in combination with an offload.
    pub(crate) fn on_device(&self) -> &States<B> {
        match self {
            Self::Device(states) => states,
            Self::Host(..) => panic!("states were expected on the device"),
        }
    }

    /// The states on the device, as in [`Self::on_device`].
    pub(crate) fn on_device_mut(&mut self) -> &mut States<B> {
        match self {
            Self::Device(states) => states,
            Self::Host(..) => panic!("states were expected on the device"),
        }
    }

    /// [`States::squares`] on the device, and their sum on the host.
    pub(crate) fn squares(&self, ranges: Vec<Range<usize>>) -> (Vec<Array<B>>, f64) {
        match self {
            Self::Device(states) => (states.squares(ranges), 0.0),
            Self::Host(states, ..) => {
                (Vec::new(), states.squares(ranges).iter().map(Array::item).sum())
            }
        }
    }

    /// [`States::values`].
    pub(crate) fn values(&self, state: usize, range: Range<usize>) -> Vec<f64> {
        wherever!(self, states => states.values(state, range))
    }

    /// [`States::restore`].
    pub(crate) fn restore(&mut self, weights: Vec<f64>, moments: Vec<Vec<f64>>) {
        wherever!(self, states => states.restore(weights, moments));
    }

    /// Number of moments.
    pub(crate) fn num_moments(&self) -> usize {
        wherever!(self, states => states.moments.len())
    }

    /// Returns whether there are gradients.
    pub(crate) fn has_reduced(&self) -> bool {
        wherever!(self, states => states.reduced.is_some())
    }

    /// [`States::update`] by the reduced gradients, if there are any.
    pub(crate) fn update(&mut self, settings: &Settings, rates: [f64; 2], number: u64) {
        wherever!(self, states => {
            if let Some(gradient) = states.reduced.take() {
                states.update(settings, rates, number, gradient);
            }
        });
    }

    /// Adds a reduced shard of the gradients. If the states are on the host, only starts to copy the shard: see
    /// [`Self::finish_reduced`].
    pub(crate) fn add_reduced(&mut self, shard: Array<B>) {
        match self {
            Self::Device(states) => states.add_reduced(shard),
            Self::Host(_, host, unit) => host.add_gradient(*unit, shard),
        }
    }

    /// Waits until all added gradients are copied.
    pub(crate) fn finish_reduced(&mut self) -> Result<(), CommunicationError> {
        if let Self::Host(states, host, unit) = self
            && let Some(sum) = host.take_gradient(*unit)?
        {
            states.add_reduced(sum);
        }
        Ok(())
    }

    /// Replaces the gradients, if there are any, by the result of `change` on the device.
    pub(crate) fn change_reduced(
        &mut self,
        change: impl FnOnce(Array<B>) -> Result<Array<B>, CommunicationError>,
    ) -> Result<(), CommunicationError> {
        match self {
            Self::Device(states) => {
                states.reduced = states.reduced.take().map(change).transpose()?;
            }
            Self::Host(states, host, _) => {
                let own = states.reduced.take();
                let own = own.map(|own| {
                    Placed::Host(own, Arc::clone(host)).on_device(ActionKind::ReduceGrad)
                });
                states.reduced = own.map(change).transpose()?.map(|sum| host.taken(sum));
            }
        }
        Ok(())
    }

    /// Drops the gradients.
    pub(crate) fn drop_reduced(&mut self) {
        wherever!(self, states => states.reduced = None);
    }

    /// Bytes on the device, and on the host.
    pub(crate) fn num_bytes(&self) -> [u64; 2] {
        match self {
            Self::Device(states) => [states.num_bytes(), 0],
            Self::Host(states, host, unit) => [0, states.num_bytes() + host.gradient_bytes(*unit)],
        }
    }
}
