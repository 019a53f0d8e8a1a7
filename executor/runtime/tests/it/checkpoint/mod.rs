//! Files of weights and checkpoints: what goes in comes out, in any layout and after any accident.

mod accidents;
mod state;
mod weights;

use std::ops::Range;
use std::path::{Path, PathBuf};

use executor_runtime::checkpoint::{CheckpointError, ModelParameter, ParameterId};
use ir::model::{GraphOptions, Model};
use proptest::prelude::*;

/// The folder of a reference run.
fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(name)
}

/// The architecture and the parameters of a model.
fn model(text: &str) -> (String, Vec<ModelParameter>) {
    let model = Model::from_json(text, "model").unwrap();
    let graph = model.graph(GraphOptions::default()).unwrap();
    let parameters = ModelParameter::all(&graph).into_iter().map(|(parameter, _)| parameter);
    (model.architecture, parameters.collect())
}

fn id(text: &str) -> ParameterId {
    text.to_owned().try_into().unwrap()
}

/// What an error says, with `directory` left out.
fn message(error: &CheckpointError, directory: &Path) -> String {
    error.to_string().replace(&format!("{}/", directory.display()), "")
}

/// A range within a dimension, at times all of it, at times empty.
fn range(size: usize) -> impl Strategy<Value = Range<usize>> {
    prop_oneof![Just(0..size), (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b)),]
}

/// Places of the elements of a part among all of a parameter of shape `shape`, in row-major order:
/// the definition that the faster ways must agree with.
fn places(shape: &[usize], part: &[Range<usize>]) -> Vec<usize> {
    let num_elements = shape.iter().product();
    let is_in_part = |place: &usize| {
        let mut rest = *place;
        shape.iter().zip(part).rev().all(|(size, range)| {
            let index = rest % size;
            rest /= size;
            range.contains(&index)
        })
    };
    (0..num_elements).filter(is_in_part).collect()
}
