//! Reads accelerate's configuration and flags, and the Trainer's arguments, either with accelerate's or alone.

use ir::cluster::Precision;
use ir::framework::Fusion;
use ir::graph::{Adapters, ContextParallelKind, Recompute};
use ir::plan::Optimizer;

use super::super::deepspeed;
use super::adapters::{adapters, adapters_left_out};
use super::optimizer::optimizer;
use super::sharding::{DataParallelKind, OFF, habits, is_first, kind, loaded, sharded, with_fsdp};
use super::table::{CONFIGURATION, TRAINER};
use super::trl::{CHUNKED, other_training, script_of_trl, starts_trl, with_defaults_of_trl};
use crate::interchange::error::{Divided, ImportError};
use crate::interchange::file::{basename, has_ending};
use crate::interchange::imported::Imported;
use crate::interchange::options::{Leaf, OptionError, ParsedOptions, Vocabulary};
use crate::interchange::own_options::{self, LENGTHS};
use crate::interchange::shell::Word;
use crate::interchange::source::{Form, LaunchedProgram, Source, agreed};
use crate::interchange::table::Reader;
use crate::interchange::unread::Unread;

/// Flags of `accelerate launch`.
static FLAGS: Vocabulary = Vocabulary::whole("`accelerate launch`", include_str!("flags.txt"));

/// Reads a configuration, or the words after `accelerate launch`.
pub(super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let (given, program) = match &source.form {
        Form::Tree(tree) => (CONFIGURATION.vocabulary.of_leaves(&tree.leaves())?, Vec::new()),
        _ => launched(source)?,
    };
    let mut script = Script { precision: mixed_precision(&given)?, ..Script::default() };
    let unread = own_options::unread(&program, |name, value| script.takes(name, value));
    let mut imported = imported(source, &given, &script)?;
    imported.unread.extend(CONFIGURATION.unread(&given).into_iter().chain(unread));
    let length = &mut imported.training.sequence_length;
    *length = length.or(script.sequence_length);
    Ok(imported)
}

/// Reads the Trainer's arguments, from a file or from options; and those of `accelerate launch`, if it starts the
/// script.
pub(super) fn read_trainer(source: &Source<'_>) -> Result<Imported, ImportError> {
    let Form::Tree(tree) = &source.form else {
        let (given, words) = launched(source)?;
        let mut arguments = arguments_of(source, words.get(1..).unwrap_or_default())?;
        let before = source.launched().map_or(&[][..], |it| &it.before);
        let program = words.first();
        let of_command = program.filter(|_| starts_trl(before)).map(|it| it.text.as_str());
        if let Some(command) = of_command.or(program.and_then(script_of_trl)) {
            let has_length =
                source.stated.sequence_length.is_some() || sequence_length(&arguments)?.is_some();
            arguments = with_defaults_of_trl(arguments, command, has_length)?;
        }
        let mut imported = of_arguments(source, given, arguments)?;
        imported.unread.extend(words.first().and_then(other_training));
        return Ok(imported);
    };
    let arguments = TRAINER.vocabulary.of_leaves(&tree.leaves())?;
    of_arguments(source, ParsedOptions::default(), arguments)
}

/// Settings from the words that another tool passes on to the Trainer; these may include keys of accelerate's
/// configuration.
pub(in super::super) fn read_words(
    source: &Source<'_>,
    words: &[Word],
) -> Result<Imported, ImportError> {
    let is_own = |word: &&[Word]| {
        let name = word[0].text.trim_start_matches("--");
        name.starts_with("parallelism_config.") || name == "num_processes"
    };
    let options = words.chunk_by(|_, next| !next.text.starts_with("--"));
    let (given, arguments): (Vec<&[Word]>, Vec<&[Word]>) = options.partition(is_own);
    let (given, _) = CONFIGURATION.vocabulary.read_options(&given.concat())?;
    let (arguments, _) = TRAINER.vocabulary.read_options(&arguments.concat())?;
    let plain = |name: &str| name.trim_start_matches("--").to_owned();
    let before = source.launched().map_or(&[][..], |it| &it.before);
    let launch = (0..before.len()).find(|place| is_launch(before, *place));
    let launch = launch.map(|place| flags(source, &before[place + 2..])).transpose()?;
    let given = given.renamed(plain).over(launch.map(|it| it.0).unwrap_or_default());
    of_arguments(source, given, arguments.renamed(plain))
}

fn of_arguments(
    source: &Source<'_>,
    given: ParsedOptions,
    arguments: ParsedOptions,
) -> Result<Imported, ImportError> {
    let arguments = &TRAINER.by_one_name(arguments);
    let mut script = Script::of(arguments)?;
    script.precision = script.precision.or(mixed_precision(&given)?);
    let others = CONFIGURATION.unread(&given);
    let mut imported = by_script(source, given, arguments, &script)?;
    imported.unread.extend(others);
    imported.unread.extend(TRAINER.unread(arguments));
    imported.unread.extend(script.unread);
    if arguments.text("loss_type")? == Some(CHUNKED) {
        let why = "the loss in chunks, as by default; that of all logits at once is planned";
        imported.unread.push(Unread { saves_memory: true, ..Unread::new("loss_type", why) });
    }
    imported.adapters = script.adapters;
    loaded(arguments, &mut imported);
    let stated = source.stated.sequence_length;
    let length = agreed(script.sequence_length, "max_length", stated, "--seq-len")?;
    imported.training.sequence_length = length;
    Ok(imported)
}

fn by_script(
    source: &Source<'_>,
    given: ParsedOptions,
    arguments: &ParsedOptions,
    script: &Script,
) -> Result<Imported, ImportError> {
    if let Some(name) = arguments.path("deepspeed")?.filter(|it| !OFF.contains(it)) {
        if arguments.text("fsdp")?.is_some_and(|it| !OFF.contains(&it)) {
            let why = "states are sharded by one of them";
            arguments.not_both("deepspeed", "fsdp", why)?;
        }
        let keys = match built_in_stage(name) {
            Some(stage) => built_in(stage, name),
            None => script.completed(deepspeed::leaves(&source.tree(name)?)),
        };
        return of_deepspeed(source, &given, keys, script);
    }
    let given = with_fsdp(source, given, arguments)?;
    let mut imported = imported(source, &given, script)?;
    let strategy = given.text_if_known("fsdp_config.fsdp_sharding_strategy");
    // `fully_shard` has no setting for these.
    let is_older = matches!(strategy, Some("HYBRID_SHARD" | "NO_SHARD"));
    if arguments.has("fsdp") && is_older && !is_first(&given)? {
        let why = "FSDP 2 has no such strategy: states are planned as sharded over all ranks; \
                   `version` 1 in `fsdp_config` is for FSDP 1";
        imported.unread.push(Unread::new("fsdp", why));
    }
    Ok(imported)
}

/// 16-bit number format in which accelerate computes.
fn mixed_precision(given: &ParsedOptions) -> Result<Option<Precision>, OptionError> {
    let formats = [Precision::Bf16, Precision::Fp16];
    let named = given.text("mixed_precision")?;
    Ok(formats.into_iter().find(|format| named == Some(format.name())))
}

/// Kind of context parallelism and number of ranks that share a sequence, if they do.
fn sequence_sharing(
    given: &ParsedOptions,
) -> Result<Option<(ContextParallelKind, u32)>, OptionError> {
    let ways = [("cp_size", ContextParallelKind::Ring), ("sp_size", ContextParallelKind::AllToAll)];
    let ways = ways.map(|(name, kind)| {
        let ranks = given.count(&format!("parallelism_config.parallelism_config_{name}"))?;
        Ok(ranks.filter(|ranks| *ranks > 1).map(|ranks| (kind, ranks)))
    });
    ways.into_iter().find_map(Result::transpose).transpose()
}

#[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
fn leaf(name: &str, value: impl ToString) -> (String, Leaf) {
    (name.to_owned(), Leaf::Values(vec![value.to_string()]))
}

/// The Trainer's arguments, read from the file that the first word names, or from the words themselves.
fn arguments_of(source: &Source<'_>, words: &[Word]) -> Result<ParsedOptions, ImportError> {
    let first = words.first().map_or("", |it| it.text.as_str());
    let is_file = [".json", ".yaml", ".yml"].iter().any(|ending| first.ends_with(ending));
    let first = Some(first).filter(|_| is_file && !first.starts_with("--"));
    let options = &words[usize::from(first.is_some())..];
    let options: Vec<Word> = options.iter().map(Word::underscored).collect();
    let (given, _) = TRAINER.vocabulary.read_options(&options)?;
    let given = TRAINER.by_one_name(given.renamed(|name| name.trim_start_matches("--").to_owned()));
    // TRL's parser takes a file of arguments by this name; options override it.
    let named = given.text_if_known("config").filter(|it| is_yaml(it));
    let Some(file) = first.or(named).map(str::to_owned) else { return Ok(given) };
    let file = TRAINER.vocabulary.of_leaves(&source.tree(&file)?.leaves())?;
    Ok(given.over(TRAINER.by_one_name(file)))
}

fn is_yaml(name: &str) -> bool {
    ["yaml", "yml"].iter().any(|ending| has_ending(name, ending))
}

/// Settings of the training script that accelerate's configuration does not have.
#[derive(Clone, Debug, Default)]
struct Script {
    micro_batch_size: Option<u32>,
    num_micro_batches: Option<u32>,
    precision: Option<Precision>,
    recomputes: bool,
    compiles: bool,
    optimizer: Optimizer,
    is_trainer: bool,
    sequence_length: Option<u64>,
    adapters: Option<Adapters>,
    unread: Vec<Unread>,
}

/// Names of options for the lengths, in tokens, of the two parts of a sequence.
const PARTS: [[&str; 2]; 2] =
    [["max_prompt_length", "max_completion_length"], ["max_source_length", "max_target_length"]];

/// Tokens of a sequence, from an option of its own, else as the sum of the two parts.
fn sequence_length(given: &ParsedOptions) -> Result<Option<u64>, OptionError> {
    let length = |name: &str| given.count::<u64>(name);
    let whole = LENGTHS.into_iter().find_map(|name| length(name).transpose());
    let of_parts = || {
        PARTS.into_iter().find_map(|[first, second]| match (length(first), length(second)) {
            (Ok(first), Ok(second)) => Some(Ok(first?.saturating_add(second?))),
            (Err(error), _) | (_, Err(error)) => Some(Err(error)),
        })
    };
    whole.or_else(of_parts).transpose()
}

impl Script {
    /// Settings of a script that uses the Trainer with these arguments.
    fn of(given: &ParsedOptions) -> Result<Self, OptionError> {
        let [bf16, fp16] = [given.is_on("bf16")?, given.is_on("fp16")?];
        if bf16 && fp16 {
            given.not_both("bf16", "fp16", "weights have one number format")?;
        }
        let (optimizer, mut unread) = optimizer(given)?;
        unread.extend(adapters_left_out(given)?);
        Ok(Self {
            // The Trainer's own default is 8.
            micro_batch_size: Some(given.count("per_device_train_batch_size")?.unwrap_or(8)),
            num_micro_batches: Some(given.count("gradient_accumulation_steps")?.unwrap_or(1)),
            precision: match (bf16, fp16) {
                (true, _) => Some(Precision::Bf16),
                (_, true) => Some(Precision::Fp16),
                _ => None,
            },
            recomputes: given.is_on("gradient_checkpointing")?
                || given.is_on("activation_checkpointing")?,
            compiles: given.is_on("torch_compile")?,
            optimizer,
            is_trainer: true,
            sequence_length: sequence_length(given)?,
            adapters: adapters(given)?,
            unread,
        })
    }

    /// Reads an option of a script without the Trainer by its name; returns whether the name is known.
    fn takes(&mut self, name: &str, value: Option<&str>) -> bool {
        let number = value.and_then(|it| it.parse::<u64>().ok()).filter(|it| *it > 0);
        let is = |word: &str| value.is_some_and(|it| it.eq_ignore_ascii_case(word));
        match name {
            "gradient_accumulation_steps" => {
                self.num_micro_batches = number.and_then(|it| u32::try_from(it).ok());
                self.num_micro_batches.is_some()
            }
            "gradient_checkpointing" => {
                self.recomputes = value.is_none() || is("true");
                self.recomputes || is("false")
            }
            name if LENGTHS.contains(&name) => {
                self.sequence_length = self.sequence_length.or(number);
                number.is_some()
            }
            _ => false,
        }
    }

    /// Adds the settings of the script that apply whichever tool shards its states.
    fn add_to(&self, imported: &mut Imported) {
        if self.recomputes {
            imported.layout.recompute = Recompute::Full;
        }
        if self.compiles {
            imported.framework.kernels.fusion = Fusion::Compiled;
        }
    }

    /// Keys of a DeepSpeed configuration, completed by the Trainer's batch sizes where it has none.
    fn completed(&self, mut keys: Vec<(String, Leaf)>) -> Vec<(String, Leaf)> {
        let has = |keys: &[(String, Leaf)], name: &str| {
            let is_open = |leaf: &Leaf| [Leaf::Null, Leaf::value("auto")].contains(leaf);
            keys.iter().any(|(key, leaf)| key == name && !is_open(leaf))
        };
        let [global, each] = [deepspeed::GLOBAL, deepspeed::EACH].map(|name| has(&keys, name));
        let sizes = [
            (deepspeed::EACH, self.micro_batch_size.filter(|_| !global && !each)),
            (deepspeed::ROUNDS, self.num_micro_batches.filter(|_| !(global && each))),
        ];
        for (name, size) in sizes {
            if let Some(size) = size.filter(|_| !has(&keys, name)) {
                keys.retain(|it| it.0 != name);
                keys.push(leaf(name, size));
            }
        }
        // accelerate adds the section if it is missing (`set_mixed_precision` in its utils/dataclasses.py).
        let section = match self.precision {
            Some(Precision::Bf16) => Some("bf16."),
            Some(Precision::Fp16) => Some("fp16."),
            _ => None,
        };
        if let Some(section) = section.filter(|it| !keys.iter().any(|key| key.0.starts_with(it))) {
            keys.push(leaf(&format!("{section}enabled"), true));
        }
        keys
    }

    /// Values that the Trainer or accelerate fills in where a DeepSpeed configuration has `auto`.
    fn fills(
        &self,
        source: &Source<'_>,
        given: &ParsedOptions,
    ) -> Result<ParsedOptions, OptionError> {
        let each = self.micro_batch_size.or(source.stated.micro_batch_size);
        let is_open = given.text_if_known(deepspeed::ROUNDS) == Some("auto");
        let rounds = match self.num_micro_batches {
            None if !is_open => given.count(deepspeed::ROUNDS)?,
            own => own,
        };
        let sizes = [each, rounds].map(|it| it.unwrap_or(1));
        let mut filled = deepspeed::fills(sizes, self.precision, self.optimizer);
        if each.is_none() {
            filled = filled.without(deepspeed::EACH);
        }
        // If the script decides the number, it follows from the batch, if that is known.
        if rounds.is_none() && source.stated.global_batch_size.is_some() {
            filled = filled.without(deepspeed::ROUNDS);
        }
        Ok(filled)
    }
}

/// Settings of `accelerate launch`, whose flags override its file, and the words from the script's name on. If another
/// program starts the script, there are no such settings and all words are returned.
fn launched(source: &Source<'_>) -> Result<(ParsedOptions, Vec<Word>), ImportError> {
    let LaunchedProgram { before, words, .. } = source.launched()?;
    if starts_trl(before) {
        return launched_by_trl(source, words);
    }
    if words.first().is_none_or(|it| it.text != "launch") {
        return Ok((ParsedOptions::default(), words.clone()));
    }
    let (given, mut rest) = flags(source, &words[1..])?;
    // `-m module`, or a script.
    if rest.first().is_some_and(|it| it.text == "-m") {
        rest.remove(0);
    }
    Ok((given, rest))
}

/// Settings from flags of `accelerate launch` among the words of TRL's command, and the other words.
fn launched_by_trl(
    source: &Source<'_>,
    words: &[Word],
) -> Result<(ParsedOptions, Vec<Word>), ImportError> {
    let named = |word: &Word| {
        let Word { text, unknown } = word.underscored();
        Word { text: text.replacen("--accelerate_config", "--config_file", 1), unknown }
    };
    let words: Vec<Word> = words.iter().map(named).collect();
    let is_flag = |option: &&[Word]| {
        let name = option[0].name();
        FLAGS.arity(name).is_some() && TRAINER.vocabulary.arity(name).is_none()
    };
    let options = words.chunk_by(|_, next| !next.text.starts_with("--"));
    let (of_launch, own): (Vec<&[Word]>, Vec<&[Word]>) = options.partition(is_flag);
    let (given, _) = flags(source, &of_launch.concat())?;
    Ok((given, own.concat()))
}

/// Settings from the words after `accelerate launch`, and the words from the script on.
fn flags(source: &Source<'_>, words: &[Word]) -> Result<(ParsedOptions, Vec<Word>), ImportError> {
    let words: Vec<Word> = words.iter().map(Word::underscored).collect();
    let (flags, read) = FLAGS.read_options(&words)?;
    let file = flags.text_if_known("--config_file");
    let file = match file {
        Some(name) => CONFIGURATION.vocabulary.of_leaves(&source.tree(name)?.leaves())?,
        None => ParsedOptions::default(),
    };
    Ok((flags.renamed(key_of).over(file), words[read..].to_vec()))
}

/// Key of the configuration that a flag of `accelerate launch` sets.
fn key_of(flag: &str) -> String {
    let name = flag.trim_start_matches("--");
    let section = match name {
        _ if name.starts_with("fsdp_") => "fsdp_config.",
        _ if name.starts_with("parallelism_config_") => "parallelism_config.",
        _ if name.starts_with("dynamo_") => "dynamo_config.",
        "zero_stage"
        | "offload_optimizer_device"
        | "offload_param_device"
        | "deepspeed_config_file"
        | "gradient_clipping" => "deepspeed_config.",
        _ => "",
    };
    format!("{section}{name}")
}

/// ZeRO stage in the name of a DeepSpeed configuration that ms-swift ships: `zero3`, `zero2_offload`; in its version 2
/// `default-zero3`, `zero2-offload`.
pub(crate) fn built_in_stage(name: &str) -> Option<&str> {
    let name = name.strip_prefix("default-").unwrap_or(name);
    let stage = name.strip_prefix("zero")?.trim_end_matches("_params").trim_end_matches("offload");
    let stage = stage.trim_end_matches(['_', '-']);
    ["0", "1", "2", "3"].contains(&stage).then_some(stage)
}

/// Keys of a DeepSpeed configuration that shards by a ZeRO stage, with the values that the Trainer fills in.
fn built_in(stage: &str, name: &str) -> Vec<(String, Leaf)> {
    let device = |offloads| if offloads { "cpu" } else { "none" };
    let optimizer = device(name.ends_with("offload"));
    let parameters = device(name.contains("offload") && stage == "3");
    let all = [
        ("zero_optimization.stage", stage),
        ("zero_optimization.offload_optimizer.device", optimizer),
        ("zero_optimization.offload_param.device", parameters),
        ("train_micro_batch_size_per_gpu", "auto"),
        ("gradient_accumulation_steps", "auto"),
        ("bf16.enabled", "auto"),
        ("fp16.enabled", "auto"),
    ];
    all.map(|(key, value)| leaf(key, value)).to_vec()
}

/// Word for a number of shards that covers all remaining ranks.
const REST: &str = "rest";

fn imported(
    source: &Source<'_>,
    given: &ParsedOptions,
    script: &Script,
) -> Result<Imported, ImportError> {
    let kind = kind(given)?;
    if kind == DataParallelKind::DeepSpeed {
        return by_deepspeed(source, given, script);
    }
    let is_sharded = kind == DataParallelKind::Sharded;
    let mut settings = source.defaults(source.target);
    settings.framework = habits(source, given)?;
    CONFIGURATION.read(Reader { source, given }, &mut settings)?;
    let size =
        |name: &str| given.count::<u32>(&format!("parallelism_config.parallelism_config_{name}"));
    // Tools that pass their settings on may shard over all other ranks.
    let shards = "parallelism_config.parallelism_config_dp_shard_size";
    let is_open = given.text(shards)? == Some(REST);
    let copies = size("dp_replicate_size")?;
    let shards = if is_open { None } else { given.count::<u32>(shards)? };
    let (tensor, context) = (settings.layout.tensor_parallel, settings.layout.context_parallel);
    // One process is started, whatever number the file states.
    let is_alone = kind == DataParallelKind::Alone;
    let processes = given.count::<u32>("num_processes")?;
    let ranks = agreed(
        if is_alone { processes.map(|_| 1) } else { processes },
        "num_processes",
        settings.num_gpus,
        "--nproc-per-node",
    )?;
    let sizes = [copies.unwrap_or(1), shards.unwrap_or(1), tensor, context].map(u64::from);
    let product = sizes.into_iter().fold(1, u64::saturating_mul);
    let has_sizes = !is_open && (copies.is_some() || shards.is_some());
    let num_gpus = ranks.or_else(|| u32::try_from(product).ok().filter(|_| has_sizes));
    if let Some(ranks) = num_gpus.filter(|ranks| has_sizes && u64::from(*ranks) != product) {
        let what = format!(
            "`parallelism_config`: {} x {} x {tensor} x {context} ranks (copies, shards, tensor, context) are \
             {product}, not the {ranks} of `num_processes`",
            copies.unwrap_or(1),
            shards.unwrap_or(1)
        );
        return Err(ImportError::divides_unless(Divided::Ranks, what, "num_processes", product));
    }
    let (zero_stage, groups) = sharded(given, is_sharded)?;
    settings.num_gpus = num_gpus;
    settings.layout.zero_stage = zero_stage;
    settings.layout.micro_batch_size = micro_batch_size(source, script)?;
    if is_sharded {
        settings.shard_groups = copies.or(groups).unwrap_or(1);
    }
    script.add_to(&mut settings);
    let training = &mut settings.training;
    training.precision = script.precision.unwrap_or(training.precision);
    training.sequence_length = source.stated.sequence_length;
    training.global_batch_size = source.stated.global_batch_size;
    training.num_micro_batches = rounds(source, given, script)?;
    training.optimizer = script.optimizer;
    // DDP's weights are in fp32, and so are their gradients; FSDP reduces in the precision of activations.
    training.fp32_gradients = !is_sharded && training.precision != Precision::Fp32;
    Ok(settings)
}

fn micro_batch_size(source: &Source<'_>, script: &Script) -> Result<u32, ImportError> {
    let name = "per_device_train_batch_size";
    let stated = source.stated.micro_batch_size;
    agreed(script.micro_batch_size, name, stated, "--micro-batch-size")?.ok_or_else(|| {
        let what =
            "accelerate's configuration does not say how many sequences a batch of the script's loader has";
        ImportError::unknown(what, "`--micro-batch-size 1`")
    })
}

/// Number of micro-batches of each replica in a step.
fn rounds(
    source: &Source<'_>,
    given: &ParsedOptions,
    script: &Script,
) -> Result<Option<u32>, ImportError> {
    let rounds = given.count("gradient_accumulation_steps")?;
    let rounds = match (script.is_trainer, rounds, script.num_micro_batches) {
        // The Trainer uses its own argument for gradient accumulation.
        (true, Some(flag), Some(own)) if flag != own => {
            return Err(ImportError::divides(
                Divided::Batch,
                format!(
                    "`gradient_accumulation_steps` is {own} for the Trainer, but {flag} for `accelerate launch`"
                ),
                "one of them",
            ));
        }
        (_, rounds, own) => rounds.or(own),
    };
    // Default: one micro-batch; with a known global batch, the number follows from the batch.
    let is_by_batch = source.stated.global_batch_size.is_some();
    Ok(rounds.or((!is_by_batch).then_some(1)))
}

/// Reads the DeepSpeed configuration that accelerate names or describes, if accelerate runs DeepSpeed.
fn by_deepspeed(
    source: &Source<'_>,
    given: &ParsedOptions,
    script: &Script,
) -> Result<Imported, ImportError> {
    let keys = match given.path("deepspeed_config.deepspeed_config_file")? {
        Some(name) => script.completed(deepspeed::leaves(&source.tree(name)?)),
        None => deepspeed_keys(source, given, script)?,
    };
    of_deepspeed(source, given, keys, script)
}

/// Settings of a script whose states DeepSpeed shards according to the keys of its configuration.
fn of_deepspeed(
    source: &Source<'_>,
    given: &ParsedOptions,
    mut keys: Vec<(String, Leaf)>,
    script: &Script,
) -> Result<Imported, ImportError> {
    if script.is_trainer {
        // The section is for `deepspeed.checkpointing`, which the models of transformers do not call.
        keys.retain(|it| !it.0.starts_with("activation_checkpointing."));
    }
    let has_optimizer = keys.iter().any(|it| it.0.starts_with("optimizer."));
    let sharing = sequence_sharing(given)?;
    keys.extend(sharing.map(|(_, ranks)| leaf(deepspeed::SEQUENCE_RANKS, ranks)));
    let mut imported = deepspeed::read_keys(source, &keys, &script.fills(source, given)?)?;
    if let Some((kind, _)) = sharing {
        imported.layout.context_parallel_kind = kind;
    }
    imported.num_gpus = given.count("num_processes")?.or(imported.num_gpus);
    imported.source = source.target;
    script.add_to(&mut imported);
    if script.is_trainer && !has_optimizer {
        imported.training.optimizer = script.optimizer;
    }
    Ok(imported)
}

/// Keys of DeepSpeed's configuration, from accelerate's own.
fn deepspeed_keys(
    source: &Source<'_>,
    given: &ParsedOptions,
    script: &Script,
) -> Result<Vec<(String, Leaf)>, OptionError> {
    let text = |name: &str| given.text(&format!("deepspeed_config.{name}"));
    let rounds = "gradient_accumulation_steps";
    let precision = script.precision.map(Precision::name);
    // The Trainer's own number replaces the configuration's.
    let own = script.num_micro_batches.map(|it| it.to_string());
    // If the script decides the number, it follows from the batch, if that is known.
    let usual = source.stated.global_batch_size.is_none().then_some("1");
    let is_open = |name: &str| usual.is_none() && given.text_if_known(name) == Some("auto");
    let nested = format!("deepspeed_config.{rounds}");
    let nested = if is_open(&nested) { None } else { text(rounds)? };
    let stated = nested.or(given.text(rounds)?).or(usual);
    let micro = script.micro_batch_size.map(|it| it.to_string());
    let all = [
        ("zero_optimization.stage", text("zero_stage")?.or(Some("2"))),
        ("zero_optimization.offload_optimizer.device", text("offload_optimizer_device")?),
        ("zero_optimization.offload_param.device", text("offload_param_device")?),
        (rounds, own.as_deref().or(stated)),
        ("bf16.enabled", (precision == Some("bf16")).then_some("true")),
        ("fp16.enabled", (precision == Some("fp16")).then_some("true")),
        ("train_micro_batch_size_per_gpu", micro.as_deref()),
    ];
    Ok(all.into_iter().filter_map(|(key, value)| Some(leaf(key, value?))).collect())
}

/// Returns whether the word at `place` is `accelerate launch`.
pub(super) fn is_launch(words: &[Word], place: usize) -> bool {
    basename(&words[place].text) == "accelerate"
        && words.get(place + 1).is_some_and(|it| it.text == "launch")
}
