//! Conversion of node kinds in a file to operators of a graph.

use std::collections::BTreeSet;

use super::attributes::{
    DimNames, Extent, Function, InputElement, Mask, OutFeatures, Pair, Size, Symbol,
};
use super::kind::NodeKind;
use super::limits::MAX_SIZE;
use crate::graph;
use crate::graph::{
    Activation, AttentionMask, Dim, DimName, ElementType, EmbeddedRows, NormKind, OpKind, Real,
    RotaryScaling, Rotation, Routing, Scores, Tensor, Window2d,
};

/// Tensor of an input node.
pub(super) fn input(
    dims: &[DimName],
    shape: &[Extent],
    element: InputElement,
) -> Result<Tensor, String> {
    if dims.len() != shape.len() {
        let (names, sizes) = (dims.len(), shape.len());
        return Err(format!("`dims` names {names} dimensions, but `shape` has {sizes}"));
    }
    distinct("dims", dims)?;
    let dims = dims.iter().zip(shape).map(|(name, extent)| {
        if let Extent::Fixed(fixed) = extent {
            size("shape", *fixed)?;
        }
        let extent = self::extent(*extent);
        let fits = match extent {
            graph::Extent::Batch => *name == DimName::Batch,
            graph::Extent::Sequence | graph::Extent::Blocks(_) => {
                matches!(name, DimName::Sequence | DimName::Context)
            }
            graph::Extent::Fixed(_) => *name != DimName::Batch,
        };
        if !fits {
            return Err(format!(
                "dimension `{name}` cannot have size {extent}: the batch has size \"b\", and only a \
                 sequence may have size \"s\""
            ));
        }
        Ok(Dim { name: *name, extent })
    });
    let tensor = Tensor::new(dims.collect::<Result<Vec<_>, _>>()?);
    Ok(match element {
        InputElement::Number => tensor,
        InputElement::Index => tensor.with_element(ElementType::Index),
    })
}

/// The operator of a parameter node.
pub(super) fn parameter(names: &[DimName], shape: &[Size]) -> Result<OpKind, String> {
    let shape: Vec<Extent> = shape.iter().map(|size| Extent::Fixed(*size)).collect();
    Ok(OpKind::Parameter { dims: input(names, &shape, InputElement::Number)?.dims })
}

/// Converts the size of a dimension in a file.
pub(super) fn extent(extent: Extent) -> graph::Extent {
    match extent {
        Extent::Symbol(Symbol::Batch) => graph::Extent::Batch,
        Extent::Symbol(Symbol::Sequence) => graph::Extent::Sequence,
        Extent::Fixed(Size(size)) => graph::Extent::Fixed(size),
    }
}

/// Converts the kind of a node, with `x` as its first input, to its operator.
#[expect(clippy::too_many_lines, reason = "a table: one arm a kind")]
pub(super) fn operator(kind: &NodeKind, x: &Tensor) -> Result<OpKind, String> {
    Ok(match kind {
        NodeKind::Input { .. } | NodeKind::Parameter { .. } => {
            unreachable!("a source has no first input")
        }
        NodeKind::Linear { out_features, out_dims, over, bias } => OpKind::Linear {
            contracted: reduced(over.as_deref(), x)?,
            produced: produced(out_features, out_dims.as_deref())?,
            bias: *bias,
        },
        NodeKind::GroupedLinear { num_experts, out_features, out_dims, over, bias } => {
            OpKind::GroupedLinear {
                num_experts: size("num_experts", *num_experts)?,
                contracted: reduced(over.as_deref(), x)?,
                produced: produced(out_features, out_dims.as_deref())?,
                bias: *bias,
            }
        }
        NodeKind::Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias } => {
            OpKind::Conv2d {
                window: dilated(window(*kernel, Some(*stride), *padding)?, *dilation)?,
                out_channels: size("out_channels", *out_channels)?,
                groups: size("groups", *groups)?,
                bias: *bias,
            }
        }
        NodeKind::ConvTranspose2d {
            out_channels,
            kernel,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
        } => OpKind::ConvTranspose2d {
            window: dilated(window(*kernel, Some(*stride), *padding)?, *dilation)?,
            output_padding: paddings("output_padding", *output_padding)?,
            out_channels: size("out_channels", *out_channels)?,
            groups: size("groups", *groups)?,
            bias: *bias,
        },
        NodeKind::Upsample2d { output, mode } => {
            OpKind::Upsample2d { output: sizes("output", *output)?, kind: *mode }
        }
        NodeKind::MaxPool2d { kernel, stride, padding, ceil_mode } => {
            let window = window(*kernel, *stride, *padding)?;
            OpKind::MaxPool2d(Window2d { rounds_up: *ceil_mode, ..window })
        }
        NodeKind::AveragePool2d { kernel, stride, padding, ceil_mode } => {
            let window = window(*kernel, *stride, *padding)?;
            OpKind::AveragePool2d(Window2d { rounds_up: *ceil_mode, ..window })
        }
        NodeKind::AdaptiveAveragePool2d { output } => {
            OpKind::AdaptiveAveragePool2d { output: sizes("output", *output)? }
        }
        NodeKind::Gather {} => OpKind::Gather,
        NodeKind::Flatten {} => OpKind::Flatten,
        NodeKind::BatchNorm { weight, bias, epsilon } => {
            present(x, DimName::Channels)?;
            let names = x.dims.iter().map(|dim| dim.name);
            let over = names.filter(|name| *name != DimName::Channels).collect();
            norm(NormKind::BatchNorm, over, *weight, *bias, *epsilon)?
        }
        NodeKind::GroupNorm { groups, weight, bias, epsilon } => {
            let groups = size("groups", *groups)?;
            if let graph::Extent::Fixed(channels) = present(x, DimName::Channels)?.extent
                && !channels.is_multiple_of(groups)
            {
                return Err(format!("{channels} channels do not divide into {groups} groups"));
            }
            let space = [DimName::Channels, DimName::Height, DimName::Width];
            let over = space.into_iter().filter(|name| x.dim(*name).is_some()).collect();
            norm(NormKind::GroupNorm { groups }, over, *weight, *bias, *epsilon)?
        }
        NodeKind::LayerNorm { over, weight, bias, epsilon } => {
            norm(NormKind::LayerNorm, reduced(over.as_deref(), x)?, *weight, *bias, *epsilon)?
        }
        NodeKind::RmsNorm { over, weight, epsilon } => {
            norm(NormKind::RmsNorm, reduced(over.as_deref(), x)?, *weight, false, *epsilon)?
        }
        NodeKind::Gelu {} => OpKind::Activation(Activation::Gelu),
        NodeKind::GeluTanh {} => OpKind::Activation(Activation::GeluTanh),
        NodeKind::Relu {} => OpKind::Activation(Activation::Relu),
        NodeKind::Silu {} => OpKind::Activation(Activation::Silu),
        NodeKind::Tanh {} => OpKind::Activation(Activation::Tanh),
        NodeKind::Sigmoid {} => OpKind::Activation(Activation::Sigmoid),
        NodeKind::GatedActivation { activation } => OpKind::GatedActivation(match activation {
            Function::Gelu => Activation::Gelu,
            Function::GeluTanh => Activation::GeluTanh,
            Function::Relu => Activation::Relu,
            Function::Silu => Activation::Silu,
            Function::Tanh => Activation::Tanh,
            Function::Sigmoid => Activation::Sigmoid,
        }),
        NodeKind::Scale { factor } => OpKind::Scale { factor: (*factor).into() },
        NodeKind::SoftCap { cap } => OpKind::SoftCap { cap: positive("cap", *cap)? },
        NodeKind::Clamp { limit } => OpKind::Clamp { limit: not_negative("limit", *limit)? },
        NodeKind::Dropout { rate } => OpKind::Dropout { rate: self::rate("rate", *rate)? },
        NodeKind::Softmax { over } => OpKind::Softmax { over: over.map_or_else(|| last(x), Ok)? },
        NodeKind::Add {} => OpKind::Add,
        NodeKind::Multiply {} => OpKind::Multiply,
        NodeKind::Elementwise { function } => OpKind::Elementwise(*function),
        NodeKind::Product { over } => OpKind::Product { over: reduced(Some(over), x)? },
        NodeKind::Reduce { function, over } => {
            OpKind::Reduce { function: *function, over: reduced(Some(over), x)? }
        }
        NodeKind::Reshape { dims, shape } => {
            OpKind::Reshape { dims: input(dims, shape, InputElement::Number)?.dims }
        }
        NodeKind::Pad { dim, size } => {
            OpKind::Pad { dim: Dim::fixed(*dim, self::size("size", *size)?) }
        }
        NodeKind::Take { dim, size } => {
            OpKind::Take { dim: Dim::fixed(*dim, self::size("size", *size)?) }
        }
        NodeKind::Concat { over } => OpKind::Concat { over: *over },
        NodeKind::Slice { dim, size, start } => {
            let dim = Dim::fixed(*dim, self::size("size", *size)?);
            OpKind::Slice { dim, start: *start }
        }
        NodeKind::Embedding { num_embeddings, embedding_dim, out_dim } => OpKind::Embedding {
            entries: Dim::fixed(DimName::Vocabulary, size("num_embeddings", *num_embeddings)?),
            width: Dim::fixed(*out_dim, size("embedding_dim", *embedding_dim)?),
            rows: EmbeddedRows::Tokens { ahead: 0 },
        },
        NodeKind::EmbeddingBag { num_embeddings, embedding_dim, out_dim } => {
            last(x)?;
            OpKind::Embedding {
                entries: Dim::fixed(DimName::Vocabulary, size("num_embeddings", *num_embeddings)?),
                width: Dim::fixed(*out_dim, size("embedding_dim", *embedding_dim)?),
                rows: EmbeddedRows::Bag,
            }
        }
        NodeKind::Attention { mask, scale, soft_cap, dropout } => OpKind::Attention {
            mask: match mask {
                Mask::Full => AttentionMask::Full,
                Mask::Causal => AttentionMask::Causal,
                Mask::SlidingWindow(window) => {
                    AttentionMask::SlidingWindow { window: size("sliding_window", *window)? }
                }
            },
            scores: Scores {
                scale: scale.map(|scale| positive("scale", scale)).transpose()?,
                soft_cap: soft_cap.map(|cap| positive("soft_cap", cap)).transpose()?,
                ..Scores::default()
            },
            sinks: false,
            dropout: rate("dropout", *dropout)?,
        },
        NodeKind::AttentionScores {} => OpKind::AttentionScores,
        NodeKind::AttentionValues {} => OpKind::AttentionValues,
        NodeKind::Rotary { theta, features, scaling } => {
            let features = features.map(|features| size("features", features)).transpose()?;
            let theta = positive("theta", *theta)?;
            let plain = Rotation::plain(theta.0);
            let scaling = scaling.clone().map_or(plain.scaling.clone(), RotaryScaling::Other);
            OpKind::Rotary(Rotation { features, scaling, ..plain })
        }
        NodeKind::AddParameter { over } => {
            let names = reduced(Some(over), x)?;
            let dims = names.into_iter().map(|name| present(x, name));
            OpKind::AddParameter { dims: dims.collect::<Result<_, _>>()? }
        }
        NodeKind::PrependParameter {} => {
            present(x, DimName::Hidden)?;
            OpKind::PrependParameter
        }
        NodeKind::PatchesToSequence {} => OpKind::PatchesToSequence,
        NodeKind::FirstToken {} => OpKind::FirstToken,
        NodeKind::Router { num_experts, top_k, bias, normalize } => {
            let num_experts = size("num_experts", *num_experts)?;
            let top_k = size("top_k", *top_k)?;
            if top_k > num_experts {
                return Err(format!("`top_k` is {top_k}, but there are {num_experts} experts"));
            }
            let routing = Routing { normalized: *normalize, ..Routing::NORMALIZED };
            OpKind::Router { num_experts, top_k, bias: *bias, routing }
        }
        NodeKind::Dispatch { top_k } => OpKind::Dispatch { top_k: size("top_k", *top_k)? },
        NodeKind::Combine {} => OpKind::Combine,
        NodeKind::CrossEntropy { over } => {
            let over = over.map_or_else(|| last(x), Ok)?;
            OpKind::CrossEntropy { over, ahead: 0, weight: 1.0.into() }
        }
        NodeKind::MeanSquaredError {} => OpKind::MeanSquaredError,
    })
}

fn norm(
    kind: NormKind,
    over: DimNames,
    weight: bool,
    bias: bool,
    epsilon: f64,
) -> Result<OpKind, String> {
    let epsilon = not_negative("epsilon", epsilon)?;
    Ok(OpKind::Norm { kind, over, weight, bias, epsilon, unit_offset: false })
}

fn size(attribute: &str, Size(size): Size) -> Result<u64, String> {
    if (1..=MAX_SIZE).contains(&size) {
        Ok(size)
    } else {
        Err(format!("`{attribute}` is {size}, but must be from 1 to {MAX_SIZE}"))
    }
}

fn not_negative(attribute: &str, number: f64) -> Result<Real, String> {
    if number >= 0.0 {
        Ok(number.into())
    } else {
        Err(format!("`{attribute}` is {number}, but must be at least 0"))
    }
}

fn positive(attribute: &str, number: f64) -> Result<Real, String> {
    if number > 0.0 {
        Ok(number.into())
    } else {
        Err(format!("`{attribute}` is {number}, but must be more than 0"))
    }
}

fn rate(attribute: &str, share: f64) -> Result<Real, String> {
    if (0.0..1.0).contains(&share) {
        Ok(share.into())
    } else {
        Err(format!("`{attribute}` is {share}, not from 0 to below 1"))
    }
}

fn sizes(attribute: &str, pair: Pair<Size>) -> Result<[u64; 2], String> {
    let [rows, columns] = pair.each();
    Ok([size(attribute, rows)?, size(attribute, columns)?])
}

fn window(
    kernel: Pair<Size>,
    stride: Option<Pair<Size>>,
    padding: Pair<u64>,
) -> Result<Window2d, String> {
    let padding = paddings("padding", padding)?;
    let stride = sizes("stride", stride.unwrap_or(kernel))?;
    Ok(Window2d {
        kernel: sizes("kernel", kernel)?,
        stride,
        padding,
        dilation: [1, 1],
        rounds_up: false,
    })
}

fn dilated(window: Window2d, dilation: Pair<Size>) -> Result<Window2d, String> {
    Ok(Window2d { dilation: sizes("dilation", dilation)?, ..window })
}

fn paddings(attribute: &str, padding: Pair<u64>) -> Result<[u64; 2], String> {
    let padding = padding.each();
    match padding.iter().find(|padding| **padding > MAX_SIZE) {
        None => Ok(padding),
        Some(padding) => {
            Err(format!("`{attribute}` is {padding}, but must be from 0 to {MAX_SIZE}"))
        }
    }
}

/// Output dimensions of a linear layer.
fn produced(features: &OutFeatures, names: Option<&[DimName]>) -> Result<Vec<Dim>, String> {
    let features = match features {
        OutFeatures::One(one) => std::slice::from_ref(one),
        OutFeatures::Several(several) => several.as_slice(),
    };
    let names = match names {
        None if features.len() == 1 => &[DimName::Features],
        None => {
            return Err(format!(
                "`out_features` has {} sizes: name them in `out_dims`",
                features.len()
            ));
        }
        Some(names) if names.len() == features.len() && !names.is_empty() => names,
        Some(names) => {
            let (names, sizes) = (names.len(), features.len());
            return Err(format!("`out_dims` has {names} names, but `out_features` {sizes} sizes"));
        }
    };
    if names.contains(&DimName::Batch) {
        return Err("`out_dims` has `batch`, which no operator can make".to_owned());
    }
    let dims = names.iter().zip(features);
    dims.map(|(name, extent)| Ok(Dim::fixed(*name, size("out_features", *extent)?))).collect()
}

/// Dimensions that an operator names in `over`, or the last dimension of `x`.
fn reduced(over: Option<&[DimName]>, x: &Tensor) -> Result<DimNames, String> {
    match over {
        None => Ok(vec![last(x)?]),
        Some([]) => Err("`over` names no dimension".to_owned()),
        Some(names) => distinct("over", names).map(|()| names.to_vec()),
    }
}

fn distinct(attribute: &str, names: &[DimName]) -> Result<(), String> {
    let mut met = BTreeSet::new();
    match names.iter().find(|name| !met.insert(**name)) {
        None => Ok(()),
        Some(twice) => Err(format!("`{attribute}` names `{twice}` twice")),
    }
}

fn last(x: &Tensor) -> Result<DimName, String> {
    let last = x.dims.last().ok_or("is given a single number, which has no dimensions")?;
    Ok(last.name)
}

fn present(x: &Tensor, name: DimName) -> Result<Dim, String> {
    x.dim(name).ok_or_else(|| format!("needs a dimension `{name}`, but is given {x}"))
}
