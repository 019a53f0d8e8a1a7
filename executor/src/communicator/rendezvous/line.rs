//! A rank's side of a rendezvous.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use traces::timeline::Stream;

use super::frame::Frame;
use super::launch::Launch;
use super::{Deadline, POLL, RendezvousError, hub};
use crate::communicator::error::CommunicationError;
use crate::communicator::mailbox::Mailbox;
use crate::communicator::tag::Tag;
use crate::lock::lock;

/// How long ranks that were stopped are waited for: they may hang in a library.
const GRACE: Duration = Duration::from_secs(10);

/// How much longer than rank 0 the others wait, so that they hear from it who was missing.
const HEARING_TIME: Duration = Duration::from_secs(5);

/// What letters are about. Those of one lane between two ranks arrive in the order in which they
/// were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The calls of a stream.
    Calls(Stream),
    /// The arrays that one rank sends to another.
    Arrays,
    /// Those of them that each step sends alike.
    Repeated,
}

impl Lane {
    /// That of arrays with a tag.
    pub fn of(tag: Tag) -> Self {
        match tag {
            Tag::Message(_) | Tag::Stream(Stream::Context) => Self::Repeated,
            Tag::Stream(_) => Self::Arrays,
        }
    }

    fn number(self) -> u32 {
        let all = &Stream::ALL;
        let num_streams = all.len() as u32;
        match self {
            Self::Calls(stream) => {
                all.iter().position(|other| *other == stream).expect("the list is complete") as u32
            }
            Self::Arrays => num_streams,
            Self::Repeated => num_streams + 1,
        }
    }

    fn from_number(number: u32) -> Self {
        match Stream::ALL.get(number as usize) {
            Some(stream) => Self::Calls(*stream),
            None if number == Self::Arrays.number() => Self::Arrays,
            None => Self::Repeated,
        }
    }
}

/// Letters that have come, by lane.
#[derive(Default)]
struct Letters {
    calls: Mailbox<Vec<u8>>,
    arrays: Mailbox<Vec<u8>>,
    repeated: Mailbox<Vec<u8>>,
}

impl Letters {
    fn on(&self, lane: Lane) -> (&Mailbox<Vec<u8>>, Tag) {
        match lane {
            Lane::Calls(stream) => (&self.calls, Tag::Stream(stream)),
            Lane::Arrays => (&self.arrays, Tag::Stream(Stream::Send)),
            Lane::Repeated => (&self.repeated, Tag::Stream(Stream::Send)),
        }
    }

    fn of_arrays(&self) -> [&Mailbox<Vec<u8>>; 2] {
        [&self.arrays, &self.repeated]
    }

    // That of calls decides who was first. It is stopped before the others: who is woken by any finds it
    // stopped, and does not take its own failure, a consequence, for the first.

    fn stop(&self, rank: u32, cause: &str) -> bool {
        let is_first = self.calls.stop(rank, cause);
        if is_first {
            for mailbox in self.of_arrays() {
                mailbox.stop(rank, cause);
            }
        }
        is_first
    }

    fn hear_stop(&self, error: &CommunicationError) {
        self.calls.hear_stop(error.clone());
        for mailbox in self.of_arrays() {
            mailbox.hear_stop(error.clone());
        }
    }

    fn set_gone(&self, rank: u32) {
        self.calls.set_gone(rank);
        for mailbox in self.of_arrays() {
            mailbox.set_gone(rank);
        }
    }
}

/// A rank's line to all others. When it is dropped, the rank has ended for them.
pub struct Line {
    rank: u32,
    num_ranks: u32,
    writer: Mutex<TcpStream>,
    letters: Arc<Letters>,
    num_sent: AtomicU64,
}

/// The end of a line.
pub struct Ending {
    letters: Arc<Letters>,
    /// Hung up when the reader ends.
    reader: Receiver<()>,
}

impl Line {
    /// The line of a rank, once all ranks are there.
    ///
    /// # Errors
    ///
    /// They were not there within `limit`, or do not agree how many they are.
    pub fn join(launch: &Launch, limit: Duration) -> Result<(Self, Ending), RendezvousError> {
        let Launch { rank, num_ranks, .. } = *launch;
        let system = |source| RendezvousError::System { rank, source };
        let addresses = resolve(launch)?;
        if rank == 0 {
            let listener = listen(&addresses)
                .map_err(|source| RendezvousError::Listen { port: launch.port, source })?;
            hub::start(listener, num_ranks, limit).map_err(system)?;
        }
        let mut stream = connect(launch, &addresses, limit)?;
        stream.set_nodelay(true).map_err(system)?;
        stream.set_read_timeout(Some(limit + HEARING_TIME)).map_err(system)?;
        let answer = Frame::Hello { rank, num_ranks }
            .write(&mut stream)
            .and_then(|()| Frame::read(&mut stream));
        let refused = |reason: String| RendezvousError::Refused {
            host: launch.host.clone(),
            port: launch.port,
            reason,
        };
        match answer {
            Ok(Frame::Ready) => {}
            Ok(Frame::Refused { reason } | Frame::Stop { cause: reason, .. }) => {
                return Err(refused(reason));
            }
            Ok(_) => return Err(refused("another program listens there".to_owned())),
            Err(error) => return Err(refused(format!("rank 0 does not answer: {error}"))),
        }
        stream.set_read_timeout(None).map_err(system)?;

        let letters = Arc::new(Letters::default());
        let writer = Mutex::new(stream.try_clone().map_err(system)?);
        let (running, reader) = mpsc::channel::<()>();
        let incoming = Arc::clone(&letters);
        let read = move || {
            let _running = running;
            read_all(&mut stream, &incoming, num_ranks);
        };
        Builder::new().name(format!("line of rank {rank}")).spawn(read).map_err(system)?;
        let num_sent = AtomicU64::new(0);
        let line = Self { rank, num_ranks, writer, letters: Arc::clone(&letters), num_sent };
        Ok((line, Ending { letters, reader }))
    }

    /// Which rank this is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn num_ranks(&self) -> u32 {
        self.num_ranks
    }

    /// How many letters it has sent.
    pub fn num_letters(&self) -> u64 {
        self.num_sent.load(Ordering::Relaxed)
    }

    /// Sends a letter to a rank, which may be this one. Does not wait for it to be read.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the receiver has ended.
    pub fn send(&self, to: u32, lane: Lane, bytes: Vec<u8>) -> Result<(), CommunicationError> {
        let (mailbox, tag) = self.letters.on(lane);
        mailbox.check(self.rank, to, tag)?;
        self.num_sent.fetch_add(1, Ordering::Relaxed);
        if to == self.rank {
            mailbox.put(to, tag, bytes);
        } else {
            self.say(&Frame::Letter { peer: to, lane: lane.number(), bytes });
        }
        Ok(())
    }

    /// The next letter of a rank. Waits for it.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the sender has ended.
    pub fn receive(&self, from: u32, lane: Lane) -> Result<Vec<u8>, CommunicationError> {
        let (mailbox, tag) = self.letters.on(lane);
        mailbox.take(self.rank, from, tag)
    }

    /// What each of `ranks`, which all call this, gives, in their order.
    ///
    /// # Errors
    ///
    /// The run was stopped, or one of them has ended.
    pub fn all_gather(
        &self,
        ranks: &[u32],
        lane: Lane,
        bytes: &[u8],
    ) -> Result<Vec<Vec<u8>>, CommunicationError> {
        for &to in ranks {
            self.send(to, lane, bytes.to_vec())?;
        }
        ranks.iter().map(|from| self.receive(*from, lane)).collect()
    }

    /// Fails once a rank has stopped the run.
    ///
    /// # Errors
    ///
    /// What stopped it.
    pub fn check(&self) -> Result<(), CommunicationError> {
        self.letters.calls.stopped().map_or(Ok(()), Err)
    }

    /// Tells all ranks to stop. The first cause stays.
    pub fn stop(&self, cause: &str) {
        if self.letters.stop(self.rank, cause) {
            self.say(&Frame::Stop { rank: self.rank, cause: cause.to_owned() });
        }
    }

    fn say(&self, frame: &Frame) {
        let mut writer = lock(&self.writer);
        // A broken connection is noticed, and told, by the thread that reads it.
        let _ = frame.write(&mut *writer);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.say(&Frame::End { rank: self.rank });
    }
}

impl Ending {
    /// Who stopped the run, and why, once all ranks have ended. Ranks that were stopped and hang
    /// are not waited for long.
    pub fn wait(self) -> Option<CommunicationError> {
        let mut deadline = None;
        while self.reader.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            if self.letters.calls.stopped().is_some()
                && deadline.get_or_insert_with(|| Deadline::after(GRACE)).is_over()
            {
                break;
            }
        }
        self.letters.calls.stopped()
    }
}

/// Puts what comes into mailboxes until all ranks have ended.
fn read_all(stream: &mut TcpStream, letters: &Letters, num_ranks: u32) {
    let mut num_ended = 0;
    loop {
        match Frame::read(stream) {
            Ok(Frame::Letter { peer, lane, bytes }) => {
                let (mailbox, tag) = letters.on(Lane::from_number(lane));
                mailbox.put(peer, tag, bytes);
            }
            Ok(Frame::Stop { rank, cause }) => {
                letters.hear_stop(&CommunicationError::Stopped { rank, cause });
            }
            Ok(Frame::Lost { rank }) => letters.hear_stop(&CommunicationError::Lost { rank }),
            Ok(Frame::End { rank }) => {
                num_ended += 1;
                letters.set_gone(rank);
            }
            Ok(Frame::Hello { .. } | Frame::Ready | Frame::Refused { .. }) => {}
            Err(_) => {
                if num_ended + 1 < num_ranks {
                    letters.hear_stop(&CommunicationError::Lost { rank: 0 });
                }
                return;
            }
        }
    }
}

fn resolve(launch: &Launch) -> Result<Vec<SocketAddr>, RendezvousError> {
    let unknown = |source| RendezvousError::Host { host: launch.host.clone(), source };
    let addresses: Vec<_> =
        (launch.host.as_str(), launch.port).to_socket_addrs().map_err(unknown)?.collect();
    if addresses.is_empty() {
        return Err(unknown(io::Error::other("it has no address")));
    }
    Ok(addresses)
}

/// Listens for all that can reach this host: what it calls itself may lead to another of its
/// networks. A job that names the loopback network stays there.
fn listen(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let first = addresses[0];
    let any = match first.ip() {
        ip if ip.is_loopback() && ip != IpAddr::from([127, 0, 1, 1]) => ip,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    TcpListener::bind((any, first.port()))
}

/// A connection to rank 0, which may start later than this one.
fn connect(
    launch: &Launch,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<TcpStream, RendezvousError> {
    let deadline = Deadline::after(limit);
    loop {
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(address, deadline.left()) {
                // On one host, a port that nobody listens on can be connected to itself.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    last = Some(io::ErrorKind::ConnectionRefused.into());
                }
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        if deadline.is_over() {
            return Err(RendezvousError::Unreachable {
                rank: launch.rank,
                host: launch.host.clone(),
                port: launch.port,
                limit,
                source: last.expect("a host has an address"),
            });
        }
        std::thread::sleep(POLL);
    }
}
