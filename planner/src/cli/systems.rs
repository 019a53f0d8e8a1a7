//! `planner systems`.

use planner::report::systems;

use super::answer::Answer;
use super::args::{Format, SystemsArgs};
use command_line::said::{print, print_json};

pub(crate) fn list(args: &SystemsArgs) -> anyhow::Result<Answer> {
    let systems = systems();
    match args.format {
        Format::Json => print_json(&systems)?,
        // Commands are there to be copied, so no line of them is broken.
        Format::Table => {
            let row = |system: &planner::report::System| {
                format!("{}\n  {}\n  {}\n", system.name, system.plan, system.run)
            };
            print(&systems.iter().map(row).collect::<String>())?;
        }
    }
    Ok(Answer::Found)
}
