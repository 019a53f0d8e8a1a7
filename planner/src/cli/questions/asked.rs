//! What `--why-not` asks about, as people write it.

use std::fmt;
use std::str::FromStr;

use ir::graph::{Graph, Recompute};
use ir::layout::{Degrees, PartialLayout, ZeroStage};
use planner::names;

/// What a plan does without.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    text: String,
    named: PartialLayout,
}

impl Asked {
    /// What it names of a layout of this graph, whose selective recompute may be of chosen modules.
    pub(crate) fn named_for(&self, graph: &Graph) -> PartialLayout {
        let modules = graph
            .recomputed_modules()
            .filter(|_| self.named.recompute == Some(Recompute::Selective));
        let recompute = modules.map(Recompute::Modules).or(self.named.recompute);
        PartialLayout { recompute, ..self.named }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut named = PartialLayout::default();
        let several = Some(Degrees::Range { least: 2, most: u32::MAX });
        let among = &mut named.among;
        let small = text.trim().to_ascii_lowercase();
        match small.as_str() {
            "tp" => among.tensor_parallel = several,
            "cp" => among.context_parallel = several,
            "ep" => among.expert_parallel = several,
            "pp" => among.pipeline_parallel = several,
            "vpp" => among.virtual_stages = several,
            "sp" => named.sequence_parallel = Some(true),
            "zero" => {
                let some = |stage| (stage != ZeroStage::None).then_some(stage);
                among.zero_stage = Some(ZeroStage::ALL.map(some));
            }
            "none" => named.recompute = Some(Recompute::None),
            "selective" => named.recompute = Some(Recompute::Selective),
            "full" => named.recompute = Some(Recompute::Full),
            _ => {
                if let Some(schedule) = names::schedule(text) {
                    named.schedule = Some(schedule);
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
