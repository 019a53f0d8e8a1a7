//! Checkpoints of training: any layout writes, any other reads, and no accident loses the last one.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use executor_kernels::array::Element;
use executor_runtime::checkpoint::{
    CheckpointError, Form, LossScale, ModelIdentity, ModelParameter, OptimizerState, ParameterId,
    Piece, PieceKind, Shard, State, TrainingState, Writer, latest,
};
use proptest::prelude::*;

use super::{places, range};

/// More checkpoints than a test writes.
pub(super) const ALL: NonZeroUsize = NonZeroUsize::MAX;

const KINDS: [PieceKind; 3] = [PieceKind::Weight, PieceKind::FirstMoment, PieceKind::SecondMoment];

pub(super) fn training(step: u64) -> TrainingState {
    TrainingState {
        step,
        next_sample: step * 16,
        seed: u64::MAX,
        optimizer: OptimizerState {
            kind: "adamw".to_owned(),
            num_updates: step - 1,
            loss_scale: Some(LossScale { scale: 65_536.0, num_good_steps: 3 }),
        },
        model: ModelIdentity { name: "tiny".to_owned(), sha256: "ab12".to_owned() },
        base: None,
    }
}

/// Parameters of these shapes.
pub(super) fn parameters(shapes: &[Vec<usize>]) -> Vec<ModelParameter> {
    let parameter = |(block, shape): (u32, &Vec<usize>)| ModelParameter {
        id: ParameterId { block, op: "mlp.up".to_owned(), name: "weight".to_owned() },
        layer: None,
        block_name: "embedding".to_owned(),
        shape: shape.clone(),
        form: Form::Other,
    };
    (0..).zip(shapes).map(parameter).collect()
}

/// What an element has; no two have the same.
fn value(parameter: &ParameterId, kind: PieceKind, place: usize) -> f64 {
    f64::from(parameter.block) + kind as usize as f64 / 10.0 + place as f64 / 1e5 + 1e-9
}

fn expected(parameter: &ModelParameter, kind: PieceKind, shard: &Shard) -> Vec<f64> {
    let places = places(&parameter.shape, &shard.part);
    places[shard.flat.clone()].iter().map(|place| value(&parameter.id, kind, *place)).collect()
}

/// Cuts of a parameter: into parts along each dimension, which ends where the next begins, and of each part's elements
/// into ranges.
#[derive(Clone, Debug)]
pub(super) struct Cuts {
    dims: Vec<Vec<usize>>,
    flat: Vec<f64>,
}

fn cuts() -> impl Strategy<Value = Cuts> {
    let dim = prop::collection::vec(0usize..9, 0..3);
    let flat = prop::collection::vec(0.0f64..1.0, 0..4);
    (prop::collection::vec(dim, 3), flat).prop_map(|(dims, flat)| Cuts { dims, flat })
}

impl Cuts {
    pub(super) const NONE: Self = Self { dims: Vec::new(), flat: Vec::new() };

    /// All shards of a parameter.
    fn shards(&self, shape: &[usize]) -> Vec<Shard> {
        let between = |mut cuts: Vec<usize>, end: usize| {
            cuts.retain(|cut| *cut <= end);
            cuts.extend([0, end]);
            cuts.sort_unstable();
            cuts.windows(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>()
        };
        let mut parts: Vec<Vec<Range<usize>>> = vec![Vec::new()];
        for (dim, size) in shape.iter().enumerate() {
            let ranges = between(self.dims.get(dim).cloned().unwrap_or_default(), *size);
            let with = |part: &Vec<_>, range: &Range<usize>| {
                [&part[..], std::slice::from_ref(range)].concat()
            };
            let parts_with = parts.iter().flat_map(|part| ranges.iter().map(|r| with(part, r)));
            parts = parts_with.collect();
        }
        let of_part = |part: Vec<Range<usize>>| {
            let len = Shard::of_part(part.clone()).len();
            let cuts = self.flat.iter().map(|cut| (cut * len as f64) as usize).collect();
            let ranges = between(cuts, len).into_iter();
            ranges.map(move |flat| Shard { part: part.clone(), flat }).collect::<Vec<_>>()
        };
        parts.into_iter().flat_map(of_part).collect()
    }
}

/// Pieces for `world_size` ranks in turn.
pub(super) fn deal(
    parameters: &[ModelParameter],
    cuts: &Cuts,
    world_size: usize,
) -> Vec<Vec<Piece>> {
    let mut ranks = vec![Vec::new(); world_size];
    let mut next = 0;
    for parameter in parameters {
        for kind in KINDS {
            for shard in cuts.shards(&parameter.shape) {
                let parameter = parameter.id.clone();
                ranks[next % world_size].push(Piece { parameter, kind, shard });
                next += 1;
            }
        }
    }
    ranks
}

pub(super) fn values(parameters: &[ModelParameter], piece: &Piece) -> Vec<f64> {
    let parameter = parameters.iter().find(|parameter| parameter.id == piece.parameter).unwrap();
    expected(parameter, piece.kind, &piece.shard)
}

/// Writes a checkpoint of `step` and commits it.
pub(super) fn save(
    directory: &Path,
    step: u64,
    parameters: &[ModelParameter],
    ranks: &[Vec<Piece>],
    num_kept: NonZeroUsize,
) -> Result<PathBuf, CheckpointError> {
    let writer = Writer::begin(directory, step)?;
    for (rank, pieces) in (0..).zip(ranks) {
        let writer = Writer::join(directory, step);
        writer.write_rank(rank, Element::F64, pieces, |piece| values(parameters, piece))?;
    }
    writer.commit(training(step), ranks.len() as u32, parameters, num_kept)
}

/// A checkpoint of two parameters by two ranks, each cut in its middle.
pub(super) fn save_small(directory: &Path, step: u64) -> PathBuf {
    let parameters = small();
    let cuts = Cuts { dims: vec![vec![2]], flat: vec![0.5] };
    save(directory, step, &parameters, &deal(&parameters, &cuts, 2), ALL).unwrap()
}

pub(super) fn small() -> Vec<ModelParameter> {
    parameters(&[vec![4, 6], vec![4]])
}

/// Every number of a checkpoint of [`small`] is what was written.
#[track_caller]
pub(super) fn check_small(path: &Path) {
    let state = State::open(path).unwrap();
    state.verify().unwrap();
    for parameter in small() {
        for kind in KINDS {
            let shard = Shard::whole(&parameter.shape);
            let found = state.read(&parameter.id, kind, &shard).unwrap();
            assert_eq!(found, expected(&parameter, kind, &shard));
        }
    }
}

/// Names in a directory, in order.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_layout_reads_what_any_other_wrote(
        shapes in prop::collection::vec(prop::collection::vec(1usize..8, 0..4), 1..4),
        (writing, reading) in (cuts(), cuts()),
        world_size in 1usize..5,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let parameters = parameters(&shapes);
        let ranks = deal(&parameters, &writing, world_size);
        let path = save(directory.path(), 120, &parameters, &ranks, ALL).unwrap();
        prop_assert!(path.ends_with("step-00000120"));
        let state = State::open(&path).unwrap();
        state.verify().unwrap();
        prop_assert_eq!(state.training(), &training(120));
        for parameter in &parameters {
            for kind in KINDS {
                for shard in reading.shards(&parameter.shape) {
                    let found = state.read(&parameter.id, kind, &shard).unwrap();
                    prop_assert_eq!(found, expected(parameter, kind, &shard));
                }
            }
        }
    }

    /// Shards at random, overlapping and with gaps: what is read is right, or the first gap is named.
    #[test]
    fn replicas_agree_and_gaps_are_named(
        (shape, shards) in prop::collection::vec(1usize..6, 1..4).prop_flat_map(|shape| {
            let part: Vec<_> = shape.iter().map(|size| range(*size)).collect();
            let shard = (part, 0.0f64..=1.0, 0.0f64..=1.0).prop_map(|(part, a, b)| {
                let len = Shard::of_part(part.clone()).len() as f64;
                let [a, b] = [a, b].map(|x| (x * len).round() as usize);
                Shard { part, flat: a.min(b)..a.max(b) }
            });
            (Just(shape), prop::collection::vec(shard, 2..6))
        }),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let parameters = parameters(&[shape]);
        let parameter = &parameters[0];
        let (wanted, written) = shards.split_first().unwrap();
        let piece = |shard: &Shard, kind| {
            Piece { parameter: parameter.id.clone(), kind, shard: shard.clone() }
        };
        // Weights must be whole to be committed; moments need not be there at all.
        let whole = Shard::whole(&parameter.shape);
        let places_of = |shard: &Shard| {
            places(&parameter.shape, &shard.part)[shard.flat.clone()].to_vec()
        };
        let written_places: Vec<usize> = written.iter().flat_map(places_of).collect();
        let is_there = |place: &usize| written_places.contains(place);
        let covers = places_of(&whole).iter().all(is_there);
        let pieces: Vec<_> =
            written.iter().map(|shard| piece(shard, PieceKind::Weight)).collect();
        let saved = save(directory.path(), 1, &parameters, &[pieces], ALL);
        prop_assert_eq!(saved.is_ok(), covers);
        match saved {
            Ok(path) => {
                let state = State::open(&path).unwrap();
                let found = state.read(&parameter.id, PieceKind::Weight, wanted).unwrap();
                prop_assert_eq!(found, expected(parameter, PieceKind::Weight, wanted));
            }
            Err(CheckpointError::Gap { range, len, .. }) => {
                let lacking = (0..len).find(|place| !is_there(place)).unwrap();
                let after = (lacking..len).find(is_there).unwrap_or(len);
                prop_assert_eq!(range, lacking..after);
                prop_assert!(names(directory.path()).is_empty());
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn what_is_cut_short_is_never_read(at: prop::sample::Index, which in 0usize..3) {
        let directory = tempfile::tempdir().unwrap();
        let old = save_small(directory.path(), 10);
        let new = save_small(directory.path(), 20);
        let name = ["rank-00000.safetensors", "rank-00001.safetensors", "manifest.json"][which];
        let file = OpenOptions::new().write(true).open(new.join(name)).unwrap();
        let expected_len = file.metadata().unwrap().len();
        let len = at.index(expected_len as usize) as u64;
        file.set_len(len).unwrap();

        let error = State::open(&new).unwrap_err();
        match &error {
            CheckpointError::Size { path, expected, found } => {
                prop_assert!(path.ends_with(name));
                prop_assert_eq!((*expected, *found), (expected_len, len));
            }
            CheckpointError::Malformed { .. } => prop_assert_eq!(name, "manifest.json"),
            other => prop_assert!(false, "{}", other),
        }
        let found = latest(directory.path()).unwrap();
        prop_assert_eq!(found.path, Some(old));
        prop_assert_eq!(found.skipped.len(), 1);
    }

    #[test]
    fn a_changed_byte_is_found(at: prop::sample::Index, bit in 0u8..8) {
        let directory = tempfile::tempdir().unwrap();
        let path = save_small(directory.path(), 10);
        let file = path.join("rank-00001.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(&file, bytes).unwrap();
        let error = State::open(&path).unwrap().verify().unwrap_err();
        prop_assert!(matches!(error, CheckpointError::Changed { .. }), "{}", error);
    }
}

/// Every bit of a number comes back: signs of zeros, numbers below the normal ones, infinities, NaNs.
#[test]
fn numbers_are_kept_bit_by_bit() {
    let directory = tempfile::tempdir().unwrap();
    // A wider type has every number, but not what is none.
    let single = [0x8000_0000, 1, 0x7f80_0000, 0x3f80_0001, 0xff7f_ffff, 3];
    let single = single.map(|bits| f64::from(f32::from_bits(bits)));
    let double = [1 << 63, 1, 0x7ff0 << 48, 0x7ff8_0000_0000_1234, 0x3ff0_0000_0000_0001, 3];
    let double = double.map(f64::from_bits);
    let parameters = parameters(&[vec![6]]);
    let whole = Shard::whole(&[6]);
    let piece = Piece {
        parameter: parameters[0].id.clone(),
        kind: PieceKind::Weight,
        shard: whole.clone(),
    };
    for (step, element, values) in [(1, Element::F32, single), (2, Element::F64, double)] {
        let writer = Writer::begin(directory.path(), step).unwrap();
        writer.write_rank(0, element, std::slice::from_ref(&piece), |_| values.to_vec()).unwrap();
        let path = writer.commit(training(step), 1, &parameters, ALL).unwrap();
        let state = State::open(&path).unwrap();
        let found = state.read(&piece.parameter, piece.kind, &whole).unwrap();
        let bits = found.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert_eq!(bits, values.map(f64::to_bits));
    }
}

/// The pieces that one rank reads are those that it wrote, also where several threads read at once.
#[test]
fn ranks_may_be_threads() {
    let directory = tempfile::tempdir().unwrap();
    let parameters = parameters(&[vec![16, 12], vec![5], vec![3, 4, 8]]);
    let cuts = Cuts { dims: vec![vec![1, 3], vec![2]], flat: vec![0.3, 0.7] };
    let ranks = deal(&parameters, &cuts, 4);
    let writer = Writer::begin(directory.path(), 1).unwrap();
    std::thread::scope(|scope| {
        for (rank, pieces) in (0..).zip(&ranks) {
            let (writer, parameters) = (&writer, &parameters);
            scope.spawn(move || {
                let values = |piece: &Piece| values(parameters, piece);
                writer.write_rank(rank, Element::F64, pieces, values).unwrap();
            });
        }
    });
    let path = writer.commit(training(1), 4, &parameters, ALL).unwrap();
    let state = State::open(&path).unwrap();
    let by_id: BTreeMap<_, _> = parameters.iter().map(|p| (&p.id, p)).collect();
    std::thread::scope(|scope| {
        for pieces in &ranks {
            let (state, by_id) = (&state, &by_id);
            scope.spawn(move || {
                for Piece { parameter, kind, shard } in pieces {
                    let found = state.read(parameter, *kind, shard).unwrap();
                    assert_eq!(found, expected(by_id[parameter], *kind, shard));
                }
            });
        }
    });
}
