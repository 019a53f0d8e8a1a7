//! NCCL's topology of a node, in XML.
//!
//! # Source
//!
//! NCCL, `src/graph/xml.cc`: `NCCL_TOPO_DUMP_FILE`; and the files that clouds ship for `NCCL_TOPO_FILE`, which have no
//! `gpu` and `net`.

use ir::units::BytesPerSecond;
use roxmltree::{Document, Node};

use super::error::TopologyError;
use super::node::{NodeLinks, reached};

/// Classes of PCI devices that are GPUs, and those that are network interfaces, by their first digits.
const GPUS: [&str; 2] = ["0x0302", "0x0300"];
const INTERFACES: [&str; 2] = ["0x0207", "0x0200"];

/// Bits per second in 1 Mb/s, the unit of `speed`.
const MEGABIT: f64 = 1e6;

/// Reads a topology.
pub(super) fn read(text: &str) -> Result<NodeLinks, TopologyError> {
    let document =
        Document::parse(text).map_err(|error| TopologyError::Xml { problem: error.to_string() })?;
    let root = document.root_element();
    if root.tag_name().name() != "system" {
        return Err(TopologyError::Unknown);
    }
    let of_class = |classes: &[&str]| {
        let is_of = |node: &Node<'_, '_>| {
            let class = node.attribute("class").unwrap_or_default();
            node.has_tag_name("pci") && classes.iter().any(|it| class.starts_with(it))
        };
        root.descendants().filter(is_of).count()
    };
    let tagged =
        |name: &'static str| root.descendants().filter(move |node| node.has_tag_name(name));
    let gpus = of_class(&GPUS).max(tagged("gpu").count());
    let near: Vec<_> = tagged("net").filter(|net| is_near(*net, root)).collect();
    let speeds = near.iter().filter_map(|net| net.attribute("speed")?.parse::<f64>().ok());
    let speeds: Vec<f64> = speeds.collect();
    let interfaces = if near.is_empty() { of_class(&INTERFACES) } else { near.len() };
    // In a mesh, a GPU has equally many links to each other GPU; in V100's cube mesh, two to some and one to others.
    let mut counts: Vec<_> = tagged("nvlink").map(|link| link.attribute("count")).collect();
    counts.dedup();
    let bandwidth: f64 = speeds.iter().map(|speed| speed * MEGABIT / 8.0).sum();
    Ok(NodeLinks {
        gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
        nvlinks: nvlinks(tagged("gpu"), gpus),
        is_mesh: counts.len() == 1
            && tagged("nvlink").all(|link| link.attribute("tclass") != Some(SWITCH)),
        interfaces: u32::try_from(interfaces).unwrap_or(u32::MAX),
        interface_bandwidth: (bandwidth > 0.0).then(|| BytesPerSecond::new(bandwidth)),
    })
}

/// Class of a bridge: an NVSwitch.
const SWITCH: &str = "0x068000";

/// True if the interface is the nearest one to some GPU; interfaces of storage are farther from all GPUs. Two devices
/// are the nearer, the deeper the smallest part of the tree is that contains both.
fn is_near(net: Node<'_, '_>, root: Node<'_, '_>) -> bool {
    let is_gpu = |node: &Node<'_, '_>| {
        let class = node.attribute("class").unwrap_or_default();
        node.has_tag_name("gpu") || GPUS.iter().any(|it| class.starts_with(it))
    };
    let depth = |net: Node<'_, '_>, gpu: Node<'_, '_>| {
        let common = net.ancestors().find(|it| gpu.ancestors().any(|other| other == *it));
        common.map_or(0, |common| common.ancestors().count())
    };
    let nets: Vec<_> = root.descendants().filter(|it| it.has_tag_name("net")).collect();
    let mut gpus = root.descendants().filter(is_gpu).peekable();
    let nearest = |gpu| nets.iter().map(|other| depth(*other, gpu)).max();
    gpus.peek().is_none() || gpus.any(|gpu| Some(depth(net, gpu)) == nearest(gpu))
}

/// Number of NVLinks of the GPU that has the fewest, and number of GPUs that these join: directly, through other GPUs
/// or through switches. `None` if GPUs are not described.
fn nvlinks<'a>(gpus: impl Iterator<Item = Node<'a, 'a>>, all: usize) -> Option<[u32; 2]> {
    let gpus: Vec<Node<'a, 'a>> = gpus.collect();
    let links = |gpu: usize| gpus[gpu].children().filter(|it| it.has_tag_name("nvlink"));
    let bus = |gpu: usize| gpus[gpu].parent().and_then(|pci| pci.attribute("busid"));
    let is_linked = |from: usize, to: usize| {
        let target = |link: Node<'a, 'a>| link.attribute("target");
        let is_switch = |link: Node<'a, 'a>| link.attribute("tclass") == Some(SWITCH);
        links(from).any(is_switch) && links(to).any(is_switch)
            || links(from).any(|link| target(link).is_some() && target(link) == bus(to))
    };
    let of_gpu = |gpu: usize| {
        let counts = links(gpu).filter_map(|link| link.attribute("count")?.parse::<u32>().ok());
        [counts.sum(), reached(gpu, gpus.len(), is_linked).min(all as u32)]
    };
    (0..gpus.len()).map(of_gpu).min()
}
