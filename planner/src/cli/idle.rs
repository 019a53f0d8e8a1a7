//! Refusal of options without an effect.

use ir::cluster::Precision;
use ir::framework::JobFacts;
use ir::graph::{ExpertOverlap, Graph, TokenDispatcher};
use ir::layout::PartialLayout;
use ir::model::{Description, Model};
use ir::plan::Training;

use super::layout::divides_experts_alone;
use super::setting::TrainingArgs;

/// Refuses options that have no effect on this model with the other options given.
pub(crate) fn refuse_idle(
    args: &TrainingArgs,
    layout: &PartialLayout,
    (model, graph): (&Model, &Graph),
    training: &Training,
) -> anyhow::Result<()> {
    let has_experts = JobFacts::of(graph).has_experts;
    let dispatches =
        layout.token_dispatcher.one().is_some_and(|it| it != TokenDispatcher::default());
    let overlaps = layout.expert_overlap == ExpertOverlap::MicroBatch.into();
    let name = &model.name;
    let no_experts = || format!("{name} has no experts");
    let all = [
        (dispatches && !has_experts, "--token-dispatcher", no_experts()),
        (overlaps && !has_experts, "--expert-overlap", no_experts()),
        (divides_experts_alone(layout) && !has_experts, "--etp", no_experts()),
        (
            args.document_lengths.is_some() && !graph.has_sequence(),
            "--document-lengths",
            format!("{name} has no sequence that could be made of documents"),
        ),
        (args.expert_load.is_some() && !has_experts, "--expert-load", no_experts()),
        (
            args.seq_len.is_some() && !graph.has_sequence(),
            "--seq-len",
            format!("{name} has no sequence whose length could be chosen"),
        ),
        (
            args.bf16_moments && !training.optimizer.has_full_moments(),
            "--bf16-moments",
            "this optimizer keeps no moments in full precision".to_owned(),
        ),
        (
            args.no_master_weights && training.precision == Precision::Fp32,
            "--no-master-weights",
            "weights in fp32 have no copy".to_owned(),
        ),
    ];
    refuse_prediction(args.parts.multi_token_prediction, model)?;
    match all.into_iter().find(|(is_idle, ..)| *is_idle) {
        Some((_, option, why)) => {
            anyhow::bail!("`{option}` would change nothing: {why}\nhint: leave it out")
        }
        None => Ok(()),
    }
}

/// Refuses `--multi-token-prediction` for a model without modules for it that the planner knows.
pub(super) fn refuse_prediction(is_asked: bool, model: &Model) -> anyhow::Result<()> {
    let predicts_further = match &model.description {
        Description::Transformer(transformer) => !transformer.prediction_modules.is_empty(),
        _ => false,
    };
    anyhow::ensure!(
        !is_asked || predicts_further,
        "`--multi-token-prediction` would change nothing: {} has no modules that predict more than the next token, or none \
         that are planned\nhint: leave it out",
        model.name
    );
    Ok(())
}
