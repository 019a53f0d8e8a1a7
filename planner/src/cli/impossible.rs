//! Why there is no candidate at all.

use ir::layout::{LayoutError, PartialLayout, multiples_around};
use planner::problem::Problem;
use planner::search::space::Rejection;
use planner::search::{Outcome, conflicting};

/// Why no layout is even possible.
pub(crate) fn no_candidates(
    problem: &Problem,
    fixed: &PartialLayout,
    outcome: &Outcome,
) -> anyhow::Error {
    let num_gpus = problem.limits.num_gpus;
    if let Some(error) = fixed.check().err().or_else(|| wrong_gpu_count(fixed, num_gpus)) {
        return anyhow::Error::new(error);
    }
    if let Some(conflict) = conflicting(problem, fixed) {
        let named: Vec<String> =
            conflict.iter().map(|(option, values)| format!("`{option} {values}`")).collect();
        let alone = if named.len() == 1 { "by itself" } else { "together" };
        return anyhow::anyhow!(
            "{} {alone} leave{} no layout on {num_gpus} GPUs\nhint: widen {}",
            named.join(" and "),
            if named.len() == 1 { "s" } else { "" },
            if named.len() == 1 { "it" } else { "one of them" }
        );
    }
    match &outcome.invalid {
        Some(error) if outcome.rejected.len() <= 1 => anyhow::Error::new(error.clone()),
        Some(error) => {
            let reasons: Vec<String> = outcome
                .rejected
                .iter()
                .map(|(reason, number)| format!("{number} {reason}"))
                .collect();
            let batch = problem.training.global_batch_size;
            let other = outcome.rejected.contains_key(&Rejection::Batch).then(|| {
                let others = multiples_around(batch, num_gpus.into());
                format!("\nhint: a batch of {others} divides by the GPUs")
            });
            anyhow::anyhow!(
                "no layout on {num_gpus} GPUs is possible: of those that were tried, {}; the last: {error}{}",
                reasons.join(", "),
                other.unwrap_or_default()
            )
        }
        None => anyhow::anyhow!(
            "no layout on {} GPUs agrees with all that was asked for\nhint: leave out some of \
             `--schedule`, `--stages`, `--virtual-stages` and `--zero-shard`",
            problem.limits.num_gpus
        ),
    }
}

/// Whether the degrees that are fixed cannot multiply to the number of GPUs, and what would.
fn wrong_gpu_count(fixed: &PartialLayout, has: u32) -> Option<LayoutError> {
    let degree = |degree: Option<u32>| degree.unwrap_or(1);
    let model_parallel = [fixed.tensor_parallel, fixed.context_parallel, fixed.pipeline_parallel];
    let open = model_parallel.contains(&None);
    let product: u128 = model_parallel.into_iter().map(|d| u128::from(degree(d))).product();
    let needs = product * u128::from(degree(fixed.data_parallel));
    let fits = if open || fixed.data_parallel.is_none() {
        needs > 0 && u128::from(has).is_multiple_of(needs)
    } else {
        u128::from(has) == needs
    };
    if !fits && (open || fixed.data_parallel.is_none()) {
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
