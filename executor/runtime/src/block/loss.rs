//! Losses. Classes may be sharded over tensor-parallel ranks: maxima, sums and the target's logit are then reduced over
//! these ranks.

use executor_kernels::array::{Array, ElementExt};
use executor_kernels::ops::Kernels;
use executor_kernels::ops::loss::{self, Measures, Softmax};
use ir::graph::{OpId, OpKind};

use super::value::{Extra, MicroBatch, Value};
use super::{BlockRun, Result, SavedActivations};
use crate::data::masking::IGNORED;

impl<B: Kernels> BlockRun<'_, B> {
    /// The sum over the rank's targets of the negative log-likelihood, times the loss's weight, in one element.
    ///
    /// # Source
    ///
    /// Shoeybi et al. 2019 (arXiv 1909.08053), section 3: three numbers a row are exchanged instead of the logits.
    pub(super) fn cross_entropy(
        &self,
        id: OpId,
        logits: Array<B>,
        micro_batch: &MicroBatch<B>,
    ) -> Result<(Array<B>, Extra<B>)> {
        let logits = logits.rows(1);
        let first = self.first_class(id);
        let mut measures = Measures::of(&logits);
        if first.is_some() {
            let max = self.env.greatest(measures.max.clone())?;
            measures = measures.with_max(max);
        }
        let (targets, weight) = self.targets(id, micro_batch);
        let max = measures.max.clone();
        let mut target = loss::target_logits(&logits, targets, first.unwrap_or(0), max);
        let (softmax, mut sum) = Softmax::of(logits, measures);
        if first.is_some() {
            sum = self.env.all_reduce(sum)?;
            target = self.env.all_reduce(target)?;
        }
        let losses = self.counted(loss::losses(sum.clone(), target), targets);
        let total = losses.sum().scale(weight);
        Ok((total, Extra::Softmax { softmax, sum }))
    }

    /// The targets of operator `id`, a cross-entropy, and the weight of its loss.
    fn targets<'a>(&self, id: OpId, micro_batch: &'a MicroBatch<B>) -> (&'a [u32], f64) {
        let OpKind::CrossEntropy { ahead, weight, .. } = self.program.op(id).kind else {
            panic!("targets belong to a cross-entropy")
        };
        let targets = match (ahead as usize).checked_sub(1) {
            None => &micro_batch.targets,
            Some(index) => &micro_batch.further[index].targets,
        };
        (targets, weight.0)
    }

    /// `rows`, with zeros in rows that have no target.
    fn counted(&self, rows: Array<B>, targets: &[u32]) -> Array<B> {
        if !targets.contains(&IGNORED) {
            return rows;
        }
        let is_counted = |target: &u32| f64::from(u8::from(*target != IGNORED));
        let counted: Vec<f64> = targets.iter().map(is_counted).collect();
        let (shape, env) = ([counted.len(), 1], self.env);
        let mask = Array::from_f64(counted, &shape, ElementExt::widened(env.element), &env.device);
        let mask = mask.cast(rows.element());
        rows * mask
    }

    /// The first class of this rank's shard of the logits; none where the rank has all classes.
    fn first_class(&self, id: OpId) -> Option<usize> {
        if !self.program.placements.sharded_reductions.contains(&id) || self.env.tensor.len() == 1 {
            return None;
        }
        let OpKind::CrossEntropy { over, .. } = self.program.op(id).kind else {
            panic!("classes belong to a cross-entropy")
        };
        let logits = &self.program.op(self.program.inputs[id.index()][0]).output;
        let classes = logits.dim(over).and_then(|dim| dim.extent.fixed());
        let classes = classes.expect("the number of classes is fixed");
        Some(self.env.tensor_part(classes as usize).start)
    }

    /// The sum over the rank's samples of the mean squared error, and the differences, in fp32 at least.
    pub(super) fn squared_error(
        prediction: Array<B>,
        micro_batch: &MicroBatch<B>,
    ) -> (Array<B>, Extra<B>) {
        let targets = micro_batch.values.clone().expect("a squared error has target values");
        let width = prediction.num_elements() / prediction.size(0);
        let difference = prediction.widened() - targets.widened();
        let total = difference.clone().square().sum().scale(1.0 / width as f64);
        (total, Extra::Difference(difference))
    }

    /// The gradient of the step's loss with respect to the input of the loss `id`.
    pub(super) fn loss_grad(&self, id: OpId, kept: &mut SavedActivations<B>) -> Value<B> {
        let scale = self.env.gradient_scale.get();
        let source = self.program.inputs[id.index()][0];
        let Some(extra) = kept.extras.remove(&id) else {
            panic!("a loss keeps what its gradient needs")
        };
        let gradient = match extra {
            Extra::Softmax { softmax, sum } => {
                let first = self.first_class(id).unwrap_or(0);
                let (targets, weight) = self.targets(id, &kept.micro_batch);
                let gradient = softmax.input_grad(sum, targets, first, scale * weight);
                let gradient = self.counted(gradient, targets);
                // Back from rows to the shape of the logits.
                let [rows, width] = [gradient.size(0), gradient.size(1)];
                let shape = match self.program.op(source).output.dims.len() {
                    3 => vec![self.env.micro_batch_size, rows / self.env.micro_batch_size, width],
                    _ => vec![rows, width],
                };
                gradient.cast(self.env.element).reshape(&shape)
            }
            Extra::Difference(difference) => {
                let width = difference.num_elements() / difference.size(0);
                difference.scale(2.0 * scale / width as f64).cast(self.env.element)
            }
            _ => panic!("a loss keeps exponentials or differences"),
        };
        Value::Array(gradient)
    }
}
