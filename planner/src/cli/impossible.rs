//! Explanation of why there is no candidate layout at all.

use ir::graph::{ContextParallelKind, Sharding};
use ir::layout::{Choice, Layout, LayoutError, LayoutSpec, Limits, PartialLayout};
use ir::schedule::ScheduleKind;
use planner_core::problem::{GivenStages, Problem};
use planner_core::search::space::Rejection;
use planner_core::search::{Conflict, Outcome, conflicting, failed_requirements};

use super::layout::LayoutArgs;

/// Options and problem of a search without candidates.
pub(crate) struct AskedFor<'a> {
    pub(crate) problem: &'a Problem,
    /// Options of the layout.
    pub(crate) options: &'a LayoutArgs,
    /// The layout of `--layout`, if one is evaluated.
    pub(crate) named: Option<&'a PartialLayout>,
    /// All constraints of the search.
    pub(crate) fixed: &'a PartialLayout,
}

/// Explains why no layout is possible.
pub(crate) fn no_candidates(asked: &AskedFor<'_>, outcome: &Outcome) -> anyhow::Error {
    let AskedFor { problem, fixed, .. } = *asked;
    let num_gpus = problem.limits.num_gpus;
    if let Some(error) = fixed.check().err() {
        return anyhow::Error::new(error);
    }
    if let Some(error) = wrong_gpu_count(fixed, num_gpus) {
        // A degree that the model excludes for every number of GPUs is reported first.
        let of_model = problem.limits.heads_divide(&fixed.or(LayoutSpec::ONE_RANK)).err();
        return anyhow::Error::new(of_model.unwrap_or(error));
    }
    if let Some(error) = asked.one_of_many() {
        return error;
    }
    if let Some(error) = asked.conflict().filter(|_| fixed.has_lists()) {
        return error;
    }
    // Of several reasons, the reason for the named degrees with everything else plain; for sequences, the one with the
    // fewest parts.
    let rejected = &outcome.rejected;
    if (rejected.len() > 1 || rejected.contains_key(&Rejection::Sequence))
        && let Some(error) = plainest(fixed, problem)
    {
        return anyhow::Error::new(error);
    }
    // The named layout is invalid, or the framework cannot run it.
    let reasons = rejected.keys().filter(|it| **it != Rejection::Framework).count();
    if let Some(error) = &outcome.invalid
        && (reasons <= 1 || matches!(error, LayoutError::Framework { .. }))
    {
        return anyhow::Error::new(error.clone());
    }
    if let Some(error) = asked.conflict() {
        return error;
    }
    // Requirements that fail by themselves. Requirements that only some layouts violate are left out.
    let failed = failed_requirements(problem, fixed);
    if !failed.is_empty() {
        let fails = failed.iter().map(|it| it.fails.as_str()).filter(|it| !it.is_empty());
        let fails: Vec<&str> = fails.collect();
        let works: Vec<&str> = failed.iter().filter_map(|it| it.works.as_deref()).collect();
        let hint = if works.is_empty() {
            String::new()
        } else {
            format!("\nhint: {}", works.join("; or "))
        };
        return anyhow::anyhow!(
            "no layout on {num_gpus} GPUs is possible: {}{hint}",
            fails.join("; ")
        );
    }
    let reasons: Vec<String> =
        rejected.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
    anyhow::anyhow!(
        "no layout on {num_gpus} GPUs is possible: of the combinations of degrees, {}",
        reasons.join(", ")
    )
}

impl AskedFor<'_> {
    /// Error about options that leave no candidate together.
    fn conflict(&self) -> Option<anyhow::Error> {
        let flags = self.options.over(&PartialLayout::default()).ok()?;
        let completed = |kept: &PartialLayout| match self.named {
            Some(named) => self.options.completed(&kept.and(named).unwrap_or(*named)),
            None => *kept,
        };
        let Conflict { options, framework } = conflicting(self.problem, &flags, completed)?;
        let mut words: Vec<String> =
            options.iter().map(|(option, value)| self.options.as_given(option, value)).collect();
        words.dedup();
        let (alone, leaves, other) = match words.len() {
            1 => ("by itself", "leaves", self.instead_of(options[0].0)),
            _ => ("together", "leave", "widen one of them, or leave it out".to_owned()),
        };
        let of_framework =
            framework.as_ref().map_or_else(String::new, |it| format!(" that `{it}` runs"));
        let ideal = framework.map_or("", |_| "; `--framework ideal` has no limits");
        Some(anyhow::anyhow!(
            "{} {alone} {leaves} no layout on {} GPUs{of_framework}\nhint: {other}{ideal}",
            words.join(" and "),
            self.problem.limits.num_gpus,
        ))
    }

    /// Error about a schedule or stages that need several pipeline ranks, or several stages per rank, if there is only
    /// one.
    fn one_of_many(&self) -> Option<anyhow::Error> {
        let [ranks, virtual_stages] =
            [self.fixed.pipeline_parallel, self.fixed.virtual_stages].map(|it| it.one());
        // What fixes the value of an option: the option itself, or the layout.
        let fixed_by = |option: &str| {
            let flags = self.options.over(&PartialLayout::default()).ok()?;
            let restrictions = flags.restrictions();
            let by_flag = restrictions.iter().find(|(name, _)| *name == option);
            let of_layout = || Some(format!("`--layout {}`", self.named?));
            by_flag.map(|(name, value)| self.options.as_given(name, value)).or_else(of_layout)
        };
        let given = self.problem.stages.as_ref().map(GivenStages::num_stages);
        let ordered = self.fixed.schedule.one().filter(|it| *it != ScheduleKind::OneFOneB);
        let error = match (ranks, virtual_stages, ordered, given) {
            (Some(1), _, Some(schedule), _) => {
                let by = fixed_by("--pp")?;
                anyhow::anyhow!(
                    "`--schedule {schedule}` orders passes over pipeline ranks, but {by} has one\nhint: leave out \
                     `--schedule {schedule}`{}",
                    self.or_with_ranks(2)
                )
            }
            (Some(1), _, None, Some(given)) if given > 1 => {
                let by = fixed_by("--pp")?;
                anyhow::anyhow!(
                    "`--stages` names {given} stages, but {by} has one pipeline rank with one stage\nhint: leave out \
                     `--stages`{}",
                    self.or_with_ranks(given)
                )
            }
            (Some(1), Some(stages), None, _) if stages > 1 => {
                let by = fixed_by("--pp")?;
                let flags = self.options.over(&PartialLayout::default()).ok()?;
                let option = match flags.virtual_stages.one() {
                    Some(_) => format!("--virtual-stages {stages}"),
                    None => format!("vpp{stages}"),
                };
                anyhow::anyhow!(
                    "`{option}` is {stages} stages on each pipeline rank, but {by} has one rank, whose layers are one stage\n\
                     hint: leave out `{option}`{}",
                    self.or_with_ranks(2)
                )
            }
            (_, Some(1), Some(schedule), _) if schedule.is_interleaved() => {
                let by = fixed_by("--virtual-stages")?;
                anyhow::anyhow!(
                    "`--schedule {schedule}` has several stages a rank, but {by} has one\nhint: leave out one of them; \
                     `--schedule 1f1b` has one stage a rank"
                )
            }
            _ => return None,
        };
        Some(error)
    }

    /// Hint that `ranks` pipeline ranks would work, as an option or in the layout, if the number of GPUs allows it.
    fn or_with_ranks(&self, ranks: u32) -> String {
        let gpus = self.problem.limits.num_gpus;
        let PartialLayout { tensor_parallel, context_parallel, .. } = *self.fixed;
        let within = [tensor_parallel, context_parallel].map(|degree| degree.unwrap_or(1));
        let each = within.into_iter().try_fold(ranks, u32::checked_mul);
        let Some(each) = each.filter(|each| gpus.is_multiple_of(*each)) else {
            return String::new();
        };
        let with = match self.named {
            Some(named) => {
                let (pipeline_parallel, data_parallel) = (ranks.into(), (gpus / each).into());
                format!("--layout {}", PartialLayout { pipeline_parallel, data_parallel, ..*named })
            }
            None => format!("--pp {ranks}"),
        };
        format!(", or have as many ranks, as in `{with}`")
    }

    /// Hint on a replacement for an option that leaves no candidate.
    fn instead_of(&self, option: &str) -> String {
        let gpus = self.problem.limits.num_gpus;
        let ranks = (2..=gpus).find(|ranks| gpus.is_multiple_of(*ranks));
        match (&self.problem.stages, ranks) {
            (Some(stages), Some(ranks)) if option == "--stages" => {
                format!(
                    "as many stages as divide over ranks of {gpus} GPUs, such as `--stages {}`",
                    stages.evenly(ranks)
                )
            }
            _ => "widen it, or leave it out".to_owned(),
        }
    }
}

/// Error of the layout in which everything open is as plain as possible; `None` if that layout is valid.
fn plainest(fixed: &PartialLayout, problem: &Problem) -> Option<LayoutError> {
    // If no degrees are named, none of them is the cause.
    if *fixed == PartialLayout::default() {
        return None;
    }
    let limits = &problem.limits;
    let plain = fixed.or(LayoutSpec::ONE_RANK);
    let LayoutSpec { tensor_parallel, context_parallel, pipeline_parallel, .. } = plain;
    let within = tensor_parallel.checked_mul(context_parallel)?.checked_mul(pipeline_parallel)?;
    let data_parallel = match fixed.data_parallel.one() {
        Some(replicas) => replicas,
        None => limits.num_gpus.checked_div(within)?,
    };
    let is_interleaved = plain.virtual_stages > 1;
    let usual = if is_interleaved { ScheduleKind::Interleaved } else { ScheduleKind::OneFOneB };
    let schedule = fixed.schedule.unwrap_or(usual);
    let each = u64::from(data_parallel) * u64::from(plain.micro_batch_size);
    let num_micro_batches = problem.training.global_batch_size.checked_div(each)?.max(1);
    let sharding = Sharding {
        context_parallel_kind: ContextParallelKind::default(),
        expert_tensor_parallel: fixed.expert_tensor_parallel.unwrap_or(tensor_parallel),
        ..plain.sharding()
    };
    let spec = LayoutSpec {
        pipeline_parallel,
        virtual_stages: fixed.virtual_stages.unwrap_or(schedule.default_virtual_stages()),
        data_parallel,
        num_micro_batches: u32::try_from(num_micro_batches).ok()?,
        schedule,
        ..plain.sharded(&sharding)
    };
    // If open degrees can take up the remaining GPUs, the product of degrees is not the cause.
    let num_gpus = within.checked_mul(data_parallel)?;
    let limits = Limits { num_gpus, ..limits.clone() };
    Layout::new(spec, &limits).err()
}

/// Error if the fixed degrees cannot multiply to the number of GPUs, with data-parallel degrees that would.
pub(super) fn wrong_gpu_count(fixed: &PartialLayout, has: u32) -> Option<LayoutError> {
    let degree = |degree: Choice<u32>| degree.unwrap_or(1);
    let model_parallel = [fixed.tensor_parallel, fixed.context_parallel, fixed.pipeline_parallel];
    let open = model_parallel.iter().any(|it| it.one().is_none());
    let product: u128 = model_parallel.into_iter().map(|d| u128::from(degree(d))).product();
    let needs = product * u128::from(degree(fixed.data_parallel));
    let fits = if open || fixed.data_parallel.one().is_none() {
        needs > 0 && u128::from(has).is_multiple_of(needs)
    } else {
        u128::from(has) == needs
    };
    if !fits && (open || fixed.data_parallel.one().is_none()) {
        let degrees = u64::try_from(needs).unwrap_or(u64::MAX);
        return Some(LayoutError::GpusUndivided { has, degrees });
    }
    let divides = product > 0 && u128::from(has).is_multiple_of(product);
    (!fits).then(|| LayoutError::GpuCount {
        layout: fixed.to_string(),
        needs,
        has,
        fitting_data_parallel: (divides && !open).then(|| (u128::from(has) / product) as u32),
    })
}
