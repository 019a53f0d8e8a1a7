//! Shapes and parameters that follow from an operator's kind and its inputs.

use super::numerics::PositionBias;
use super::op::{Activation, EmbeddedRows, NormKind, OpKind, Recurrence};
use super::parameter::Parameter;
use super::tensor::{Dim, DimName, ElementType, Extent, Tensor};
use super::window::Window2d;

/// The output tensor of `kind` for `inputs`, or a description of the mismatch.
#[expect(clippy::too_many_lines, reason = "a table: one arm an operator")]
pub(super) fn output(kind: &OpKind, inputs: &[&Tensor]) -> Result<Tensor, String> {
    expect_arity(kind, inputs.len())?;
    match kind {
        OpKind::Input => unreachable!("an input is given its tensor"),
        OpKind::Buffer { dims, .. } => {
            Ok(Tensor::new(dims.clone()).with_element(ElementType::Float32))
        }
        OpKind::Embedding { width, rows, .. } => {
            if inputs[0].element != ElementType::Index {
                return Err(format!("looks up indices, but is given numbers {}", inputs[0]));
            }
            let mut dims = inputs[0].dims.clone();
            if *rows == EmbeddedRows::Bag {
                dims.pop();
            }
            dims.push(*width);
            Ok(Tensor::new(dims))
        }
        OpKind::Linear { contracted, produced, .. }
        | OpKind::GroupedLinear { contracted, produced, .. } => {
            if inputs[0].element == ElementType::Index {
                return Err(format!("takes numbers, but is given indices {}", inputs[0]));
            }
            contract(inputs[0], contracted, produced)
        }
        OpKind::Attention { .. } => attention_output(inputs),
        OpKind::ShortConvolution { .. } => Ok(inputs[0].clone()),
        OpKind::Recurrence { kind, .. } => Ok(inputs[kind.values()].clone()),
        OpKind::Indexer { keys, block } => {
            // Batch and positions; and heads, where each head makes its own choice.
            let rows = if inputs.len() > 2 { 2 } else { 3 };
            let chosen = Dim::fixed(DimName::Context, keys.div_ceil(*block));
            let dims = inputs[0].dims[..rows].iter().copied().chain([chosen]);
            Ok(Tensor::new(dims.collect::<Vec<_>>()).with_element(ElementType::Float32))
        }
        OpKind::Compress { block, overlaps } => compressed(inputs[0], *block, *overlaps),
        OpKind::AttentionScores => attention_scores(inputs[0], inputs[1]),
        OpKind::AttentionValues => attention_values(inputs[0], inputs[1]),
        OpKind::Softmax { over } => {
            require(inputs[0], *over)?;
            Ok(inputs[0].clone())
        }
        OpKind::Norm { over, .. } => {
            for name in over {
                require(inputs[0], *name)?;
            }
            Ok(inputs[0].clone())
        }
        OpKind::Dropout { .. }
        | OpKind::Activation(_)
        | OpKind::SoftCap { .. }
        | OpKind::Clamp { .. }
        | OpKind::Gather
        | OpKind::Scale { .. } => Ok(inputs[0].clone()),
        OpKind::Rotary(rotation) => {
            let features = inputs[0].dims.last().map(|dim| dim.extent);
            match (rotation.features, features) {
                (Some(rotated), Some(Extent::Fixed(all))) if rotated > all => {
                    Err(format!("cannot rotate {rotated} of {all} features"))
                }
                _ => Ok(inputs[0].clone()),
            }
        }
        OpKind::GatedActivation(_) | OpKind::ClampedSwiGlu { .. } | OpKind::Add => {
            for other in &inputs[1..] {
                if !other.dims.iter().map(|d| d.extent).eq(inputs[0].dims.iter().map(|d| d.extent))
                {
                    return Err(format!("cannot join shapes {} and {other}", inputs[0]));
                }
            }
            Ok(inputs[0].clone())
        }
        OpKind::Multiply => require_all(inputs[0], &inputs[1].dims),
        OpKind::Elementwise(_) => {
            let mut dims = inputs[0].dims.clone();
            for dim in inputs[1..].iter().flat_map(|other| &other.dims) {
                match inputs[0].dim(dim.name) {
                    Some(same) if same == *dim => {}
                    Some(_) => return Err(format!("cannot join {} and {}", inputs[0], inputs[1])),
                    None => dims.push(*dim),
                }
            }
            Ok(Tensor::new(dims))
        }
        OpKind::Product { over } => product(inputs[0], inputs[1], over),
        OpKind::Reduce { over, .. } => contract(inputs[0], over, &[]),
        OpKind::Reshape { dims } => reshaped(inputs[0], dims),
        OpKind::Parameter { dims } => Ok(Tensor::new(dims.clone())),
        OpKind::Take { dim } => {
            fixed(require(inputs[0], dim.name)?)?;
            Ok(replace(inputs[0], dim.name, &[*dim]))
        }
        OpKind::Pad { dim } => {
            let given = fixed(require(inputs[0], dim.name)?)?;
            let padded = fixed(*dim)?;
            if padded < given {
                return Err(format!("cannot pad {given} {} to {padded}", dim.name));
            }
            Ok(replace(inputs[0], dim.name, &[*dim]))
        }
        OpKind::Slice { dim, start } => {
            let whole = require(inputs[0], dim.name)?;
            match (whole.extent, dim.extent) {
                (Extent::Fixed(whole), Extent::Fixed(part))
                    if part.checked_add(*start).is_some_and(|end| end <= whole) => {}
                (whole, part) => {
                    let from =
                        if *start > 0 { format!(", from {start} on") } else { String::new() };
                    return Err(format!("cannot take {part} of {} {whole}{from}", dim.name));
                }
            }
            Ok(replace(inputs[0], dim.name, &[*dim]))
        }
        OpKind::Concat { over } => concat(inputs, *over),
        OpKind::AddParameter { dims } => require_all(inputs[0], dims),
        OpKind::PrependParameter => {
            let sequence = require(inputs[0], DimName::Sequence)?;
            let Extent::Fixed(length) = sequence.extent else {
                return Err("needs a sequence of fixed length".to_owned());
            };
            Ok(replace(inputs[0], DimName::Sequence, &[Dim::fixed(DimName::Sequence, length + 1)]))
        }
        OpKind::Router { num_experts, .. } => {
            let produced = [Dim::fixed(DimName::Experts, *num_experts)];
            Ok(contract(inputs[0], &[DimName::Hidden], &produced)?
                .with_element(ElementType::Float32))
        }
        OpKind::Dispatch { top_k } => {
            let hidden = require(inputs[0], DimName::Hidden)?;
            let top_k = Dim::fixed(DimName::TopK, *top_k);
            Ok(replace(inputs[0], DimName::Hidden, &[top_k, hidden]))
        }
        OpKind::Combine => {
            require(inputs[0], DimName::TopK)?;
            Ok(replace(inputs[0], DimName::TopK, &[]))
        }
        OpKind::CrossEntropy { over, .. } => {
            require(inputs[0], *over)?;
            Ok(Tensor::new([]).with_element(ElementType::Float32))
        }
        OpKind::MeanSquaredError => Ok(Tensor::new([]).with_element(ElementType::Float32)),
        OpKind::Conv2d { window, out_channels, groups, .. } => {
            check_groups(inputs[0], *out_channels, *groups)?;
            image(inputs[0], window, *out_channels)
        }
        OpKind::ConvTranspose2d { window, output_padding, out_channels, groups, .. } => {
            check_groups(inputs[0], *out_channels, *groups)?;
            let sides = window.transposed_output(image_sides(inputs[0])?, *output_padding);
            let sides = sides.ok_or("leaves no rows or columns, or more than can be counted")?;
            resized(inputs[0], *out_channels, sides)
        }
        OpKind::Upsample2d { output, .. } => {
            resized(inputs[0], image_channels(inputs[0])?, *output)
        }
        OpKind::MaxPool2d(window) | OpKind::AveragePool2d(window) => {
            image(inputs[0], window, image_channels(inputs[0])?)
        }
        OpKind::AdaptiveAveragePool2d { output } => {
            image_sides(inputs[0])?;
            resized(inputs[0], image_channels(inputs[0])?, *output)
        }
        OpKind::Flatten => {
            let batch = require(inputs[0], DimName::Batch)?;
            let (_, rest): (Vec<Dim>, Vec<Dim>) =
                inputs[0].dims.iter().partition(|dim| **dim == batch);
            let features = fixed_product(&rest)?;
            Ok(Tensor::new([batch, Dim::fixed(DimName::Features, features)]))
        }
        OpKind::PatchesToSequence => {
            let channels = image_channels(inputs[0])?;
            let [rows, columns] = image_sides(inputs[0])?;
            Ok(Tensor::new([
                Dim::BATCH,
                Dim::fixed(DimName::Sequence, rows * columns),
                Dim::fixed(DimName::Hidden, channels),
            ]))
        }
        OpKind::FirstToken => {
            require(inputs[0], DimName::Sequence)?;
            Ok(replace(inputs[0], DimName::Sequence, &[]))
        }
    }
}

/// The parameters of `kind` applied to inputs that [`output`] accepted.
pub(super) fn parameters(kind: &OpKind, inputs: &[&Tensor]) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let mut add = |name: &str, dims: Vec<Dim>| {
        parameters.push(Parameter { name: name.to_owned(), dims, tied_to: None });
    };
    match kind {
        OpKind::Embedding { entries, width, .. } => add("weight", vec![*entries, *width]),
        OpKind::Linear { contracted, produced, bias } => {
            add("weight", [named(inputs[0], contracted), produced.clone()].concat());
            if *bias {
                add("bias", produced.clone());
            }
        }
        OpKind::GroupedLinear { num_experts, contracted, produced, bias } => {
            let experts = vec![Dim::fixed(DimName::Experts, *num_experts)];
            let contracted = named(inputs[0], contracted);
            add("weight", [experts.clone(), contracted, produced.clone()].concat());
            if *bias {
                add("bias", [experts, produced.clone()].concat());
            }
        }
        OpKind::ShortConvolution { kernel, bias, .. } => {
            let features = inputs[0].dims[2..].to_vec();
            let window = vec![Dim::fixed(DimName::Width, *kernel)];
            add("weight", [features.clone(), window].concat());
            if *bias {
                add("bias", features);
            }
        }
        OpKind::Recurrence { kind, .. } => {
            for (name, dims) in of_recurrence(*kind, inputs) {
                add(name, dims);
            }
        }
        OpKind::Compress { block, .. } => {
            let positions = Dim::fixed(DimName::Width, *block);
            let features = named(inputs[1], &[DimName::HeadDim]);
            add("position_bias", [vec![positions], features].concat());
        }
        OpKind::Attention { scores, sinks, .. } => {
            let heads = named(inputs[0], &[DimName::Heads]);
            if let PositionBias::Relative { num_buckets, .. } = scores.bias {
                let buckets = vec![Dim::fixed(DimName::Features, num_buckets)];
                add("relative_bias", [buckets, heads.clone()].concat());
            }
            if *sinks {
                add("sinks", heads);
            }
        }
        OpKind::Norm { kind, over, weight, bias, .. } => {
            let dims = match kind {
                NormKind::BatchNorm | NormKind::GroupNorm { .. } => {
                    named(inputs[0], &[DimName::Channels])
                }
                NormKind::LayerNorm | NormKind::RmsNorm => named(inputs[0], over),
            };
            if *weight {
                add("weight", dims.clone());
            }
            if *bias {
                add("bias", dims);
            }
        }
        OpKind::AddParameter { dims }
        | OpKind::Parameter { dims }
        | OpKind::Buffer { dims, .. } => add("weight", dims.clone()),
        OpKind::Activation(Activation::Xielu) => {
            for name in ["alpha_p", "alpha_n"] {
                add(name, vec![Dim::fixed(DimName::Features, 1)]);
            }
        }
        OpKind::PrependParameter => add("weight", named(inputs[0], &[DimName::Hidden])),
        OpKind::Router { num_experts, bias, .. } => {
            let experts = Dim::fixed(DimName::Experts, *num_experts);
            add("weight", [named(inputs[0], &[DimName::Hidden]), vec![experts]].concat());
            if *bias {
                add("bias", vec![experts]);
            }
        }
        OpKind::Conv2d { window, out_channels, groups, bias } => {
            let in_channels = image_channels(inputs[0]).unwrap_or(0) / groups;
            add("weight", kernels(*out_channels, in_channels, window));
            if *bias {
                add("bias", vec![Dim::fixed(DimName::Features, *out_channels)]);
            }
        }
        OpKind::ConvTranspose2d { window, out_channels, groups, bias, .. } => {
            let in_channels = image_channels(inputs[0]).unwrap_or(0);
            add("weight", kernels(out_channels / groups, in_channels, window));
            if *bias {
                add("bias", vec![Dim::fixed(DimName::Features, *out_channels)]);
            }
        }
        _ => {}
    }
    parameters
}

/// Dimensions of a convolution's weight: output channels, input channels, rows and columns.
fn kernels(out_channels: u64, in_channels: u64, window: &Window2d) -> Vec<Dim> {
    vec![
        Dim::fixed(DimName::Features, out_channels),
        Dim::fixed(DimName::Channels, in_channels),
        Dim::fixed(DimName::Height, window.kernel[0]),
        Dim::fixed(DimName::Width, window.kernel[1]),
    ]
}

/// Trained decays, skips and biases of a recurrence, by name.
fn of_recurrence(kind: Recurrence, inputs: &[&Tensor]) -> Vec<(&'static str, Vec<Dim>)> {
    let heads = inputs[inputs.len() - 1].dims[2..].to_vec();
    match kind {
        Recurrence::StateSpace { .. } => {
            vec![("A_log", heads.clone()), ("D", heads.clone()), ("dt_bias", heads)]
        }
        Recurrence::SelectiveScan => {
            let state = inputs[1].dims[2..].to_vec();
            vec![("A_log", [heads.clone(), state].concat()), ("D", heads)]
        }
        Recurrence::DeltaRule => vec![("A_log", heads.clone()), ("dt_bias", heads)],
        Recurrence::DeltaRuleByFeature => {
            vec![("A_log", named(inputs[4], &[DimName::Heads])), ("dt_bias", heads)]
        }
        Recurrence::FixedDecay => Vec::new(),
    }
}

fn expect_arity(kind: &OpKind, given: usize) -> Result<(), String> {
    let (least, most) = match kind {
        OpKind::Input | OpKind::Buffer { .. } | OpKind::Parameter { .. } => (0, 0),
        OpKind::Elementwise(function) => (function.inputs(), function.inputs()),
        OpKind::Router { .. } => (1, 2),
        OpKind::Attention { mask, .. } => (mask.inputs(), mask.inputs() + 1),
        OpKind::Indexer { .. } => (2, 3),
        OpKind::Recurrence { kind, .. } => (kind.inputs(), kind.inputs()),
        OpKind::AttentionScores
        | OpKind::AttentionValues
        | OpKind::GatedActivation(_)
        | OpKind::ClampedSwiGlu { .. }
        | OpKind::Multiply
        | OpKind::Product { .. }
        | OpKind::Compress { .. }
        | OpKind::Dispatch { .. }
        | OpKind::Combine => (2, 2),
        OpKind::Add | OpKind::Concat { .. } => (2, usize::MAX),
        _ => (1, 1),
    };
    if (least..=most).contains(&given) {
        Ok(())
    } else {
        let takes = match (least, most) {
            (1, 1) => "1 input".to_owned(),
            (least, most) if least == most => format!("{least} inputs"),
            (least, usize::MAX) => format!("{least} inputs or more"),
            (least, most) => format!("{least} to {most} inputs"),
        };
        Err(format!("takes {takes}, but is given {given}"))
    }
}

/// The dimension of `tensor` called `name`.
fn require(tensor: &Tensor, name: DimName) -> Result<Dim, String> {
    tensor.dim(name).ok_or_else(|| format!("needs a dimension `{name}`, but is given {tensor}"))
}

/// A tensor like `tensor`, which must have all of `dims`.
fn require_all(tensor: &Tensor, dims: &[Dim]) -> Result<Tensor, String> {
    match dims.iter().find(|dim| !tensor.dims.contains(dim)) {
        Some(dim) => Err(format!("{tensor} has no dimension {} {}", dim.name, dim.extent)),
        None => Ok(tensor.clone()),
    }
}

/// The dimensions of `tensor` called `names`, in the order of `names`.
fn named(tensor: &Tensor, names: &[DimName]) -> Vec<Dim> {
    names.iter().filter_map(|name| tensor.dim(*name)).collect()
}

/// `tensor` with `dims` replacing the dimension called `name`.
fn replace(tensor: &Tensor, name: DimName, dims: &[Dim]) -> Tensor {
    let position = tensor.dims.iter().position(|dim| dim.name == name);
    let mut replaced = tensor.dims.clone();
    if let Some(position) = position {
        replaced.splice(position..=position, dims.iter().copied());
    }
    Tensor { dims: replaced, element: tensor.element }
}

fn contract(input: &Tensor, contracted: &[DimName], produced: &[Dim]) -> Result<Tensor, String> {
    for name in contracted {
        require(input, *name)?;
    }
    let kept = input.dims.iter().copied().filter(|dim| !contracted.contains(&dim.name));
    Ok(Tensor::new(kept.chain(produced.iter().copied()).collect::<Vec<_>>()))
}

fn product(a: &Tensor, b: &Tensor, over: &[DimName]) -> Result<Tensor, String> {
    for name in over {
        require(a, *name)?;
        require(b, *name)?;
    }
    let differs = |dim: &&Dim| a.dim(dim.name).is_some_and(|same| same != **dim);
    if let Some(dim) = b.dims.iter().find(differs) {
        return Err(format!("{a} and {b} differ in `{}`", dim.name));
    }
    let of_a = a.dims.iter().filter(|dim| !over.contains(&dim.name));
    let of_b = b.dims.iter().filter(|dim| a.dim(dim.name).is_none());
    Ok(Tensor::new(of_a.chain(of_b).copied().collect::<Vec<_>>()))
}

fn reshaped(input: &Tensor, dims: &[Dim]) -> Result<Tensor, String> {
    let symbols = |dims: &[Dim], extent| dims.iter().filter(|dim| dim.extent == extent).count();
    let numbers = |dims: &[Dim]| {
        let mut sizes = dims.iter().filter_map(|dim| dim.extent.fixed());
        sizes.try_fold(1u64, u64::checked_mul)
    };
    let output = Tensor::new(dims).with_element(input.element);
    let is_same = [Extent::Batch, Extent::Sequence]
        .iter()
        .all(|extent| symbols(&input.dims, *extent) == symbols(dims, *extent));
    if is_same && numbers(&input.dims).is_some() && numbers(&input.dims) == numbers(dims) {
        Ok(output)
    } else {
        Err(format!("{input} has not as many elements as {output}"))
    }
}

fn compressed(x: &Tensor, block: u64, overlaps: bool) -> Result<Tensor, String> {
    let positions = require(x, DimName::Sequence)?;
    if positions.extent != Extent::Sequence {
        return Err(format!("needs a whole sequence, but is given {x}"));
    }
    let features = fixed(require(x, DimName::HeadDim)?)?;
    let blocks = Dim { extent: Extent::Blocks(block.max(1)), ..positions };
    let y = replace(x, DimName::Sequence, &[blocks]);
    let features = Dim::fixed(DimName::HeadDim, if overlaps { features / 2 } else { features });
    Ok(replace(&y, DimName::HeadDim, &[features]))
}

fn attention_output(inputs: &[&Tensor]) -> Result<Tensor, String> {
    let [query, key, value] = [inputs[0], inputs[1], inputs[2]];
    let heads = fixed(require(query, DimName::Heads)?)?;
    for tensor in [key, value] {
        let kv_heads = fixed(require(tensor, DimName::KvHeads)?)?;
        if kv_heads == 0 || heads % kv_heads != 0 {
            return Err(format!("{heads} query heads do not share {kv_heads} key-value heads"));
        }
    }
    for name in [DimName::Sequence, DimName::KvHeads] {
        if key.dim(name) != value.dim(name) {
            return Err(format!("keys {key} and values {value} differ in `{name}`"));
        }
    }
    let (query_dim, key_dim) = (require(query, DimName::HeadDim)?, require(key, DimName::HeadDim)?);
    if query_dim != key_dim {
        return Err(format!("queries {query} and keys {key} differ in `head_dim`"));
    }
    Ok(replace(query, DimName::HeadDim, &[require(value, DimName::HeadDim)?]))
}

fn attention_scores(query: &Tensor, key: &Tensor) -> Result<Tensor, String> {
    let context = Dim { name: DimName::Context, ..require(key, DimName::Sequence)? };
    require(key, DimName::KvHeads)?;
    if require(query, DimName::HeadDim)? != require(key, DimName::HeadDim)? {
        return Err(format!("queries {query} and keys {key} differ in `head_dim`"));
    }
    Ok(Tensor::new([
        require(query, DimName::Batch)?,
        require(query, DimName::Heads)?,
        require(query, DimName::Sequence)?,
        context,
    ]))
}

fn attention_values(probabilities: &Tensor, value: &Tensor) -> Result<Tensor, String> {
    let positions = require(probabilities, DimName::Context)?;
    if value.dim(DimName::Sequence).is_some_and(|dim| dim.extent != positions.extent) {
        return Err(format!("probabilities {probabilities} are not of the positions of {value}"));
    }
    Ok(Tensor::new([
        require(probabilities, DimName::Batch)?,
        require(probabilities, DimName::Sequence)?,
        require(probabilities, DimName::Heads)?,
        require(value, DimName::HeadDim)?,
    ]))
}

fn concat(inputs: &[&Tensor], over: DimName) -> Result<Tensor, String> {
    let mut total = 0;
    let whole = inputs.iter().rev().max_by_key(|input| input.dims.len()).unwrap_or(&inputs[0]);
    for input in inputs {
        total = fixed(require(input, over)?)?
            .checked_add(total)
            .ok_or_else(|| format!("joins more than 2^64 {over}"))?;
        if let Some(dim) =
            input.dims.iter().find(|dim| dim.name != over && !whole.dims.contains(dim))
        {
            return Err(format!("{whole} has no dimension {} {}", dim.name, dim.extent));
        }
    }
    Ok(replace(whole, over, &[Dim::fixed(over, total)]))
}

fn fixed(dim: Dim) -> Result<u64, String> {
    let wrong = || format!("dimension `{}` must be fixed, but is {}", dim.name, dim.extent);
    dim.extent.fixed().ok_or_else(wrong)
}

fn fixed_product(dims: &[Dim]) -> Result<u64, String> {
    dims.iter().try_fold(1u64, |product, dim| {
        product.checked_mul(fixed(*dim)?).ok_or_else(|| "has more than 2^64 features".to_owned())
    })
}

fn image_channels(tensor: &Tensor) -> Result<u64, String> {
    fixed(require(tensor, DimName::Channels)?)
}

fn image_sides(tensor: &Tensor) -> Result<[u64; 2], String> {
    Ok([fixed(require(tensor, DimName::Height)?)?, fixed(require(tensor, DimName::Width)?)?])
}

fn check_groups(input: &Tensor, out_channels: u64, groups: u64) -> Result<(), String> {
    let channels = image_channels(input)?;
    if channels.is_multiple_of(groups) && out_channels.is_multiple_of(groups) {
        return Ok(());
    }
    Err(format!("{channels} channels in and {out_channels} out do not divide into {groups} groups"))
}

/// `input` with new channels, rows and columns.
fn resized(input: &Tensor, channels: u64, sides: [u64; 2]) -> Result<Tensor, String> {
    require(input, DimName::Batch)?;
    let of =
        [(DimName::Channels, channels), (DimName::Height, sides[0]), (DimName::Width, sides[1])];
    of.into_iter().try_fold(Tensor::new(input.dims.clone()), |tensor, (name, size)| {
        require(&tensor, name)?;
        Ok::<_, String>(replace(&tensor, name, &[Dim::fixed(name, size)]))
    })
}

fn image(input: &Tensor, window: &Window2d, channels: u64) -> Result<Tensor, String> {
    if window.stride.contains(&0) {
        return Err("has a stride of zero".to_owned());
    }
    let [rows, columns] = image_sides(input)?;
    let sides = window.output([rows, columns]).ok_or_else(|| {
        format!(
            "a kernel of {} x {} does not fit an image of {rows} x {columns}",
            window.kernel[0], window.kernel[1]
        )
    })?;
    resized(input, channels, sides)
}
