//! `planner systems`.

use planner::report::{System, systems};

use super::answer::Answer;
use super::args::SystemsArgs;

pub(crate) fn list(args: &SystemsArgs) -> anyhow::Result<Answer> {
    let systems = systems();
    // Lines are not wrapped, so that commands can be copied.
    let row = |System { name, plan, run }: &System| format!("{name}\n  {plan}\n  {run}\n");
    args.format.print(&systems, || systems.iter().map(row).collect())
}
