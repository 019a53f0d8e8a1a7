//! Names and storage of parameters in files.

mod family;
mod module;

use std::collections::BTreeMap;

use ir::graph::AdapterPart;
use ir::model::{Join, TensorForm, TensorModule, TensorNames, tensor_names};

use self::family::LEFT_OUT;
pub use self::module::Orientation;
use self::module::{Splits, joined};
use super::parameter::{Form, ModelParameter, ParameterId};

/// Naming of tensors in files: Hugging Face's for a family, or our own, `block.operator.parameter`, with the dimensions
/// of the model here.
#[derive(Clone, Debug)]
pub struct Naming {
    family: Option<TensorNames>,
    /// Output sizes of each linear layer and convolution, by block and operator.
    outputs: BTreeMap<(u32, String), Outputs>,
    /// Number of layers of the model.
    num_layers: u32,
}

/// Output sizes of a linear layer, or of a convolution of each feature by itself.
#[derive(Clone, Copy, Debug)]
struct Outputs {
    all: usize,
    /// Size of the first output dimension, such as the number of heads.
    first: usize,
}

/// Storage of a parameter in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Names of the tensors; for experts one each, unless one tensor has all experts.
    pub tensors: Vec<String>,
    /// Shape of each tensor.
    pub shape: Vec<usize>,
    /// Orientation of a tensor's rows and columns.
    pub orientation: Orientation,
    /// Location of the parameter in a tensor that several parameters share, where it is in one.
    pub fused: Option<Fused>,
}

/// Location of a parameter in a tensor that several parameters share: its outputs are in blocks, interleaved with
/// blocks of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// Number of outputs of all parameters in the tensor.
    pub total: usize,
    /// Offset of the first block.
    pub first: usize,
    /// Length of a block.
    pub block: usize,
    /// Distance between the starts of two blocks.
    pub stride: usize,
}

impl Fused {
    /// Offset of output number `index`.
    pub const fn place(&self, index: usize) -> usize {
        self.first + index / self.block * self.stride + index % self.block
    }
}

impl Naming {
    /// The names in files of an architecture, which is given as Hugging Face's class, as `model_type` or as the word of
    /// the short form. They are the names of its family if these cover all of `parameters`, else our own.
    pub fn of(architecture: &str, parameters: &[ModelParameter]) -> Self {
        let outputs = parameters.iter().filter(|it| it.id.name == "weight").filter_map(|it| {
            let dims = match it.form {
                Form::Linear { contracted } => &it.shape[contracted..],
                Form::Experts { contracted } => &it.shape[contracted + 1..],
                Form::Kernels => &it.shape[..it.shape.len() - 1],
                _ => return None,
            };
            let outputs = Outputs { all: dims.iter().product(), first: *dims.first()? };
            Some(((it.id.block, it.id.op.clone()), outputs))
        });
        let outputs: BTreeMap<_, _> = outputs.collect();
        let layers = parameters.iter().filter(|it| it.block_name == "layer");
        let num_layers = layers.filter_map(|it| it.layer).max().map_or(0, |last| last + 1);
        // The first family of the class that names every parameter is taken.
        let mut namings = tensor_names(architecture).into_iter().map(|family| Self {
            family: Some(family),
            outputs: outputs.clone(),
            num_layers,
        });
        namings.find(|naming| naming.fits(parameters)).unwrap_or_else(Self::native)
    }

    /// Our own names.
    pub const fn native() -> Self {
        Self { family: None, outputs: BTreeMap::new(), num_layers: 0 }
    }

    /// The first class of the family; none for our own names.
    pub fn class(&self) -> Option<&'static str> {
        self.family.as_ref().map(TensorNames::class)
    }

    /// Returns whether the layers of the family are `Conv1D`, whose weights have the orientation used here.
    pub fn has_conv1d(&self) -> bool {
        let mut modules = self.family.iter().flat_map(TensorNames::modules);
        modules.any(|(op, module)| op == "attention.output" && module.inputs_first)
    }

    /// Storage of a parameter in files; none if the naming does not cover it.
    pub fn stored(&self, parameter: &ModelParameter) -> Option<Stored> {
        let Some(family) = &self.family else { return Some(native(parameter)) };
        let (prefix, module) = family::find(family, parameter, self.num_layers)?;
        let outputs = self.outputs.get(&(parameter.id.block, parameter.id.op.clone()));
        let fused = match (module.joins, outputs) {
            (Some(join), Some(outputs)) => Some(self.fused(parameter, join, *outputs)?),
            _ => None,
        };
        Some(by_module(parameter, &prefix, module, fused))
    }

    /// Returns whether files may have a tensor without a parameter in the model: buffers that are recomputed, copies of
    /// tied weights, heads of other tasks, or layers that predict further tokens. Such layers have their own projection
    /// among the tensors that the file `has`.
    pub fn leaves_out(&self, tensor: &str, has: impl Fn(&str) -> bool) -> bool {
        let is_further = || {
            let number = tensor.strip_prefix("model.layers.")?.split('.').next()?.parse::<u32>();
            let number = number.ok()?;
            let is_after = number >= self.num_layers;
            Some(is_after && has(&format!("model.layers.{number}.eh_proj.weight")))
        };
        let is_known = LEFT_OUT.iter().any(|part| tensor.contains(part));
        self.family.is_some() && (is_known || is_further().unwrap_or(false))
    }

    /// Location of `parameter`, one of the parameters of `join`, in the tensor that they share.
    fn fused(&self, parameter: &ModelParameter, join: Join, own: Outputs) -> Option<Fused> {
        let (ops, splits) = joined(join);
        let of = |op: &&str| self.outputs.get(&(parameter.id.block, (*op).to_owned())).copied();
        let all: Vec<Outputs> = ops.iter().map(of).collect::<Option<_>>()?;
        let index = ops.iter().position(|op| *op == parameter.id.op)?;
        let groups = match splits {
            Splits::Evenly if all.iter().any(|it| it.all != own.all) => return None,
            Splits::Not | Splits::Evenly => 1,
            // Keys have the fewest heads.
            Splits::ByHead => all.iter().map(|it| it.first).min()?,
            Splits::ByFeature => own.all,
            Splits::ByHeadsOf(op) => of(&op)?.first,
        };
        let blocks: Vec<usize> = all.iter().map(|it| it.all / groups).collect();
        Some(Fused {
            total: all.iter().map(|it| it.all).sum(),
            first: blocks[..index].iter().sum(),
            block: blocks[index],
            stride: blocks.iter().sum(),
        })
    }

    /// Storage of an adapter's matrix in peft's files; none if the naming does not cover the adapted layer, or the
    /// layer shares a tensor with others, for which peft has one adapter.
    pub fn stored_adapter(&self, parameter: &ModelParameter) -> Option<Stored> {
        let (layer, part) = parameter.id.op.rsplit_once('.')?;
        let part = AdapterPart::ALL.into_iter().find(|known| known.name() == part)?;
        let id = ParameterId { op: layer.to_owned(), ..parameter.id.clone() };
        let base = self.stored(&ModelParameter { id, ..parameter.clone() })?;
        if self.family.is_none() || base.fused.is_some() {
            return None;
        }
        let module = match part {
            AdapterPart::Down => "lora_A",
            AdapterPart::Up => "lora_B",
        };
        let of_layer = |tensor: String| {
            let layer = tensor.strip_suffix(".weight").unwrap_or(&tensor).to_owned();
            format!("base_model.model.{layer}.{module}.weight")
        };
        let tensors = base.tensors.into_iter().map(of_layer).collect();
        // Both matrices are `nn.Linear`, whatever the kind of the layer.
        let contracted = match parameter.form {
            Form::Linear { contracted } => contracted,
            Form::Experts { contracted } => contracted + 1,
            _ => return None,
        };
        let is_expert = matches!(parameter.form, Form::Experts { .. });
        let (inputs, outputs) = parameter.shape.split_at(contracted);
        let inputs = inputs.iter().skip(usize::from(is_expert)).product();
        let shape = vec![outputs.iter().product(), inputs];
        Some(Stored { tensors, shape, orientation: Orientation::OutputsFirst, fused: None })
    }

    /// Returns whether all of `parameters` have a name, and parameters that share a tensor agree on its shape.
    fn fits(&self, parameters: &[ModelParameter]) -> bool {
        let mut shapes = BTreeMap::new();
        parameters.iter().all(|parameter| {
            self.stored(parameter).is_some_and(|stored| {
                stored.tensors.into_iter().all(|tensor| {
                    *shapes.entry(tensor).or_insert_with(|| stored.shape.clone()) == stored.shape
                })
            })
        })
    }
}

/// Storage of a parameter of a module: a matrix, one for each expert, or a vector.
fn by_module(
    parameter: &ModelParameter,
    prefix: &str,
    module: &TensorModule,
    fused: Option<Fused>,
) -> Stored {
    let name = match module.form {
        TensorForm::Bare | TensorForm::Within(_) => format!("{prefix}{}", module.name),
        TensorForm::Named | TensorForm::Flat => {
            format!("{prefix}{}.{}", module.name, parameter.id.name)
        }
    };
    let shape = &parameter.shape;
    let orientation =
        if module.inputs_first { Orientation::InputsFirst } else { Orientation::OutputsFirst };
    let matrix = |inputs: &[usize], outputs: &[usize]| {
        let inputs: Option<usize> = (!inputs.is_empty()).then(|| inputs.iter().product());
        let own = outputs.iter().product();
        let outputs = Some(fused.map_or(own, |fused| fused.total));
        let sides = match orientation {
            Orientation::InputsFirst => [inputs, outputs],
            Orientation::OutputsFirst => [outputs, inputs],
        };
        sides.into_iter().flatten().collect::<Vec<usize>>()
    };
    let (tensors, shape) = match parameter.form {
        _ if let TensorForm::Within(leading) = module.form => {
            (vec![name], [&vec![1; leading][..], shape].concat())
        }
        Form::Linear { contracted } => {
            (vec![name], matrix(&shape[..contracted], &shape[contracted..]))
        }
        Form::Experts { contracted } => {
            let of_one = matrix(&shape[1..=contracted], &shape[contracted + 1..]);
            if name.contains("{}") {
                let tensors = (0..shape[0]).map(|it| name.replace("{}", &it.to_string()));
                (tensors.collect(), of_one)
            } else {
                (vec![name], [&shape[..1], &of_one].concat())
            }
        }
        Form::Kernels => {
            let (kernel, features) = shape.split_last().expect("a kernel has positions");
            let own = features.iter().product();
            (vec![name], vec![fused.map_or(own, |fused| fused.total), 1, *kernel])
        }
        _ if module.form == TensorForm::Flat => (vec![name], vec![shape.iter().product()]),
        Form::Vector => (vec![name], matrix(&[], shape)),
        Form::Table | Form::Other => (vec![name], shape.clone()),
    };
    let is_matrix = matches!(parameter.form, Form::Linear { .. } | Form::Experts { .. });
    let orientation = if is_matrix { orientation } else { Orientation::InputsFirst };
    Stored { tensors, shape, orientation, fused }
}

fn native(parameter: &ModelParameter) -> Stored {
    Stored {
        tensors: vec![parameter.id.to_string()],
        shape: parameter.shape.clone(),
        orientation: Orientation::InputsFirst,
        fused: None,
    }
}
