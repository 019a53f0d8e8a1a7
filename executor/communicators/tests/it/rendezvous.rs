//! Rendezvous of ranks: what launchers say, and a socket.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use executor_communicators::CommunicationError;
use executor_communicators::rendezvous::{Channel, Connection, Launch, RendezvousError, Shutdown};
use traces::timeline::Stream;

use super::threads::{LIMIT, free_port};

const CHANNEL: Channel = Channel::Calls(Stream::Host);

fn launch(rank: u32, num_ranks: u32, port: u16) -> Launch {
    Launch { rank, num_ranks, local_rank: rank, host: "127.0.0.1".to_owned(), port }
}

fn read(variables: &str) -> String {
    let set: BTreeMap<&str, &str> =
        variables.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
    match Launch::from_variables(|name| set.get(name).map(|value| (*value).to_owned())) {
        Ok(Launch { rank, num_ranks, local_rank, host, port }) => {
            format!("{rank} of {num_ranks}, {local_rank} here, {host}:{port}")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn launchers_say_who_a_process_is() {
    for (variables, expected) in [
        (
            "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node7 MASTER_PORT=1234",
            "3 of 8, 1 here, node7:1234",
        ),
        // torchrun's own store is on the port.
        (
            "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node7 MASTER_PORT=1234 \
             TORCHELASTIC_USE_AGENT_STORE=True",
            "3 of 8, 1 here, node7:1235",
        ),
        (
            "SLURM_PROCID=5 SLURM_NTASKS=16 SLURM_LOCALID=5 SLURM_STEP_NODELIST=gpu[03-05,07],login1 \
             SLURM_JOB_ID=1234567",
            "5 of 16, 5 here, gpu03:24567",
        ),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_STEP_NODELIST=a-1,b[2-3]",
            "0 of 1, 0 here, a-1:20000",
        ),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_JOB_NODELIST=rack[1,4]-gpu,x \
             MASTER_PORT=5",
            "0 of 1, 0 here, rack1-gpu:5",
        ),
        (
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=::1",
            "1 of 2, 0 here, ::1:29500",
        ),
        // mpirun within a job of Slurm.
        (
            "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_JOB_NODELIST=a OMPI_COMM_WORLD_RANK=1 \
             OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 MASTER_ADDR=a",
            "1 of 2, 1 here, a:29500",
        ),
        (
            "PATH=/bin",
            "no launcher has said which rank this process is: none of `RANK`, `OMPI_COMM_WORLD_RANK`, \
             `SLURM_PROCID` is set\nhint: start the ranks with `torchrun --no-python`, `mpirun` or `srun`",
        ),
        ("RANK=3", "`RANK` is set, but `WORLD_SIZE` is not"),
        (
            "RANK=3 WORLD_SIZE=4 LOCAL_RANK=3",
            "`RANK` is set, but `MASTER_ADDR` is not\nhint: set it to the host of rank 0, on all ranks",
        ),
        ("RANK=three WORLD_SIZE=4", "`RANK` is `three`, which is not a number"),
        ("RANK=4 WORLD_SIZE=4", "`RANK` is 4, but there are 4 ranks, counted from 0"),
        (
            "RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 MASTER_ADDR=a MASTER_PORT=70000",
            "`MASTER_PORT` is `70000`, which is not a port",
        ),
    ] {
        assert_eq!(read(variables), expected, "{variables}");
    }
}

/// What each of these ranks comes to, with its connection if they meet.
fn rendezvous<T: Send>(
    launches: &[Launch],
    limit: Duration,
    then: impl Fn(Connection, Shutdown) -> T + Sync,
) -> Vec<Result<T, RendezvousError>> {
    let (then, mut outcomes) = (&then, Vec::new());
    thread::scope(|scope| {
        let join = |launch| {
            move || {
                Connection::join(launch, limit)
                    .map(|(connection, shutdown)| then(connection, shutdown))
            }
        };
        let threads: Vec<_> = launches.iter().map(|launch| scope.spawn(join(launch))).collect();
        outcomes.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    });
    outcomes
}

#[test]
fn control_messages_arrive_in_order_by_channel() {
    let port = free_port();
    let launches: Vec<Launch> = (0..5).map(|rank| launch(rank, 5, port)).collect();
    let outcomes = rendezvous(&launches, LIMIT, |connection, shutdown| {
        let ranks: Vec<u32> = (0..5).collect();
        let own = connection.rank() as u8;
        // Longer than one packet.
        let long = vec![own; 100_000];
        assert_eq!(
            connection.all_gather(&ranks, CHANNEL, &long).unwrap(),
            (0..5).map(|rank| vec![rank; 100_000]).collect::<Vec<_>>()
        );
        for number in 0..10 {
            connection
                .send((connection.rank() + 1) % 5, Channel::Arrays, vec![own, number])
                .unwrap();
        }
        connection.all_gather(&ranks, CHANNEL, &[]).unwrap();
        let from = (connection.rank() + 4) % 5;
        for number in 0..10 {
            assert_eq!(connection.receive(from, Channel::Arrays).unwrap(), [from as u8, number]);
        }
        drop(connection);
        shutdown.wait()
    });
    for outcome in outcomes {
        assert_eq!(outcome.unwrap(), None);
    }
}

#[test]
fn a_rank_that_stops_or_ends_is_heard_of() {
    let port = free_port();
    let launches: Vec<Launch> = (0..3).map(|rank| launch(rank, 3, port)).collect();
    let outcomes = rendezvous(&launches, LIMIT, |connection, shutdown| {
        let error = match connection.rank() {
            0 => connection.receive(2, CHANNEL).unwrap_err(),
            1 => {
                let gone = connection.receive(2, Channel::Arrays).unwrap_err();
                assert!(matches!(gone, CommunicationError::Gone { rank: 2, waiting: 1, .. }));
                connection.stop("it misses rank 2");
                connection.check().unwrap_err()
            }
            _ => {
                drop(connection);
                return shutdown.wait().unwrap();
            }
        };
        drop(connection);
        assert!(shutdown.wait().is_some(), "{error}");
        error
    });
    let stopped = CommunicationError::Stopped { rank: 1, cause: "it misses rank 2".to_owned() };
    let errors: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    // Rank 0 hears that rank 2 has gone, or that rank 1 has stopped.
    assert!(errors[0] == stopped || matches!(errors[0], CommunicationError::Gone { rank: 2, .. }));
    assert_eq!(errors[1..], [stopped.clone(), stopped]);
}

/// How each of these ranks fails, with the port as `PORT`.
fn failures(launches: &[(u32, u32)], limit: Duration) -> Vec<String> {
    let port = free_port();
    let launches: Vec<Launch> =
        launches.iter().map(|(rank, num_ranks)| launch(*rank, *num_ranks, port)).collect();
    let outcomes = rendezvous(&launches, limit, |_, _| ());
    let texts = outcomes.into_iter().map(|outcome| outcome.unwrap_err().to_string());
    texts.map(|text| text.replace(&port.to_string(), "PORT")).collect()
}

#[test]
fn ranks_that_do_not_meet_say_why() {
    let nobody = failures(&[(1, 2)], Duration::from_millis(300)).swap_remove(0);
    let expected = "rank 1 cannot reach rank 0 at 127.0.0.1:PORT, after 0.3 s: ";
    assert!(nobody.starts_with(expected), "{nobody}");
    assert!(nobody.contains("hint: rank 0 runs on the host that `MASTER_ADDR` names"), "{nobody}");

    let missing =
        "the ranks did not meet at 127.0.0.1:PORT: ranks 1, 3 of 4 have not come within 2 s";
    assert_eq!(failures(&[(0, 4), (2, 4)], Duration::from_secs(2)), [missing; 2]);

    let size = "the ranks did not meet at 127.0.0.1:PORT: rank 1 was started as one of 2 ranks, but rank 0 as one \
                of 3";
    assert_eq!(failures(&[(0, 3), (1, 2)], LIMIT), [size; 2]);

    let twice = "the ranks did not meet at 127.0.0.1:PORT: two processes came as rank 1";
    assert_eq!(failures(&[(0, 3), (1, 3), (1, 3)], LIMIT), [twice; 3]);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let busy = rendezvous(&[launch(0, 1, port)], LIMIT, |_, _| ()).swap_remove(0).unwrap_err();
    let expected = format!("rank 0 cannot listen on port {port}: ");
    assert!(busy.to_string().starts_with(&expected), "{busy}");

    let host = "no.such.host.invalid".to_owned();
    let unknown = Launch { host, ..launch(1, 2, port) };
    let unknown = rendezvous(&[unknown], LIMIT, |_, _| ()).swap_remove(0).unwrap_err();
    let expected = "the host of rank 0, `no.such.host.invalid`, is not known here: ";
    assert!(unknown.to_string().starts_with(expected), "{unknown}");
}

#[test]
fn strangers_do_not_disturb_a_meeting() {
    let port = free_port();
    thread::scope(|scope| {
        let first = scope.spawn(move || Connection::join(&launch(0, 2, port), LIMIT).map(drop));
        let mut stranger = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: rank-0.example\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.is_empty(), "strangers are told nothing");
        Connection::join(&launch(1, 2, port), LIMIT).map(drop).unwrap();
        first.join().unwrap().unwrap();
    });
}

/// Set for processes that are ranks of a test.
const PROCESS: &str = "RENDEZVOUS_TEST_PROCESS";

/// A rank of the test below, as a process; nothing otherwise.
#[test]
fn process() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let launch = Launch::from_variables(|name| std::env::var(name).ok()).unwrap();
    let (connection, shutdown) = Connection::join(&launch, LIMIT).unwrap();
    let ranks: Vec<u32> = (0..launch.num_ranks).collect();
    let messages = connection.all_gather(&ranks, CHANNEL, &[connection.rank() as u8]).unwrap();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "\nmet {}", messages.concat().len()).unwrap();
    // Whoever has all of these knows that all have met, and may be killed.
    let error = match connection.all_gather(&ranks, CHANNEL, &[]) {
        Ok(_) => {
            writeln!(stdout, "\nready").unwrap();
            // Nobody sends this: it ends with the process that is killed.
            connection.receive(2, CHANNEL).unwrap_err()
        }
        Err(error) => error,
    };
    drop(connection);
    shutdown.wait();
    writeln!(stdout, "\n{error}").unwrap();
}

#[test]
fn processes_hear_of_one_that_is_killed() {
    let port = free_port().to_string();
    let start = |rank: u32| -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "rendezvous::process", "--nocapture", "--test-threads=1"]);
        command.env(PROCESS, "1").env("RANK", rank.to_string()).env("WORLD_SIZE", "3");
        command.env("LOCAL_RANK", rank.to_string()).env("MASTER_ADDR", "localhost");
        command.env("MASTER_PORT", &port).env_remove("TORCHELASTIC_USE_AGENT_STORE");
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut ranks: Vec<Child> = (0..3).map(start).collect();
    let mut killed = ranks.pop().unwrap();
    let mut seen = Vec::new();
    let mut output = killed.stdout.take().unwrap();
    while !String::from_utf8_lossy(&seen).contains("ready") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    for rank in ranks {
        let output = rank.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected =
            "rank 2 is lost: its process was killed, or its connection to the others was cut";
        assert!(text.contains("met 3") && text.contains(expected), "{text}");
    }
}
