//! Calibration of a framework's constants from steps measured on a machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Precision;

/// A calibration: the steps that were measured, and the constants that they changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Kind of GPU that the steps ran on; the calibration does not apply to others.
    pub gpu: String,
    /// Number of measured steps.
    pub steps: u32,
    /// Number of these steps with a measured peak of memory.
    pub peaks: u32,
    /// Number of kernels and collectives that were measured within steps; each has a different shape.
    #[serde(default, skip_serializing_if = "super::habits::is_default")]
    pub kernels: u32,
    /// Precisions of the linear layers of these steps.
    pub precisions: Vec<Precision>,
    /// Constants by name: the value before, and the value fitted to these steps.
    pub constants: BTreeMap<String, [f64; 2]>,
    /// Remaining uncertainty of each constant that the steps inform: standard deviation of its logarithm.
    #[serde(default)]
    pub spreads: BTreeMap<String, f64>,
}
