//! Arguments that decide on layouts.

use std::path::Path;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ir::graph::{ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, TokenDispatcher};
use ir::layout::Choice::One;
use ir::layout::{Choice, Field, Offload, PartialLayout, ZeroStage};
use ir::schedule::{ScheduleKind, UserSchedule};

use super::files::read_schedule;
use super::values::{
    NamedSchedule, RecomputeLayers, ScheduleParser, one_of, parse_count, parse_layers,
    parse_offload, parse_recompute, parse_zero,
};

/// Decisions that the search must respect. A degree is one number, several (`1,2,4`) or a range (`..8`, `2..8`).
#[derive(Debug, Args)]
#[command(next_help_heading = "Layout (degrees: 4, or 1,2,4, or ..8)")]
pub(crate) struct LayoutArgs {
    /// Tensor-parallel degree (tensor slicing).
    #[arg(long = "tp", value_name = "T", allow_negative_numbers = true)]
    tensor_parallel: Option<Choice<u32>>,
    /// Whether the sequence is sharded over tensor-parallel ranks too.
    #[arg(long, value_name = "true|false", value_parser = clap::builder::BoolishValueParser::new())]
    sequence_parallel: Option<bool>,
    /// Context-parallel degree.
    #[arg(long = "cp", value_name = "C", allow_negative_numbers = true)]
    context_parallel: Option<Choice<u32>>,
    /// How context-parallel ranks attend to each other's parts: keys and values go round a ring, or heads are
    /// exchanged for positions (Ulysses) [default: the best].
    #[arg(long, value_name = "KIND", value_parser = one_of(ContextParallelKind::ALL, ContextParallelKind::name))]
    context_parallel_kind: Option<ContextParallelKind>,
    /// Expert-parallel degree.
    #[arg(long = "ep", value_name = "E", allow_negative_numbers = true)]
    expert_parallel: Option<Choice<u32>>,
    /// Ranks over which each expert is split. With sequence parallelism it may be less than `--tp` and divide it;
    /// experts are then spread over the other tensor-parallel ranks too [default: the best].
    #[arg(long = "etp", value_name = "E", allow_negative_numbers = true)]
    expert_tensor_parallel: Option<Choice<u32>>,
    /// Pipeline-parallel degree.
    #[arg(long = "pp", value_name = "P", allow_negative_numbers = true)]
    pipeline_parallel: Option<Choice<u32>>,
    /// Stages on each pipeline rank.
    #[arg(long, visible_alias = "vpp", value_name = "V", allow_negative_numbers = true)]
    virtual_stages: Option<Choice<u32>>,
    /// Layers of each stage, in the order of the model, such as `7,9,9,7` of 32. The first stage also has the embedding
    /// and the last the head, which are not counted. For models that are not stacks of layers, all blocks are counted.
    /// With several stages a rank, list the stages of all ranks.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', value_parser = parse_layers, allow_negative_numbers = true)]
    pub(crate) stages: Option<Vec<u32>>,
    /// Data-parallel degree, shards included.
    #[arg(long = "dp", value_name = "D", allow_negative_numbers = true)]
    data_parallel: Option<Choice<u32>>,
    /// ZeRO stage: 0, 1, 2 or 3 (3 is FSDP).
    #[arg(long = "zero", value_name = "0..3", value_delimiter = ',', value_parser = parse_zero, allow_negative_numbers = true)]
    zero_stage: Vec<ZeroStage>,
    /// Ranks over which ZeRO shards; fewer than all replicas is hybrid sharding (HSDP).
    #[arg(long, value_name = "N", value_parser = parse_count::<u32>, allow_negative_numbers = true)]
    zero_shard: Option<u32>,
    /// Sequences of a replica in a micro-batch.
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    micro_batch_size: Option<Choice<u32>>,
    /// Activations to recompute (gradient checkpointing): none, selective or full; `full:4` for the first
    /// four layers of each stage; or modules of every layer with commas between them, such as
    /// `norms,activations`, also by Megatron-Core's names [default: the best of the first three, where `selective` is
    /// the modules that are cheap to recompute].
    #[arg(long, visible_alias = "recompute-modules", value_name = "POLICY", value_parser = parse_recompute)]
    recompute: Option<Recompute>,
    /// With full recompute, how many layers of each stage are recomputed: a number, from the first layer on, or the
    /// fewest with which the plan fits [default: all].
    #[arg(long, visible_alias = "recompute-num-layers", value_name = "N|fewest", value_parser = RecomputeLayers::parse)]
    recompute_layers: Option<RecomputeLayers>,
    /// What to keep in the host's memory, with commas between several: `optimizer` (ZeRO-Offload: the host updates),
    /// `parameters` (with ZeRO 3), `activations` of all blocks, `activations:20` of 20 blocks of each stage or
    /// `activations:attention+attention_output` of modules
    /// [default: none].
    #[arg(long, value_name = "WHAT", value_parser = parse_offload)]
    offload: Option<Offload>,
    /// How tokens come to experts on other ranks: all-to-all, all-gather, deep-ep or hybrid-ep [default: of those
    /// that the framework has, the one that sends least].
    #[arg(long, value_name = "NAME", value_parser = one_of(TokenDispatcher::ALL, TokenDispatcher::name))]
    token_dispatcher: Option<TokenDispatcher>,
    /// What overlaps the exchanges of experts: nothing, or another micro-batch [default: the better].
    #[arg(long, value_name = "none|micro-batch", value_parser = one_of(ExpertOverlap::ALL, ExpertOverlap::name))]
    expert_overlap: Option<ExpertOverlap>,
    /// Kernels that are captured in CUDA graphs: none, those of layers except experts, or those of a whole iteration
    /// [default: none; for mixtures of experts, the best that the framework has].
    #[arg(long, value_name = "none|layers|iteration", value_parser = one_of(CudaGraphs::ALL, CudaGraphs::name))]
    cuda_graphs: Option<CudaGraphs>,
    /// Pipeline schedule (see `planner list schedules`) [default: the best that the framework has of 1f1b,
    /// interleaved-1f1b, looped-bfs, gpipe, zb-h1 and zb-h2]. Or one of your own: a file in PyTorch's CSV, a row of
    /// passes for each pipeline rank, which decides on ranks, stages and micro-batches.
    #[arg(long, value_name = "NAME|FILE.csv", value_delimiter = ',', value_parser = ScheduleParser::default())]
    schedule: Vec<NamedSchedule>,
    /// Do without these, with commas between several.
    #[arg(
        long,
        value_name = "tp|sp|cp|ep|pp|vpp|zero|recompute",
        value_delimiter = ',',
        value_enum,
        ignore_case = true
    )]
    without: Vec<Axis>,
}

/// What a plan may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Axis {
    /// Tensor parallelism.
    Tp,
    /// Sequence parallelism.
    Sp,
    /// Context parallelism.
    Cp,
    /// Expert parallelism.
    Ep,
    /// Pipelines.
    Pp,
    /// Several stages a rank.
    Vpp,
    /// Sharded model states.
    Zero,
    /// Activations that are computed again.
    Recompute,
}

impl Axis {
    /// The constraint that switches the axis off.
    fn off(self) -> PartialLayout {
        let mut off = PartialLayout::default();
        match self {
            Self::Tp => off.tensor_parallel = One(1),
            Self::Sp => off.sequence_parallel = One(false),
            Self::Cp => off.context_parallel = One(1),
            Self::Ep => off.expert_parallel = One(1),
            Self::Pp => off.pipeline_parallel = One(1),
            Self::Vpp => off.virtual_stages = One(1),
            Self::Zero => off.zero_stage = One(ZeroStage::None),
            Self::Recompute => off.recompute = One(Recompute::None),
        }
        off
    }

    /// Text of the option that switches the axis off.
    fn as_option(self) -> String {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", clap::builder::PossibleValue::get_name);
        format!("`--without {name}`")
    }
}

/// Refuses `--zero-shard` above 1 with ZeRO 0, which shards nothing. The layout in a plan has all replicas there.
pub(crate) fn check_shards(named: &PartialLayout) -> anyhow::Result<()> {
    let replicas = named
        .data_parallel
        .one()
        .map(|it| it.saturating_mul(named.context_parallel.one().unwrap_or(1)));
    if let (One(ZeroStage::None), One(shards)) = (named.zero_stage, named.zero_shard)
        && shards > 1
        && replicas != Some(shards)
    {
        anyhow::bail!(
            "`--zero-shard {shards}` says over how many ranks ZeRO shards, but ZeRO 0 shards nothing\nhint: `--zero 1`, 2 or 3, or \
             leave out `--zero-shard`"
        );
    }
    Ok(())
}

/// Refuses two settings that contradict each other. The functions return the text of a setting from its option and
/// value.
fn check_agreement(
    (one, in_one): (&PartialLayout, impl Fn(&str, &str) -> String),
    (other, in_other): (&PartialLayout, impl Fn(&str, &str) -> String),
) -> anyhow::Result<()> {
    match one.contradiction(other) {
        Some((Field { option, .. }, [value, named])) => anyhow::bail!(
            "{} and {} contradict each other\nhint: leave out one",
            in_one(option, &value),
            in_other(option, &named)
        ),
        None => Ok(()),
    }
}

impl LayoutArgs {
    /// Returns whether full recompute is limited to the fewest layers that fit.
    pub(crate) fn min_recompute(&self) -> bool {
        self.recompute_layers == Some(RecomputeLayers::Minimum)
    }

    /// Recompute policy; a number of layers is only valid with full recompute.
    fn recompute(&self) -> anyhow::Result<Option<Recompute>> {
        let (policy, Some(layers)) = (self.recompute, self.recompute_layers) else {
            return Ok(self.recompute);
        };
        if let Some(policy) = policy.filter(|policy| *policy != Recompute::Full) {
            anyhow::bail!(
                "`--recompute-layers` is for full recompute, not for {policy}\nhint: `--recompute full`"
            );
        }
        Ok(Some(match layers {
            RecomputeLayers::First(count) => Recompute::FirstLayers(count),
            RecomputeLayers::Minimum => Recompute::Full,
        }))
    }

    /// Schedule families that the options name.
    fn families(&self) -> impl Iterator<Item = ScheduleKind> {
        self.schedule.iter().filter_map(|named| match named {
            NamedSchedule::Family(kind) => Some(*kind),
            NamedSchedule::File(_) => None,
        })
    }

    /// File of the user's own schedule.
    pub(crate) fn schedule_file(&self) -> Option<&Path> {
        self.schedule.iter().find_map(|named| match named {
            NamedSchedule::File(path) => Some(path.as_path()),
            NamedSchedule::Family(_) => None,
        })
    }

    /// Schedule from a file. A file must be the only schedule.
    fn given(&self) -> anyhow::Result<Option<UserSchedule>> {
        let Some(path) = self.schedule_file() else { return Ok(None) };
        anyhow::ensure!(
            self.schedule.len() == 1,
            "`--schedule` names `{}` and others\nhint: a schedule of your own stands alone",
            path.display()
        );
        let given = UserSchedule::new(&read_schedule(path)?);
        given.map(Some).with_context(|| format!("`{}`", path.display()))
    }

    /// Constraints of all options.
    fn constraints(&self) -> anyhow::Result<PartialLayout> {
        let given = self.given()?;
        let number = |place: usize| given.map(|given| given.numbers()[place]);
        let degrees = |named: Option<Choice<u32>>| named.unwrap_or_default();
        let or_given = |named: Option<Choice<u32>>, place| match degrees(named) {
            One(degree) => One(degree),
            other => number(place).map_or(other, One),
        };
        // Each named value occurs once, in the order of all values.
        let zero_stages = ZeroStage::ALL.into_iter().filter(|it| self.zero_stage.contains(it));
        let is_named = |kind: &ScheduleKind| self.families().any(|it| it == *kind);
        let schedules = ScheduleKind::ALL.into_iter().filter(is_named);
        let mut constraints = PartialLayout {
            tensor_parallel: degrees(self.tensor_parallel),
            sequence_parallel: self.sequence_parallel.into(),
            context_parallel: degrees(self.context_parallel),
            context_parallel_kind: self.context_parallel_kind.into(),
            expert_parallel: degrees(self.expert_parallel),
            expert_tensor_parallel: degrees(self.expert_tensor_parallel),
            pipeline_parallel: or_given(self.pipeline_parallel, 0),
            virtual_stages: or_given(self.virtual_stages, 1),
            data_parallel: degrees(self.data_parallel),
            zero_stage: Choice::of(zero_stages),
            zero_shard: self.zero_shard.into(),
            micro_batch_size: degrees(self.micro_batch_size),
            recompute: self.recompute()?.into(),
            offload: self.offload.into(),
            schedule: given
                .map_or_else(|| Choice::of(schedules), |it| One(ScheduleKind::Given(it))),
            token_dispatcher: self.token_dispatcher.into(),
            expert_overlap: self.expert_overlap.into(),
            cuda_graphs: self.cuda_graphs.into(),
        };
        for axis in &self.without {
            let off = axis.off();
            let given = |option: &str, value: &str| self.as_option(option, value);
            check_agreement((&off, |_: &str, _: &str| axis.as_option()), (&constraints, given))?;
            constraints = constraints.and(&off).unwrap_or(constraints);
        }
        Ok(constraints)
    }

    /// Text of the option that fixes a value: the option itself, `--without`, or the file of a schedule.
    pub(crate) fn as_given(&self, option: &str, value: &str) -> String {
        let decides = |axis: &&Axis| axis.off().restrictions().iter().any(|it| it.0 == option);
        let axis = self.without.iter().find(decides);
        axis.map_or_else(|| self.as_option(option, value), |axis| axis.as_option())
    }

    fn as_option(&self, option: &str, value: &str) -> String {
        let file = self.schedule_file().map(Path::display);
        let of_file = match option {
            "--schedule" => Some(String::new()),
            "--pp" if self.pipeline_parallel.is_none() => Some(format!(" of {value} ranks")),
            "--virtual-stages" if self.virtual_stages.is_none() => {
                Some(format!(" of {value} stages a rank"))
            }
            _ => None,
        };
        match file.zip(of_file) {
            Some((file, numbers)) => format!("`--schedule {file}`{numbers}"),
            None => format!("`{option} {value}`"),
        }
    }

    /// Completes a layout for evaluation. If stages are given, the pipeline degree follows from them.
    pub(crate) fn completed(&self, named: &PartialLayout) -> PartialLayout {
        let given = self.stages.as_ref().map_or(1, Vec::len) as u32;
        let of_schedule = named.schedule.one().map(ScheduleKind::default_virtual_stages);
        let each = named.virtual_stages.one().or(of_schedule).unwrap_or(1);
        filled(named, given.checked_div(each).unwrap_or(1).max(1))
    }

    /// Combines these constraints with `base`; an error names a setting that both fix differently.
    pub(crate) fn over(&self, base: &PartialLayout) -> anyhow::Result<PartialLayout> {
        let flags = self.constraints()?;
        let in_layout = |option: &str, value: &str| {
            format!("`{}` of `--layout`", base.part(option).unwrap_or_else(|| value.to_owned()))
        };
        let given = |option: &str, value: &str| self.as_given(option, value);
        check_agreement((base, in_layout), (&flags, given))?;
        let both = flags.and(base).unwrap_or(flags);
        check_shards(&both)?;
        Ok(both)
    }
}

/// Completes a layout for evaluation: open tensor and context degrees become 1, and an open pipeline degree becomes
/// `ranks`. Among listed values, the search chooses.
pub(crate) fn filled(named: &PartialLayout, ranks: u32) -> PartialLayout {
    PartialLayout {
        tensor_parallel: named.tensor_parallel.or(1),
        context_parallel: named.context_parallel.or(1),
        pipeline_parallel: named.pipeline_parallel.or(ranks),
        ..*named
    }
}

/// True if the expert-tensor-parallel degree is fixed but the tensor-parallel degree is not.
pub(crate) fn divides_experts_alone(layout: &PartialLayout) -> bool {
    let degree = layout.expert_tensor_parallel.one();
    layout.tensor_parallel.one().is_none() && degree.is_some_and(|it| it > 0)
}
