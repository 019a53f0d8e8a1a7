//! A device's host: arrays in its memory, and copies between host and device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{CommunicationError, JobHandle, Queue};
use executor_kernels::array::Array;
use executor_kernels::lock::lock;
use executor_kernels::ops::Kernels;
use ir::schedule::{Action, ActionKind};
use traces::timeline::{Activity, CopyDestination, Stream};

use crate::recorder::Recorder;

/// An array in the host's memory.
pub(crate) type HostArray = Array<Flex>;

/// An array that a device works with, and the memory that it is in.
#[derive(Clone, Debug)]
pub(crate) enum Placed<B: Kernels> {
    /// In the device's memory.
    Device(Array<B>),
    /// In the memory of its host, which copies it.
    Host(HostArray, Arc<Host<B>>),
}

impl<B: Kernels> Placed<B> {
    /// The array on the device; an array on the host is copied, and the copy is recorded as an action of this kind.
    pub(crate) fn on_device(self, kind: ActionKind) -> Array<B> {
        match self {
            Self::Device(array) => array,
            Self::Host(array, host) => host.brought(array, kind),
        }
    }

    /// Bytes on the device, and on the host.
    pub(crate) fn num_bytes(&self) -> [u64; 2] {
        match self {
            Self::Device(array) => [array.num_bytes(), 0],
            Self::Host(array, _) => [0, array.num_bytes()],
        }
    }
}

/// Copies between a device and its host, overlapped with other work. Copies in one direction run in order.
#[derive(Debug)]
pub(crate) struct Host<B: Kernels> {
    recorder: Arc<Recorder>,
    device: B::Device,
    outward: Queue,
    inward: Queue,
    gradients: Arc<Mutex<BTreeMap<usize, HostArray>>>,
    /// Copies of gradients in flight.
    copying: Mutex<Vec<JobHandle<()>>>,
}

impl<B: Kernels> Host<B> {
    pub(crate) fn new(rank: u32, recorder: Arc<Recorder>, device: B::Device) -> Self {
        Self {
            recorder,
            device,
            outward: Queue::new(format!("copies to the host of rank {rank}")),
            inward: Queue::new(format!("copies from the host of rank {rank}")),
            gradients: Arc::default(),
            copying: Mutex::default(),
        }
    }

    /// Starts to copy an array to the host.
    pub(crate) fn to_host(&self, array: Array<B>, action: Action) -> JobHandle<HostArray> {
        let recorder = Arc::clone(&self.recorder);
        self.outward.start(move || Ok(copied_to_host(&recorder, array, action)))
    }

    /// Starts to copy an array to the device.
    pub(crate) fn to_device(&self, array: HostArray, kind: ActionKind) -> JobHandle<Array<B>> {
        let (recorder, device) = (Arc::clone(&self.recorder), self.device.clone());
        let action = of_no_micro_batch(kind);
        self.inward.start(move || Ok(copied_to_device(&recorder, array, &device, action)))
    }

    /// Starts to copy arrays, where there are any, back to the device, after their copies to the host.
    pub(crate) fn bring_back(
        &self,
        arrays: Vec<Option<JobHandle<HostArray>>>,
        action: Action,
    ) -> JobHandle<Vec<Option<Array<B>>>> {
        let (recorder, device) = (Arc::clone(&self.recorder), self.device.clone());
        self.inward.start(move || {
            let back = |it: JobHandle<HostArray>| {
                Ok(copied_to_device(&recorder, it.wait()?, &device, action))
            };
            arrays.into_iter().map(|it| it.map(back).transpose()).collect()
        })
    }

    /// Copies an array to the device, overlapped with the copies in the queue.
    fn brought(&self, array: HostArray, kind: ActionKind) -> Array<B> {
        copied_to_device(&self.recorder, array, &self.device, of_no_micro_batch(kind))
    }

    /// Copies gradients to the host, overlapped with the copies in the queue.
    pub(crate) fn taken(&self, array: Array<B>) -> HostArray {
        copied_to_host(&self.recorder, array, of_no_micro_batch(ActionKind::ReduceGrad))
    }

    /// Starts to copy a unit's gradients to the host, and to add them to the host's sum.
    pub(crate) fn add_gradient(&self, unit: usize, gradient: Array<B>) {
        let recorder = Arc::clone(&self.recorder);
        let gradients = Arc::clone(&self.gradients);
        let copying = self.outward.start(move || {
            let action = of_no_micro_batch(ActionKind::ReduceGrad);
            let gradient = copied_to_host(&recorder, gradient, action);
            let mut gradients = lock(&gradients);
            let sum = match gradients.remove(&unit) {
                Some(sum) => sum + gradient,
                None => gradient,
            };
            gradients.insert(unit, sum);
            Ok(())
        });
        lock(&self.copying).push(copying);
    }

    /// Takes the sum of a unit's gradients, after waiting for all copies in flight.
    pub(crate) fn take_gradient(
        &self,
        unit: usize,
    ) -> Result<Option<HostArray>, CommunicationError> {
        for copying in std::mem::take(&mut *lock(&self.copying)) {
            copying.wait()?;
        }
        Ok(lock(&self.gradients).remove(&unit))
    }

    /// Bytes of a unit's gradients that are on the host.
    pub(crate) fn gradient_bytes(&self, unit: usize) -> u64 {
        lock(&self.gradients).get(&unit).map_or(0, Array::num_bytes)
    }
}

/// The action of a copy of parameters or gradients, which belongs to no micro-batch.
const fn of_no_micro_batch(kind: ActionKind) -> Action {
    Action { stage: 0, kind, micro_batch: 0 }
}

fn copied_to_host<B: Kernels>(recorder: &Recorder, array: Array<B>, action: Action) -> HostArray {
    let (bytes, activity) =
        (array.num_bytes(), Activity::Copy { to: CopyDestination::Host, action });
    recorder
        .record(Stream::Host, activity, bytes, || Array::from_data(array.into_data(), &FlexDevice))
}

fn copied_to_device<B: Kernels>(
    recorder: &Recorder,
    array: HostArray,
    device: &B::Device,
    action: Action,
) -> Array<B> {
    let (bytes, activity) =
        (array.num_bytes(), Activity::Copy { to: CopyDestination::Device, action });
    recorder.record(Stream::Host, activity, bytes, || Array::from_data(array.into_data(), device))
}
