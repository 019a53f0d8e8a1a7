//! A process's rank in its job, from the variables of its launcher.

/// The default port of the rendezvous, as in PyTorch.
const USUAL_PORT: u16 = 29_500;

/// First port and number of ports for jobs of Slurm, which sets no port. The range lies below Linux's own choices for
/// outgoing connections, which begin at 32768.
const SLURM_PORTS: (u16, u16) = (20_000, 10_000);

/// A process's rank in a job, and the address of the rendezvous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub num_ranks: u32,
    /// Position of the rank among those on its node.
    pub local_rank: u32,
    /// The host of rank 0.
    pub host: String,
    /// The port on which rank 0 listens.
    pub port: u16,
}

/// Failure to find a process's rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(String);

/// The variables of a kind of launcher.
struct Variables {
    rank: &'static str,
    num_ranks: &'static str,
    local_rank: &'static str,
}

/// Launchers, the innermost first: `torchrun` and `mpirun` are started within jobs of Slurm, not around them.
const VARIABLES: [Variables; 3] = [
    Variables { rank: "RANK", num_ranks: "WORLD_SIZE", local_rank: "LOCAL_RANK" },
    Variables {
        rank: "OMPI_COMM_WORLD_RANK",
        num_ranks: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    },
    Variables { rank: "SLURM_PROCID", num_ranks: "SLURM_NTASKS", local_rank: "SLURM_LOCALID" },
];

impl Launch {
    /// The address of the rendezvous, as in `host:29500`.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The launch from the variables that `torchrun`, `mpirun` or `srun` sets, which `variable` looks up.
    ///
    /// The rendezvous is at `MASTER_ADDR` and `MASTER_PORT`. Slurm needs neither: its first node is the host, and the
    /// port follows from the job's number. Where `torchrun` itself listens on `MASTER_PORT`, the next port is used.
    ///
    /// # Errors
    ///
    /// No launcher's variables are set, or they are inconsistent.
    pub fn from_variables(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, LaunchError> {
        let number = |name| {
            let read =
                |text: String| text.parse::<u32>().map_err(|_| invalid(name, &text, "a number"));
            variable(name).map(read).transpose()
        };
        let is_given = |family: &&Variables| variable(family.rank).is_some();
        let family = VARIABLES.iter().find(is_given).ok_or_else(no_launcher)?;
        let missing = |name: &str, hint: &str| {
            LaunchError(format!("`{}` is set, but `{name}` is not{hint}", family.rank))
        };
        let needed = |name| number(name)?.ok_or_else(|| missing(name, ""));
        let (rank, num_ranks) = (needed(family.rank)?, needed(family.num_ranks)?);
        if rank >= num_ranks {
            return Err(LaunchError(format!(
                "`{}` is {rank}, but there are {num_ranks} ranks, counted from 0",
                family.rank
            )));
        }
        let local_rank = needed(family.local_rank)?;

        let is_slurm = family.rank == "SLURM_PROCID";
        let nodes = || variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST"));
        let host = variable("MASTER_ADDR")
            .or_else(|| nodes().filter(|_| is_slurm).map(|nodes| first_host(&nodes)))
            .ok_or_else(|| {
                missing("MASTER_ADDR", "\nhint: set it to the host of rank 0, on all ranks")
            })?;
        let port = match variable("MASTER_PORT") {
            Some(value) => {
                let port = value.parse::<u16>().ok().filter(|port| *port > 0);
                port.ok_or_else(|| invalid("MASTER_PORT", &value, "a port"))?
            }
            None if is_slurm => {
                let (first, count) = SLURM_PORTS;
                let job = number("SLURM_JOB_ID")?.unwrap_or_default();
                first + (job % u32::from(count)) as u16
            }
            None => USUAL_PORT,
        };
        // With this set, the port is that of the store of torchrun's agent.
        let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|it| it == "True");
        let port = if is_taken { port.checked_add(1).unwrap_or(port - 1) } else { port };
        Ok(Self { rank, num_ranks, local_rank, host, port })
    }
}

fn no_launcher() -> LaunchError {
    LaunchError(format!(
        "no launcher has said which rank this process is: none of {} is set\nhint: start the ranks with `torchrun \
         --no-python`, `mpirun` or `srun`",
        VARIABLES.map(|family| format!("`{}`", family.rank)).join(", ")
    ))
}

fn invalid(name: &str, value: &str, expected: &str) -> LaunchError {
    LaunchError(format!("`{name}` is `{value}`, which is not {expected}"))
}

/// The first of Slurm's list of nodes, which is written as in `gpu[03-05,07],login1` or `rack[0-1]gpu[03-05]`.
fn first_host(nodes: &str) -> String {
    let end = nodes.find([',', '[']).unwrap_or(nodes.len());
    let (prefix, rest) = nodes.split_at(end);
    let Some(numbers) = rest.strip_prefix('[') else { return prefix.to_owned() };
    let number = numbers.split([',', '-', ']']).next().unwrap_or_default();
    let (_, after) = numbers.split_once(']').unwrap_or_default();
    format!("{prefix}{number}{}", first_host(after))
}
