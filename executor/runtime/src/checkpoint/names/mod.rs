//! What files call parameters, and how they hold them.

mod family;
mod module;

use std::collections::BTreeMap;

use ir::graph::AdapterPart;
use ir::model::{Join, TensorForm, TensorModule, TensorNames, tensor_names};

use self::family::LEFT_OUT;
pub use self::module::Orientation;
use self::module::{Splits, joined};
use super::parameter::{Form, ModelParameter, ParameterId};

/// Whose names files use: Hugging Face's for a family, or our own, `block.operator.parameter`, with the dimensions
/// that the model has here.
#[derive(Clone, Debug)]
pub struct Naming {
    family: Option<TensorNames>,
    /// What each linear layer puts out, by block and operator.
    outputs: BTreeMap<(u32, String), Outputs>,
    /// Layers of the model.
    num_layers: u32,
}

/// How much a linear layer puts out.
#[derive(Clone, Copy, Debug)]
struct Outputs {
    all: usize,
    /// Its first dimension, as the number of heads.
    first: usize,
}

/// How a parameter lies in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The tensor; of experts one for each, unless one has them all.
    pub tensors: Vec<String>,
    /// The shape of each of them.
    pub shape: Vec<usize>,
    /// How a tensor's rows and columns are ours.
    pub orientation: Orientation,
    /// Where the parameter is one of several in the tensor.
    pub fused: Option<Fused>,
}

/// A parameter's place among what comes out of a tensor of several: in blocks, which lie among those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// What comes out of all of them.
    pub total: usize,
    /// Where its first block begins.
    pub first: usize,
    /// How long its blocks are.
    pub block: usize,
    /// From the beginning of a block to that of the next.
    pub stride: usize,
}

impl Fused {
    /// Where its output number `index` lies.
    pub const fn place(&self, index: usize) -> usize {
        self.first + index / self.block * self.stride + index % self.block
    }
}

impl Naming {
    /// The names in files of an architecture, which may be given as Hugging Face's class or `model_type` or as the
    /// short form's word: those of its family where all of `parameters` have one there, else our own.
    pub fn of(architecture: &str, parameters: &[ModelParameter]) -> Self {
        let outputs = parameters.iter().filter(|it| it.id.name == "weight").filter_map(|it| {
            let dims = match it.form {
                Form::Linear { contracted } => &it.shape[contracted..],
                Form::Experts { contracted } => &it.shape[contracted + 1..],
                _ => return None,
            };
            let outputs = Outputs { all: dims.iter().product(), first: *dims.first()? };
            Some(((it.id.block, it.id.op.clone()), outputs))
        });
        let outputs: BTreeMap<_, _> = outputs.collect();
        let layers = parameters.iter().filter(|it| it.block_name == "layer");
        let num_layers = layers.filter_map(|it| it.layer).max().map_or(0, |last| last + 1);
        // The first of a class that has a name for each parameter is meant.
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

    /// The first of the classes whose names these are; none if they are our own.
    pub fn class(&self) -> Option<&'static str> {
        self.family.as_ref().map(TensorNames::class)
    }

    /// Whether the layers of the family are `Conv1D`, whose weights lie as they do here.
    pub fn has_conv1d(&self) -> bool {
        self.family.as_ref().is_some_and(family::has_conv1d)
    }

    /// How files hold a parameter; none if these names have no word for it.
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

    /// Whether files may have a tensor that the model has no parameter for: what is made anew, copies of what is tied,
    /// heads of other tasks, layers that predict further tokens.
    pub fn leaves_out(&self, tensor: &str) -> bool {
        let is_further = || {
            let number = tensor.strip_prefix("model.layers.")?.split('.').next()?.parse::<u32>();
            Some(number.ok()? >= self.num_layers)
        };
        let is_known = LEFT_OUT.iter().any(|part| tensor.contains(part));
        self.family.is_some() && (is_known || is_further().unwrap_or(false))
    }

    /// Where `parameter`, one of those of `join`, lies among them.
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
        };
        let blocks: Vec<usize> = all.iter().map(|it| it.all / groups).collect();
        Some(Fused {
            total: all.iter().map(|it| it.all).sum(),
            first: blocks[..index].iter().sum(),
            block: blocks[index],
            stride: blocks.iter().sum(),
        })
    }

    /// How peft's files hold a matrix of an adapter; none if these names have no word for the layer that it is
    /// beside, or that layer is one of several in a tensor, which peft gives one adapter together.
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
        // Both are `nn.Linear`, whatever the layer is.
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

    /// Whether all of `parameters` have a name, and those that share a tensor agree about it.
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

/// A parameter of a module: a matrix, or one for each expert, or a vector.
fn by_module(
    parameter: &ModelParameter,
    prefix: &str,
    module: &TensorModule,
    fused: Option<Fused>,
) -> Stored {
    let name = match module.form {
        TensorForm::Bare | TensorForm::Within(_) => format!("{prefix}{}", module.name),
        TensorForm::Named => format!("{prefix}{}.{}", module.name, parameter.id.name),
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
