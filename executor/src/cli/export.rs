//! `executor export`.

use std::io::Write;

use anyhow::{Context, bail, ensure};
use executor::array::Element;
use executor::checkpoint::{PieceKind, Shard, State, WeightsWriter};
use executor::program::Program;

use super::args::ExportArgs;
use super::files;
use super::settings::usual_settings;

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let plan = files::read(&args.plan)?;
    let named = || format!("`{}`", args.plan.display());
    let program = Program::from_plan(&plan, usual_settings(&plan)).with_context(named)?;
    let state = open(args)?;
    let parameters = program.parameters();
    state.check_model(&program.identity(), &parameters)?;
    state.verify()?;
    files::check_output(&args.output, &[&args.plan])?;
    let naming = program.naming();
    let mut writer = WeightsWriter::create(&args.output, naming, &parameters, Element::F32)?;
    for parameter in &parameters {
        let whole = Shard::whole(&parameter.shape);
        let values = state.read::<f64>(&parameter.id, PieceKind::Weight, &whole)?;
        writer.write(&parameter.id, &values)?;
    }
    writer.finish()?;
    let step = state.training().step;
    writeln!(std::io::stderr(), "wrote `{}`, of step {step}", args.output.display())?;
    Ok(())
}

/// The checkpoint: the folder itself, or the newest in it.
fn open(args: &ExportArgs) -> anyhow::Result<State> {
    let path = &args.checkpoint;
    ensure!(path.is_dir(), "`{}` is no checkpoint, nor a folder of any", path.display());
    if path.join("manifest.json").exists() {
        return Ok(State::open(path)?);
    }
    let warn = |skipped: &_| Ok(writeln!(std::io::stderr(), "warning: {skipped}")?);
    match files::newest_checkpoint(path, warn)? {
        Some((_, state)) => Ok(state),
        None => bail!(
            "`{}` has no checkpoint\nhint: `executor run PLAN --checkpoint {0}` keeps some there",
            path.display()
        ),
    }
}
