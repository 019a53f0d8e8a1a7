//! Calibration of a framework's constants by steps measured on a machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Precision;

/// A calibration: from which steps, and the constants that they moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The kind of GPUs that the steps ran on; on others nothing of it counts.
    pub gpu: String,
    /// How many steps were measured.
    pub steps: u32,
    /// How many of them with their peak of memory.
    pub peaks: u32,
    /// How many kernels and collectives, each of its own shape, were measured within steps.
    #[serde(default, skip_serializing_if = "super::habits::is_default")]
    pub kernels: u32,
    /// The precisions of their linear layers.
    pub precisions: Vec<Precision>,
    /// Constants by name: what each was, and what it is with these steps.
    pub constants: BTreeMap<String, [f64; 2]>,
    /// By how much the logarithm of each constant that they say something of may still differ: a standard deviation.
    #[serde(default)]
    pub spreads: BTreeMap<String, f64>,
}
