//! Times of messages and collectives on a cluster's network.

use std::collections::BTreeMap;

use ir::cluster::{Architecture, Cluster, MeasuredCollective, NetworkLevel, Wiring};
use ir::collective::Collective;
use ir::units::{Bytes, BytesPerSecond, Seconds};

use super::curves::CollectiveRates;
use super::group::StridedGroup;
use crate::fitted::section;
use crate::kernels::Basis;

/// Time to start a collective and synchronise with the other ranks, in addition to its steps.
///
/// The smallest two-rank collectives on A100, H100 and B200 take 5 to 8 us (NCCL, see the fitted
/// data), of which a step of small data over NVLink takes about 1 us.
const START_SECONDS: f64 = 5e-6;

/// Share of a NIC's bandwidth that collectives over whole nodes reach.
///
/// All-reduce over 4 nodes in stas00/ml-engineering, network: H200, 365 of 400 GB/s a node; B200, 382 of 400.
const NETWORK_EFFICIENCY: f64 = 0.92;

/// Number of nodes on which [`NETWORK_EFFICIENCY`] was measured.
const NODES_MEASURED: f64 = 4.0;

/// The network of a cluster, for times of messages between any of its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    levels: Vec<Level>,
    /// Ranks of a node.
    gpus_per_node: u32,
    /// Relative increase of a transfer's time over nodes for each doubling of their number, from congestion and rings
    /// that wait for their slowest link.
    pub growth: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Level {
    /// Ranks in one domain, and those of them that a job uses.
    ranks: u32,
    used: u32,
    /// Bytes per second that one rank sends in a large collective of a whole domain.
    bandwidth: f64,
    wiring: Wiring,
    /// Ranks of a node that share a network interface of this level.
    ranks_per_interface: u32,
    /// True if transfers slow down with the number of domains: in the network between nodes, where it was not measured
    /// on the machine itself.
    grows: bool,
    /// Seconds for a step of small data.
    latency: f64,
    /// Seconds to start a collective.
    start: f64,
    rates: Option<CollectiveRates>,
    /// Collectives that were measured on the machine itself.
    measured: BTreeMap<Collective, MeasuredCollective>,
}

/// The outermost level that a group crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// Index of the level, counting from the innermost.
    pub level: usize,
    /// Members within a domain of the level below.
    pub below: u32,
    /// Members within a domain of this level.
    pub members: u32,
}

/// Members of a group in one level that it crosses.
struct Crossing<'a> {
    level: &'a Level,
    /// Members within a domain of the level below.
    below: u32,
    /// Members within a domain of this level.
    members: u32,
    /// Members that a rank reaches over its link of this level. Within a node, these are the members of the domain, as
    /// the others are reached over NICs; at outer levels, all members.
    reached: u32,
}

impl Crossing<'_> {
    /// Number of domains of the level below that are reached.
    fn domains(&self) -> f64 {
        f64::from(self.reached) / f64::from(self.below)
    }
}

impl Network {
    /// The network of `cluster`.
    pub fn new(cluster: &Cluster) -> Self {
        let architecture = cluster.gpu.architecture;
        let of_node = cluster.levels.first().and_then(|level| level.ranks);
        let levels = cluster.levels.iter().enumerate().map(|(index, level)| {
            let interfaces = level.interfaces_per_node.or(of_node);
            let ranks_per_interface =
                of_node.zip(interfaces).map_or(1, |(ranks, of)| (ranks / of).max(1));
            Level { ranks_per_interface, ..Level::new(index, level, architecture) }
        });
        Self {
            levels: levels.collect(),
            gpus_per_node: cluster.gpus_per_node.max(1),
            growth: section::<BTreeMap<String, f64>>("network")["growth"],
        }
    }

    /// The network of a job of `num_gpus` ranks. The job takes as few domains as can hold it and, where possible, the
    /// same number of nodes in each, so that groups of powers of two do not extend beyond a rack.
    #[must_use]
    pub(crate) fn among(mut self, num_gpus: u32) -> Self {
        for level in self.levels.iter_mut().filter(|level| level.ranks != u32::MAX) {
            let domains = num_gpus.div_ceil(level.ranks.max(1)).max(1);
            let each = num_gpus / domains;
            let node = if level.ranks > self.gpus_per_node { self.gpus_per_node } else { 1 };
            let is_even = num_gpus.is_multiple_of(domains) && each.is_multiple_of(node);
            let is_alone = domains == 1;
            level.used = if is_alone || is_even { each.max(1) } else { level.ranks };
        }
        self
    }

    /// Index of the first level that is reached over the network interfaces of a node, as all levels beyond it are.
    pub fn first_between_nodes(&self) -> usize {
        let is_between = |level: &Level| level.ranks > self.gpus_per_node;
        let mut levels = self.levels.iter().enumerate().skip(1);
        levels.find(|(_, level)| is_between(level)).map_or(usize::MAX, |(index, _)| index)
    }

    /// Time of a collective on a whole buffer of `bytes`.
    ///
    /// Within one domain: the fitted curve if there is one, else
    ///
    /// ```text
    /// t = start + steps alpha + v S / W
    /// ```
    ///
    /// Where the collective was measured on the machine at hand, the formula has its own three numbers, and groups of
    /// the measured size take the measured times themselves.
    ///
    /// Across domains, with n ranks, n0 of them in each domain: the slowest level sets the pace, as in a pipelined ring
    /// through all ranks or a hierarchical algorithm with large messages. The NICs of all n0 ranks of the group in a
    /// domain carry the data. Where there are several levels between nodes, data for an outer level passes the NICs
    /// too. Latencies within the node and between nodes add up.
    ///
    /// ```text
    /// t = max(t_within(n0, S), v S / (n0 W_nic)) + steps alpha
    /// all-to-all: each rank's own NIC carries the (n - n0) / n of its buffer that leave
    /// ```
    ///
    /// with v the [`Collective::volume_factor`]. All-reduce takes the smaller latency of ring and double
    /// tree. Zero for one rank or no bytes.
    ///
    /// # Source
    ///
    /// Thakur, Rabenseifner and Gropp 2005 for the ring; NCCL's `src/graph/tuning.cc` for the
    /// latency of rings and trees over nodes and for the bandwidth of a node's NICs together.
    ///
    /// # Assumes
    ///
    /// Each GPU has its own NIC, and the network beyond does not block.
    pub fn time(&self, kind: Collective, group: StridedGroup, bytes: Bytes) -> Seconds {
        if group.size < 2 || bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        if kind == Collective::SendReceive && group.size > 2 {
            let ends = self.between_neighbours(group.stride);
            return Seconds::new(self.over(kind, 2, bytes, ends.as_slice()));
        }
        Seconds::new(self.over(kind, group.size, bytes, &self.crossings(group)))
    }

    /// Time of a collective that extends beyond the first `num_ranks` ranks: `own` of its ranks are within them, at
    /// equal distances, and the others beyond. Its ring leaves each node over the NICs of the node's members.
    pub fn time_beyond(
        &self,
        kind: Collective,
        group: StridedGroup,
        (num_ranks, own): (u32, u32),
        bytes: Bytes,
    ) -> Seconds {
        if group.size < 2 || bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        let of_node = self.levels.first().map_or(1, |level| group.members_within(level.used));
        let of_node = of_node.min(own);
        let mut below = 1;
        let mut crossings: Vec<Crossing<'_>> = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            let is_beyond = level.ranks > num_ranks;
            let within = group.members_within(level.used);
            let members = if is_beyond { within } else { within.min(own) };
            if members <= below {
                continue;
            }
            let mut crossing = Crossing { level, below, members, reached: members };
            if is_beyond {
                // The ring goes through all nodes, at the pace of the slowest level between them.
                let node = crossings.iter().take_while(|it| it.members <= of_node).count();
                let between = crossings.drain(node..).map(|it| it.level).chain([level]);
                let slowest = between.min_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
                let level = slowest.unwrap_or(level);
                crossing = Crossing { level, below: of_node, members, reached: members };
            }
            crossings.push(crossing);
            below = members;
        }
        Seconds::new(self.over(kind, group.size, bytes, &crossings))
    }

    fn over(
        &self,
        kind: Collective,
        num_ranks: u32,
        bytes: Bytes,
        crossings: &[Crossing<'_>],
    ) -> f64 {
        let size = bytes.as_f64();
        match crossings {
            [] => 0.0,
            [only] if only.below == 1 => only.level.flat(kind, num_ranks, size, self.growth),
            many => self.hierarchical(kind, num_ranks, size, many),
        }
    }

    /// Evidence on which the time of a collective is based.
    pub fn basis(&self, kind: Collective, group: StridedGroup, bytes: Bytes) -> Basis {
        let mut crossings = self.crossings(group);
        if kind == Collective::SendReceive
            && let Some(outermost) = crossings.pop()
        {
            // A message to the next rank goes over the outermost level alone.
            crossings = vec![Crossing { below: 1, ..outermost }];
        }
        let is_measured = match crossings.as_slice() {
            [only] if only.below == 1 => {
                let rates = only.level.rates.as_ref();
                only.level.measured.contains_key(&kind)
                    || rates
                        .and_then(|rates| rates.seconds(kind, group.size, bytes.as_f64()))
                        .is_some()
            }
            _ => false,
        };
        if is_measured { Basis::Interpolated } else { Basis::DataSheet }
    }

    /// Time to send tokens, `bytes` in total, each to `top_k` random ranks of the group. A token is sent once to each
    /// domain that has some of its ranks, to at most `most_domains`, and within the domain once to each of them.
    ///
    /// ```text
    /// copies that a rank sends over a level of g domains: (g - 1) (1 - (1 - 1 / g)^k)
    /// ```
    ///
    /// # Source
    ///
    /// DeepSeek-AI 2025, DeepEP: tokens cross the network once for each node and are forwarded there.
    pub fn dispatch(
        &self,
        group: StridedGroup,
        bytes: Bytes,
        top_k: u64,
        most_domains: Option<u32>,
    ) -> Seconds {
        if group.size < 2 || bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        let chosen = |among: f64| 1.0 - (1.0 - 1.0 / among).powf(top_k as f64);
        let size = f64::from(group.size);
        let mut slowest = 0.0_f64;
        let crossings = self.crossings(group);
        let start = slowest_start(&crossings);
        let [mut within_node, mut between_nodes] = [0.0_f64; 2];
        for Crossing { level, below, members, reached } in crossings {
            let is_node = reached < group.size;
            let latency = if is_node { &mut within_node } else { &mut between_nodes };
            *latency = latency.max(level.latency);
            let [below, members, reached] = [below, members, reached].map(f64::from);
            // Ranks that are reached and not in the rank's own domain of the level below.
            let copies = if below > 1.0 {
                let domains = size / below;
                let limit = most_domains.map_or(1.0, |most| f64::from(most) / domains);
                (reached - below) / below * chosen(domains).min(limit)
            } else {
                size * chosen(size) * (reached - 1.0) / reached
            };
            slowest = slowest.max(bytes.as_f64() * copies / level.bandwidth_of(members));
        }
        Seconds::new(start + slowest + within_node + between_nodes)
    }

    /// Time until one rank of a group has received a message of `bytes` from each of the others. Its link of each level
    /// carries the messages from outside of its domain of the level below.
    ///
    /// ```text
    /// t = start + alpha + max over levels of (members - below) S / W
    /// ```
    ///
    /// Zero for one rank or no bytes.
    ///
    /// # Assumes
    ///
    /// The others send at once, and their own links are not the bottleneck.
    pub fn to_one(&self, group: StridedGroup, bytes: Bytes) -> Seconds {
        if group.size < 2 || bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        let (mut slowest, mut latency) = (0.0_f64, 0.0_f64);
        let crossings = self.crossings(group);
        let start = slowest_start(&crossings);
        for Crossing { level, below, members, reached } in crossings {
            let senders = f64::from(reached - below);
            let bandwidth = level.bandwidth_of(f64::from(members));
            slowest = slowest.max(senders * bytes.as_f64() / bandwidth);
            latency = latency.max(level.latency);
        }
        Seconds::new(start + latency + slowest)
    }

    /// Time for each rank of a chain to send `bytes` to the next, over the outermost level that the group crosses. One
    /// of the members within a node sends beyond the node, and has the interface that they share to itself.
    pub fn to_neighbour(&self, group: StridedGroup, bytes: Bytes) -> Seconds {
        let outermost = self.outermost_level(group);
        let Some(level) = self.levels.get(outermost).filter(|_| bytes != Bytes::ZERO) else {
            return Seconds::ZERO;
        };
        let of_node = group.members_within(self.levels[0].used);
        let shared = if outermost == 0 { 1 } else { level.ranks_per_interface.min(of_node) };
        // The two ranks are in different domains of the level below.
        let ends = [Crossing { level, below: 1, members: 2, reached: 2 }];
        Seconds::new(self.over(Collective::SendReceive, 2, bytes.shard(shared.into()), &ends))
    }

    /// The level over which a rank reaches the next of a group of several.
    fn between_neighbours(&self, stride: u32) -> Option<Crossing<'_>> {
        let has_both = |level: &&Level| level.used / stride.max(1) >= 2;
        let level = self.levels.iter().find(has_both).or(self.levels.last())?;
        Some(Crossing { level, below: 1, members: 2, reached: 2 })
    }

    /// Bandwidth of a rank over the innermost level, in one direction; zero without levels.
    pub fn innermost_bandwidth(&self) -> BytesPerSecond {
        BytesPerSecond::new(self.levels.first().map_or(0.0, |level| level.bandwidth))
    }

    /// Index of the outermost level that a collective of `group` crosses, which sets its pace; counted from the
    /// innermost, 0 for a group of one.
    pub fn outermost_level(&self, group: StridedGroup) -> usize {
        let within = |level: &Level| group.members_within(level.used) == group.size.max(1);
        self.levels.iter().position(within).unwrap_or(self.levels.len().saturating_sub(1))
    }

    /// Time to start a collective on a level and synchronise with the other ranks; `None` if there is no such level.
    pub fn start(&self, level: usize) -> Option<Seconds> {
        self.levels.get(level).map(|level| Seconds::new(level.start))
    }

    /// The outermost level that a collective of `group` crosses, with its members there; `None` for a group of one.
    pub fn crossed(&self, group: StridedGroup) -> Option<Crossed> {
        let level = self.outermost_level(group);
        let within = |level: usize| self.levels.get(level).map(|it| group.members_within(it.used));
        let below = level.checked_sub(1).and_then(within).unwrap_or(1);
        let members = within(level).filter(|members| *members > below)?;
        Some(Crossed { level, below, members })
    }

    fn hierarchical(
        &self,
        kind: Collective,
        num_ranks: u32,
        bytes: f64,
        crossings: &[Crossing<'_>],
    ) -> f64 {
        let n = f64::from(num_ranks);
        let mut slowest = 0.0_f64;
        let mut between_nodes = 0.0_f64;
        for crossing in crossings {
            let level = crossing.level;
            let [below, reached] = [crossing.below, crossing.reached].map(f64::from);
            if crossing.below == 1 && crossing.reached < num_ranks {
                let within = if kind == Collective::AllToAll { bytes * reached / n } else { bytes };
                slowest = slowest.max(level.flat(kind, crossing.members, within, self.growth));
                continue;
            }
            let transfer = match kind {
                Collective::AllToAll => bytes * (reached - below) / n / level.bandwidth,
                _ => kind.volume_factor(num_ranks) * bytes / (below * level.bandwidth),
            };
            slowest = slowest.max(transfer * level.grown(crossing.domains(), self.growth));
            // A ring through all nodes has as many steps whatever levels are between them.
            let steps = kind.steps(crossing.reached.div_ceil(crossing.below));
            between_nodes = between_nodes.max(steps * level.latency);
        }
        slowest_start(crossings) + slowest + between_nodes
    }

    /// The levels at which the group has ranks in different domains of the level below.
    fn crossings(&self, group: StridedGroup) -> Vec<Crossing<'_>> {
        let mut below = 1;
        let mut crossings = Vec::with_capacity(self.levels.len());
        for (index, level) in self.levels.iter().enumerate() {
            let members = group.members_within(level.used);
            if members > below {
                let reached = if index == 0 { members } else { group.size };
                crossings.push(Crossing { level, below, members, reached });
                below = members;
            }
        }
        crossings
    }
}

impl Level {
    fn new(index: usize, level: &NetworkLevel, architecture: Architecture) -> Self {
        let within_node = index == 0 && level.ranks.is_some();
        let efficiency = match level.start {
            // Measured bandwidth is already the effective one.
            Some(_) => 1.0,
            None if within_node => scale_up_efficiency(architecture),
            None => NETWORK_EFFICIENCY,
        };
        Self {
            ranks: level.ranks.unwrap_or(u32::MAX),
            used: level.ranks.unwrap_or(u32::MAX),
            bandwidth: level.bandwidth.get() * efficiency,
            wiring: level.wiring.unwrap_or(Wiring::Switched),
            ranks_per_interface: 1,
            grows: !within_node && level.start.is_none(),
            latency: level.latency.get(),
            start: level.start.map_or(START_SECONDS, Seconds::get),
            rates: level.collective_rates.as_deref().and_then(CollectiveRates::named),
            measured: level.measured.clone(),
        }
    }

    /// Bandwidth of one rank to the other `members` in a domain, in bytes per second: in a mesh, only over the links to
    /// these.
    ///
    /// ```text
    /// W (members - 1) / (ranks - 1)
    /// ```
    fn bandwidth_of(&self, members: f64) -> f64 {
        match self.wiring {
            Wiring::Switched => self.bandwidth,
            Wiring::Mesh => self.bandwidth * (members - 1.0) / (f64::from(self.ranks) - 1.0),
        }
    }

    /// Factor on the time of a transfer over `domains` domains, relative to [`NODES_MEASURED`].
    fn grown(&self, domains: f64, growth: f64) -> f64 {
        let doublings = (domains / NODES_MEASURED).log2().max(0.0);
        if self.grows { 1.0 + growth * doublings } else { 1.0 }
    }

    /// Time of a collective among `num_ranks` ranks within one domain, each in its own domain of the level below, in
    /// seconds.
    fn flat(&self, kind: Collective, num_ranks: u32, bytes: f64, growth: f64) -> f64 {
        if let Some(measured) = self.measured.get(&kind) {
            let factor = kind.volume_factor(num_ranks);
            if let Some(seconds) = measured.of_its_size(factor, num_ranks, bytes) {
                return seconds.get();
            }
            let volume = factor * bytes;
            let transfer = measured.bandwidth.map_or(0.0, |bandwidth| volume / bandwidth.get());
            let steps = kind.steps(num_ranks) * measured.latency.get();
            return measured.start.get() + steps + transfer;
        }
        if let Some(rates) = &self.rates
            && let Some(seconds) = rates.seconds(kind, num_ranks, bytes)
        {
            return seconds;
        }
        let bandwidth = self.bandwidth_of(f64::from(num_ranks));
        let transfer = kind.volume_factor(num_ranks) * bytes / bandwidth;
        let transfer = transfer * self.grown(f64::from(num_ranks), growth);
        self.start + kind.steps(num_ranks) * self.latency + transfer
    }
}

/// Seconds to start a collective that crosses these levels.
fn slowest_start(crossings: &[Crossing<'_>]) -> f64 {
    crossings.iter().map(|crossing| crossing.level.start).fold(0.0, f64::max)
}

/// Share of the scale-up link that large collectives reach, where no curve was fitted.
///
/// | family | share | source |
/// |---|---|---|
/// | Volta | 0.85 | DGX-1 NCCL all-reduce, about 130 of 150 GB/s (NVIDIA, NCCL 2 results) |
/// | Ampere | 0.78 | 234 of 300 GB/s (stas00/ml-engineering, network) |
/// | Hopper | 0.81 | ring, 365 of 450 GB/s (the same) |
/// | Blackwell | 0.75 | ring, 680 of 900 GB/s (the same) |
/// | Ada | 0.75 | PCIe, protocol overhead and shared switches; assumed |
/// | CDNA | 0.70 | MI300X RCCL all-reduce, about 310 of 448 GB/s; assumed for the others |
/// | TPU, Trainium | 0.80 | assumed |
/// | Gaudi | 0.95 | Gaudi2 all-reduce near 250 of 262 GB/s (Intel, HCCL results) |
/// | Cpu | 1 | its files have measured values |
fn scale_up_efficiency(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Volta => 0.85,
        Architecture::Ampere => 0.78,
        Architecture::Hopper => 0.81,
        Architecture::Blackwell | Architecture::Ada => 0.75,
        Architecture::Cdna2 | Architecture::Cdna3 | Architecture::Cdna4 => 0.70,
        Architecture::Tpu | Architecture::Trainium => 0.80,
        Architecture::Gaudi => 0.95,
        Architecture::Cpu => 1.0,
    }
}
