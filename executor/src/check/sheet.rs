//! Data sheets: recognition of that of a GPU, and the share of its numbers that was reached.

use ir::cluster::Cluster;
use ir::units::Bytes;

/// Largest relative difference in memory between GPUs of one kind, as the reserved part differs.
const MEMORY_SHARE: f64 = 0.06;

/// The cluster whose GPU matches the driver's `name`, `memory` and number of multiprocessors; none where it is not
/// known. The first word of the GPU's name in the file has to be in `name`, and multiprocessors have to agree where the
/// file has them; of several matches, the one with the most words in common is taken; of several such, the one with the
/// nearest memory.
pub fn recognised<'a>(
    clusters: &'a [Cluster],
    name: &str,
    num_multiprocessors: u32,
    memory: Bytes,
) -> Option<&'a Cluster> {
    let is_separator = |c: char| !c.is_ascii_alphanumeric();
    let words: Vec<String> =
        name.split(is_separator).map(str::to_ascii_uppercase).filter(|it| !it.is_empty()).collect();
    let distance = |cluster: &&Cluster| {
        let there = cluster.gpu.memory.as_f64();
        (memory.as_f64() / there - 1.0).abs()
    };
    let is_alike = |cluster: &&Cluster| {
        let own = cluster.gpu.name.to_ascii_uppercase();
        let own: Vec<&str> = own.split(is_separator).filter(|it| !it.is_empty()).collect();
        // `RTX 4090` is recognised by two words, `H100-SXM5-80GB` and `GB200-NVL72` by one.
        let needed = if own.first() == Some(&"RTX") { 2 } else { 1 };
        let is_named = own.iter().take(needed).all(|it| words.iter().any(|word| word == it));
        let count = cluster.gpu.num_multiprocessors;
        is_named && count.is_none_or(|count| count == num_multiprocessors)
    };
    // `NVIDIA A100 80GB PCIe` has more in common with `A100-PCIe-80GB` than with `A100-SXM4-80GB`.
    let num_common = |cluster: &Cluster| {
        let own = cluster.gpu.name.to_ascii_uppercase();
        own.split(is_separator).filter(|it| words.iter().any(|word| word == it)).count()
    };
    let similar = clusters.iter().filter(is_alike).filter(|it| distance(it) <= MEMORY_SHARE);
    similar.min_by(|a, b| {
        let by_words = num_common(b).cmp(&num_common(a));
        by_words.then(distance(a).total_cmp(&distance(b)))
    })
}

/// A share as text: `, 87 % of data sheet`; empty without a data sheet.
pub fn share(measured: f64, sheet: Option<f64>) -> String {
    sheet.map_or_else(String::new, |sheet| {
        format!(", {:.0} % of data sheet", measured / sheet * 100.0)
    })
}
