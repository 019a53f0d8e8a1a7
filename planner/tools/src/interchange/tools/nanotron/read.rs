//! Reads nanotron's YAML.

use ir::framework::RecomputePolicy;
use ir::graph::ContextParallelKind;

use super::stages::{Sizes, blocks};
use super::table::{TABLE, missing};
use crate::interchange::error::{Divided, ImportError};
use crate::interchange::imported::{Imported, StatedStages};
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::source::Source;
use crate::interchange::table::Reader;

/// Reads a configuration, or the script that names one.
pub(super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let tree = source.configuration("--config-file", "nanotron.yaml", "nanotron")?;
    let given = &TABLE.vocabulary.of_leaves(&tree.leaves())?;
    let mut settings = source.defaults(source.target);
    TABLE.read(Reader { source, given }, &mut settings)?;
    settings.training.global_batch_size = source.stated.global_batch_size;
    let [pipeline, tensor] = [settings.layout.pipeline_parallel, settings.layout.tensor_parallel];
    let data = needed(given, "parallelism.dp")?;
    let context = given.count("parallelism.context_parallel_size")?.unwrap_or(1);
    settings.layout.context_parallel = context;
    // Versions later than the exported one have both.
    let abilities = &mut settings.framework.abilities;
    if context > 1 {
        abilities.context_parallel.push(ContextParallelKind::Ring);
    }
    if given.is_on("parallelism.recompute_layer")? {
        abilities.recompute.push(RecomputePolicy::Full);
    }
    // ParallelContext places expert parallelism on ranks of its own (src/nanotron/parallel/context.py).
    let experts = "parallelism.expert_parallel_size";
    if let Some(ranks) = given.count::<u32>(experts)?.filter(|it| *it > 1) {
        let what = format!(
            "`{experts}` {ranks}: ranks that hold other experts and see the same sequences, which no plan has"
        );
        return Err(ImportError::unknown(what, format!("`{experts}` 1")));
    }
    let degrees = [data, pipeline, tensor, context].map(u64::from);
    let product = degrees.into_iter().fold(1, u64::saturating_mul);
    let started = settings.num_gpus.map(u64::from);
    if let Some(ranks) = started.filter(|ranks| *ranks != product) {
        return Err(ImportError::divides(
            Divided::Ranks,
            format!(
                "dp {data} x pp {pipeline} x tp {tensor} x context {context} are {product} ranks, but {ranks} are started"
            ),
            format!("{product} ranks"),
        ));
    }
    settings.num_gpus = u32::try_from(product).ok();
    settings.stages = stages(given, pipeline)?;
    settings.model = TABLE.model_arguments(given, &mut settings.unread)?;
    Ok(settings)
}

fn needed(given: &ParsedOptions, name: &str) -> Result<u32, OptionError> {
    given.count(name)?.ok_or_else(|| missing(name))
}

/// Stages as nanotron's own rule places them.
fn stages(given: &ParsedOptions, pipeline: u32) -> Result<StatedStages, OptionError> {
    if pipeline == 1 {
        return Ok(StatedStages::Even);
    }
    let size = |name: &str| {
        let name = format!("model.model_config.{name}");
        given.count::<u64>(&name)?.ok_or_else(|| missing(&name))
    };
    let layers: u32 = needed(given, "model.model_config.num_hidden_layers")?;
    let sizes = Sizes {
        layers,
        hidden_size: size("hidden_size")?,
        intermediate_size: size("intermediate_size")?,
        num_attention_heads: size("num_attention_heads")?,
        vocab_size: size("vocab_size")?,
    };
    let blocks = blocks(&sizes, pipeline).ok_or_else(|| {
        OptionError::value(
            "parallelism.pp",
            pipeline.to_string(),
            format!("nanotron's rule leaves a stage of {layers} layers empty; fewer are expected"),
        )
    })?;
    Ok(StatedStages::Blocks(blocks))
}
