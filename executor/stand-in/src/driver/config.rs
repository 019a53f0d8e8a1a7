//! What the environment says of the devices that are made up.

use std::env;
use std::path::PathBuf;

use super::failures::Failures;
use crate::compute::Tf32;

/// What the process is told by its environment. Variables that are not set, or not understood, leave
/// the defaults, one H100.
pub(super) struct Config {
    /// The devices that the process sees, by their numbers on the machine.
    pub(super) devices: Vec<u32>,
    /// Ten times the compute capability.
    pub(super) architecture: u32,
    /// Of each device.
    pub(super) memory_bytes: u64,
    /// As `cuDriverGetVersion` says it.
    pub(super) driver_version: i32,
    /// Where the report goes; `%p` in it is the number of the process.
    pub(super) report: Option<PathBuf>,
    /// Whether launches of an empty grid do nothing, although CUDA refuses them. They are in the
    /// report either way.
    pub(super) skips_empty_grids: bool,
    /// Whether what is given to streams is computed, by `STAND_IN_COMPUTE=1`.
    pub(super) computes: bool,
    /// What is taken for a number of TF32: all of binary32, by `STAND_IN_TF32=exact`.
    pub(super) tf32: Tf32,
    /// What is another text in kernels, from `STAND_IN_PLANT`: `name:text:other`, for the first such
    /// text of each kernel with that in its name.
    pub(super) planted: Option<[String; 3]>,
    /// Which calls fail.
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
            // As the driver does: the list ends at the first device that is not there.
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

    /// The text of a module, with the error in it that is to be there.
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
