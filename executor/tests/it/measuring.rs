//! Collectives as they are measured: what is shown and timed is what happened.

use std::convert::Infallible;
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor::collectives::{
    CollectiveError, SizeRange, TimedCollective, TimingPlan, bus_factor, fit_level, groups, show,
    time,
};
use executor_communicators::{
    CommunicationError, Communicator, Group, Message, MessagePassing, Reduction, Tag, Transport,
    local,
};
use executor_kernels::array::Element;
use ir::collective::Collective;
use ir::units::{Bytes, Seconds};
use traces::collectives::Operation;

type Rank = Arc<dyn Communicator<Flex>>;

/// What `program` gives on rank 0; no rank may fail.
fn on_first<T: Send>(num_ranks: u32, program: impl Fn(Rank) -> Option<T> + Sync) -> T {
    let all = local::run(num_ranks, &[FlexDevice], |rank| Ok::<_, Infallible>(program(rank)));
    let mut all = all.expect("a rank fails by a panic alone");
    assert!(all[1..].iter().all(Option::is_none), "rank 0 alone is told");
    all.swap_remove(0).expect("rank 0 is told")
}

fn plan(operation: Operation, reduction: Reduction, element: Element) -> TimingPlan {
    TimingPlan { operation, reduction, element, warm_ups: 0, iterations: 1 }
}

#[test]
fn who_holds_what_is_drawn() {
    let drawn = |operation| {
        let shown =
            on_first(3, |rank| show(&*rank, operation, Reduction::Sum, &FlexDevice).unwrap());
        format!("\n{shown}")
    };
    assert_eq!(
        drawn(Operation::Collective(Collective::AllToAll)),
        "
          before         after
  rank    0   1   2      0   1   2
          a0  b0  c0     a0  a1  a2
          a1  b1  c1     b0  b1  b2
          a2  b2  c2     c0  c1  c2
"
    );
    assert_eq!(
        drawn(Operation::Collective(Collective::SendReceive)),
        "
          before         after
  rank    0   1   2      0   1   2
          a0  b0  c0     c0  a0  b0
"
    );
}

/// Every operation, reduction and type of element, on groups of all sizes: nothing is wrong, and every rank
/// sends the bytes that it was to send.
#[test]
fn what_is_timed_is_right_and_sends_what_was_planned() {
    for num_ranks in [2, 3, 4, 6] {
        for operation in Operation::ALL {
            for reduction in Reduction::ALL {
                for element in [Element::F32, Element::F64, Element::BF16] {
                    let plan = plan(operation, reduction, element);
                    let sizes =
                        SizeRange { least: Bytes::new(1), most: Bytes::new(4096), factor: 64 };
                    for (bytes, size) in sizes.all().flat_map(|it| [(it, num_ranks), (it, 2)]) {
                        if num_ranks % size != 0 {
                            continue;
                        }
                        let row = on_first(num_ranks, |rank| {
                            let groups = groups(num_ranks, size, num_ranks / size);
                            let contents = plan.contents(size);
                            time(&*rank, &groups, &contents, &plan, bytes, &FlexDevice).unwrap()
                        });
                        assert_eq!((row.num_wrong, &row.sent), (0, &row.planned), "{row:?}");
                        assert!(row.bytes <= bytes.max(Bytes::new(8 * u64::from(size))), "{row:?}");
                    }
                }
            }
        }
    }
}

/// Carries arrays, twice as large as they were.
struct Doubling<T>(T);

impl<T: Transport<Flex>> Transport<Flex> for Doubling<T> {
    fn deliver(&self, to: u32, tag: Tag, message: Message<Flex>) -> Result<(), CommunicationError> {
        let message = match message {
            // What ranks tell each other about the measurement goes another way.
            Message::Array(array) if tag != Tag::Stream(traces::timeline::Stream::Host) => {
                Message::Array(array.scale(2.0))
            }
            message => message,
        };
        self.0.deliver(to, tag, message)
    }

    fn wait(&self, from: u32, tag: Tag) -> Result<Message<Flex>, CommunicationError> {
        self.0.wait(from, tag)
    }

    fn stop(&self, cause: &str) {
        self.0.stop(cause);
    }
}

#[test]
fn what_is_wrong_is_found() {
    for operation in Operation::ALL {
        let ranks = local::communicators::<Flex>(3, &[FlexDevice]);
        let results: Vec<_> = std::thread::scope(|scope| {
            let start = |rank: Arc<MessagePassing<local::LocalTransport<Flex>>>| {
                scope.spawn(move || {
                    let rank = Arc::into_inner(rank).expect("nobody else has it");
                    let rank = MessagePassing::new(
                        rank.rank(),
                        rank.num_ranks(),
                        Doubling(rank.transport),
                    );
                    let shown = show(&rank, operation, Reduction::Sum, &FlexDevice);
                    let plan = plan(operation, Reduction::Sum, Element::F32);
                    let all = [Group::new([0, 1, 2])];
                    let bytes = Bytes::new(480);
                    let row = time(&rank, &all, &plan.contents(3), &plan, bytes, &FlexDevice);
                    (shown.map(|_| ()), row.unwrap())
                })
            };
            let threads: Vec<_> = ranks.into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let error = results[0].0.as_ref().expect_err("rank 0 is told");
        assert!(matches!(error, CollectiveError::Wrong { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{operation} of 3 ranks is wrong in ")));
        let row = results[0].1.as_ref().expect("rank 0 is told");
        assert!(row.num_wrong > 0, "{row:?}");
    }
}

/// NVIDIA, nccl-tests, `doc/PERFORMANCE.md`.
#[test]
fn bus_factors_are_those_of_nccl_tests() {
    let factors = Operation::ALL.map(|operation| (operation.to_string(), bus_factor(operation, 4)));
    let expected = [
        ("broadcast", 1.0),
        ("scatter", 0.75),
        ("gather", 0.75),
        ("reduce", 1.0),
        ("all-gather", 0.75),
        ("reduce-scatter", 0.75),
        ("all-reduce", 1.5),
        ("all-to-all", 0.75),
        ("send-receive", 1.0),
    ];
    assert_eq!(factors, expected.map(|(name, factor)| (name.to_owned(), factor)));
}

/// Rows that follow the formula give its numbers back.
#[test]
fn a_level_that_rows_follow_is_found() {
    let [start, latency, bandwidth] = [2e-5, 3e-6, 4e9];
    let row = |num_ranks: u32, bytes: u64| {
        let n = f64::from(num_ranks);
        let time = start + (n - 1.0) * latency + (n - 1.0) / n * bytes as f64 / bandwidth;
        let time = Seconds::new(time);
        TimedCollective {
            operation: Operation::Collective(Collective::AllGather),
            num_ranks,
            num_groups: 8 / num_ranks,
            bytes: Bytes::new(bytes),
            count: bytes / 4,
            median: time,
            quartile: time,
            least: time,
            num_wrong: 0,
            sent: Vec::new(),
            planned: Vec::new(),
        }
    };
    let rows: Vec<TimedCollective> =
        [2, 4, 8].iter().flat_map(|n| (10..24).map(|bit| row(*n, 1 << bit))).collect();
    let fitted = fit_level("test", None, &rows).unwrap();
    let measured = &fitted.level.measured[&Collective::AllGather];
    let is = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-6;
    assert!(is(measured.start.get(), start), "{measured:?}");
    assert!(is(measured.latency.get(), latency), "{measured:?}");
    assert!(measured.bandwidth.is_some_and(|it| is(it.get(), bandwidth)), "{measured:?}");
    assert!(fitted.errors[0].own < 1e-6, "{:?}", fitted.errors);
    assert_eq!(fit_level("nothing", None, &[]), None);
}
