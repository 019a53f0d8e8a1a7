//! Predictions with constants fitted without a run's source, as if the source were new.

use cost_models::constants;

use super::setup::Setup;

/// Sources that have several files, by the common prefix of the file names.
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

/// The source of a file of rows, from the file's name.
pub fn source(file: &str) -> &str {
    let name = file.strip_prefix("runs_").unwrap_or(file);
    let name = name.rsplit_once('.').map_or(name, |(name, _)| name);
    OF_SEVERAL_FILES.into_iter().find(|several| name.starts_with(several)).unwrap_or(name)
}

/// The setup of a run with constants fitted without its source; `None` if the file's source is not in the fit, since
/// the built-in constants are then already fitted without it.
pub fn without_its_source(file: &str, setup: &Setup) -> Option<Setup> {
    let values = constants::without(source(file))?;
    let mut setup = setup.clone();
    constants::apply(&mut setup.problem.hardware, values);
    Some(setup)
}

#[cfg(test)]
mod tests {
    use traces::reference::REFERENCE;

    use super::*;

    #[test]
    fn every_source_that_ships_was_left_out_once() {
        for (file, ..) in REFERENCE {
            assert!(constants::without(source(file)).is_some(), "{file}");
        }
        assert_eq!(source("vtrain_a100_multi.csv"), "vtrain");
        assert_eq!(source("runs_megatron_bridge_skills.json"), "megatron_bridge");
    }
}
