//! `executor export`.

use std::io::Write;

use anyhow::{Context, bail};
use executor::array::Element;
use executor::checkpoint::{PieceKind, Shard, State, WeightsWriter, latest};
use executor::program::Program;

use super::args::ExportArgs;
use super::run;

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let plan = run::read(&args.plan)?;
    let named = || format!("`{}`", args.plan.display());
    let program = Program::from_plan(&plan, run::usual_settings(&plan)).with_context(named)?;
    let path = match latest(&args.checkpoint)? {
        found if found.path.is_some() => found.path.unwrap_or_default(),
        _ if args.checkpoint.join("manifest.json").exists() => args.checkpoint.clone(),
        _ => bail!("`{}` has no complete checkpoint", args.checkpoint.display()),
    };
    let state = State::open(&path)?;
    let parameters = program.parameters();
    state.check_model(&program.identity(), &parameters)?;
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
