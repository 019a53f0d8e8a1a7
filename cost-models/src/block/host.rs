//! Time of the host to launch a block's kernels.

use ir::framework::Launches;
use ir::graph::{Axis, CudaGraphs, Learning, OpId, OpKind, Pass};
use ir::units::{Nanos, Seconds};

use super::cost::{BlockCost, ExpertTimes};
use crate::hardware::Hardware;

/// Host time of a kernel of the router over that of other operators. It counts for each of the router's five kernels in
/// a forward and a backward, and stands for scores in fp32, the choice, a loss of balance, the counts of tokens, their
/// exchange, and the wait for them.
///
/// # Source
///
/// The operators of Megatron-Core's `router.py` and `token_dispatcher.py`. Chosen, with [`OF_ONE_EXPERT`], by the steps
/// of sources left out of the fit. The former factor of 3.2 on all operators of a layer with experts predicts
/// torchtitan's mixtures of 128 experts on GH200 70 % too slow; this one, 25 %. Nothing was fitted to them.
const OF_ROUTER: f64 = 5.0;

/// Host time of one expert's product in a grouped product over that of an operator, which is 2 to 4 kernels with
/// autograd.
///
/// # Source
///
/// Transformer Engine's `general_grouped_gemm` launches a product for each expert from C++, and each expert's weights
/// have a hook of their own in backward.
const OF_ONE_EXPERT: f64 = 1.0 / 6.0;

/// Host time of an operator of an adapter over that of the model's own operators. An adapter is two plain products, a
/// factor and a sum, of one kernel each; the model's operators are modules of two to four kernels.
///
/// Assumed, from `LoraLayer` of peft and `ParallelLinearAdapter` of Megatron-Bridge.
const OF_ADAPTERS: f64 = 1.0 / 3.0;

/// Additional host time of an operator where the host waits for each of its kernels, in microseconds.
///
/// # Source
///
/// BigScience's study of 2022, whose runs had `CUDA_LAUNCH_BLOCKING=1` so as not to hang: 80 us for an operator, where
/// other runs took 57 by the fit of that time.
const AWAITED_MICROSECONDS: f64 = 23.0;

/// Share of operators outside of CUDA graphs of layers, which contain attention and router but not the experts
/// (Transformer Engine's).
///
/// Assumed.
const OUTSIDE_GRAPHS_OF_LAYERS: f64 = 0.5;

impl BlockCost<'_> {
    /// Time that the device waits for the host, where `passes` run together and take the device `on_device`: the host
    /// launches an operator's kernels, and each exchange, one after the other, while the device runs those before.
    /// Neither is steady: kernels shorter than their launches wait for the host even if the device is slower overall,
    /// so the two times combine as the root of the sum of their squares.
    ///
    /// # Source
    ///
    /// Time per layer in vTrain's steps on one node: the host's for small micro-batches, the device's for large ones,
    /// and above both where they are alike (1,024 features, 2 ranks: 3.2 ms on the host, 4.2 on the device for 8
    /// sequences, 5.8 in all). The mean error of 19 sources, each left out of the fit, is 9.9 % with the longer of both
    /// times, 9.2 % with this root, and 10.1 % with the root of summed cubes.
    pub(crate) fn wait_for_host(
        &self,
        passes: &[Pass],
        included: impl Fn(OpId) -> bool,
        on_device: Nanos,
    ) -> Nanos {
        let kernels = self.work.kernels.iter().map(|kernel| (kernel.pass, kernel.op));
        let exchanges = self.work.exchanges.iter().map(|exchange| (exchange.pass, exchange.op));
        let launched = kernels.chain(exchanges);
        let launched = launched.filter(|(pass, op)| passes.contains(pass) && included(*op));
        let count: f64 = launched.map(|(_, op)| self.relative_time_of(op)).sum();
        let Hardware { device, framework, .. } = self.hardware;
        let host = &framework.host;
        let operators = self.launched_one_by_one() * 1e-6 * count;
        let each = host.microseconds_per_operator * device.training.host;
        let gathers = self.gathers_of_parameters(passes, &included);
        if host.launches == Launches::Blocking {
            return Seconds::new((each + AWAITED_MICROSECONDS) * operators + gathers).into();
        }
        let host = each * operators + gathers;
        let both = Seconds::from(on_device).get().hypot(host);
        Nanos::from(Seconds::new(both)).saturating_sub(on_device)
    }

    /// Time of the host to gather and release the parameters of operators, in seconds: once for each forward, also
    /// where it is recomputed, and once for backward.
    ///
    /// # Source
    ///
    /// DeepSpeed's `runtime/zero/parameter_offload.py`: hooks before and after the forward and the backward of each
    /// module. Qwen 1.8B of 24 layers with full recompute takes 262 ms a micro-batch of 256 tokens with ZeRO-3 on one
    /// A100, and 125 ms with adapters and no ZeRO-3 (README of Qwen).
    fn gathers_of_parameters(&self, passes: &[Pass], included: impl Fn(OpId) -> bool) -> f64 {
        if !self.gathers_by_operator {
            return 0.0;
        }
        let has_parameters = |op: OpId| !self.block.op(op).parameters.is_empty();
        let operators = self.block.nodes().map(|node| node.id);
        let count = operators.filter(|op| has_parameters(*op) && included(*op)).count();
        let gathers = passes.iter().filter(|pass| **pass != Pass::WeightGrad).count() * count;
        let Hardware { device, framework, .. } = self.hardware;
        gathers as f64 * framework.parameters.microseconds_per_gather * device.training.host * 1e-6
    }

    /// Host time of a kernel of an operator over that of most operators.
    fn relative_time_of(&self, op: OpId) -> f64 {
        let is_adapter = |op: OpId| self.block.op(op).learning == Learning::Adapter;
        let kind = &self.block.op(op).kind;
        let joins = matches!(kind, OpKind::Add | OpKind::Scale { .. });
        if is_adapter(op) || (joins && self.block.inputs(op).iter().any(|it| is_adapter(*it))) {
            return OF_ADAPTERS;
        }
        match kind {
            OpKind::Router { .. } => OF_ROUTER,
            OpKind::GroupedLinear { num_experts, .. } => {
                1.0 + OF_ONE_EXPERT * self.local_experts(*num_experts)
            }
            _ => 1.0,
        }
    }

    /// Number of experts of a rank; in the lower bound, one.
    fn local_experts(&self, all: u64) -> f64 {
        match self.experts {
            ExpertTimes::Least => 1.0,
            ExpertTimes::Exact => all as f64 / f64::from(self.groups.along(Axis::Expert).size),
        }
    }

    /// Share of operators that the host launches one by one; the others are in CUDA graphs.
    fn launched_one_by_one(&self) -> f64 {
        match self.switches.cuda_graphs {
            CudaGraphs::None => 1.0,
            CudaGraphs::Layers => OUTSIDE_GRAPHS_OF_LAYERS,
            CudaGraphs::Iteration => 0.0,
        }
    }
}
