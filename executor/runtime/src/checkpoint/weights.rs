//! Weights from the files of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use half::{bf16, f16};
use safetensors::Dtype;
use serde::Deserialize;

use super::error::CheckpointError;
use super::names::{Naming, Orientation, Stored};
use super::parameter::{Form, ModelParameter, ParameterId};
use super::tensors::{Tensor, TensorFile};

/// A model in one file.
const SINGLE_FILE: &str = "model.safetensors";
/// The index of a model in several files.
const INDEX_FILE: &str = "model.safetensors.index.json";
/// Prefix of GPT-2's names. Files lack it if the model was saved without its head.
const OPTIONAL_PREFIX: &str = "transformer.";

/// The element types that are read.
const FLOATING_POINT: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::BF16, Dtype::F16];

/// Rows and columns of a tile of a matrix that is transposed: 64 by 64 numbers of 4 bytes stay in the smallest cache.
const TILE: usize = 64;

/// The weights of a model in memory-mapped safetensors files.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    naming: Naming,
    parameters: BTreeMap<ParameterId, ModelParameter>,
    files: Vec<TensorFile>,
    /// Index of the file of each tensor.
    tensors: BTreeMap<String, usize>,
}

/// Content of `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// The weights in a file, or in a directory with `model.safetensors` or
    /// `model.safetensors.index.json`, of a model that has `parameters`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if a file is missing, cut short or not in the format.
    pub fn open(
        path: &Path,
        naming: &Naming,
        parameters: &[ModelParameter],
    ) -> Result<Self, CheckpointError> {
        let (single, index) = (path.join(SINGLE_FILE), path.join(INDEX_FILE));
        let paths = if !path.is_dir() {
            vec![path.to_owned()]
        } else if single.exists() {
            vec![single]
        } else if index.exists() {
            listed(&index)?
        } else {
            return Err(CheckpointError::NoWeights { path: path.to_owned() });
        };
        let files = paths.iter().map(|path| TensorFile::open(path));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let names = |(index, file): (usize, &TensorFile)| {
            file.names().into_iter().map(move |name| (name, index))
        };
        let tensors: BTreeMap<String, usize> = files.iter().enumerate().flat_map(names).collect();
        let parameters: BTreeMap<_, _> =
            parameters.iter().map(|p| (p.id.clone(), p.clone())).collect();
        check_extra(path, naming, parameters.values(), &tensors)?;
        Ok(Self { path: path.to_owned(), naming: naming.clone(), parameters, files, tensors })
    }

    /// The elements of a part of a parameter, in row-major order of the model's dimensions. Only the files' pages that
    /// hold them are read.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if the files lack the tensor, or it has another shape or elements that are
    /// no floating-point numbers.
    ///
    /// # Panics
    ///
    /// If the model has no such parameter, or the part is not within it.
    pub fn read(
        &self,
        parameter: &ParameterId,
        part: &[Range<usize>],
    ) -> Result<Vec<f64>, CheckpointError> {
        let parameter = self.parameters.get(parameter).expect("the model has the parameter");
        let stored = self.stored(parameter)?;
        let is_within = part.len() == parameter.shape.len()
            && part.iter().zip(&parameter.shape).all(|(range, size)| range.end <= *size);
        assert!(is_within, "{part:?} is a part of {:?}", parameter.shape);

        let places = Places::new(parameter, &stored, part);
        let mut values = Vec::with_capacity(part.iter().map(ExactSizeIterator::len).product());
        for name in &stored.tensors[places.tensors.clone()] {
            let (file, tensor) = self.tensor(&parameter.id, name, &stored)?;
            places
                .gather(&tensor, &mut values)
                .ok_or_else(|| not_floating_point(file, name, tensor.dtype))?;
        }
        Ok(values)
    }

    /// Checks that every tensor of every parameter is there, with the model's shape and a floating-point type. Elements
    /// are not read.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] for the first tensor that fails.
    pub fn check(&self) -> Result<(), CheckpointError> {
        for parameter in self.parameters.values() {
            let stored = self.stored(parameter)?;
            for name in &stored.tensors {
                let (file, tensor) = self.tensor(&parameter.id, name, &stored)?;
                if !FLOATING_POINT.contains(&tensor.dtype) {
                    return Err(not_floating_point(file, name, tensor.dtype));
                }
            }
        }
        Ok(())
    }

    fn stored(&self, parameter: &ModelParameter) -> Result<Stored, CheckpointError> {
        let stored = self.naming.stored(parameter);
        stored.ok_or_else(|| CheckpointError::unnamed(&parameter.id))
    }

    /// The tensor called `name`, with its file.
    fn tensor(
        &self,
        parameter: &ParameterId,
        name: &str,
        stored: &Stored,
    ) -> Result<(&TensorFile, Tensor<'_>), CheckpointError> {
        let without = name.strip_prefix(OPTIONAL_PREFIX);
        let found = [Some(name), without].into_iter().flatten().find_map(|name| {
            let file = &self.files[*self.tensors.get(name)?];
            Some((file, file.tensor(name)?))
        });
        let (file, tensor) = found.ok_or_else(|| {
            CheckpointError::Unsuitable(format!(
                "`{}` has no tensor `{name}` for parameter `{parameter}`\nhint: it has {} tensors, the first `{}`",
                self.path.display(),
                self.tensors.len(),
                self.tensors.keys().next().map_or("", String::as_str)
            ))
        })?;
        if tensor.shape != stored.shape {
            return Err(CheckpointError::Unsuitable(format!(
                "`{}`: tensor `{name}` has shape {:?}, but parameter `{parameter}` of the model needs {:?}",
                file.path().display(),
                tensor.shape,
                stored.shape
            )));
        }
        Ok((file, tensor))
    }
}

fn not_floating_point(file: &TensorFile, tensor: &str, found: Dtype) -> CheckpointError {
    CheckpointError::element_type(file.path(), tensor, found, "F64, F32, BF16 or F16")
}

/// Checks that every tensor of the files belongs to the model. Where a tensor of the model is missing, this check
/// passes and [`Weights::check`] reports it.
fn check_extra<'a>(
    path: &Path,
    naming: &Naming,
    parameters: impl Iterator<Item = &'a ModelParameter>,
    tensors: &BTreeMap<String, usize>,
) -> Result<(), CheckpointError> {
    let mut used = BTreeSet::new();
    for name in parameters.filter_map(|it| naming.stored(it)).flat_map(|it| it.tensors) {
        let without = name.strip_prefix(OPTIONAL_PREFIX).map(str::to_owned);
        let Some(name) =
            [Some(name), without].into_iter().flatten().find(|it| tensors.contains_key(it))
        else {
            return Ok(());
        };
        used.insert(name);
    }
    let is_extra = |name: &&String| {
        !used.contains(*name) && !naming.leaves_out(name, |it| tensors.contains_key(it))
    };
    let extra: Vec<&String> = tensors.keys().filter(is_extra).collect();
    match extra.first() {
        None => Ok(()),
        Some(first) => Err(CheckpointError::Unsuitable(format!(
            "`{}` has {} tensors that the model has no parameter for, the first `{first}`\nhint: give the model and the \
             weights of one folder",
            path.display(),
            extra.len()
        ))),
    }
}

/// The files that an index names, each once.
fn listed(index: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let text = fs::read(index).map_err(CheckpointError::io("read", index))?;
    let content: Index =
        serde_json::from_slice(&text).map_err(|error| CheckpointError::malformed(index, &error))?;
    let names: BTreeSet<String> = content.weight_map.into_values().collect();
    let path = |name: String| {
        let mut parts = Path::new(&name).components();
        if let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) {
            return Ok(index.with_file_name(&name));
        }
        Err(CheckpointError::malformed(index, &format!("`{name}` is no file beside it")))
    };
    names.into_iter().map(path).collect()
}

/// Offsets of a part's elements in the tensors of a file: element `(r, c)` of each tensor is at `rows[r] + columns[c]`.
pub(super) struct Places {
    /// Range of tensors: one, or those of the part's experts.
    pub(super) tensors: Range<usize>,
    pub(super) rows: Vec<usize>,
    pub(super) columns: Vec<usize>,
}

impl Places {
    pub(super) fn new(parameter: &ModelParameter, stored: &Stored, part: &[Range<usize>]) -> Self {
        let has_experts = matches!(parameter.form, Form::Experts { .. });
        let by_expert = has_experts && stored.tensors.len() > 1;
        let first = usize::from(has_experts);
        let (shape, within) = (&parameter.shape[first..], &part[first..]);
        let row_dims = match parameter.form {
            Form::Linear { contracted } | Form::Experts { contracted } => contracted,
            Form::Kernels => shape.len() - 1,
            Form::Table => 1,
            Form::Vector | Form::Other => 0,
        };
        let [num_rows, num_columns] =
            [&shape[..row_dims], &shape[row_dims..]].map(|sizes| sizes.iter().product::<usize>());
        let output = |index: usize| stored.fused.map_or(index, |fused| fused.place(index));
        if parameter.form == Form::Kernels {
            let rows = linear(&shape[..row_dims], &within[..row_dims]);
            let rows = rows.into_iter().map(|feature| output(feature) * num_columns);
            let columns = within[row_dims].clone().collect();
            return Self { tensors: 0..1, rows: rows.collect(), columns };
        }
        let total = stored.fused.map_or(num_columns, |fused| fused.total);
        let (row_stride, column_stride) = match stored.orientation {
            Orientation::InputsFirst => (total, 1),
            Orientation::OutputsFirst => (1, num_rows),
        };
        let of_one = linear(&shape[..row_dims], &within[..row_dims]);
        // Experts in one tensor are consecutive.
        let experts = if has_experts && !by_expert { part[0].clone() } else { 0..1 };
        let of_expert = |expert: usize| {
            of_one.iter().map(move |row| expert * num_rows * total + row * row_stride)
        };
        let columns = linear(&shape[row_dims..], &within[row_dims..]);
        Self {
            tensors: if by_expert { part[0].clone() } else { 0..1 },
            rows: experts.flat_map(of_expert).collect(),
            columns: columns.into_iter().map(|it| output(it) * column_stride).collect(),
        }
    }

    /// Appends the part's elements of a tensor; none if they are not floating-point numbers.
    fn gather(&self, tensor: &Tensor<'_>, values: &mut Vec<f64>) -> Option<()> {
        match tensor.dtype {
            Dtype::F64 => self.gather_as(tensor, values, f64::from_le_bytes),
            Dtype::F32 => self.gather_as(tensor, values, |b| f32::from_le_bytes(b).into()),
            Dtype::BF16 => self.gather_as(tensor, values, |b| bf16::from_le_bytes(b).into()),
            Dtype::F16 => self.gather_as(tensor, values, |b| f16::from_le_bytes(b).into()),
            _ => return None,
        }
        Some(())
    }

    fn gather_as<const N: usize>(
        &self,
        tensor: &Tensor<'_>,
        values: &mut Vec<f64>,
        decode: impl Fn([u8; N]) -> f64,
    ) {
        let (elements, _) = tensor.bytes.as_chunks();
        let start = values.len();
        let width = self.columns.len();
        values.resize(start + self.rows.len() * width, 0.0);
        let values = &mut values[start..];
        self.for_each(|row, column, place| values[row * width + column] = decode(elements[place]));
    }

    /// Calls `visit` with the row, the column and the offset of each element, tile by tile, so that accesses both by
    /// rows and by columns stay in the cache.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, usize, usize)) {
        for (i, rows) in self.rows.chunks(TILE).enumerate() {
            for (j, columns) in self.columns.chunks(TILE).enumerate() {
                for (r, row) in rows.iter().enumerate() {
                    for (c, column) in columns.iter().enumerate() {
                        visit(i * TILE + r, j * TILE + c, row + column);
                    }
                }
            }
        }
    }
}

/// Offsets of a part's elements in an array of `shape`, both in row-major order.
fn linear(shape: &[usize], part: &[Range<usize>]) -> Vec<usize> {
    shape.iter().zip(part).fold(vec![0], |places, (size, range)| {
        places.iter().flat_map(|place| range.clone().map(move |i| place * size + i)).collect()
    })
}
