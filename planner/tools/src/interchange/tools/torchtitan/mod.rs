//! torchtitan: flags, a function that defines the model for its registry, and the schedule as PyTorch's CSV.

mod degrees;
mod model;
mod read;
mod table;

use std::fmt::Write as _;

use ir::cluster::Precision;
use ir::graph::{LossGradient, LossKind, TokenDispatcher};
use ir::plan::Optimizer;
use ir::schedule::{ScheduleKind, generate, write_csv};

use crate::interchange::argument::{Argument, Section};
use crate::interchange::error::Lack;
use crate::interchange::file::{File, filled};
use crate::interchange::launch::{EXPANDABLE_SEGMENTS, Program};
use crate::interchange::shell::{Word, is_program};
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::view::ExportView;
/// Reader of options.
pub(super) use read::read_words;
pub(super) use table::TABLE;

pub(super) static TOOL: Tool = Tool {
    tables: &[&TABLE],
    read: Some(|source| read_words(source, source.arguments()?)),
    starts: |words, place, _| starts(words, place).then_some(place),
    own_options: &["--parallelism.", "--training."],
    lacks,
    lacks_of_model: |view| model::source(view).err().into_iter().collect(),
    nearest_training: |training, _| {
        let in_16 = training.precision.activation_bytes() == 2;
        training.fp32_gradients |= in_16;
        training.optimizer = Optimizer::AdamW;
        let all_in_16 = in_16 && training.no_master_weights && training.bf16_moments;
        (training.no_master_weights, training.bf16_moments) = (all_in_16, all_in_16);
    },
    anchors: &[
        "--training.local_batch_size",
        "--training.seq_len",
        "--parallelism.tensor_parallel_degree",
        "--parallelism.data_parallel_shard_degree",
    ],
    states_loss: true,
    has_fp32_gradients: true,
    ..Tool::new(TARGET, |view, _| program(view))
};

const TARGET: Target = Target::new("torchtitan", "torchtitan 0.3.0", "torchtitan");

fn starts(words: &[Word], place: usize) -> bool {
    let word = words[place].text.as_str();
    let is_module = word == "torchtitan.train" && place > 0 && words[place - 1].text == "-m";
    let has_file = || words[place..].iter().any(|it| it.text.starts_with(CONFIG_FILE));
    is_module || word.ends_with("torchtitan/train.py") || is_program(words, place) && has_file()
}

/// Option of older versions for a TOML file; the other options override it.
pub(super) const CONFIG_FILE: &str = "--job.config_file";

/// Parts of a plan, apart from its model, that torchtitan cannot run.
fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    let (layout, training) = (&view.layout, &view.training);
    let mut lacks = Vec::new();
    if training.bf16_moments != is_all_in_16(training.precision, training.no_master_weights) {
        lacks.push(Lack::new(
            "one of weights and moments in 16 bits without the other (`training.dtype` is of both)",
            "`--precision bf16 --no-master-weights --bf16-moments`, or none of the last two",
        ));
    }
    if training.optimizer != Optimizer::AdamW {
        lacks.push(Lack::new(
            "an optimizer other than AdamW in its registry",
            "`--optimizer adamw`",
        ));
    }
    let (m, p) = (layout.num_micro_batches, layout.pipeline_parallel);
    let rounds = (m / p).max(1);
    let is_looped =
        matches!(layout.schedule, ScheduleKind::Interleaved | ScheduleKind::InterleavedZb);
    if p > 1 && is_looped && !m.is_multiple_of(rounds) {
        lacks.push(Lack::new(
            format!("{m} micro-batches in rounds over {p} ranks, which do not divide"),
            format!("a batch of a multiple of {p} micro-batches"),
        ));
    }
    if view.num_prediction_modules() > 0 {
        lacks.push(Lack::new("modules for multi-token prediction", "a plan without them"));
    }
    lacks
}

/// Returns whether weights are in 16 bits without an fp32 copy.
const fn is_all_in_16(precision: Precision, no_master_weights: bool) -> bool {
    precision.activation_bytes() == 2 && no_master_weights
}

/// File with the schedule.
const SCHEDULE: &str = "schedule.csv";

fn program(view: &ExportView<'_>) -> Program {
    let model = model::source(view).unwrap_or_default();
    let mut files = vec![File::text("planned.py", module(view, &model))];
    let layout = &view.layout;
    if layout.pipeline_parallel > 1
        && let Ok(schedule) = generate(
            layout.schedule,
            layout.pipeline_parallel,
            layout.num_micro_batches,
            layout.virtual_stages,
        )
    {
        files.push(File::text(SCHEDULE, write_csv(&schedule)));
    }
    // The named schedule decides which rank has which stages. The order of a user's own schedule is in the CSV.
    let is_given =
        matches!(layout.schedule, ScheduleKind::Given(_)) && layout.pipeline_parallel > 1;
    let by_csv = is_given.then_some(["--parallelism.pipeline_parallel_schedule_csv", SCHEDULE]);
    let command = ["-m", "torchtitan.train"].into_iter().chain(by_csv.into_iter().flatten());
    let mut sections = sections(view);
    let recompute = sections.pop().into_iter().flat_map(|section| section.arguments);
    Program {
        name: "torchtitan",
        command: command.map(str::to_owned).collect(),
        environment: vec![
            [
                "PYTHONPATH",
                "$HERE${PYTHONPATH:+:$PYTHONPATH}",
                "planned.py, the model, lies beside this script",
            ],
            EXPANDABLE_SEGMENTS,
        ],
        sections,
        own: own(),
        last: recompute.map(|it| it.name + &it.values.concat()).collect(),
        extra_files: files,
        ..Program::default()
    }
}

fn sections(view: &ExportView<'_>) -> Vec<Section> {
    let model = vec![
        Argument::value("--module", "planned", "the model, in planned.py"),
        Argument::value("--config", "planned", "its function"),
    ];
    let of_table = TABLE.sections(&view.run());
    std::iter::once(Section::new("model", model)).chain(of_table).collect()
}

fn own() -> Vec<Section> {
    let own = vec![
        Argument::value("--training.steps", 20, "steps"),
        Argument::value("--hf_assets_path", "./assets/hf", "your tokenizer"),
        Argument::value("--metrics.log_freq", 1, "a line for each step"),
    ];
    vec![Section::new("data, steps", own)]
}

/// Text of `planned.py`, with the function that `--config` names.
fn module(view: &ExportView<'_>, model: &model::Source) -> String {
    let heading = view.heading(TARGET.tool());
    let backend = match view.layout.switches.token_dispatcher {
        TokenDispatcher::DeepEp if view.has_experts() => ", moe_comm_backend=\"deepep\"",
        TokenDispatcher::HybridEp if view.has_experts() => ", moe_comm_backend=\"hybridep\"",
        _ => "",
    };
    let mut text = format!("{heading}\n{}{}", model.imports, model.definitions);
    let converters = if view.training.precision.is_cast() {
        text.push_str("from torchtitan.components.quantization import Float8LinearConverter\n");
        ", converters=[Float8LinearConverter.Config(model_compile_enabled=True)]"
    } else {
        ""
    };
    let LossKind { gradient, chunks } = view.plan.framework.loss();
    let loss = "CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))";
    let loss = if gradient == LossGradient::Chunked {
        format!("ChunkedLossWrapper.Config(num_chunks={chunks}, loss_fn={loss})")
    } else {
        loss.to_owned()
    };
    text += &filled(
        include_str!("planned.py.template"),
        &[
            ("spec", &model.spec),
            ("backend", &backend),
            ("converters", &converters),
            ("loss", &loss),
        ],
    );
    if view.layout.pipeline_parallel > 1 {
        text.push_str("    # Layers of each stage, so that none is slower than it must be.\n");
        text.push_str("    config.parallelism.module_fqns_per_model_part = [\n");
        let mut next = 0;
        for stage in &view.stages {
            let mut names = Vec::new();
            if stage.embedding {
                names.push("\"tok_embeddings\"".to_owned());
            }
            names.extend((next..next + stage.layers).map(|layer| format!("\"layers.{layer}\"")));
            next += stage.layers;
            if stage.head {
                names.extend(["\"norm\"", "\"lm_head\""].map(str::to_owned));
            }
            let _ = writeln!(text, "        [{}],", names.join(", "));
        }
        text.push_str("    ]\n");
    }
    text + "    return config\n"
}
