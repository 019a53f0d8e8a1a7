//! Reads Megatron's arguments.

use ir::cluster::Precision;
use ir::graph::Recompute;

use super::table::{DEEPSPEED_TARGET, TABLE};
use crate::interchange::argument::Argument;
use crate::interchange::error::ImportError;
use crate::interchange::imported::Imported;
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::shell::Word;
use crate::interchange::source::Source;
use crate::interchange::table::{Reader, Table};
use crate::interchange::target::Target;
use crate::interchange::unread::Unread;

/// Reads options of `pretrain_gpt.py`, or settings of another tool that were translated to them.
pub(in super::super) fn read_words(
    source: &Source<'_>,
    words: &[Word],
) -> Result<Imported, ImportError> {
    read_by(&TABLE, source, words)
}

/// Reads options by a table.
pub(super) fn read_by(
    table: &Table,
    source: &Source<'_>,
    words: &[Word],
) -> Result<Imported, ImportError> {
    let mut given = table.by_one_name(table.vocabulary.read(words)?);
    contradictions(&given)?;
    let other = other_optimizer(table, &given)?;
    if other.is_some() {
        given = given.with("--optimizer", "adam");
    }
    // Megatron-DeepSpeed's default is one expert: a layer without experts (its `megatron/model/transformer.py`).
    let experts = "--num-experts";
    let is_default = source.target == DEEPSPEED_TARGET && given.text_if_known(experts) == Some("1");
    if is_default && !source.has_experts {
        given = given.but(experts);
    }
    if let Some(length) = given.text("--encoder-seq-length")?.map(str::to_owned) {
        given = given.with("--seq-length", &length);
    }
    let given = &given;
    let mut settings = source.defaults(source.target);
    table.read(Reader { source, given }, &mut settings)?;
    if let Some(name) = other {
        let why = format!("`{name}` of a fork is planned as adam");
        settings.unread.push(Unread::new("--optimizer", why));
    }
    let recipe = "--fp8-recipe";
    let blocks = given.text_if_known(recipe).filter(|it| ["blockwise", "mxfp8"].contains(it));
    if let Some(name) = blocks.filter(|_| settings.training.precision == Precision::Fp8) {
        let why = format!("`{name}`, scales of blocks; one for each tensor is planned");
        settings.unread.push(Unread::new(recipe, why));
    }
    let modules = "--recompute-modules";
    if given.has(modules) && settings.layout.recompute == Recompute::None {
        let why = "it has no effect without `--recompute-granularity selective`";
        settings.unread.push(Unread::new(modules, why));
    }
    let (option, ranks) =
        ("--microbatch-group-size-per-virtual-pipeline-stage", settings.layout.pipeline_parallel);
    if let Some(group) = given.count::<u32>(option)?.filter(|it| *it != ranks && ranks > 1) {
        let why = format!("groups of {group} micro-batches; groups of {ranks} are planned");
        settings.unread.push(Unread::new(option, why));
    }
    let decoder = "--decoder-seq-length";
    let lengths = [given.count::<u64>(decoder)?, given.count("--seq-length")?];
    if let [Some(of_decoder), Some(length)] = lengths
        && of_decoder != length
    {
        let why =
            format!("{of_decoder} tokens in the decoder; {length} are planned, as in the encoder");
        settings.unread.push(Unread::new(decoder, why));
    }
    settings.model = table.model_arguments(given, &mut settings.unread)?;
    // If all layers have experts, whose width is another option's, no layer has this width.
    if source.is_all_mixture && given.has("--moe-ffn-hidden-size") {
        settings.model.retain(|it| it.name != "--ffn-hidden-size");
    }
    // Latent attention has widths of its own.
    if given.has("--multi-latent-attention") {
        settings.model.retain(|it| it.name != "--kv-channels");
    }
    let is_own = [Target::MEGATRON, DEEPSPEED_TARGET].contains(&source.target);
    if is_own && NAMED_SIZES.iter().all(|name| given.has(name)) {
        settings.model_defaults = model_defaults(given, source.is_all_mixture)?;
    }
    // Megatron-DeepSpeed has only the number of groups, and no switch.
    if !given.has("--group-query-attention") && source.target == Target::MEGATRON {
        settings.model.retain(|it| it.name != "--num-query-groups");
    }
    settings.multi_token_prediction |= given.has("--mtp-num-layers");
    // Both dropout rates are 0.1 by default in Megatron.
    for option in ["--hidden-dropout", "--attention-dropout"] {
        if given.text(option)?.is_some_and(|it| it.parse() == Ok(0.0)) {
            continue;
        }
        settings.dropout = true;
        if is_own && source.has_no_dropout {
            let why = "0.1 unless given; the model's description has no dropout: none is planned";
            settings.unread.push(Unread::new(option, why));
        }
    }
    let grouped = "--moe-grouped-gemm";
    if is_own && given.has("--num-experts") && !given.has(grouped) {
        let why =
            "not given, so that the products of experts run one by one; they are planned in groups";
        settings.unread.push(Unread::new(grouped, why));
    }
    Ok(settings)
}

/// Least similarity at which the name of an optimizer counts as misspelt.
const LIKENESS: f64 = 0.7;

/// Optimizer that Megatron does not have, but a fork may.
fn other_optimizer(table: &Table, given: &ParsedOptions) -> Result<Option<String>, OptionError> {
    let Some(name) = given.text("--optimizer")? else { return Ok(None) };
    let row = table.vocabulary.index().named("--optimizer");
    let forms = row.into_iter().flat_map(|row| &row.words).filter_map(|it| it.split_once('='));
    let mut known = forms.map(|(word, _)| word.trim_start_matches(['<', '>']));
    let is_like = |it: &str| strsim::normalized_damerau_levenshtein(it, name) >= LIKENESS;
    Ok((!known.any(is_like)).then(|| name.to_owned()))
}

/// Options without which a script does not describe its model.
const NAMED_SIZES: [&str; 3] = ["--num-layers", "--hidden-size", "--num-attention-heads"];

/// Switches that change the sizes of a model.
const SIZE_SWITCHES: [&str; 4] =
    ["--swiglu", "--quick-geglu", "--multi-latent-attention", "--num-experts"];

/// Options of the model's sizes that are left out, with Megatron's default values.
///
/// # Source
///
/// `validate_args` in Megatron-LM's `megatron/training/arguments.py`.
fn model_defaults(
    given: &ParsedOptions,
    is_all_mixture: bool,
) -> Result<Vec<Argument>, OptionError> {
    let is_known = |name: &&'static str| given.values(name).is_ok();
    // The sizes are read from a checkpoint.
    if given.has("--use-checkpoint-args") || !NAMED_SIZES.iter().all(is_known) {
        return Ok(Vec::new());
    }
    let [hidden, heads]: [u64; 2] =
        [given.count("--hidden-size")?, given.count("--num-attention-heads")?]
            .map(Option::unwrap_or_default);
    let mut all = Vec::new();
    if !given.has("--ffn-hidden-size") && !is_all_mixture {
        let gated = (4 * hidden * 2 / 3) / 64 * 64;
        let inner = if given.has("--swiglu") { gated } else { 4 * hidden };
        all.push(Argument::value("--ffn-hidden-size", inner, ""));
    }
    if !given.has("--multi-latent-attention") {
        if !given.has("--kv-channels") && heads > 0 {
            all.push(Argument::value("--kv-channels", hidden / heads, ""));
        }
        if !given.has("--group-query-attention") && !given.has("--num-query-groups") {
            all.push(Argument::value("--num-query-groups", heads, ""));
        }
    }
    let left_out = SIZE_SWITCHES.into_iter().filter(|name| !given.has(name));
    all.extend(left_out.map(|name| Argument::switch(name, "")));
    Ok(all)
}

fn contradictions(given: &ParsedOptions) -> Result<(), OptionError> {
    let layers = "both say how many stages a rank has";
    let virtual_stages = "--num-virtual-stages-per-pipeline-rank";
    for (one, other, why) in [
        ("--bf16", "--fp16", "weights have one number format"),
        ("--fp8-format", "--fp4-format", "products have one number format"),
        ("--num-layers-per-virtual-pipeline-stage", virtual_stages, layers),
        ("--num-layers-per-virtual-pipeline-stage", "--pipeline-model-parallel-layout", layers),
        (virtual_stages, "--pipeline-model-parallel-layout", layers),
        ("--use-megatron-fsdp", "--use-torch-fsdp2", "parameters are sharded in one way"),
        (
            "--grad-reduce-in-bf16",
            "--accumulate-allreduce-grads-in-fp32",
            "gradients have one number format",
        ),
        ("--train-iters", "--train-samples", "both say how long training is"),
        ("--seq-length", "--encoder-seq-length", "both say how long a sequence is"),
        ("--swiglu", "--squared-relu", "layers have one activation function"),
    ] {
        given.not_both(one, other, why)?;
    }
    // The switch equals the granularity `selective`.
    if given.text("--recompute-granularity")? != Some("selective") {
        let why = "both say what is computed again";
        given.not_both("--recompute-activations", "--recompute-granularity", why)?;
    }
    let needs = [
        (
            "--overlap-param-gather",
            "--overlap-grad-reduce",
            "parameters are gathered beside what gradients are reduced beside",
        ),
        (
            "--tp-comm-overlap",
            "--sequence-parallel",
            "exchanges of a cut sequence are what is overlapped",
        ),
    ];
    for (one, other, why) in needs {
        if given.has(one) && !given.has(other) {
            return Err(OptionError::Contradiction {
                one: format!("`{one}`"),
                other: format!("no `{other}`"),
                why: why.to_owned(),
            });
        }
    }
    Ok(())
}
