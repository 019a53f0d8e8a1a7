//! Plans that the search finds, next to the layouts that people ran.
//!
//! `cargo run --release -p planner-evidence --example published -- DIR [NAME]` prints, for each measured run of
//! `DIR/runs` whose file or id contains `NAME`, by how much the best plan is predicted to be faster than what was run,
//! and that plan.

#![expect(clippy::print_stdout, reason = "the lines are what one runs it for")]

use planner_core::search::{Go, Request, search};
use planner_evidence::validation::setup::Setup;
use planner_evidence::validation::{predict, read_rows};

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).expect("a folder with `runs`");
    let name = std::env::args().nth(2).unwrap_or_default();
    let mut files: Vec<_> =
        std::fs::read_dir(format!("{folder}/runs"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        let of = file.file_name().to_string_lossy().into_owned();
        let Ok(rows) = read_rows(&of, &std::fs::read_to_string(file.path())?) else { continue };
        for row in rows.iter().filter(|row| of.contains(&name) || row.id.contains(&name)) {
            let Ok(setup) = Setup::of(row) else { continue };
            if setup.is_layer {
                continue;
            }
            let Ok(Some(measured)) = row.step_time_seconds else { continue };
            let theirs = predict(&setup);
            let outcome = search(&setup.problem, &Request::default(), &mut |_| Go::On);
            let Some(best) = outcome.plans.first() else {
                println!("{:40} nothing found", row.id);
                continue;
            };
            let show = |it: &ir::layout::LayoutSpec| {
                format!(
                    "{it} {} zero{}/{} mbs{} {} {:?}",
                    it.schedule,
                    it.zero_stage.number(),
                    it.zero_shard,
                    it.micro_batch_size,
                    it.recompute,
                    it.switches
                )
                .replace("Switches", "")
            };
            let time = best.evaluation.step_time.get();
            println!(
                "{:40} {measured:8.3} s, predicted {:8.3} ({:.1} GiB), best {time:8.3}: {:5.1} %\n    ran  {}\n    best {}",
                row.id,
                theirs.step_time_seconds,
                theirs.memory.total().as_gib(),
                (theirs.step_time_seconds / time - 1.0) * 100.0,
                show(&setup.layout),
                show(&best.layout),
            );
            let parts = |it: ir::plan::Breakdown| {
                it.parts()
                    .map(|(name, seconds)| format!("{} {seconds:.3}", &name[..name.len().min(12)]))
                    .join(", ")
            };
            println!(
                "         {}\n         {}",
                parts(theirs.breakdown),
                parts(best.evaluation.breakdown)
            );
        }
    }
    Ok(())
}
