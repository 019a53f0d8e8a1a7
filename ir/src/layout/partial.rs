//! Layouts of which a user names some parts.

use std::fmt;

use super::degrees::Degrees;
use super::error::LayoutError;
use super::offload::Offload;
use super::zero::ZeroStage;
use crate::graph::{ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, TokenDispatcher};
use crate::schedule::ScheduleKind;

/// A layout of which only some parts are named; the search fills in the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialLayout {
    /// See [`super::LayoutSpec::tensor_parallel`].
    pub tensor_parallel: Option<u32>,
    /// See [`super::LayoutSpec::sequence_parallel`].
    pub sequence_parallel: Option<bool>,
    /// See [`super::LayoutSpec::context_parallel`].
    pub context_parallel: Option<u32>,
    /// See [`super::LayoutSpec::context_parallel_kind`].
    pub context_parallel_kind: Option<ContextParallelKind>,
    /// See [`super::LayoutSpec::expert_parallel`].
    pub expert_parallel: Option<u32>,
    /// See [`super::LayoutSpec::expert_tensor_parallel`].
    pub expert_tensor_parallel: Option<u32>,
    /// See [`super::LayoutSpec::pipeline_parallel`].
    pub pipeline_parallel: Option<u32>,
    /// See [`super::LayoutSpec::virtual_stages`].
    pub virtual_stages: Option<u32>,
    /// See [`super::LayoutSpec::data_parallel`].
    pub data_parallel: Option<u32>,
    /// See [`super::LayoutSpec::zero_shard`].
    pub zero_shard: Option<u32>,
    /// See [`super::LayoutSpec::zero_stage`].
    pub zero_stage: Option<ZeroStage>,
    /// See [`super::LayoutSpec::micro_batch_size`].
    pub micro_batch_size: Option<u32>,
    /// See [`super::LayoutSpec::recompute`].
    pub recompute: Option<Recompute>,
    /// See [`super::LayoutSpec::offload`].
    pub offload: Option<Offload>,
    /// See [`super::LayoutSpec::schedule`].
    pub schedule: Option<ScheduleKind>,
    /// See [`Switches::token_dispatcher`](crate::graph::Switches::token_dispatcher).
    pub token_dispatcher: Option<TokenDispatcher>,
    /// See [`Switches::expert_overlap`](crate::graph::Switches::expert_overlap).
    pub expert_overlap: Option<ExpertOverlap>,
    /// See [`Switches::cuda_graphs`](crate::graph::Switches::cuda_graphs).
    pub cuda_graphs: Option<CudaGraphs>,
    /// Among what the search may choose where several values are named.
    pub among: Among,
}

/// Values among which a search may choose; of what is left out, any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Among {
    /// See [`super::LayoutSpec::tensor_parallel`].
    pub tensor_parallel: Option<Degrees>,
    /// See [`super::LayoutSpec::context_parallel`].
    pub context_parallel: Option<Degrees>,
    /// See [`super::LayoutSpec::expert_parallel`].
    pub expert_parallel: Option<Degrees>,
    /// See [`super::LayoutSpec::expert_tensor_parallel`].
    pub expert_tensor_parallel: Option<Degrees>,
    /// See [`super::LayoutSpec::pipeline_parallel`].
    pub pipeline_parallel: Option<Degrees>,
    /// See [`super::LayoutSpec::virtual_stages`].
    pub virtual_stages: Option<Degrees>,
    /// See [`super::LayoutSpec::data_parallel`].
    pub data_parallel: Option<Degrees>,
    /// See [`super::LayoutSpec::micro_batch_size`].
    pub micro_batch_size: Option<Degrees>,
    /// See [`super::LayoutSpec::zero_stage`].
    pub zero_stage: Option<[Option<ZeroStage>; ZeroStage::ALL.len()]>,
    /// See [`super::LayoutSpec::schedule`].
    pub schedule: Option<[Option<ScheduleKind>; ScheduleKind::ALL.len()]>,
}

/// Calls a macro with each part of a layout and the option that decides on it: degrees of which a list may be given, kinds
/// of which a list may, and those of which one alone may.
macro_rules! with_options {
    ($call:ident) => {
        $call!(
            [
                tensor_parallel "--tp",
                context_parallel "--cp",
                expert_parallel "--ep",
                expert_tensor_parallel "--etp",
                pipeline_parallel "--pp",
                virtual_stages "--virtual-stages",
                data_parallel "--dp",
                micro_batch_size "--micro-batch-size",
            ]
            [
                zero_stage "--zero",
                schedule "--schedule",
            ]
            [
                sequence_parallel "--sequence-parallel",
                context_parallel_kind "--context-parallel-kind",
                zero_shard "--zero-shard",
                recompute "--recompute",
                offload "--offload",
                token_dispatcher "--token-dispatcher",
                expert_overlap "--expert-overlap",
                cuda_graphs "--cuda-graphs",
            ]
        )
    };
}

impl Among {
    /// Lists of the other, or else own ones.
    fn or(&self, other: &Self) -> Self {
        macro_rules! either {
            ([$($degree:ident $option:literal,)*] [$($kind:ident $of_kind:literal,)*] $only:tt) => {
                Self {
                    $($degree: other.$degree.or(self.$degree),)*
                    $($kind: other.$kind.or(self.$kind),)*
                }
            };
        }
        with_options!(either)
    }

    /// Whether a stage of ZeRO is among those that may be chosen.
    pub fn takes_zero(&self, stage: ZeroStage) -> bool {
        self.zero_stage.is_none_or(|all| all.contains(&Some(stage)))
    }

    /// Whether a schedule is.
    pub fn takes_schedule(&self, schedule: ScheduleKind) -> bool {
        self.schedule.is_none_or(|all| all.contains(&Some(schedule)))
    }

    /// The schedules that may be chosen; none where any may.
    pub fn schedules(&self) -> Option<impl Iterator<Item = ScheduleKind> + use<>> {
        self.schedule.map(|all| all.into_iter().flatten())
    }

    /// What is restricted, each with the option that restricts it.
    pub fn restrictions(&self) -> Vec<(&'static str, String)> {
        let mut named = Vec::new();
        macro_rules! listed {
            ([$($degree:ident $option:literal,)*] $kinds:tt $only:tt) => {
                $(named.extend(self.$degree.map(|degrees| ($option, degrees.to_string())));)*
            };
        }
        with_options!(listed);
        let joined = |words: Vec<String>| words.join(",");
        let zero = self.zero_stage.map(|all| {
            let stages = all.into_iter().flatten().map(|stage| stage.number().to_string());
            ("--zero", joined(stages.collect()))
        });
        let schedules = self
            .schedules()
            .map(|all| ("--schedule", joined(all.map(|schedule| schedule.to_string()).collect())));
        named.extend(zero.into_iter().chain(schedules));
        named
    }
}

impl PartialLayout {
    /// What is decided, each with the option that decides it: one value, or several among which a search may choose.
    pub fn restrictions(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        macro_rules! decided {
            ([$($degree:ident $option:literal,)*] [$($kind:ident $of_kind:literal,)*] [$($only:ident $own:literal,)*]) => {
                $(all.extend(self.$degree.map(|value| ($option, value.to_string())));)*
                $(all.extend(self.$kind.map(|value| ($of_kind, value.to_string())));)*
                $(all.extend(self.$only.map(|value| ($own, value.to_string())));)*
            };
        }
        with_options!(decided);
        all.extend(self.among.restrictions());
        all
    }

    /// The same without what an option decides.
    #[must_use]
    pub fn without(mut self, option: &str) -> Self {
        macro_rules! open {
            ([$($degree:ident $option:literal,)*] [$($kind:ident $of_kind:literal,)*] [$($only:ident $own:literal,)*]) => {
                match option {
                    $($option => {
                        self.$degree = None;
                        self.among.$degree = None;
                    })*
                    $($of_kind => {
                        self.$kind = None;
                        self.among.$kind = None;
                    })*
                    $($own => self.$only = None,)*
                    _ => {}
                }
            };
        }
        with_options!(open);
        self
    }
}

impl PartialLayout {
    /// Whether all that is named can be: no degree is zero.
    ///
    /// # Errors
    ///
    /// The first that is.
    pub fn check(&self) -> Result<(), LayoutError> {
        let degrees = [
            ("tensor_parallel", self.tensor_parallel),
            ("context_parallel", self.context_parallel),
            ("expert_parallel", self.expert_parallel),
            ("expert_tensor_parallel", self.expert_tensor_parallel),
            ("pipeline_parallel", self.pipeline_parallel),
            ("virtual_stages", self.virtual_stages),
            ("data_parallel", self.data_parallel),
            ("zero_shard", self.zero_shard),
            ("micro_batch_size", self.micro_batch_size),
        ];
        match degrees.into_iter().find(|(_, degree)| *degree == Some(0)) {
            Some((name, _)) => Err(LayoutError::Zero { name }),
            None => Ok(()),
        }
    }
}

impl PartialLayout {
    /// Whether all that the other decides is what this one does, or among what it lets choose.
    pub fn agrees(&self, other: &Self) -> bool {
        let among = &self.among;
        let takes = |among: Option<Degrees>, degree: Option<u32>| {
            among.is_none_or(|among| degree.is_none_or(|degree| among.takes(degree)))
        };
        macro_rules! all_taken {
            ([$($degree:ident $option:literal,)*] $kinds:tt $only:tt) => {
                true $(&& takes(among.$degree, other.$degree))*
            };
        }
        self.and(other).is_some()
            && with_options!(all_taken)
            && other.zero_stage.is_none_or(|stage| among.takes_zero(stage))
            && other.schedule.is_none_or(|schedule| among.takes_schedule(schedule))
    }

    /// What both name; none where they name different values. Lists of the other go before own ones.
    pub fn and(&self, other: &Self) -> Option<Self> {
        macro_rules! both {
            ([$($degree:ident $option:literal,)*] [$($kind:ident $of_kind:literal,)*] [$($only:ident $own:literal,)*]) => {
                (true
                    $(&& agree(self.$degree, other.$degree))*
                    $(&& agree(self.$kind, other.$kind))*
                    $(&& agree(self.$only, other.$only))*)
                .then(|| Self {
                    $($degree: self.$degree.or(other.$degree),)*
                    $($kind: self.$kind.or(other.$kind),)*
                    $($only: self.$only.or(other.$only),)*
                    among: self.among.or(&other.among),
                })
            };
        }
        with_options!(both)
    }
}

/// Whether two do not name different values.
fn agree<T: Copy + PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

impl fmt::Display for PartialLayout {
    /// The degrees that are named, as in `tp8-sp-pp4-dp2`; of those that layouts mostly leave at 1, the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let above_1 = |degree: Option<u32>| degree.filter(|degree| *degree > 1);
        let degrees = [
            ("tp", self.tensor_parallel),
            ("sp", self.sequence_parallel.filter(|is_on| *is_on).map(u32::from)),
            ("cp", above_1(self.context_parallel)),
            (
                "a2a",
                (self.context_parallel_kind == Some(ContextParallelKind::AllToAll)).then_some(1),
            ),
            ("ep", above_1(self.expert_parallel)),
            ("etp", self.expert_tensor_parallel),
            ("pp", self.pipeline_parallel),
            ("vpp", above_1(self.virtual_stages)),
            ("dp", self.data_parallel),
        ];
        let named = degrees.iter().filter_map(|(name, degree)| Some((*name, (*degree)?)));
        for (index, (name, degree)) in named.enumerate() {
            f.write_str(if index > 0 { "-" } else { "" })?;
            match name {
                "sp" | "a2a" => f.write_str(name)?,
                _ => write!(f, "{name}{degree}")?,
            }
        }
        Ok(())
    }
}
