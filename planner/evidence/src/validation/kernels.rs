//! Comparison of predictions with measured kernels. The tables have a column for each size, and the time in
//! milliseconds. Each table is for one GPU, which is named at the end of the file's name.

use std::collections::BTreeMap;

use cost_models::clusters;
use cost_models::{Device, MatmulFormat, MatmulShape, Network, SelfAttentionShape, StridedGroup};
use ir::cluster::{Cluster, Precision};
use ir::collective::Collective;
use ir::units::{Bytes, Seconds};

use super::comparison::Point;
use super::error::FileError;
use super::run::Unsupported;

/// A kind of table.
#[derive(Clone, Copy)]
enum TableKind {
    /// `C[m, n] = A[m, k] B[k, n]`.
    MatrixProduct,
    /// Causal attention, forward.
    Attention,
    /// A collective within one node.
    Collective,
}

/// First lines of the known tables, with the time last.
const KINDS: [(TableKind, &str); 3] = [
    (TableKind::MatrixProduct, "dtype,m,n,k,latency_ms"),
    (
        TableKind::Attention,
        "batch_size,seq_len,num_heads,num_key_value_heads,head_dim,attn_dtype,latency_ms",
    ),
    (TableKind::Collective, "collective,num_ranks,message_bytes,latency_ms"),
];

/// Seconds above which kernels are evaluated separately from kernels that are dominated by their launch.
const LONG_PRODUCT: f64 = 10e-6;
const LONG_ATTENTION: f64 = 20e-6;

/// Bytes above which messages are evaluated separately from messages that are dominated by latency.
const LARGE_MESSAGE: u64 = 64 << 10;

/// Reads the rows of a table. Each is named by its line number, where the header is line 1.
pub(super) fn read(name: &str, text: &str) -> Result<Vec<Point>, FileError> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default().trim();
    let (kind, columns) =
        KINDS.iter().find(|(_, columns)| *columns == header).ok_or_else(|| {
            let known = KINDS.map(|(_, columns)| format!("`{columns}`"));
            FileError::other_columns(header, format!("known are {}", known.join(", ")))
        })?;
    let num_columns = columns.split(',').count();
    let gpu = name.trim_end_matches(".csv").rsplit('_').next().unwrap_or_default();
    let cluster = clusters::names()
        .find(|preset| *preset == gpu)
        .or_else(|| clusters::also_called(gpu))
        .and_then(clusters::preset)
        .ok_or_else(|| FileError::UnknownGpu(gpu.to_owned()))?;
    let (device, network) = (Device::new(&cluster.gpu), Network::new(&cluster));
    let rows = lines.zip(2..).filter(|(line, _)| !line.trim().is_empty());
    Ok(rows
        .map(|(line, number)| {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let measured = if cells.len() == num_columns {
                time(&cells)
            } else {
                // A comma within a number would shift the following cells.
                let message = format!("{} cells in {num_columns} columns: `{line}`", cells.len());
                Err(Unsupported::new(message))
            };
            let predicted = match kind {
                TableKind::MatrixProduct => product(&device, &cluster, &cells),
                TableKind::Attention => attention(&device, &cluster, &cells),
                TableKind::Collective => collective(&network, &cells),
            };
            let is_long = |least: f64| measured.as_ref().is_ok_and(|time| *time > least);
            let group = match kind {
                TableKind::MatrixProduct => (cells[0], is_long(LONG_PRODUCT), "10 us"),
                TableKind::Attention => {
                    (cells.get(5).copied().unwrap_or_default(), is_long(LONG_ATTENTION), "20 us")
                }
                TableKind::Collective => {
                    let bytes = count(&cells, 2, "message_bytes").unwrap_or(0);
                    ("all kinds", bytes >= LARGE_MESSAGE, "64 KiB")
                }
            };
            let (name, is_large, least) = group;
            let side = if is_large { "from" } else { "below" };
            Point {
                id: number.to_string(),
                group: format!("{name}, {side} {least}"),
                measured: measured.map(Some),
                predicted: predicted.map(Seconds::get),
                terms: BTreeMap::new(),
                left_out: None,
                known: None,
            }
        })
        .collect())
}

/// The time in the last column.
fn time(cells: &[&str]) -> Result<f64, Unsupported> {
    let cell = cells.last().copied().unwrap_or_default();
    let milliseconds = cell.parse().ok().filter(|time: &f64| time.is_finite() && *time > 0.0);
    let seconds = milliseconds.map(|time| time * 1e-3);
    seconds.ok_or_else(|| Unsupported::new(format!("`latency_ms` is `{cell}`")))
}

fn count(cells: &[&str], place: usize, name: &str) -> Result<u64, Unsupported> {
    let cell = cells.get(place).copied().unwrap_or_default();
    let number = cell.parse().ok().filter(|number: &u64| *number > 0);
    number.ok_or_else(|| Unsupported::new(format!("`{name}` is `{cell}`")))
}

/// Checks that the GPU has a rate for the precision of a product or of attention.
fn check(cluster: &Cluster, precision: Precision) -> Result<Precision, Unsupported> {
    if cluster.gpu.peak.contains_key(&precision) {
        return Ok(precision);
    }
    Err(Unsupported::new(format!("{} has no `{precision}`", cluster.gpu.name)))
}

fn product(device: &Device, cluster: &Cluster, cells: &[&str]) -> Result<Seconds, Unsupported> {
    let plain = |precision| check(cluster, precision).map(MatmulFormat::Plain);
    let format = match cells[0] {
        "bfloat16" => plain(Precision::Bf16)?,
        "float16" => plain(Precision::Fp16)?,
        "fp8" => plain(Precision::Fp8)?,
        "fp8_block" => check(cluster, Precision::Fp8).map(|_| MatmulFormat::Fp8Block)?,
        other => return Err(Unsupported::new(format!("products of `{other}`"))),
    };
    let [m, n, k] = [count(cells, 1, "m")?, count(cells, 2, "n")?, count(cells, 3, "k")?];
    Ok(device.matmul(format, MatmulShape::new(m, n, k)))
}

fn attention(device: &Device, cluster: &Cluster, cells: &[&str]) -> Result<Seconds, Unsupported> {
    let precision = match cells.get(5).copied().unwrap_or_default() {
        "bfloat16" => check(cluster, Precision::Bf16)?,
        "float16" => check(cluster, Precision::Fp16)?,
        "fp8" => check(cluster, Precision::Fp8)?,
        other => return Err(Unsupported::new(format!("attention in `{other}`"))),
    };
    let shape = SelfAttentionShape {
        batch: count(cells, 0, "batch_size")?,
        sequence: count(cells, 1, "seq_len")?,
        heads: count(cells, 2, "num_heads")?,
        kv_heads: count(cells, 3, "num_key_value_heads")?,
        head_dim: count(cells, 4, "head_dim")?,
        causal: true,
    };
    Ok(device.attention_forward(precision, shape))
}

fn collective(network: &Network, cells: &[&str]) -> Result<Seconds, Unsupported> {
    let kind = Collective::ALL
        .into_iter()
        .find(|kind| kind.name() == cells[0])
        .ok_or_else(|| Unsupported::new(format!("collective `{}`", cells[0])))?;
    let ranks = u32::try_from(count(cells, 1, "num_ranks")?)
        .map_err(|_| Unsupported::new("`num_ranks` does not fit 32 bits"))?;
    let bytes = Bytes::new(count(cells, 2, "message_bytes")?);
    Ok(network.time(kind, StridedGroup::contiguous(ranks), bytes))
}
