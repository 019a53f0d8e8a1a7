//! Parameters of the model, and the parts that a rank holds.

use std::ops::Range;

use executor_kernels::random::{from_0_to_1, hash, standard_normal};
use ir::graph::{
    AdapterPart, Learning, Op, OpId, OpKind, Parameter, Placement, Recurrence, WeightFormat,
    adapted_layer,
};
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::block::BlockProgram;
use crate::checkpoint::ParameterId;
use crate::mesh::part;
use crate::quantised::{Rows, quantised, restored};

/// The part of a parameter that a rank holds before ZeRO shards it.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalParameter {
    /// Identifier of the parameter.
    pub id: ParameterId,
    /// Sizes of the whole parameter, outermost first.
    pub full_shape: Vec<usize>,
    /// The range along each dimension.
    pub part: Vec<Range<usize>>,
    /// True for parameters of experts.
    pub(crate) is_expert: bool,
    /// True where an earlier tensor-parallel rank has the same part, although the two are not replicas.
    pub(crate) is_tensor_copy: bool,
    /// Number of neighbouring tensor-parallel ranks over which the gradient has to be summed: each has some of the
    /// tokens, or of the heads.
    pub(crate) summed_over: usize,
    /// Initial values of its elements.
    pub(crate) initial: Initial,
    /// Role in training.
    pub learning: Learning,
    /// Storage format: other than plain only where the parameter is frozen.
    pub(crate) format: WeightFormat,
    /// The dimensions that layouts shard.
    cut: Vec<usize>,
}

/// Distribution of the initial elements of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Initial {
    /// One constant.
    Constant(f64),
    /// Normal around zero, with this standard deviation.
    Normal(f64),
    /// Uniform between minus this and this.
    Uniform(f64),
    /// Logarithms of numbers that are uniform between these.
    LogOfUniform([f64; 2]),
    /// Numbers whose softplus, `log(1 + e^x)`, is log-uniform between these.
    BeforeSoftplus([f64; 2]),
}

/// A rank's position among the ranks that shard parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Index among the tensor-parallel ranks, and their number.
    pub(crate) tensor: (usize, usize),
    /// Index among the expert-tensor-parallel ranks, and their number.
    pub(crate) expert_tensor: (usize, usize),
    /// Index among the expert-parallel ranks, and their number.
    pub(crate) expert: (usize, usize),
}

impl Sharing {
    /// A single rank.
    pub(crate) const NONE: Self = Self { tensor: (0, 1), expert_tensor: (0, 1), expert: (0, 1) };
}

impl LocalParameter {
    /// A rank's part of parameter `index` of operator `op`, in block number `block` with program `program`.
    pub(crate) fn new(
        program: &BlockProgram,
        block: u32,
        op: OpId,
        index: usize,
        sharing: Sharing,
        initializer_range: Option<f64>,
    ) -> Self {
        let operator = program.op(op);
        let parameter = &operator.parameters[index];
        let is_expert = is_expert(&operator.kind);
        let (place, num_ranks) = if is_expert { sharing.expert_tensor } else { sharing.tensor };
        let cut = parameter.cut(is_expert);
        let full_shape: Vec<usize> = parameter.sizes().map(|size| size as usize).collect();
        // With fewer key-value heads than ranks, neighbours have the same head.
        let copies =
            cut.tensor.map_or(1, |dim| parameter.num_copies(dim, num_ranks as u32)) as usize;
        let parts = full_shape.iter().enumerate().map(|(dim, size)| {
            if cut.expert == Some(dim) {
                part(*size, sharing.expert.1, sharing.expert.0)
            } else if cut.tensor == Some(dim) {
                part(*size, num_ranks / copies, place / copies)
            } else {
                0..*size
            }
        });
        let part = parts.collect();
        let sees_part = matches!(program.placements.outputs[op.index()], Placement::Shard(_));
        Self {
            id: ParameterId { block, op: operator.name.clone(), name: parameter.name.clone() },
            part,
            is_expert,
            is_tensor_copy: if cut.tensor.is_none() { place > 0 } else { place % copies > 0 },
            summed_over: match cut.tensor {
                None if sees_part => num_ranks,
                None => 1,
                Some(_) => copies,
            },
            initial: initial(operator, parameter, &full_shape, initializer_range),
            learning: operator.learning,
            format: operator.format(parameter),
            cut: cut.expert.into_iter().chain(cut.tensor).collect(),
            full_shape,
        }
    }

    /// Sizes of the part, outermost first.
    pub fn shape(&self) -> Vec<usize> {
        self.part.iter().map(ExactSizeIterator::len).collect()
    }

    /// Elements of the part.
    pub fn num_elements(&self) -> usize {
        self.part.iter().map(ExactSizeIterator::len).product()
    }

    /// The initial values of the part, in row-major order; the same in every layout.
    pub fn initial_values(&self, seed: u64) -> Vec<f64> {
        let stream =
            self.id.to_string().bytes().fold(seed, |state, byte| hash([state, byte.into()]));
        let value = |element: u64| match self.initial {
            Initial::Constant(value) => value,
            Initial::Normal(deviation) => {
                let uniform = |i| from_0_to_1(hash([stream, element, i]));
                deviation * standard_normal(uniform(0), uniform(1))
            }
            Initial::Uniform(bound) => bound * (2.0 * from_0_to_1(hash([stream, element])) - 1.0),
            Initial::LogOfUniform([least, most]) => {
                (least + (most - least) * from_0_to_1(hash([stream, element]))).ln()
            }
            Initial::BeforeSoftplus([least, most]) => {
                let share = from_0_to_1(hash([stream, element]));
                let number = least * (most / least).powf(share);
                number + (-(-number).exp_m1()).ln()
            }
        };
        let shape = self.shape();
        let places = (0..self.num_elements()).into_par_iter();
        places.map(|local| value(self.element(&shape, local) as u64)).collect()
    }

    /// The dimensions in the order of quantised rows: first the dimensions that layouts shard, which number the rows.
    fn dims_in_rows(&self) -> Vec<usize> {
        let others = (0..self.part.len()).filter(|dim| !self.cut.contains(dim));
        self.cut.iter().copied().chain(others).collect()
    }

    /// Sizes of the dimensions in the order of [`Self::dims_in_rows`].
    pub(crate) fn sizes_in_rows(&self) -> Vec<usize> {
        self.dims_in_rows().into_iter().map(|dim| self.part[dim].len()).collect()
    }

    /// For each dimension, its index in the order of [`Self::dims_in_rows`].
    pub(crate) fn places_in_rows(&self) -> Vec<usize> {
        let dims = self.dims_in_rows();
        let place = |dim| dims.iter().position(|other| *other == dim);
        (0..dims.len()).map(|dim| place(dim).expect("every dimension is there")).collect()
    }

    /// The rows in which the part is quantised.
    pub(crate) fn rows(&self) -> Rows {
        let sizes = self.sizes_in_rows();
        let (count, len) = sizes.split_at(self.cut.len());
        Rows { count: count.iter().product(), len: len.iter().product() }
    }

    /// For each value in the order of rows, its index in row-major order.
    fn places_of_rows(&self) -> Vec<usize> {
        let shape = self.shape();
        let stride = |dim: usize| shape[dim + 1..].iter().product::<usize>();
        let dims = self.dims_in_rows().into_iter();
        dims.fold(vec![0], |places: Vec<usize>, dim| {
            let along = |place: &usize| {
                let place = *place;
                (0..shape[dim]).map(move |index| place + index * stride(dim))
            };
            places.iter().flat_map(along).collect()
        })
    }

    /// Values in row-major order, reordered by rows.
    pub(crate) fn in_rows(&self, values: &[f64]) -> Vec<f64> {
        self.places_of_rows().into_iter().map(|place| values[place]).collect()
    }

    /// Values in row-major order after a round trip through the storage format.
    pub fn as_stored(&self, values: Vec<f64>) -> Vec<f64> {
        if self.format == WeightFormat::Plain {
            return values;
        }
        let (places, len) = (self.places_of_rows(), self.rows().len);
        let codes = quantised(&self.in_rows(&values), len, self.format);
        let mut stored = values;
        for (place, value) in places.into_iter().zip(restored(&codes, len, self.format)) {
            stored[place] = value;
        }
        stored
    }

    /// The index in the whole parameter of an element of the part, whose shape is given.
    fn element(&self, shape: &[usize], mut local: usize) -> usize {
        let (mut place, mut stride) = (0, 1);
        for dim in (0..shape.len()).rev() {
            place += (self.part[dim].start + local % shape[dim]) * stride;
            local /= shape[dim];
            stride *= self.full_shape[dim];
        }
        place
    }
}

/// Returns whether operators of this kind have parameters for each expert.
pub(crate) fn is_expert(kind: &OpKind) -> bool {
    matches!(kind, OpKind::GroupedLinear { .. })
}

/// Initial distribution of a parameter. Adapters are initialised as in peft: B is zero, and A is uniform between `-a`
/// and `a`, where `a = 1 / sqrt(n)` for sums of `n` terms (Kaiming's initialisation with a slope of `sqrt(5)`). Norms
/// are the identity, and biases are zero. Weights of transformers are normal with the standard deviation of their
/// configuration; weights of other models are uniform between `-a` and `a`, as in PyTorch's layers.
fn initial(
    op: &Op,
    parameter: &Parameter,
    shape: &[usize],
    initializer_range: Option<f64>,
) -> Initial {
    match adapted_layer(op) {
        Some((_, AdapterPart::Up)) => return Initial::Constant(0.0),
        Some((_, AdapterPart::Down)) => return Initial::Uniform(1.0 / summed(op, shape).sqrt()),
        None => {}
    }
    match &op.kind {
        OpKind::Norm { unit_offset, .. } => {
            let is_one = parameter.name == "weight" && !unit_offset;
            Initial::Constant(if is_one { 1.0 } else { 0.0 })
        }
        // As in mamba's `Mamba2` and flash-linear-attention's `GatedDeltaNet`.
        OpKind::Recurrence { kind, .. } => match &*parameter.name {
            "A_log" if *kind == Recurrence::DeltaRule => Initial::LogOfUniform([0.0, 16.0]),
            "A_log" => Initial::LogOfUniform([1.0, 16.0]),
            "dt_bias" => Initial::BeforeSoftplus([0.001, 0.1]),
            _ => Initial::Constant(1.0),
        },
        _ if parameter.name == "bias" => Initial::Constant(0.0),
        // As in PyTorch's `Conv1d`.
        OpKind::ShortConvolution { kernel, .. } => Initial::Uniform(1.0 / (*kernel as f64).sqrt()),
        _ => {
            if let Some(deviation) = initializer_range {
                return Initial::Normal(deviation);
            }
            Initial::Uniform(1.0 / summed(op, shape).sqrt())
        }
    }
}

/// Number of products that are summed in an element of an operator's output.
fn summed(op: &Op, shape: &[usize]) -> f64 {
    let summed: usize = match &op.kind {
        OpKind::Linear { contracted, .. } => shape[..contracted.len()].iter().product(),
        OpKind::GroupedLinear { contracted, .. } => shape[1..=contracted.len()].iter().product(),
        OpKind::Conv2d { .. } => shape[1..].iter().product(),
        _ => shape[0],
    };
    summed as f64
}
