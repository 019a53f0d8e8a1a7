//! What a rank holds of the model's parameters and the optimizer's state, to be saved or compared.

use std::ops::Range;

use super::Rank;
use crate::array::Array;
use crate::ops::Kernels;
use crate::parameters::LocalParameter;

/// What of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// Its weights, in the precision in which they are updated.
    Weight,
    /// The optimizer's first moment, or momentum.
    FirstMoment,
    /// The optimizer's second moment.
    SecondMoment,
}

impl StateKind {
    /// All of them, in the order in which units hold them.
    pub const ALL: [Self; 3] = [Self::Weight, Self::FirstMoment, Self::SecondMoment];
}

/// Some elements of a rank's part of a parameter.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The parameter and the rank's part of it.
    pub parameter: &'a LocalParameter,
    /// What of it.
    pub kind: StateKind,
    /// Which elements of the part, in row-major order: all, unless ZeRO shards them.
    pub flat: Range<usize>,
    /// Their values.
    pub values: Vec<f64>,
}

impl<B: Kernels> Rank<B> {
    /// All that the rank holds, parameter by parameter.
    pub fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        for unit in &self.units {
            let shard = unit.shard_range();
            let states = std::iter::once(&unit.master).chain(&unit.moments);
            for (kind, state) in StateKind::ALL.into_iter().zip(states) {
                for (parameter, offset) in unit.parameters.iter().zip(&unit.offsets) {
                    let start = (*offset).max(shard.start);
                    let end = (offset + parameter.num_elements()).min(shard.end);
                    if start < end {
                        let values = state.narrow(0, start - shard.start..end - shard.start);
                        let values = Array::to_f64(&values);
                        let flat = start - offset..end - offset;
                        pieces.push(Piece { parameter, kind, flat, values });
                    }
                }
            }
        }
        pieces
    }
}
