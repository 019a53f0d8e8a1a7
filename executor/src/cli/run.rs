//! `executor run`.

use super::args::{CommunicatorKind, RunArgs};
use super::job::{Run, prepare};
use super::measuring::RanksArgs;
use super::settings::precision;
use super::{files, start};

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    start::check(args.backend, args.communicator)?;
    let ranks = |ranks| RanksArgs {
        ranks,
        backend: args.backend,
        communicator: args.communicator,
        communication_timeout: args.communication_timeout,
        threads_per_rank: args.threads_per_rank,
    };
    if args.communicator != CommunicatorKind::Local {
        if let Some(precision) = args.training.precision {
            args.backend.check(precision)?;
        }
        return start::run(&Run { args, job: None }, &ranks(None));
    }
    let plan = files::read(&args.plan)?;
    args.backend.check(precision(args, &plan))?;
    let Some(job) = prepare(args, &plan, None)? else { return Ok(()) };
    let num_ranks = job.program.num_ranks();
    start::run(&Run { args, job: Some(job) }, &ranks(Some(num_ranks)))
}
