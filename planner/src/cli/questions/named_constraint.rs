//! Parser of `--why-not`.

use std::fmt;
use std::str::FromStr;

use ir::graph::{Graph, Recompute};
use ir::layout::Choice::One;
use ir::layout::{Choice, PartialLayout, ZeroStage};
use planner::names;

/// A constraint that the best plan need not meet, with its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedConstraint {
    text: String,
    named: PartialLayout,
}

impl NamedConstraint {
    /// The constraint for layouts of this graph; selective recompute in it may stand for chosen modules.
    pub(crate) fn named_for(&self, graph: &Graph) -> PartialLayout {
        let modules = graph
            .recomputed_modules()
            .filter(|_| self.named.recompute == One(Recompute::Selective));
        let recompute = modules.map(Recompute::Modules).map_or(self.named.recompute, One);
        PartialLayout { recompute, ..self.named }
    }
}

impl fmt::Display for NamedConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NamedConstraint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut named = PartialLayout::default();
        let several = Choice::Range { least: Some(2), most: None };
        let small = text.trim().to_ascii_lowercase();
        match small.as_str() {
            "tp" => named.tensor_parallel = several,
            "cp" => named.context_parallel = several,
            "ep" => named.expert_parallel = several,
            "pp" => named.pipeline_parallel = several,
            "vpp" => named.virtual_stages = several,
            "sp" => named.sequence_parallel = One(true),
            "zero" => named.zero_stage = Choice::of(ZeroStage::ALL.into_iter().skip(1)),
            "none" => named.recompute = One(Recompute::None),
            "selective" => named.recompute = One(Recompute::Selective),
            "full" => named.recompute = One(Recompute::Full),
            _ => {
                if let Some(schedule) = names::schedule(text) {
                    named.schedule = One(schedule);
                } else {
                    named = text.parse().map_err(|_| {
                        "must be a layout such as tp8 or pp4-zero2, an axis (tp, sp, cp, ep, pp, vpp, zero), \
                         none, selective or full (recompute), or a schedule"
                            .to_owned()
                    })?;
                }
            }
        }
        Ok(Self { text: text.to_owned(), named })
    }
}
