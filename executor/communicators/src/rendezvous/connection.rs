//! A rank's side of a rendezvous.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use executor_kernels::clock::Deadline;
use executor_kernels::lock::lock;
use traces::timeline::Stream;

use super::frame::{Frame, GREETING};
use super::launch::Launch;
use super::{POLL, RendezvousError, hub};
use crate::error::{CommunicationError, Result};
use crate::mailbox::Mailbox;
use crate::tag::Tag;

/// Longest wait for ranks after a stop: they may hang in a library.
const GRACE: Duration = Duration::from_secs(10);

/// Time by which other ranks wait longer than rank 0, so that rank 0 can tell them which ranks were missing.
const HEARING_TIME: Duration = Duration::from_secs(5);

/// The sequence to which a control message belongs. Messages of one channel between two ranks arrive in the order in
/// which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// The collectives of a stream.
    Calls(Stream),
    /// The arrays that one rank sends to another.
    Arrays,
    /// The arrays that each step repeats.
    Repeated,
}

impl Channel {
    /// The channel of arrays with a tag.
    pub fn of(tag: Tag) -> Self {
        match tag {
            Tag::Message(_) | Tag::Stream(Stream::Context) => Self::Repeated,
            Tag::Stream(_) => Self::Arrays,
        }
    }

    /// The channel's tag in errors.
    fn tag(self) -> Tag {
        match self {
            Self::Calls(stream) => Tag::Stream(stream),
            Self::Arrays | Self::Repeated => Tag::Stream(Stream::Send),
        }
    }

    /// All channels, by their numbers in frames.
    fn all() -> impl Iterator<Item = Self> {
        Stream::ALL.into_iter().map(Self::Calls).chain([Self::Arrays, Self::Repeated])
    }
}

/// A rank's connection to all others. When it is dropped, they see the rank as ended.
pub struct Connection {
    rank: u32,
    num_ranks: u32,
    writer: Mutex<TcpStream>,
    incoming: Arc<Mailbox<Channel, Vec<u8>>>,
    num_sent: AtomicU64,
}

/// Handle to wait for the end of a connection.
pub struct Shutdown {
    incoming: Arc<Mailbox<Channel, Vec<u8>>>,
    /// Disconnected when the reader ends.
    reader: Receiver<()>,
}

impl Connection {
    /// The connection of a rank, once all ranks have connected.
    ///
    /// # Errors
    ///
    /// Ranks did not connect within `limit`, or do not agree on their number.
    pub fn join(launch: &Launch, limit: Duration) -> Result<(Self, Shutdown), RendezvousError> {
        let Launch { rank, num_ranks, .. } = *launch;
        let system =
            |error: io::Error| RendezvousError(format!("rank {rank} cannot be connected: {error}"));
        let addresses = resolve(launch)?;
        if rank == 0 {
            let listener = listen(&addresses).map_err(|error| {
                RendezvousError(format!(
                    "rank 0 cannot listen on port {}: {error}\nhint: set `MASTER_PORT` to a free port",
                    launch.port
                ))
            })?;
            hub::start(listener, num_ranks, limit).map_err(system)?;
        }
        let mut stream = connect(launch, &addresses, limit)?;
        stream.set_nodelay(true).map_err(system)?;
        stream.set_read_timeout(Some(limit + HEARING_TIME)).map_err(system)?;
        let answer = Frame::Hello { greeting: GREETING.to_owned(), rank, num_ranks }
            .write(&mut stream)
            .and_then(|()| Frame::read(&mut stream));
        let refusal = match answer {
            Ok(Frame::Ready) => None,
            Ok(Frame::Refused { reason } | Frame::Stop { cause: reason, .. }) => Some(reason),
            Ok(_) => Some("another program listens there".to_owned()),
            Err(error) => Some(format!("rank 0 does not answer: {error}")),
        };
        if let Some(reason) = refusal {
            let address = launch.address();
            return Err(RendezvousError(format!("the ranks did not meet at {address}: {reason}")));
        }
        stream.set_read_timeout(None).map_err(system)?;

        let incoming = Arc::new(Mailbox::default());
        let writer = Mutex::new(stream.try_clone().map_err(system)?);
        let (running, reader) = mpsc::channel::<()>();
        let mailbox = Arc::clone(&incoming);
        let read = move || {
            let _running = running;
            read_all(&mut stream, &mailbox, num_ranks);
        };
        Builder::new().name(format!("connection of rank {rank}")).spawn(read).map_err(system)?;
        let shutdown = Shutdown { incoming: Arc::clone(&incoming), reader };
        Ok((Self { rank, num_ranks, writer, incoming, num_sent: AtomicU64::new(0) }, shutdown))
    }

    /// The rank's number.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn num_ranks(&self) -> u32 {
        self.num_ranks
    }

    /// Number of control messages sent.
    pub fn num_messages(&self) -> u64 {
        self.num_sent.load(Ordering::Relaxed)
    }

    /// Sends a control message to a rank, which may be this one. Does not wait for it to be read.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the receiver has ended.
    pub fn send(&self, to: u32, channel: Channel, bytes: Vec<u8>) -> Result<()> {
        self.incoming.check(self.rank, to, channel.tag())?;
        self.num_sent.fetch_add(1, Ordering::Relaxed);
        if to == self.rank {
            self.incoming.put(to, channel, bytes);
        } else {
            let number = Channel::all().position(|other| other == channel);
            let channel = number.expect("all channels are in the list");
            self.write(&Frame::Message { peer: to, channel, bytes });
        }
        Ok(())
    }

    /// The next control message of a rank. Waits for it.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the sender has ended.
    pub fn receive(&self, from: u32, channel: Channel) -> Result<Vec<u8>> {
        self.incoming.take(self.rank, from, channel, channel.tag())
    }

    /// The bytes of each of `ranks`, in the order of `ranks`. All of these ranks call this.
    ///
    /// # Errors
    ///
    /// The run was stopped, or one of them has ended.
    pub fn all_gather(
        &self,
        ranks: &[u32],
        channel: Channel,
        bytes: &[u8],
    ) -> Result<Vec<Vec<u8>>> {
        ranks.iter().try_for_each(|to| self.send(*to, channel, bytes.to_vec()))?;
        ranks.iter().map(|from| self.receive(*from, channel)).collect()
    }

    /// Fails once a rank has stopped the run.
    ///
    /// # Errors
    ///
    /// The error of the rank that stopped the run.
    pub fn check(&self) -> Result<()> {
        self.incoming.stopped().map_or(Ok(()), Err)
    }

    /// Stops all ranks. The first cause is kept.
    pub fn stop(&self, cause: &str) {
        if self.incoming.stop(self.rank, cause) {
            self.write(&Frame::Stop { rank: self.rank, cause: cause.to_owned() });
        }
    }

    fn write(&self, frame: &Frame) {
        let mut writer = lock(&self.writer);
        // A broken connection is noticed, and reported, by the thread that reads it.
        let _ = frame.write(&mut *writer);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.write(&Frame::End { rank: self.rank });
    }
}

impl Shutdown {
    /// Waits until all ranks have ended, and returns the error of the rank that stopped the run, if one did. After a
    /// stop it waits ten seconds at most for ranks that hang.
    pub fn wait(self) -> Option<CommunicationError> {
        let mut deadline = None;
        while self.reader.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            if self.incoming.stopped().is_some()
                && deadline.get_or_insert_with(|| Deadline::after(GRACE)).is_over()
            {
                break;
            }
        }
        self.incoming.stopped()
    }
}

/// Puts messages into the mailbox until all ranks have ended.
fn read_all(stream: &mut TcpStream, incoming: &Mailbox<Channel, Vec<u8>>, num_ranks: u32) {
    let mut num_ended = 0;
    loop {
        match Frame::read(stream) {
            Ok(Frame::Message { peer, channel, bytes }) => {
                let channel = Channel::all().nth(channel).expect("all ranks run the same program");
                incoming.put(peer, channel, bytes);
            }
            Ok(Frame::Stop { rank, cause }) => {
                incoming.hear_stop(CommunicationError::Stopped { rank, cause });
            }
            Ok(Frame::Lost { rank }) => incoming.hear_stop(CommunicationError::Lost { rank }),
            Ok(Frame::End { rank }) => {
                num_ended += 1;
                incoming.set_gone(rank);
            }
            Ok(Frame::Hello { .. } | Frame::Ready | Frame::Refused { .. }) => {}
            Err(_) => {
                if num_ended + 1 < num_ranks {
                    incoming.hear_stop(CommunicationError::Lost { rank: 0 });
                }
                return;
            }
        }
    }
}

fn resolve(launch: &Launch) -> Result<Vec<SocketAddr>, RendezvousError> {
    let unknown = |error: io::Error| {
        RendezvousError(format!(
            "the host of rank 0, `{}`, is not known here: {error}",
            launch.host
        ))
    };
    let addresses: Vec<_> =
        (launch.host.as_str(), launch.port).to_socket_addrs().map_err(unknown)?.collect();
    if addresses.is_empty() {
        return Err(unknown(io::Error::other("it has no address")));
    }
    Ok(addresses)
}

/// Listens on all interfaces of this host, since the host's own name may resolve to another of its networks. A job on
/// the loopback network listens there only.
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
            match TcpStream::connect_timeout(address, deadline.left().max(POLL)) {
                // On one host, a socket can connect to itself through a port on which nobody listens.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    last = Some(io::ErrorKind::ConnectionRefused.into());
                }
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        if deadline.is_over() {
            return Err(RendezvousError(format!(
                "rank {} cannot reach rank 0 at {}, after {} s: {}\nhint: rank 0 runs on the host that `MASTER_ADDR` \
                 names, and listens on the port that `MASTER_PORT` names",
                launch.rank,
                launch.address(),
                limit.as_secs_f64(),
                last.expect("a host has an address")
            )));
        }
        std::thread::sleep(POLL);
    }
}
