//! Reader of rotary embedding in a configuration.

use serde_json::{Map, Value};

use crate::graph::{Real, RotaryPairs, RotaryScaling, Rotation};

use super::error::ModelError;
use super::fields::Fields;

/// Default base of the rotation.
pub(super) const THETA: f64 = 10_000.0;

/// Defaults of a family's rotary embedding.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotaryDefaults<'a> {
    /// Base of the angles.
    pub(super) theta: f64,
    /// Share of a head's features that are rotated.
    pub(super) share: f64,
    /// Features that form a pair.
    pub(super) pairs: RotaryPairs,
    /// Default of `rope_scaling`.
    pub(super) scaling: Option<&'a Map<String, Value>>,
}

impl Default for RotaryDefaults<'_> {
    fn default() -> Self {
        Self { theta: THETA, share: 1.0, pairs: RotaryPairs::Halves, scaling: None }
    }
}

/// Rotation of heads with `head_dim` features, from `rope_theta`, `partial_rotary_factor` and `rope_scaling`, or from
/// `rope_parameters` in later configurations, which may have a nested object for layers of type `layer_type`.
pub(super) fn rotation(
    fields: Fields<'_>,
    layer_type: Option<&str>,
    head_dim: u64,
    RotaryDefaults { theta, share, pairs, scaling }: RotaryDefaults<'_>,
) -> Result<Rotation, ModelError> {
    let parameters = fields.object("rope_parameters")?;
    let of_kind = layer_type.and_then(|kind| parameters?.within(kind));
    let parameters = of_kind.or(parameters);
    let stated = |name: &str, absent: f64| match parameters {
        Some(parameters) => parameters.real_or(name, fields.real_or(name, absent)?),
        None => fields.real_or(name, absent),
    };
    let (theta, share) = (stated("rope_theta", theta)?, stated("partial_rotary_factor", share)?);
    if theta <= 0.0 || share > 1.0 {
        let what = format!("`rope_theta` {theta} with `partial_rotary_factor` {share}");
        return Err(fields.unsupported(what));
    }
    // Later configurations have `rope_parameters` alone, which then also holds the scaling.
    let stated = fields.object("rope_scaling")?.or(parameters);
    let scaling = match stated.or(scaling.map(|object| fields.of(object))) {
        Some(scaling) => self::scaling(fields, scaling)?,
        None => RotaryScaling::None,
    };
    let features = (share < 1.0).then_some((head_dim as f64 * share) as u64);
    Ok(Rotation { features, pairs, theta: theta.into(), scaling })
}

fn scaling(fields: Fields<'_>, scaling: Fields<'_>) -> Result<RotaryScaling, ModelError> {
    let kind = scaling.text_or("type", "default")?;
    let number = |name: &str| scaling.real(name).map(Real::from);
    let original = || -> Result<Real, ModelError> {
        for of in [scaling, fields] {
            if let Some(original) = of.optional_real("original_max_position_embeddings")? {
                return Ok(original);
            }
        }
        fields.real("max_position_embeddings").map(Real::from)
    };
    // Default factor: the ratio of the longest sequence to the original one.
    let longer = || -> Result<f64, ModelError> {
        Ok(fields.real("max_position_embeddings")? / original()?.into_inner())
    };
    Ok(match scaling.text_or("rope_type", kind)? {
        "default" | "mrope" => RotaryScaling::None,
        "linear" => RotaryScaling::Linear { factor: number("factor")? },
        "dynamic" => RotaryScaling::Dynamic {
            factor: number("factor")?,
            max_position_embeddings: fields.size("max_position_embeddings")?,
        },
        "llama3" => RotaryScaling::Llama3 {
            factor: number("factor")?,
            low_freq_factor: number("low_freq_factor")?,
            high_freq_factor: number("high_freq_factor")?,
            original_max_position_embeddings: original()?,
        },
        "yarn" => {
            let factor = scaling.optional_real("factor")?.map_or_else(longer, |it| Ok(it.0))?;
            let [scale, scale_all] =
                ["mscale", "mscale_all_dim"].map(|it| scaling.real_or(it, 0.0));
            let (scale, scale_all) = (scale?, scale_all?);
            let usual = if scale > 0.0 && scale_all > 0.0 {
                yarn_scale(factor, scale) / yarn_scale(factor, scale_all)
            } else {
                yarn_scale(factor, 1.0)
            };
            RotaryScaling::Yarn {
                factor: factor.into(),
                beta_fast: scaling.real_or("beta_fast", 32.0)?.into(),
                beta_slow: scaling.real_or("beta_slow", 1.0)?.into(),
                attention_factor: scaling.real_or("attention_factor", usual)?.into(),
                original_max_position_embeddings: original()?,
                truncates: scaling.flag_or("truncate", true)?,
            }
        }
        "longrope" | "su" => {
            let original = original()?;
            let factor = scaling.optional_real("factor")?.map_or_else(longer, |it| Ok(it.0))?;
            let usual =
                if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
            RotaryScaling::LongRope {
                short_factor: scaling.reals("short_factor")?,
                long_factor: scaling.reals("long_factor")?,
                attention_factor: scaling.real_or("attention_factor", usual)?.into(),
                original_max_position_embeddings: original,
            }
        }
        // Of a head's features a share is rotated, by angles as if all were.
        kind @ "proportional" => RotaryScaling::Other(kind.to_owned()),
        other => {
            fields.note_scaling(other);
            RotaryScaling::Other(other.to_owned())
        }
    })
}

/// Factor of YaRN on queries and keys for sequences `factor` times as long (Peng et al. 2023, equation 22).
pub(super) fn yarn_scale(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}
