//! Reads nanotron's YAML.

use super::super::argument::Argument;
use super::super::error::{Divided, ImportError};
use super::super::imported::{Imported, StatedStages};
use super::super::options::{OptionError, Others, ParsedOptions, Vocabulary};
use super::super::source::{Form, Source};
use super::super::table::Reader;
use super::super::target::Target;
use super::super::tree::Tree;
use super::stages::{Sizes, blocks};
use super::table::{TABLE, missing};

const KNOWN: Vocabulary =
    Vocabulary { program: "nanotron", table: TABLE.text, others: Others::Refused };

/// Keys of the model that are compared with the user's model.
const OF_MODEL: [&str; 6] = [
    "model.model_config.hidden_size",
    "model.model_config.intermediate_size",
    "model.model_config.num_attention_heads",
    "model.model_config.num_key_value_heads",
    "model.model_config.num_hidden_layers",
    "model.model_config.vocab_size",
];

/// Reads a configuration, or the script that names one.
pub(in super::super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    if let Form::Tree(tree) = &source.form {
        return read_tree(source, tree);
    }
    let words = &source.started()?.words;
    let place = words.iter().position(|it| it.text == "--config-file");
    let name = place.and_then(|place| words.get(place + 1)).map(|it| it.text.clone());
    let name = name.ok_or_else(|| ImportError::Unknown {
        what: "nothing names nanotron's configuration".to_owned(),
        works: "`--config-file nanotron.yaml`, or the configuration itself".to_owned(),
    })?;
    read_tree(source, &source.tree(&name)?)
}

fn read_tree(source: &Source<'_>, tree: &Tree) -> Result<Imported, ImportError> {
    let given = &KNOWN.of_leaves(&tree.leaves())?;
    let mut settings = source.defaults(Target::Nanotron);
    TABLE.read(Reader { source, given }, &mut settings)?;
    settings.training.global_batch_size = source.stated.global_batch_size;
    let [pipeline, tensor] = [settings.layout.pipeline_parallel, settings.layout.tensor_parallel];
    let data = needed(given, "parallelism.dp")?;
    let product = u64::from(data) * u64::from(pipeline) * u64::from(tensor);
    let started = settings.num_gpus.map(u64::from);
    if let Some(ranks) = started.filter(|ranks| *ranks != product) {
        return Err(ImportError::Divides {
            of: Divided::Ranks,
            instead: None,
            what: format!(
                "dp {data} x pp {pipeline} x tp {tensor} are {product} ranks, but {ranks} are started"
            ),
            works: format!("{product} ranks"),
        });
    }
    settings.num_gpus = u32::try_from(product).ok();
    settings.stages = stages(given, pipeline)?;
    settings.model = model(given)?;
    Ok(settings)
}

fn needed(given: &ParsedOptions, name: &str) -> Result<u32, OptionError> {
    given.count(name)?.ok_or_else(|| missing(name))
}

/// Stages by nanotron's own rule.
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
    let blocks = blocks(&sizes, pipeline).ok_or_else(|| OptionError::Value {
        name: "parallelism.pp".to_owned(),
        value: pipeline.to_string(),
        works: format!(
            "nanotron's rule leaves a stage of {layers} layers empty; fewer are expected"
        ),
    })?;
    Ok(StatedStages::Blocks(blocks))
}

fn model(given: &ParsedOptions) -> Result<Vec<Argument>, OptionError> {
    let mut all = Vec::new();
    for name in OF_MODEL {
        if let Some(values) = given.values(name)? {
            all.push(Argument::values(name, values, ""));
        }
    }
    Ok(all)
}
