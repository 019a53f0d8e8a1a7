//! Asynchronous parameter server: one replica holds the weights, which all replicas update by their gradients.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use executor_communicators::{CommunicationError, Communicator, Tag};
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::streams::on_one_stream;
use ir::replication::Outstanding;
use traces::timeline::Stream;

use crate::settings::Settings;
use crate::states::States;

type Result<T> = std::result::Result<T, CommunicationError>;

/// Tag of messages between a replica and the server.
pub(crate) const TAG: Tag = Tag::Stream(Stream::Data);

/// Staleness of the gradients that updated the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Staleness {
    /// Number of updates so far.
    pub num_updates: u64,
    /// Mean number of updates by other replicas from the time that a replica takes weights until its own update.
    pub mean: f64,
    /// Maximum of the number whose mean is `mean`.
    pub most: u64,
}

/// State that replicas share.
struct State<B: Kernels> {
    outstanding: Outstanding,
    /// Replicas that wait for weights, in the order of their requests.
    asked: VecDeque<u32>,
    units: Vec<States<B>>,
    ages: u64,
    oldest: u64,
    /// The error that stopped the server, if any.
    failure: Option<CommunicationError>,
}

/// Holds weights for replicas, which take them and send gradients within the limit on staleness.
pub(crate) struct Server<B: Kernels> {
    state: Mutex<State<B>>,
    changed: Condvar,
    settings: Settings,
    staleness: u32,
    num_replicas: u32,
}

impl<B: Kernels> Server<B> {
    pub(crate) fn new(
        units: Vec<States<B>>,
        settings: Settings,
        staleness: u32,
        num_replicas: u32,
    ) -> Self {
        let outstanding = Outstanding::default();
        let asked = VecDeque::new();
        let state = State { outstanding, asked, units, ages: 0, oldest: 0, failure: None };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { state, changed, settings, staleness, num_replicas }
    }

    /// The weights of all units in compute precision, for a replica that will send gradients of them. Waits until these
    /// gradients could be fresh enough, and until all earlier requests are served: otherwise a replica that has just
    /// sent gradients would usually be served again before the waiting replicas wake up.
    pub(crate) fn take(&self, replica: u32) -> Result<Vec<Array<B>>> {
        self.lock().asked.push_back(replica);
        let is_next = |it: &State<B>| it.asked.front() == Some(&replica);
        let mut state =
            self.wait_until(|it| is_next(it) && it.outstanding.may_take(self.staleness))?;
        state.asked.pop_front();
        state.outstanding.take(replica);
        let compute = self.settings.compute;
        let weights = state.units.iter().map(|unit| unit.master.clone().cast(compute)).collect();
        drop(state);
        self.changed.notify_all();
        Ok(weights)
    }

    /// Updates all units by a replica's gradients. Waits while this would make gradients of others too stale.
    pub(crate) fn apply(&self, replica: u32, gradients: Vec<Array<B>>) -> Result<()> {
        let mut state = self.wait_until(|it| it.outstanding.may_apply(replica, self.staleness))?;
        let age = state.outstanding.apply(replica);
        state.ages += age;
        state.oldest = state.oldest.max(age);
        let update = state.outstanding.version();
        // A step has as many updates as there are replicas.
        let rate = self.settings.schedule.at((update - 1) / u64::from(self.num_replicas));
        for (unit, gradient) in state.units.iter_mut().zip(gradients) {
            unit.update(&self.settings, [rate, 1.0], update, gradient);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Stops the server: waits for all outstanding gradients, and returns the weights with their optimizer states.
    pub(crate) fn settle(&self) -> Result<(Vec<States<B>>, u64)> {
        let mut state = self.wait_until(|it| it.outstanding.is_empty())?;
        Ok((std::mem::take(&mut state.units), state.outstanding.version()))
    }

    /// Staleness of the gradients so far.
    pub(crate) fn staleness(&self) -> Staleness {
        let state = self.lock();
        let num_updates = state.outstanding.version();
        let mean = state.ages as f64 / num_updates.max(1) as f64;
        Staleness { num_updates, mean, most: state.oldest }
    }

    /// Bytes of the weights and their optimizer states.
    pub(crate) fn num_bytes(&self) -> u64 {
        let state = self.lock();
        state.units.iter().map(States::num_bytes).sum()
    }

    /// Serves another replica on a new thread, until that replica ends.
    pub(crate) fn serve(self: &Arc<Self>, communicator: Arc<dyn Communicator<B>>, replica: u32) {
        let server = Arc::clone(self);
        let serve = move || {
            let failure = loop {
                if let Err(error) = server.serve_step(communicator.as_ref(), replica) {
                    break error;
                }
            };
            // A replica that is gone has done its steps, which is not a failure.
            if !matches!(failure, CommunicationError::Gone { .. }) {
                server.lock().failure = Some(failure);
                server.changed.notify_all();
            }
        };
        let thread = thread::Builder::new().name(format!("weights for replica {replica}"));
        if let Err(error) = thread.spawn(|| on_one_stream(serve)) {
            self.lock().failure = Some(CommunicationError::Library {
                call: "thread::spawn",
                message: error.to_string(),
            });
        }
    }

    /// Sends weights to a replica on its request, and receives its gradients.
    fn serve_step(&self, communicator: &dyn Communicator<B>, replica: u32) -> Result<()> {
        communicator.receive(replica, TAG)?;
        for weights in self.take(replica)? {
            communicator.send(replica, TAG, weights)?;
        }
        let num_units = self.lock().units.len();
        let gradients = (0..num_units).map(|_| communicator.receive(replica, TAG));
        self.apply(replica, gradients.collect::<Result<_>>()?)
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, is_time: impl Fn(&State<B>) -> bool) -> Result<MutexGuard<'_, State<B>>> {
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if is_time(&state) {
                return Ok(state);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use executor_kernels::array::Element;
    use ir::plan::Optimizer;
    use ir::replication::Replication;

    use super::*;
    use crate::settings::{LearningRate, OptimizerSettings};

    /// Only one replica may have weights at a time. A replica that brings gradients while another one waits, and asks
    /// again at once, is served after the other one.
    #[test]
    fn replicas_get_weights_in_the_order_in_which_they_ask() {
        for _ in 0..50 {
            let server = server(0, 2);
            let first = server.take(0).unwrap();
            let num_updates = thread::scope(|scope| {
                scope.spawn(|| {
                    let weights = server.take(1).unwrap();
                    server.apply(1, weights).unwrap();
                });
                while server.lock().asked.is_empty() {
                    thread::yield_now();
                }
                server.apply(0, first).unwrap();
                let second = server.take(0).unwrap();
                let num_updates = server.staleness().num_updates;
                server.apply(0, second).unwrap();
                num_updates
            });
            assert_eq!(num_updates, 2, "the other has brought its gradients in between");
        }
    }

    fn server(staleness: u32, num_replicas: u32) -> Server<Flex> {
        let elements = [Element::F32, Element::F32];
        let units = vec![States::new(vec![0.0; 4], 2, elements, &FlexDevice)];
        let settings = Settings {
            optimizer: OptimizerSettings::usual(Optimizer::AdamW),
            max_gradient_norm: None,
            schedule: LearningRate::constant(0.01),
            compute: Element::F32,
            gradients: Element::F32,
            master: Element::F32,
            moments: Element::F32,
            loss_scaling: None,
            bucket_bytes: 1,
            expert_capacity_factor: None,
            replication: Replication::default(),
            straggler: None,
            seed: 0,
        };
        Server::new(units, settings, staleness, num_replicas)
    }
}
