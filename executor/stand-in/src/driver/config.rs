//! Configuration of the fake devices from environment variables.

use std::env;
use std::path::PathBuf;

use super::failures::Failures;
use crate::compute::Tf32;

/// Configuration of the process. For variables that are not set or invalid, the defaults hold, which are those of one
/// H100.
pub(super) struct Config {
    /// Visible devices, by their numbers on the machine.
    pub(super) devices: Vec<u32>,
    /// Ten times the compute capability.
    pub(super) architecture: u32,
    /// Memory of each device.
    pub(super) memory_bytes: u64,
    /// CUDA version in the form of `cuDriverGetVersion`.
    pub(super) driver_version: i32,
    /// Path of the report; `%p` in it is replaced by the process number.
    pub(super) report: Option<PathBuf>,
    /// True where launches of an empty grid do nothing, although CUDA refuses them. The report counts them either way.
    pub(super) skips_empty_grids: bool,
    /// True where kernels, products and calls of NCCL are computed, by `STAND_IN_COMPUTE=1`.
    pub(super) computes: bool,
    /// Treatment of TF32 operands: binary32 by `STAND_IN_TF32=exact`.
    pub(super) tf32: Tf32,
    /// Text to replace in kernels, from `STAND_IN_PLANT`: `name:text:other` replaces the first `text` of each kernel
    /// whose name contains `name` by `other`.
    pub(super) planted: Option<[String; 3]>,
    /// Planned failures of calls.
    pub(super) failures: Failures,
}

impl Config {
    pub(super) fn from_environment() -> Self {
        let number = |name: &str, default: u64| {
            env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        let num_devices = number("STAND_IN_DEVICES", 1) as u32;
        let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
        let devices = match visible {
            // As in the driver, the list ends at the first device that does not exist.
            Some(list) => list
                .split(',')
                .map_while(|word| word.trim().parse().ok().filter(|index| *index < num_devices))
                .collect(),
            None => (0..num_devices).collect(),
        };
        let report = env::var("STAND_IN_REPORT").ok();
        let planted = env::var("STAND_IN_PLANT").ok().and_then(|text| {
            let parts: Vec<String> = text.splitn(3, ':').map(str::to_owned).collect();
            parts.try_into().ok()
        });
        Self {
            devices,
            architecture: number("STAND_IN_ARCH", 90) as u32,
            memory_bytes: number("STAND_IN_MEMORY_GIB", 80) << 30,
            driver_version: number("STAND_IN_DRIVER", 12_090) as i32,
            report: report.map(|path| path.replace("%p", &std::process::id().to_string()).into()),
            skips_empty_grids: env::var("STAND_IN_EMPTY_GRIDS").is_ok_and(|value| value == "skip"),
            computes: env::var("STAND_IN_COMPUTE").is_ok_and(|value| value == "1"),
            tf32: match env::var("STAND_IN_TF32").as_deref() {
                Ok("exact") => Tf32::Exact,
                _ => Tf32::Rounded,
            },
            planted,
            failures: Failures::parse(&env::var("STAND_IN_FAIL").unwrap_or_default()),
        }
    }

    /// The text of a module, with the planted error.
    pub(super) fn plant(&self, text: String) -> String {
        let Some([name, sound, broken]) = &self.planted else { return text };
        let entry = text.split_once(".entry ").and_then(|(_, rest)| rest.split('(').next());
        if !entry.is_some_and(|entry| entry.contains(name.as_str())) {
            return text;
        }
        text.replacen(sound.as_str(), broken, 1)
    }

    pub(super) fn num_multiprocessors(&self) -> i32 {
        match self.architecture {
            100.. => 148,
            90.. => 132,
            _ => 108,
        }
    }
}
