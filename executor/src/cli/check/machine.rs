//! The cluster file of a machine that was checked.

use std::collections::BTreeMap;

use executor::calibration::{self, Machine};
use executor::check::CheckFinding;
use ir::cluster::{
    Architecture, Cluster, Host, KernelTimes, MeasuredKernels, NetworkLevel, Precision,
};
use ir::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};

use super::args::CheckPart;
use super::network::Network;
use super::report::Section;
use crate::cli::choices::Backend;
use crate::cli::cluster;

/// Source of each number in the file.
const HOW: &str = "`executor check`";

/// Minimum share of a data sheet's peak at which a product's rate is taken as what the GPU sustains; a lower rate tells
/// more about the product's kernel.
const LEAST_SHARE: f64 = 0.5;

/// All measurements that a check made of a machine.
pub(super) struct Measurements<'a> {
    pub(super) backend: Backend,
    pub(super) sections: &'a [Section],
    pub(super) sheet: Option<&'a Cluster>,
    pub(super) network: Option<&'a Network>,
    /// Times of kernels on a CPU, in fp32.
    pub(super) kernels: Option<KernelTimes>,
    pub(super) num_devices: usize,
}

/// Fields that are measured, each with a description of the measurement.
const LINK: [&str; 2] =
    ["host_link_bandwidth_bytes_per_second", "64 MiB there and back, the slower"];
const RATES: [&str; 2] = ["gpu.sustained_flops_per_second", "the fastest of its products"];
const LEVELS: [&str; 2] =
    ["levels", "collectives between all devices of this machine, at several sizes"];

fn set_source(made: &mut Cluster, [field, how]: [&str; 2]) {
    made.sources.insert(field.to_owned(), format!("{HOW}: {how}"));
}

impl Measurements<'_> {
    fn findings(&self, part: CheckPart) -> impl Iterator<Item = &CheckFinding> {
        let of_part = self.sections.iter().filter(move |section| section.part == part);
        of_part.flat_map(|section| &section.findings)
    }

    /// The largest number of a key among findings whose name begins with `begins`.
    fn number(&self, part: CheckPart, begins: &str, key: &str) -> Option<f64> {
        let named = self.findings(part).filter(|it| it.name.starts_with(begins));
        named.filter_map(|it| it.numbers.get(key)).copied().reduce(f64::max)
    }

    /// The rates of the fastest products.
    pub(super) fn rates(&self) -> BTreeMap<Precision, FlopsPerSecond> {
        let of = |precision: Precision| {
            let name = format!("fastest in {precision}");
            let rate = self.number(CheckPart::Products, &name, "flops_per_second")?;
            Some((precision, FlopsPerSecond::new(rate)))
        };
        [Precision::Fp32, Precision::Fp16, Precision::Bf16].into_iter().filter_map(of).collect()
    }

    /// The lower bandwidth of the two directions between a device and its host.
    fn host_link(&self) -> Option<BytesPerSecond> {
        let named = self.findings(CheckPart::Speeds).filter(|it| it.name.ends_with("the host"));
        let rates = named.filter_map(|it| it.numbers.get("bandwidth_bytes_per_second"));
        rates.copied().reduce(f64::min).map(BytesPerSecond::new)
    }

    /// The cluster file; if too little is known for one, an explanation.
    pub(super) fn cluster(&self) -> Result<Cluster, String> {
        match (self.sheet, self.backend) {
            (Some(sheet), _) => Ok(self.with_sheet(sheet)),
            (None, Backend::Cpu) => self.of_cpu(&calibration::machine()),
            (None, Backend::Cuda) => self.of_gpu(),
            (None, Backend::Wgpu) => {
                Err("what kind of GPU this is, only a data sheet says: `--base FILE`".to_owned())
            }
        }
    }

    /// The data sheet's cluster, with measurements inserted.
    fn with_sheet(&self, sheet: &Cluster) -> Cluster {
        let mut made = sheet.clone();
        self.describe(&mut made);
        if let Some(link) = self.host_link() {
            made.host_link_bandwidth = link;
            set_source(&mut made, LINK);
        }
        for (precision, rate) in self.rates() {
            let peak = made.gpu.peak.get(&precision).copied();
            if peak.is_some_and(|peak| rate.get() >= LEAST_SHARE * peak.get() && rate <= peak) {
                made.gpu.sustained.insert(precision, rate);
                set_source(&mut made, RATES);
            }
        }
        if let Some(level) = self.level() {
            set_source(&mut made, LEVELS);
            // Levels beyond this machine were not measured.
            let beyond = made.levels.iter().filter(|it| it.ranks.is_none()).cloned();
            let beyond: Vec<NetworkLevel> = beyond.collect();
            let ranks = (!beyond.is_empty()).then_some(made.gpus_per_node).filter(|it| *it > 1);
            made.levels = match ranks {
                Some(_) => [NetworkLevel { ranks, ..level }].into_iter().chain(beyond).collect(),
                None => vec![level],
            };
        }
        made
    }

    /// Sets the fields that all cluster files share.
    fn describe(&self, made: &mut Cluster) {
        "this-machine".clone_into(&mut made.name);
        made.gpus_per_node = self.num_devices.max(1) as u32;
        made.description = format!("{}, as {HOW} found it", made.gpu.name);
    }

    /// The network between devices, where there are several.
    fn level(&self) -> Option<NetworkLevel> {
        let network = self.network.filter(|it| it.num_ranks == self.num_devices)?;
        network.level.as_ref().map(|fitted| fitted.level.clone())
    }

    /// The cluster of a CPU, whose ranks are threads.
    fn of_cpu(&self, machine: &Machine) -> Result<Cluster, String> {
        let memory = machine.memory.ok_or("the system does not tell how much memory there is")?;
        let bandwidth = self.memory_bandwidth()?;
        let network = self.network.and_then(|it| it.level.as_ref());
        let level = network.ok_or("no collectives were timed")?;
        let name = format!("{} cores of {}", machine.cores, machine.processor);
        let (cpu, peak) = (Architecture::Cpu, self.known_rates()?);
        let mut made = cluster::unlisted(name, cpu, memory, bandwidth, peak, bandwidth);
        made.gpu.measured = self.kernels.clone().map(|times| MeasuredKernels {
            ranks: 1,
            threads_per_rank: Some(machine.cores),
            by_precision: [(Precision::Fp32, times)].into(),
        });
        made.host = Some(Host { memory, memory_bandwidth: bandwidth });
        made.levels = vec![level.level.clone()];
        set_source(&mut made, LEVELS);
        self.describe_unlisted(&mut made);
        made.gpus_per_node = self.network.map_or(1, |it| it.num_ranks as u32);
        Ok(made)
    }

    /// The cluster of a GPU without a data sheet.
    fn of_gpu(&self) -> Result<Cluster, String> {
        let number = |key| self.number(CheckPart::Device, "GPU 0", key);
        let missing = "the driver says too little of the GPU";
        let capability = number("compute_capability").ok_or(missing)?;
        let memory = number("memory_bytes").ok_or(missing)?;
        let link = self.host_link().ok_or("the way to the host was not measured")?;
        let (name, bandwidth) = (self.name().ok_or(missing)?, self.memory_bandwidth()?);
        let (architecture, peak) = (architecture(capability), self.known_rates()?);
        let memory = Bytes::from_f64(memory);
        let mut made = cluster::unlisted(name, architecture, memory, bandwidth, peak, link);
        made.gpu.num_multiprocessors = number("num_multiprocessors").map(|count| count as u32);
        let through_the_host = NetworkLevel {
            name: "through the host".to_owned(),
            ranks: None,
            bandwidth: link,
            interfaces_per_node: None,
            wiring: None,
            latency: Seconds::new(LATENCY_THROUGH_THE_HOST),
            start: None,
            collective_rates: None,
            measured: BTreeMap::new(),
        };
        set_source(&mut made, LINK);
        if self.level().is_some() {
            set_source(&mut made, LEVELS);
        }
        made.levels = vec![self.level().unwrap_or(through_the_host)];
        self.describe_unlisted(&mut made);
        Ok(made)
    }

    /// Name of the first GPU, as the driver reports it.
    fn name(&self) -> Option<String> {
        let mut found = self.findings(CheckPart::Device).filter(|it| it.name == "GPU 0");
        found.next()?.said.split(',').next().map(str::to_owned)
    }

    fn memory_bandwidth(&self) -> Result<BytesPerSecond, String> {
        let rate = ["copy", "sum"]
            .into_iter()
            .filter_map(|name| self.number(CheckPart::Speeds, name, "bandwidth_bytes_per_second"))
            .reduce(f64::max);
        rate.map(BytesPerSecond::new).ok_or_else(|| "memory was not measured".to_owned())
    }

    fn known_rates(&self) -> Result<BTreeMap<Precision, FlopsPerSecond>, String> {
        let rates = self.rates();
        if rates.is_empty() { Err("no product was measured".to_owned()) } else { Ok(rates) }
    }

    /// Sets the fields that cluster files without a data sheet share.
    fn describe_unlisted(&self, made: &mut Cluster) {
        self.describe(made);
        for (field, text) in [
            ("gpu.memory_bandwidth_bytes_per_second", "the faster of a copy and a sum"),
            ("gpu.peak_flops_per_second", "the fastest of its products, for want of a data sheet"),
        ] {
            made.sources.insert(field.to_owned(), format!("{HOW}: {text}"));
        }
    }
}

/// Latency of a message through the host (a launch, a copy, a wait and a copy), in seconds.
const LATENCY_THROUGH_THE_HOST: f64 = 30e-6;

/// The architecture of a compute capability.
fn architecture(capability: f64) -> Architecture {
    match capability {
        it if it >= 10.0 => Architecture::Blackwell,
        it if it >= 9.0 => Architecture::Hopper,
        it if it >= 8.9 => Architecture::Ada,
        it if it >= 8.0 => Architecture::Ampere,
        _ => Architecture::Volta,
    }
}
