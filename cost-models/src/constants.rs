//! The constants that are fitted to measured steps: their meanings, units and ranges.
//!
//! A constant has a key of owner and name: `a100 matmul` or `nanotron exchanges.within_blocks`. Their fit, and the
//! values from which it starts, are in `cost-models/fit`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::Hardware;
use crate::fitted::section;

/// The constants that differ where a source is left out of the fit, by key; `None` if the source was not in the fit.
pub fn without(source: &str) -> Option<&'static BTreeMap<String, f64>> {
    static LEFT_OUT: LazyLock<BTreeMap<String, BTreeMap<String, f64>>> =
        LazyLock::new(|| section("left_out"));
    LEFT_OUT.get(source)
}

/// Owner of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A kind of GPU: [`Device::training_set`](crate::kernels::Device).
    Gpu,
    /// GPUs of all kinds.
    AllGpus,
    /// A library of attention on a kind of GPU.
    Attention,
    /// A framework.
    Framework,
    /// The network, for all machines alike.
    Network,
}

/// A fitted constant.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// The kind of its owner.
    pub owner: Owner,
    /// Name within its owner.
    pub name: &'static str,
    /// Meaning, with the unit.
    pub meaning: &'static str,
    /// The least and the greatest value.
    pub range: [f64; 2],
    /// Standard deviation of its logarithm between machines, or frameworks, of the same kind.
    pub spread: f64,
    place: fn(&mut Hardware) -> &mut f64,
}

/// All constants of time.
pub const CONSTANTS: [Constant; 16] = [
    Constant {
        owner: Owner::Gpu,
        name: "matmul",
        meaning: "rate of matrix products in 16 or 32 bits in a step over their rate alone, in short runs: in a step, \
                  power limits the clocks, and others use the memory too",
        range: [0.4, 1.0],
        spread: 0.14,
        place: |it| &mut it.device.training.matmul,
    },
    Constant {
        owner: Owner::Gpu,
        name: "matmul_8_bit",
        meaning: "the same in 8 bits",
        range: [0.4, 1.1],
        spread: 0.14,
        place: |it| &mut it.device.training.matmul_8_bit,
    },
    Constant {
        owner: Owner::Gpu,
        name: "matmul_4_bit",
        meaning: "the same in 4 bits, over the rate that 8-bit kernels would reach with the same peak",
        range: [0.4, 1.1],
        spread: 0.20,
        place: |it| &mut it.device.training.matmul_4_bit,
    },
    Constant {
        owner: Owner::Gpu,
        name: "memory",
        meaning: "bandwidth that kernels reach in a step over what they reach alone",
        range: [0.6, 1.0],
        spread: 0.12,
        place: |it| &mut it.device.training.memory,
    },
    Constant {
        owner: Owner::Gpu,
        name: "host",
        meaning: "time of the host to launch an operator's kernels over that of the hosts of most GPUs",
        range: [0.5, 4.0],
        spread: 0.15,
        place: |it| &mut it.device.training.host,
    },
    Constant {
        owner: Owner::AllGpus,
        name: "spread_of_speeds",
        meaning: "standard deviation of the speeds of a job's GPUs, relative to their mean: all wait for the slowest",
        range: [0.001, 0.1],
        spread: 0.50,
        place: |it| &mut it.device.training.spread_of_speeds,
    },
    Constant {
        owner: Owner::Attention,
        name: "forward",
        meaning: "rate of its forward over that of the measured kernel, TensorRT-LLM's",
        range: [0.1, 2.0],
        spread: 0.20,
        place: |it| &mut it.device.training.attention_forward,
    },
    Constant {
        owner: Owner::Attention,
        name: "backward",
        meaning: "rate of its backward over that of the measured forward",
        range: [0.1, 2.0],
        spread: 0.20,
        place: |it| &mut it.device.training.attention_backward,
    },
    Constant {
        owner: Owner::Framework,
        name: "host.microseconds_per_operator",
        meaning: "time of the host to launch an operator's kernels, in microseconds",
        range: [5.0, 300.0],
        spread: 0.60,
        place: |it| &mut it.framework.host.microseconds_per_operator,
    },
    Constant {
        owner: Owner::Framework,
        name: "host.milliseconds_per_step",
        meaning: "time of a step for which the device waits for the host outside of passes, in milliseconds: for the \
                  next batch, the optimizer's launches, the log of the loss",
        range: [0.5, 1000.0],
        spread: 0.80,
        place: |it| &mut it.framework.host.milliseconds_per_step,
    },
    Constant {
        owner: Owner::Framework,
        name: "parameters.microseconds_per_gather",
        meaning: "time of the host to gather and release the parameters of one operator in one pass, with ZeRO-3, in \
                  microseconds",
        range: [20.0, 2000.0],
        spread: 0.60,
        place: |it| &mut it.framework.parameters.microseconds_per_gather,
    },
    Constant {
        owner: Owner::Framework,
        name: "pipeline_parallel.microseconds_per_awaited_message",
        meaning: "time from a message that was waited for to the next kernel, in microseconds",
        range: [5.0, 2000.0],
        spread: 1.00,
        place: |it| &mut it.framework.pipeline_parallel.microseconds_per_awaited_message,
    },
    Constant {
        owner: Owner::Framework,
        name: "kernels.elementwise_traffic",
        meaning: "bytes that elementwise kernels touch over those of one fused kernel for each operator",
        range: [0.5, 3.0],
        spread: 0.40,
        place: |it| &mut it.framework.kernels.elementwise_traffic,
    },
    Constant {
        owner: Owner::Framework,
        name: "exchanges.within_blocks",
        meaning: "time of exchanges within layers over that of the same collective alone",
        range: [0.9, 3.0],
        spread: 0.30,
        place: |it| &mut it.framework.exchanges.within_blocks,
    },
    Constant {
        owner: Owner::Framework,
        name: "exchanges.over_replicas",
        meaning: "time of exchanges between replicas over that of the same collective alone",
        range: [0.9, 4.0],
        spread: 0.50,
        place: |it| &mut it.framework.exchanges.over_replicas,
    },
    Constant {
        owner: Owner::Network,
        name: "growth",
        meaning: "relative increase of the time of a transfer between nodes for each doubling of their number",
        range: [0.001, 0.3],
        spread: 0.50,
        place: |it| &mut it.network.growth,
    },
];

/// Constants of memory, which step times do not depend on.
pub const OF_MEMORY: [Constant; 1] = [Constant {
    owner: Owner::Framework,
    name: "memory.saved",
    meaning: "bytes that blocks save for backward over those that one fused kernel for each operator would save",
    range: [0.5, 3.0],
    spread: 0.20,
    place: |it| &mut it.framework.memory.saved,
}];

impl Constant {
    /// Key of the constant on a machine.
    pub fn key(&self, hardware: &Hardware) -> String {
        let Hardware { device, framework, .. } = hardware;
        let gpu = &device.training_set;
        match self.owner {
            Owner::Gpu => format!("{gpu} {}", self.name),
            Owner::AllGpus => format!("all_gpus {}", self.name),
            Owner::Attention => {
                let library = framework.attention_on(hardware.architecture).name();
                format!("{gpu} {library}.{}", self.name)
            }
            Owner::Framework => format!("{} {}", framework.measured_name(), self.name),
            Owner::Network => format!("network {}", self.name),
        }
    }

    /// Value of the constant on a machine.
    pub fn of(&self, hardware: &mut Hardware) -> f64 {
        *(self.place)(hardware)
    }

    /// Multiplies the constant by `factor`. A value of 0 stays 0: the machine does not do the work behind it.
    pub fn scale(&self, hardware: &mut Hardware, factor: f64) {
        *(self.place)(hardware) *= factor;
    }

    /// Name of the constant where only one machine is meant.
    pub fn name_on_machine(&self) -> String {
        match self.owner {
            Owner::Attention => format!("attention_{}", self.name),
            Owner::Network => format!("network_{}", self.name),
            _ => self.name.to_owned(),
        }
    }

    /// Sets the constant to `value`; a value of 0 stays 0.
    pub fn set(&self, hardware: &mut Hardware, value: f64) {
        let place = (self.place)(hardware);
        if *place != 0.0 {
            *place = value;
        }
    }
}

/// All constants, of time and of memory.
pub fn all() -> impl Iterator<Item = Constant> {
    CONSTANTS.into_iter().chain(OF_MEMORY)
}

/// Replaces a machine's constants by those of its framework's calibration, where that was on the same kind of GPU.
pub fn calibrate(hardware: &mut Hardware) {
    let Some(calibration) = hardware.framework.calibration.clone() else { return };
    if calibration.gpu != hardware.device.training_set {
        return;
    }
    for constant in all() {
        if let Some([_, value]) = calibration.constants.get(&constant.name_on_machine()) {
            constant.set(hardware, *value);
        }
    }
}

/// Replaces a machine's constants by values given by key.
pub fn apply(hardware: &mut Hardware, values: &BTreeMap<String, f64>) {
    for constant in all() {
        if let Some(value) = values.get(&constant.key(hardware)) {
            constant.set(hardware, *value);
        }
    }
}
