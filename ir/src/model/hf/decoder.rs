//! Reader of transformers without special code: combines a family's rules with a configuration.

use serde_json::Value;

use super::experts::FeedForwards;
use super::family::{
    AttentionRule, DropoutRule, EmbeddingScale, Family, FeedForwardRule, Gating, HeadDim,
    KeyValueHeads, LogitScale, NormRule, NormedHeads, NumberedLayers, NumbersRule, PlacementRule,
    RotaryRule, RotatedLayers, Said, ScalesRule, ScoreScale, SlidingRule, SoftCap, WindowLayers,
    WindowRule,
};
use super::formula;
use super::latent;
use super::mixers::LayerParts;
use super::parts::{self, Shape};
use super::stated::{Field, optional};
use crate::graph::{
    Activation, AttentionMask, PositionBias, Real, RotaryScaling, Rotation, Scores,
};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{
    Attention, DropoutRates, Embedding, FeedForward, Head, Layer, Mixer, Mlp, Norm, NormPlacement,
    NormType, Positions, QkNorm, Scales, Transformer,
};

/// Largest number of multi-token prediction modules that is accepted; no model has more than one.
const MOST_MODULES: u64 = 16;

/// Name of layers with a sliding window in `layer_types` and `rope_parameters`.
const SLIDING: &str = "sliding_attention";

impl Family {
    /// Reads the sizes of the model and builds its transformer.
    pub(super) fn read(
        &'static self,
        fields: Fields<'_>,
    ) -> Result<(Shape, Transformer), ModelError> {
        self.check_only(fields)?;
        let shape = self.shape(fields)?;
        let norm = self.norm.read(fields)?;
        let mlp = self.feed_forward.read(fields, &shape)?;
        let feed_forwards = match &self.experts {
            Some(experts) => experts.read(fields, &shape, mlp, norm)?,
            None => FeedForwards::dense(mlp),
        };
        let attentions = self.attention.read(fields, &shape, norm, self.mixers.is_some())?;
        let placement = self.norm_placement.read(fields)?;
        let mixers = optional(self.mixers.as_ref(), |it| it.read(fields, &shape, norm))?;
        let numbers = self.numbers(fields, &shape)?;
        let part = |index: u64| {
            let parts = mixers.as_ref().map(|(_, parts)| parts);
            let part = parts.and_then(|parts| parts.get(index as usize)).copied();
            part.unwrap_or(LayerParts::Attention)
        };
        let key = |index: u64| {
            let is_sparse = match part(index) {
                LayerParts::ExpertsAlone => true,
                LayerParts::DenseAlone => false,
                _ => feed_forwards.is_sparse(index),
            };
            (attentions.key(index), is_sparse, part(index))
        };
        let layer = |(attention, is_sparse, part)| -> Layer {
            let attention = || Mixer::Attention(attentions.of(attention));
            let other = || mixers.as_ref().map_or(Mixer::None, |(mixer, _)| mixer.clone());
            let (mixer, feed_forward) = match part {
                LayerParts::Attention => (attention(), feed_forwards.of(is_sparse)),
                LayerParts::Mixer => (other(), feed_forwards.of(is_sparse)),
                LayerParts::Both => {
                    let both = Mixer::Parallel(vec![attention(), other()]);
                    (both, feed_forwards.of(is_sparse))
                }
                LayerParts::AttentionAlone => (attention(), FeedForward::None),
                LayerParts::MixerAlone => (other(), FeedForward::None),
                LayerParts::DenseAlone | LayerParts::ExpertsAlone => {
                    (Mixer::None, feed_forwards.of(is_sparse))
                }
            };
            let own = self.mixers.as_ref().and_then(|mixers| mixers.norm_placement);
            let own = own.filter(|_| part == LayerParts::Mixer);
            let mut layer = parts::layer(mixer, feed_forward, norm, own.unwrap_or(placement));
            let is_of = |layers: NumberedLayers| match layers {
                NumberedLayers::All => true,
                NumberedLayers::Attention => layer.attention().is_some(),
                NumberedLayers::Experts => matches!(layer.feed_forward, FeedForward::Mixture(_)),
            };
            let of_layer = numbers.iter().filter(|(layers, _)| is_of(*layers));
            let of_layer: Vec<_> = of_layer.map(|(_, number)| number.clone()).collect();
            layer.numbers = of_layer;
            layer
        };
        let modules = self.num_prediction_modules(fields)?;
        // Prediction modules have the layer indices after the last layer.
        let modules = (0..modules).map(|module| layer(key(shape.num_hidden_layers + module)));
        let decoder = shape.decoder(shape.layers_by(key, layer), norm);
        let transformer = Transformer {
            embedding: self.embedding(fields, &shape, norm)?,
            prediction_modules: modules.collect(),
            final_norm: decoder.final_norm.filter(|_| self.final_norm),
            head: Head { bias: self.head_bias.read(fields)?, ..decoder.head },
            scales: self.scales.read(fields, &shape)?,
            streams: optional(self.streams.as_ref(), |rule| rule.read(fields))?,
            dropout: self.dropout.read(fields)?,
            max_position_embeddings: match &self.max_length {
                Some(field) => fields.optional_size(field)?,
                None => shape.max_position_embeddings,
            },
            ..decoder
        };
        Ok((shape, transformer))
    }

    /// Trained numbers that belong to no operator, with the layers that have them.
    fn numbers(&self, fields: Fields<'_>, shape: &Shape) -> Result<Vec<Numbers>, ModelError> {
        let size = |name: &str| match name {
            "hidden_size" => Ok(shape.hidden_size),
            "intermediate_size" => Ok(shape.intermediate_size),
            "num_attention_heads" => Ok(shape.num_attention_heads),
            "num_key_value_heads" => Ok(shape.num_key_value_heads),
            "head_dim" => Ok(shape.head_dim),
            other => fields.size(other),
        };
        let read = |rule: &NumbersRule| {
            let count = formula::value(&rule.count, &size)?;
            let count = count.ok_or_else(|| fields.unsupported(format!("its {}", rule.name)))?;
            Ok((rule.layers, (rule.name.clone(), count)))
        };
        self.numbers.iter().map(read).collect()
    }

    fn check_only(&self, fields: Fields<'_>) -> Result<(), ModelError> {
        for (name, expected) in &self.only {
            let means = expected.get("means").and_then(Value::as_str);
            let other = match expected.get("is").unwrap_or(expected) {
                Value::String(expected) => {
                    let stated = fields.text_or(name, expected)?;
                    (stated != expected).then(|| format!("`{name}` `{stated}`"))
                }
                Value::Number(expected) => {
                    let expected = expected.as_u64().unwrap_or_default();
                    let stated = fields.size_or(name, expected)?;
                    (stated != expected).then(|| format!("`{name}` {stated}"))
                }
                // A section is as much as a true.
                Value::Bool(false) if fields.find(name).is_some_and(|(_, it)| it.is_object()) => {
                    Some(format!("`{name}`"))
                }
                expected => {
                    let expected = expected.as_bool().unwrap_or_default();
                    (fields.flag_or(name, expected)? != expected).then(|| format!("`{name}`"))
                }
            };
            if let Some(other) = other {
                let means = means.map_or_else(String::new, |means| format!(", {means},"));
                return Err(fields.unsupported(format!("{other}{means}")));
            }
        }
        Ok(())
    }

    fn shape(&self, fields: Fields<'_>) -> Result<Shape, ModelError> {
        let shape = Shape::read(fields, self.defaults)?;
        let whole = || parts::head_dim(fields, shape.hidden_size, shape.num_attention_heads);
        let head_dim = match self.head_dim {
            HeadDim::Stated => shape.head_dim,
            HeadDim::StatedAndWhole => whole().map(|_| shape.head_dim)?,
            HeadDim::Derived => whole()?,
        };
        let expanded = self.expansion.map(|times| times * shape.hidden_size);
        Ok(Shape {
            head_dim,
            intermediate_size: expanded.unwrap_or(shape.intermediate_size),
            ..shape
        })
    }

    fn embedding(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        norm: Norm,
    ) -> Result<Embedding, ModelError> {
        let positions = optional(self.positions.as_ref(), |learned| {
            let rows = shape.positions(fields)?.rows + learned.offset;
            Ok(Positions { rows, first: learned.offset })
        })?;
        Ok(shape.embedding(positions, self.embedding_norm.then_some(norm)))
    }

    fn num_prediction_modules(&self, fields: Fields<'_>) -> Result<u64, ModelError> {
        const FIELD: &str = "num_nextn_predict_layers";
        if !self.prediction_modules {
            return Ok(0);
        }
        match fields.count_or(FIELD, 0)? {
            modules if modules > MOST_MODULES => {
                Err(fields.unsupported(format!("`{FIELD}` {modules}")))
            }
            modules => Ok(modules),
        }
    }
}

/// Name and count of trained numbers that belong to no operator, and the layers that have them.
type Numbers = (NumberedLayers, (String, u64));

/// Attention of all layers of a model.
struct Attentions {
    attention: Attention,
    /// Attention of layers with a sliding window.
    sliding_attention: Attention,
    window: Option<u64>,
    /// True where the window is a chunk.
    chunks: bool,
    /// True for each layer with a sliding window.
    sliding: Vec<bool>,
    /// True for each layer with rotary embedding.
    rotates: Vec<bool>,
    sliding_rotary: Option<Rotation>,
}

/// Properties of attention that differ between layers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AttentionKey {
    slides: bool,
    rotates: bool,
}

impl Attentions {
    /// Key of a layer; prediction modules after the last layer rotate and have no window.
    fn key(&self, layer: u64) -> AttentionKey {
        let of = |all: &[bool], further: bool| all.get(layer as usize).copied().unwrap_or(further);
        AttentionKey { slides: of(&self.sliding, false), rotates: of(&self.rotates, true) }
    }

    fn of(&self, AttentionKey { slides, rotates }: AttentionKey) -> Attention {
        let attention = if slides { &self.sliding_attention } else { &self.attention };
        let own = self.sliding_rotary.as_ref().filter(|_| slides);
        let rotary = own.or(attention.rotary.as_ref()).filter(|_| rotates).cloned();
        let mask = match (attention.mask, self.window.filter(|_| slides)) {
            (chosen @ AttentionMask::Chosen { .. }, _) => chosen,
            (_, Some(length)) if self.chunks => AttentionMask::Chunked { length },
            (_, window) => parts::mask(window),
        };
        Attention { rotary, mask, ..attention.clone() }
    }
}

impl AttentionRule {
    fn read(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        norm: Norm,
        mixed: bool,
    ) -> Result<Attentions, ModelError> {
        let bias = self.bias.read(fields)?;
        let output_bias = optional(self.output_bias.as_ref(), |it| it.read(fields))?;
        let num_heads = shape.num_attention_heads;
        let attention = Attention {
            output_bias: output_bias.unwrap_or(bias),
            num_kv_heads: match &self.key_value_heads {
                KeyValueHeads::Stated => shape.num_key_value_heads,
                KeyValueHeads::OneIf(flag) if flag.read(fields)? => 1,
                KeyValueHeads::AsQueries | KeyValueHeads::OneIf(_) => num_heads,
            },
            qk_norm: self.qk_norm(fields, norm)?,
            clamp: optional(self.clip.as_ref(), |field| fields.optional_real(field))?.flatten(),
            sinks: self.sinks.read(fields)?,
            gate: match &self.gate {
                Some(rule) if rule.used.read(fields)? => Some(rule.over.read(fields)?),
                _ => None,
            },
            rotary: match &self.rotary {
                Some(rule) if rule.is_used(fields)? => Some(rule.read(fields, shape, None, None)?),
                _ => None,
            },
            scores: self.scores(fields)?,
            ..parts::with_biases(shape.attention(), bias)
        };
        let value_head_dim = optional(self.value_head_dim.as_ref(), |field| field.read(fields))?;
        let value_head_dim = value_head_dim.unwrap_or(attention.value_head_dim);
        let attention = Attention { value_head_dim, ..attention };
        let attention = match &self.latent {
            Some(sizes) => latent::read(fields, sizes, &attention)?,
            None => attention,
        };
        let full = attention.rotary.as_ref();
        let sliding_rotary =
            optional(self.rotary.as_ref(), |it| it.of_sliding(fields, shape, full))?.flatten();
        let window = optional(self.window.as_ref(), |window| window.read(fields))?.flatten();
        let mut rotates = match self.rotary.as_ref().map(|rotary| &rotary.layers) {
            Some(RotatedLayers::AllButEvery(interval)) => rotated(fields, shape, interval)?,
            _ => Vec::new(),
        };
        let sliding = match &self.window {
            Some(rule) => rule.layers(fields, shape, window, (&rotates, mixed))?,
            None => Vec::new(),
        };
        match self.rotary.as_ref().map(|rotary| &rotary.layers) {
            Some(RotatedLayers::SlidingIfAny) if window.is_none() => {}
            Some(RotatedLayers::Sliding | RotatedLayers::SlidingIfAny) => {
                rotates = sliding.iter().map(|slides| *slides && window.is_some()).collect();
            }
            _ => {}
        }
        let sliding_attention = match &self.sliding {
            Some(rule) => rule.read(fields, &attention)?,
            None => attention.clone(),
        };
        let chunks = self.window.as_ref().is_some_and(|rule| rule.chunks);
        Ok(Attentions {
            attention,
            sliding_attention,
            window,
            chunks,
            sliding,
            rotates,
            sliding_rotary,
        })
    }

    fn qk_norm(&self, fields: Fields<'_>, norm: Norm) -> Result<Option<QkNorm>, ModelError> {
        let Some(rule) = &self.qk_norm else { return Ok(None) };
        let weight = norm.weight && rule.weight;
        let (kind, bias) = match rule.kind {
            Some(kind) => (kind, rule.weight && kind == NormType::LayerNorm),
            None => (norm.kind, norm.bias && rule.weight),
        };
        let norm = Norm { kind, weight, bias: bias && rule.bias, ..norm };
        Ok(rule.used.read(fields)?.then_some(match rule.over {
            NormedHeads::PerHead => QkNorm::PerHead(norm),
            NormedHeads::AllHeads => QkNorm::AllHeads(norm),
            NormedHeads::EachHead => QkNorm::EachHead(norm),
        }))
    }

    fn scores(&self, fields: Fields<'_>) -> Result<Scores, ModelError> {
        let scale = optional(self.scale.as_ref(), |scale| match scale {
            ScoreScale::Value(field) => field.read(fields),
            ScoreScale::InverseRoot(field) => Ok(field.read(fields)?.powf(-0.5)),
        })?;
        Ok(Scores {
            scale: scale.map(Real::from),
            soft_cap: cap(fields, self.soft_cap.as_ref())?,
            bias: self.alibi.map_or(PositionBias::None, PositionBias::Alibi),
        })
    }
}

impl SlidingRule {
    /// `attention` in the form that it has in layers with a sliding window.
    fn read(&self, fields: Fields<'_>, attention: &Attention) -> Result<Attention, ModelError> {
        let size = |field: &Option<String>, usual: u64| {
            let stated = optional(field.as_ref(), |field| fields.optional_size(field))?;
            Ok::<_, ModelError>(stated.flatten().unwrap_or(usual))
        };
        let key_value_heads = attention.num_kv_heads.saturating_mul(self.key_value_heads_times);
        Ok(Attention {
            num_heads: size(&self.heads, attention.num_heads)?,
            num_kv_heads: size(&self.key_value_heads, key_value_heads)?,
            head_dim: size(&self.head_dim, attention.head_dim)?,
            value_head_dim: size(&self.value_head_dim, attention.value_head_dim)?,
            sinks: optional(self.sinks.as_ref(), |it| it.read(fields))?.unwrap_or(attention.sinks),
            ..attention.clone()
        })
    }
}

/// True for each layer with rotary embedding: by a 1 in `no_rope_layers`, else all but every `interval`-th.
fn rotated(
    fields: Fields<'_>,
    shape: &Shape,
    interval: &Field<u64>,
) -> Result<Vec<bool>, ModelError> {
    let interval = interval.read(fields)?;
    match fields.indices("no_rope_layers")?.filter(|flags| !flags.is_empty()) {
        Some(flags) if flags.len() as u64 >= shape.num_hidden_layers => {
            Ok(flags.iter().map(|flag| *flag != 0).collect())
        }
        Some(flags) => {
            let (given, layers) = (flags.len(), shape.num_hidden_layers);
            Err(fields.unsupported(format!("{given} `no_rope_layers` for {layers} layers")))
        }
        None => Ok((1..=shape.num_hidden_layers).map(|number| number % interval != 0).collect()),
    }
}

impl RotaryRule {
    /// True where the configuration has a rotation.
    fn is_used(&self, fields: Fields<'_>) -> Result<bool, ModelError> {
        match &self.only {
            Some(Said { field, is }) => Ok(fields.text_or(field, "")? == is),
            None => Ok(true),
        }
    }

    /// Rotation of layers of type `layer_type`; `theta` overrides the base of the family's rule.
    fn read(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        layer_type: Option<&str>,
        theta: Option<f64>,
    ) -> Result<Rotation, ModelError> {
        // Where sliding layers rotate differently, the other layers are `full_attention`.
        let layer_type = layer_type.or(self.sliding.as_ref().map(|_| "full_attention"));
        let features = optional(self.features.as_ref(), |field| fields.optional_size(field))?;
        let share = match features.flatten() {
            Some(features) => features as f64 / shape.head_dim as f64,
            None => self.share.read(fields)?,
        };
        let defaults = RotaryDefaults {
            theta: theta.map_or_else(|| self.theta.read(fields), Ok)?,
            share,
            pairs: self.pairs,
            scaling: self.scaling.as_ref(),
        };
        rotary::rotation(fields, layer_type, shape.head_dim, defaults)
    }

    /// Rotation of layers with a sliding window, where it differs from that of the others.
    fn of_sliding(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        full: Option<&Rotation>,
    ) -> Result<Option<Rotation>, ModelError> {
        let (Some(rule), Some(full)) = (&self.sliding, full) else { return Ok(None) };
        let theta = optional(rule.theta.as_ref(), |theta| theta.read(fields))?;
        let parameters = fields.within("rope_parameters");
        Ok(Some(match theta {
            theta if parameters.is_some_and(|it| it.within(SLIDING).is_some()) => {
                self.read(fields, shape, Some(SLIDING), theta)?
            }
            Some(theta) => Rotation::plain(theta),
            None => Rotation { scaling: RotaryScaling::None, ..full.clone() },
        }))
    }
}

impl WindowRule {
    fn read(&self, fields: Fields<'_>) -> Result<Option<u64>, ModelError> {
        let field = self.field.as_deref().unwrap_or("sliding_window");
        if !self.used.read(fields)? {
            // The value of the field does not matter then, but the field counts as read.
            fields.find(field);
            return Ok(None);
        }
        fields.nullable_size_or(field, self.default)
    }

    fn layers(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        window: Option<u64>,
        (rotates, mixed): (&[bool], bool),
    ) -> Result<Vec<bool>, ModelError> {
        let has_window = window.is_some();
        let layers = match &self.layers {
            WindowLayers::All => return Ok(vec![true; shape.num_hidden_layers as usize]),
            WindowLayers::AllButEvery(pattern) => {
                let pattern = pattern.read(fields)?;
                shape.sliding_layers(fields, mixed, |index| (index + 1) % pattern != 0)
            }
            WindowLayers::AllButEveryAndLast(step) => {
                let layers = shape.sliding_layers(fields, mixed, |index| (index + 1) % step != 0);
                let last = |mut layers: Vec<bool>| {
                    layers.last_mut().into_iter().for_each(|slides| *slides = false);
                    layers
                };
                layers.map(last)
            }
            WindowLayers::AllButFirstAndEvery(step) => {
                let is_far = |index: u64| index == 0 || (index + 1).is_multiple_of(*step);
                shape.sliding_layers(fields, mixed, |index| !is_far(index))
            }
            WindowLayers::From(first) => {
                let first = first.count(fields)?;
                shape.sliding_layers(fields, mixed, |index| has_window && index >= first)
            }
            WindowLayers::EvenBefore(end) => {
                let end = end.count(fields)?;
                shape.sliding_layers(fields, mixed, |index| {
                    has_window && index % 2 == 0 && index < end
                })
            }
            WindowLayers::Unrotated => {
                shape.sliding_layers(fields, mixed, |index| has_window && !rotates[index as usize])
            }
            WindowLayers::Rotated => Ok(rotates.iter().map(|it| has_window && *it).collect()),
        }?;
        if !self.supported && layers.contains(&true) {
            return Err(fields.unsupported(format!("`{SLIDING}` in some layers")));
        }
        Ok(layers)
    }
}

impl NormRule {
    pub(super) fn read(&self, fields: Fields<'_>) -> Result<Norm, ModelError> {
        let bias = optional(self.bias.as_ref(), |bias| bias.read(fields))?;
        Ok(Norm {
            kind: self.kind,
            weight: self.weight.read(fields)?,
            bias: bias.unwrap_or(self.kind == NormType::LayerNorm),
            epsilon: self.epsilon.read(fields)?.into(),
            unit_offset: self.unit_offset,
        })
    }
}

impl PlacementRule {
    fn read(&self, fields: Fields<'_>) -> Result<NormPlacement, ModelError> {
        match self {
            Self::Fixed(placement) => Ok(*placement),
            Self::Either { flag, then, otherwise } => {
                Ok(if flag.read(fields)? { *then } else { *otherwise })
            }
        }
    }
}

impl FeedForwardRule {
    fn read(&'static self, fields: Fields<'_>, shape: &Shape) -> Result<Mlp, ModelError> {
        let (field, word) = self.activation.word(fields)?;
        let stripped = word.strip_prefix("gated-").filter(|_| self.gated == Gating::ByPrefix);
        let activation = match fields.activation(field, stripped.unwrap_or(word))? {
            // In gated blocks too, `gelu` means the tanh approximation.
            Activation::Gelu if self.gelu_is_approximate || stripped == Some("gelu") => {
                Activation::GeluTanh
            }
            activation => activation,
        };
        let bias = self.bias.read(fields)?;
        let is_gated = self.gated == Gating::Always || stripped.is_some();
        let mlp = if is_gated {
            parts::with_mlp_biases(shape.gated_mlp(activation), bias)
        } else {
            shape.plain_mlp(activation, bias)
        };
        let clamp = optional(self.clamp.as_ref(), |clamp| clamp.read(fields))?;
        Ok(Mlp { clamp: clamp.map(Real::from), ..mlp })
    }
}

impl ScalesRule {
    fn read(&self, fields: Fields<'_>, shape: &Shape) -> Result<Scales, ModelError> {
        let embedding = optional(self.embedding.as_ref(), |scale| match scale {
            EmbeddingScale::RootOfWidth => Ok(Some((shape.hidden_size as f64).sqrt().into())),
            EmbeddingScale::RootOfWidthIf(flag) => {
                Ok(flag.read(fields)?.then(|| (shape.hidden_size as f64).sqrt().into()))
            }
            EmbeddingScale::Field(field) => fields.scale(field),
        })?;
        let logits = optional(self.logits.as_ref(), |scale| match scale {
            LogitScale::Multiply(scale) => {
                Ok(Some(scale.read(fields)?.into()).filter(|it: &Real| *it != 1.0))
            }
            LogitScale::Divide(field) => {
                Ok(fields.scale(field)?.map(|divisor| (1.0 / divisor.0).into()))
            }
        })?;
        Ok(Scales {
            embedding: embedding.flatten(),
            residual: optional(self.residual.as_ref(), |field| fields.scale(field))?.flatten(),
            logits: logits.flatten(),
            logit_soft_cap: cap(fields, self.logit_soft_cap.as_ref())?,
        })
    }
}

impl DropoutRule {
    fn read(&self, fields: Fields<'_>) -> Result<DropoutRates, ModelError> {
        let rate = |named: &Option<Field<f64>>| match named {
            Some(Field { field, default, .. }) => fields.rate_or(field, *default),
            None => Ok(Real::default()),
        };
        let hidden = rate(&self.hidden)?;
        Ok(DropoutRates {
            embedding: rate(&self.embedding)?,
            attention: rate(&self.attention)?,
            attention_output: hidden,
            feed_forward_output: match &self.feed_forward {
                None => hidden,
                stated => rate(stated)?,
            },
            ..DropoutRates::default()
        })
    }
}

fn cap(fields: Fields<'_>, cap: Option<&SoftCap>) -> Result<Option<Real>, ModelError> {
    Ok(optional(cap, |cap| cap.read(fields))?.flatten().map(Real::from))
}
