//! Pieces of parameters and optimizer state that a rank holds: written to checkpoints and read back.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::graph::Learning;
use ir::plan::Optimizer;
use sha2::{Digest, Sha256};

use super::{Rank, RunError};
use crate::checkpoint::{
    CheckpointError, LossScale, ModelIdentity, ModelParameter, Naming, OptimizerState, Piece,
    PieceKind, Shard, State, TrainingState, Writer,
};
use crate::flat_parameter::{FlatParameter, Renewal, Role};
use crate::parameters::{LocalParameter, Sharing};
use crate::program::Program;
use crate::sharded::Sharded;

/// States of a unit, in its order: weights, then moments.
const KINDS: [PieceKind; 3] = [PieceKind::Weight, PieceKind::FirstMoment, PieceKind::SecondMoment];

/// Location of a piece on a rank.
struct PieceAt {
    unit: usize,
    /// 0 for weights; from 1 on for moments.
    state: usize,
    /// Range of the unit's shard.
    range: Range<usize>,
}

impl Program {
    /// Identity of the model, which differs for other models' checkpoints.
    pub fn identity(&self) -> ModelIdentity {
        let mut digest = Sha256::new_with_prefix(&self.description);
        if let Some(adapters) = &self.adapters {
            digest.update(serde_json::to_string(adapters).expect("adapters are plain data"));
        }
        let sha256 = format!("{:x}", digest.finalize());
        ModelIdentity { name: self.model_name.clone(), sha256 }
    }

    /// The names of the model's parameters in files.
    pub fn naming(&self) -> Naming {
        Naming::of(&self.architecture, &self.parameters())
    }

    /// All parameters of the model itself, tied ones once, adapters left out.
    pub fn parameters(&self) -> Vec<ModelParameter> {
        self.parameters_where(|learning| learning != Learning::Adapter)
    }

    /// The trained parameters, which checkpoints have.
    pub fn trained_parameters(&self) -> Vec<ModelParameter> {
        self.parameters_where(|learning| !matches!(learning, Learning::Frozen(_)))
    }

    /// The parameters of adapters.
    pub fn adapter_parameters(&self) -> Vec<ModelParameter> {
        self.parameters_where(|learning| learning == Learning::Adapter)
    }

    fn parameters_where(&self, is_wanted: impl Fn(Learning) -> bool) -> Vec<ModelParameter> {
        let all = ModelParameter::all(&self.graph).into_iter();
        all.filter(|(_, learning)| is_wanted(*learning)).map(|(parameter, _)| parameter).collect()
    }

    /// All parameters, tied ones once, with the parts that a single rank has.
    pub fn whole_parameters(&self) -> Vec<LocalParameter> {
        let blocks = 0..self.chain.len();
        let of_block = |block: usize| {
            let program = self.block(block);
            let range = self.initializer_range();
            program.block.nodes().flat_map(move |node| {
                let own = node.op.parameters.iter().enumerate();
                let own = own.filter(|(_, parameter)| parameter.tied_to.is_none());
                own.map(move |(index, _)| {
                    let number = block as u32;
                    LocalParameter::new(program, number, node.id, index, Sharing::NONE, range)
                })
            })
        };
        blocks.flat_map(of_block).collect()
    }
}

impl<B: Kernels> Rank<B> {
    /// All pieces that the rank holds, with their values.
    pub fn pieces(&self) -> Vec<(Piece, Vec<f64>)> {
        let pieces = self.pieces_at(|unit, _| unit.role != Role::Served);
        pieces.into_iter().map(|(piece, at)| (piece, self.values(&at))).collect()
    }

    /// The pieces of the parameters for which `is_wanted` is true.
    fn pieces_at(
        &self,
        is_wanted: impl Fn(&FlatParameter<B>, &LocalParameter) -> bool,
    ) -> Vec<(Piece, PieceAt)> {
        let mut pieces = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            let held = unit.parameters_in(unit.shard_range());
            for (parameter, flat, range) in held.filter(|(it, ..)| is_wanted(unit, it)) {
                let states = KINDS.iter().take(1 + unit.states.num_moments()).enumerate();
                pieces.extend(states.map(|(state, kind)| {
                    let shard = Shard { part: parameter.part.clone(), flat: flat.clone() };
                    let piece = Piece { parameter: parameter.id.clone(), kind: *kind, shard };
                    (piece, PieceAt { unit: index, state, range: range.clone() })
                }));
            }
        }
        pieces
    }

    fn values(&self, at: &PieceAt) -> Vec<f64> {
        self.units[at.unit].states.values(at.state, at.range.clone())
    }

    /// Writes a checkpoint of this step into `directory`, together with all other ranks, and deletes all but the newest
    /// `num_kept`. Rank 0 returns its path.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped or a file cannot be written; earlier checkpoints stay.
    pub fn save(
        &self,
        directory: &Path,
        num_kept: NonZeroUsize,
    ) -> Result<Option<PathBuf>, RunError> {
        let place = &self.env.place;
        let is_leader = place.rank == 0;
        let step = self.num_steps;
        if is_leader {
            Writer::begin(directory, step)?;
        }
        self.synchronize()?;
        let writer = Writer::join(directory, step);
        // A piece that several ranks hold is written by one of them.
        let pieces =
            self.pieces_at(|unit, parameter| unit.role == Role::First && !parameter.is_tensor_copy);
        let (pieces, places): (Vec<Piece>, Vec<PieceAt>) = pieces.into_iter().unzip();
        let mut places = places.iter();
        let values = |_: &Piece| self.values(places.next().expect("a place for each piece"));
        writer.write_rank(place.rank, self.program.settings.master, &pieces, values)?;
        self.synchronize()?;
        let written = if is_leader {
            let parameters = self.program.trained_parameters();
            let num_ranks = self.program.num_ranks();
            Some(writer.commit(self.training_state(), num_ranks, &parameters, num_kept)?)
        } else {
            None
        };
        self.synchronize()?;
        Ok(written)
    }

    fn training_state(&self) -> TrainingState {
        let settings = &self.program.settings;
        let (scale, num_good_steps) = self.scaler.state();
        let loss_scale = settings.loss_scaling.map(|_| LossScale { scale, num_good_steps });
        TrainingState {
            step: self.num_steps,
            next_sample: self.num_steps * self.program.global_batch_size,
            seed: settings.seed,
            optimizer: OptimizerState {
                kind: Optimizer::name(settings.optimizer.kind).to_owned(),
                num_updates: self.units.first().map_or(0, |unit| unit.num_updates),
                loss_scale,
            },
            model: self.program.identity(),
            base: self.program.base.clone(),
        }
    }

    /// Continues from a checkpoint, whatever layout wrote it.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] where it is of another model, or lacks a piece that this rank needs.
    pub fn restore(&mut self, state: &State) -> Result<(), CheckpointError> {
        state.check_model(&self.program.identity(), &self.program.trained_parameters())?;
        let master = self.program.settings.master;
        let compute = self.program.settings.compute;
        let training = state.training();
        for unit in &mut self.units {
            let shard = unit.shard_range();
            let read = |kind, wanted: Range<usize>| -> Result<Vec<f64>, CheckpointError> {
                let mut values = Vec::with_capacity(wanted.len());
                for (parameter, flat, _) in unit.parameters_in(wanted.clone()) {
                    let shard = Shard { part: parameter.part.clone(), flat };
                    values.extend(state.read(&parameter.id, kind, &shard)?);
                }
                values.resize(wanted.len(), 0.0);
                Ok(values)
            };
            let weights = read(PieceKind::Weight, shard.clone())?;
            let moments = KINDS[1..=unit.states.num_moments()].iter();
            let moments = moments.map(|kind| read(*kind, shard.clone()));
            let moments = moments.collect::<Result<Vec<_>, _>>()?;
            let all = read(PieceKind::Weight, 0..unit.len)?;
            let all = Array::from_f64(all, &[unit.len], master, &self.env.device).cast(compute);
            unit.num_updates = training.optimizer.num_updates;
            if unit.role == Role::Served {
                unit.set_served(all);
                continue;
            }
            unit.states.restore(weights, moments);
            match unit.renew(compute) {
                Renewal::Done => {}
                Renewal::Gather(_) => unit.set_gathered(vec![all]),
                Renewal::Copy(_) => unit.set_shard(all.narrow(0, shard)),
            }
        }
        if let Some(LossScale { scale, num_good_steps }) = training.optimizer.loss_scale {
            self.scaler.restore((scale, num_good_steps));
        }
        self.num_steps = training.step;
        Ok(())
    }
}
