//! Predictions with constants fitted without a run's source, as for a new source.

use cost_models::constants;

use super::setup::Setup;

/// Sources with several files, by the common prefix of their names.
const OF_SEVERAL_FILES: [&str; 11] = [
    "alpa",
    "dgxc",
    "flagperf",
    "lumen",
    "megatron_bridge",
    "mlperf",
    "mosaic_llm_foundry",
    "named_models",
    "oellm",
    "qwen_finetune",
    "vtrain",
];

/// The source of a file of rows, by its name.
pub fn source(file: &str) -> &str {
    let name = file.strip_prefix("runs_").unwrap_or(file);
    let name = name.rsplit_once('.').map_or(name, |(name, _)| name);
    OF_SEVERAL_FILES.into_iter().find(|several| name.starts_with(several)).unwrap_or(name)
}

/// The setup of a run with constants fitted without its source; `None` where the file is not of a source of the fit, as
/// the built-in constants are already such.
pub fn without_its_source(file: &str, setup: &Setup) -> Option<Setup> {
    let values = constants::without(source(file))?;
    let mut setup = setup.clone();
    constants::apply(&mut setup.problem.hardware, values);
    Some(setup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::reference::REFERENCE;

    #[test]
    fn every_source_that_ships_was_left_out_once() {
        for (file, ..) in REFERENCE {
            assert!(constants::without(source(file)).is_some(), "{file}");
        }
        assert_eq!(source("vtrain_a100_multi.csv"), "vtrain");
        assert_eq!(source("runs_megatron_bridge_skills.json"), "megatron_bridge");
    }
}
