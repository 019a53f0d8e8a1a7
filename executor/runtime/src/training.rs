//! The training loop of a rank, and the exchange of reports between ranks.

use std::time::Duration;

use burn::tensor::backend::Backend;
use executor_communicators::{CommunicationError, Communicator};
use executor_kernels::array::{Array, Element};
use executor_kernels::clock::now;
use executor_kernels::ops::Kernels;
use ir::units::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use traces::chrome;
use traces::timeline::{Stream, Timeline};

use crate::rank::{Rank, RunError, StepResult};
pub use crate::server::Staleness;

/// Report of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the step, counting from 1.
    pub step: u64,
    /// Loss and norm.
    pub result: StepResult,
    /// The learning rate of its update.
    pub learning_rate: f64,
    /// Time of the step on this rank.
    pub time: Duration,
    /// Number of updates of asynchronously shared weights by all replicas so far; known on the rank of the server.
    pub num_updates: Option<u64>,
}

/// Report of all ranks of a run, at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunReport {
    /// Peak memory of each rank, by rank.
    pub peak_memory: Vec<Bytes>,
    /// Peak bytes of each rank's offloaded tensors in its host's memory.
    pub peak_host_memory: Vec<Bytes>,
    /// The timeline of the recorded step, if one was recorded.
    pub timeline: Option<Timeline>,
    /// Staleness of the gradients that updated asynchronously shared weights.
    pub staleness: Option<Staleness>,
    /// Distance of the replicas' weights from their mean, where replicas average their weights.
    pub consensus_distance: Option<f64>,
}

/// Trains until `num_steps` steps are done, and records step `recorded_step`, counting from 1. Calls `observe` after
/// each step. Rank 0 gets the report of all ranks.
///
/// # Errors
///
/// [`RunError`] where another rank stopped or data cannot be used, or errors of `observe`.
pub fn train<B: Kernels, E: From<RunError>>(
    rank: &mut Rank<B>,
    num_steps: u64,
    recorded_step: Option<u64>,
    mut observe: impl FnMut(&Rank<B>, &StepReport) -> Result<(), E>,
) -> Result<Option<RunReport>, E> {
    let mut track = None;
    while rank.num_steps() < num_steps {
        let step = rank.num_steps() + 1;
        let is_recorded = recorded_step == Some(step);
        if is_recorded {
            rank.record()?;
        }
        let learning_rate = rank.learning_rate();
        let start = now();
        let result = rank.step()?;
        let time = start.elapsed();
        if is_recorded {
            track = Some(rank.recorded()?);
        }
        let num_updates = rank.staleness().map(|staleness| staleness.num_updates);
        observe(rank, &StepReport { step, result, learning_rate, time, num_updates })?;
    }
    rank.settle()?;
    let consensus_distance = rank.consensus_distance()?;
    let timeline = track.map(|track| Timeline { tracks: vec![track], ..Timeline::default() });
    let own = RankReport {
        peak_memory: rank.peak_memory(),
        peak_host_memory: rank.peak_host_memory(),
        timeline: timeline.as_ref().map(chrome::write),
    };
    let ranks = gather(rank.communicator(), &own, rank.device()).map_err(RunError::from)?;
    let Some(ranks) = ranks else { return Ok(None) };
    let peak_memory = ranks.iter().map(|it| it.peak_memory).collect();
    let peak_host_memory = ranks.iter().map(|it| it.peak_host_memory).collect();
    let mut timelines = ranks
        .iter()
        .filter_map(|it| it.timeline.as_ref())
        .map(|text| chrome::read(text).expect("a timeline reads as it was written"));
    let timeline = timelines.next().map(|first| {
        let rest = timelines.flat_map(|timeline| timeline.tracks);
        Timeline { tracks: first.tracks.into_iter().chain(rest).collect(), ..first }
    });
    let staleness = rank.staleness();
    Ok(Some(RunReport { peak_memory, peak_host_memory, timeline, staleness, consensus_distance }))
}

/// One rank's part of a [`RunReport`].
#[derive(Serialize, Deserialize)]
struct RankReport {
    peak_memory: Bytes,
    peak_host_memory: Bytes,
    /// The recorded step as a Chrome trace, if one was recorded.
    timeline: Option<String>,
}

/// The reports of all ranks, on rank 0. They travel as JSON, each byte as a number.
///
/// # Errors
///
/// [`CommunicationError`] where another rank has stopped, or has ended before its whole report was sent.
pub fn gather<B: Backend, T: Serialize + DeserializeOwned>(
    communicator: &dyn Communicator<B>,
    report: &T,
    device: &B::Device,
) -> Result<Option<Vec<T>>, CommunicationError> {
    let world = communicator.world();
    let bytes = serde_json::to_vec(report).expect("a report prints as JSON");
    let values: Vec<f64> = bytes.iter().copied().map(f64::from).collect();
    let array = Array::from_f64(values, &[bytes.len()], Element::F32, device);
    let parts = communicator.on(&world, Stream::Host).gather(0, array)?;
    let read = |(part, rank): (Array<B>, u32)| {
        let bytes: Vec<u8> = part.to_f64().into_iter().map(|byte| byte as u8).collect();
        serde_json::from_slice(&bytes).map_err(|_| CommunicationError::Lost { rank })
    };
    parts.map(|parts| parts.into_iter().zip(0..).map(read).collect()).transpose()
}
