//! Megatron-DeepSpeed: options of an old Megatron, with DeepSpeed's configuration and pipelines.

use ir::cluster::Precision;
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::ZeroStage;

use super::model;
use super::read::read_by;
use super::table::{ANCHORS, DEEPSPEED_TABLE, DEEPSPEED_TARGET};
use super::{MANY, num_known};
use crate::interchange::error::ImportError;
use crate::interchange::fields::set;
use crate::interchange::imported::Imported;
use crate::interchange::launch::Program;
use crate::interchange::options::{OptionError, UnknownPart, open_name};
use crate::interchange::source::Source;
use crate::interchange::tool::Tool;

pub(in super::super) static TOOL: Tool = Tool {
    tables: &[&DEEPSPEED_TABLE],
    read: Some(read),
    starts: |words, place, _| {
        let has = |option: &str| words.iter().any(|it| it.name() == option);
        let is_own = has("--deepspeed") || has("--deepspeed_config");
        let (known, all) = num_known(&DEEPSPEED_TABLE, &words[place..]);
        let is_usual = words[place].is_python("pretrain_") && 2 * known >= all;
        let is_other = words[place].is_python("") && known >= MANY && 4 * known >= 3 * all;
        (is_own && (is_usual || is_other)).then_some(place)
    },
    is_written: false,
    model_arguments: model::arguments,
    anchors: &ANCHORS,
    has_fp32_gradients: true,
    ..Tool::new(DEEPSPEED_TARGET, |_, _| Program::default())
};

/// DeepSpeed's partitions into stages that are read: by layers alone, or by layers and both ends.
const PARTITIONS: [&str; 3] = ["uniform", "type:transformer", "type:transformer|embedding"];

/// Key of DeepSpeed's configuration for the states that are sharded over replicas.
const STAGE: &str = "zero_optimization.stage";

fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let words = source.arguments()?;
    let mut settings = read_by(&DEEPSPEED_TABLE, source, words)?;
    let given = DEEPSPEED_TABLE.vocabulary.read(words)?;
    if given.has("--checkpoint-activations") {
        settings.layout.recompute = Recompute::Full;
    }
    let named = ["--deepspeed_config", "--deepspeed-config"];
    let named = named.iter().find_map(|name| given.text_if_known(name));
    if let Some(stage) = named.map(|name| stage(source, name, given.has("--zero-stage"))) {
        let stage = stage?.unwrap_or_else(|| "0".to_owned());
        if given.text("--zero-stage")?.is_none_or(|it| it != stage) {
            set(&mut settings, "layout.zero_stage", &stage)
                .map_err(|_| OptionError::value(STAGE, stage, "one of 0, 1, 2, 3 is expected"))?;
        }
    }
    // DeepSpeed's BF16_Optimizer, used for bf16 at stage 0, shards the optimizer's state (BigScience's
    // tr11-176B-ml.slurm: "bf16 must use z0! it implements its own zero stage 1 equivalent").
    let layout = &mut settings.layout;
    if settings.training.precision == Precision::Bf16 && layout.zero_stage == ZeroStage::None {
        layout.zero_stage = ZeroStage::OptimizerState;
    }
    if layout.context_parallel > 1 {
        layout.context_parallel_kind = ContextParallelKind::AllToAll;
    }
    let partition = "--pp-partition-method";
    if given.text_if_known(partition).is_some_and(|it| PARTITIONS.contains(&it)) {
        settings.unread.retain(|it| it.option != partition);
    }
    Ok(settings)
}

/// ZeRO stage of a configuration, which takes precedence over the option's. If the file is missing, the stage of the
/// option, if given.
fn stage(source: &Source<'_>, name: &str, is_given: bool) -> Result<Option<String>, ImportError> {
    let tree = match source.tree(name) {
        Err(_) if is_given => {
            let given = DEEPSPEED_TABLE.vocabulary.read(source.arguments()?)?;
            return Ok(given.text("--zero-stage")?.map(str::to_owned));
        }
        tree => tree?,
    };
    let stage = STAGE.split('.').try_fold(&tree, |tree, key| tree.get(key));
    let stage = stage.and_then(|it| it.text());
    if let Some(name) = stage.and_then(open_name) {
        let of = UnknownPart::Value(STAGE.to_owned());
        return Err(OptionError::unresolved(of, vec![name.to_owned()]).into());
    }
    Ok(stage.map(str::to_owned))
}
