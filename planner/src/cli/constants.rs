//! Texts about calibrations and the constants that they changed.

use std::path::Path;

use cost_models::constants;
use ir::cluster::Cluster;
use ir::framework::{Calibration, Framework};
use ir::text::count_of;

use super::tables::{percent_more, text_table};

/// Basis of a calibration: numbers of kernels, steps and peaks, the GPU, and the precisions.
pub(super) fn basis(calibration: &Calibration) -> String {
    let precisions: Vec<String> = calibration.precisions.iter().map(ToString::to_string).collect();
    let kernels = match calibration.kernels {
        0 => String::new(),
        some => format!("{some} kernels by shape, "),
    };
    format!(
        "{kernels}{} and {} on {}, in {}",
        count_of(calibration.steps, "time of a step", "times of steps"),
        count_of(calibration.peaks, "peak of memory", "peaks of memory"),
        calibration.gpu,
        precisions.join(" and ")
    )
}

/// Table of the constants that a calibration changed, the largest change first.
pub(super) fn moved_constants(calibration: &Calibration) -> String {
    let mut by_size: Vec<_> = calibration.constants.iter().collect();
    by_size.sort_by(|(_, a), (_, b)| {
        let size = |[was, is]: &[f64; 2]| (is / was).ln().abs();
        size(b).total_cmp(&size(a))
    });
    let rows = by_size.into_iter().map(|(name, [was, is])| {
        let meaning = constants::all().find(|it| it.name_on_machine() == *name);
        let short = meaning.map(|it| it.meaning.split([';', ':', ',']).next().unwrap_or_default());
        [
            name.clone(),
            format!("{was:.3}"),
            format!("{is:.3}"),
            percent_more(*is, *was),
            short.unwrap_or_default().to_owned(),
        ]
    });
    text_table(["constant", "was", "is", "by", "of"], &["constant", "of"], rows)
}

/// Measurements that a calibration left out, with the reasons.
pub(super) fn left_out(all: &[String]) -> String {
    match all {
        [] => String::new(),
        some => format!("\n{} left out:\n  {}\n", some.len(), some.join("\n  ")),
    }
}

/// Warning if the measurements ran on other GPUs than the cluster's, judged by the names that the drivers give.
pub(super) fn other_gpu<'a>(
    what: &str,
    mut gpus: impl Iterator<Item = &'a str>,
    cluster: &Cluster,
) -> String {
    let model = cluster.gpu.name.split(['-', ' ', ',']).next().unwrap_or_default().to_lowercase();
    let is_other = |gpu: &&str| !gpu.is_empty() && !gpu.to_lowercase().contains(&model);
    gpus.find(is_other).map_or_else(String::new, |gpu| {
        format!("\nwarning: {what} ran on {gpu}, and {} has {}\n", cluster.name, cluster.gpu.name)
    })
}

/// Path that a calibration was written to, and the option that uses it.
pub(super) fn written(output: Option<&Path>, option: &str) -> String {
    output.map_or_else(
        || "nothing was written: `-o FILE.json` keeps it\n".to_owned(),
        |path| format!("written to {0}: `{option} {0}` uses it\n", path.display()),
    )
}

/// Calibration of a plan's framework and the constants that it changed, or a note that it is for a GPU other than
/// `gpu`.
pub(super) fn describe_calibration(framework: &Framework, gpu: &str) -> String {
    let Some(calibration) = &framework.calibration else { return String::new() };
    let name = &framework.name;
    if calibration.gpu != gpu {
        return format!(
            "\nnote: {name} is calibrated on {}, but these GPUs are {gpu}, so the constants of {} are used\n",
            calibration.gpu,
            framework.measured_name()
        );
    }
    if calibration.constants.is_empty() {
        return format!(
            "\n{name} is calibrated on {}, which moved no constant\n",
            basis(calibration)
        );
    }
    format!(
        "\n{name} is calibrated on {}; constants that moved:\n{}",
        basis(calibration),
        moved_constants(calibration)
    )
}
