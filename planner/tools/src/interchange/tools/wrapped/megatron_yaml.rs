//! Megatron-LM's options as keys of YAML, each with `true` for a switch: under `MODEL_ARGS`, as in Megatron-LM's
//! `tests/functional_tests` and in NVIDIA's Megatron-MoE-ModelZoo.

use super::super::megatron;
use super::own::{self, option_of, own_keys};
use super::read::read;
use super::wrapper::{Base, Same, Wrapper};
use crate::interchange::launch::Program;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;

static MEGATRON_YAML: Wrapper = Wrapper {
    within: &["MODEL_ARGS"],
    prefixes: &["--"],
    same: Same::Keys,
    ..Wrapper::new("Megatron-LM", "", Base::Megatron)
};

pub(super) static MEGATRON_YAML_TOOL: Tool = Tool {
    has_keys: |tree| {
        let options = tree.get("MODEL_ARGS");
        options.is_some_and(|it| it.has_any(&["--num-layers", "--micro-batch-size"]))
    },
    read: Some(|source| read(source, &MEGATRON_YAML)),
    own_keys: |option| own_keys(&MEGATRON_YAML, option),
    option_of: |key| option_of(&MEGATRON_YAML, key),
    tables: &own::MEGATRON,
    model_arguments: megatron::model_arguments,
    has_fp32_gradients: true,
    is_written: false,
    ..Tool::new(Target::new("megatron-yaml", "Megatron-LM", "megatron-core"), |_, _| {
        Program::default()
    })
};
