//! Rank 0's side of a rendezvous: all ranks connect to it, and it forwards their control messages.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Builder};
use std::time::Duration;

use executor_kernels::clock::Deadline;
use executor_kernels::lock::lock;

use super::POLL;
use super::frame::{Frame, GREETING};

/// Longest wait for the greeting of a new connection.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Longest wait for a rank to read a frame: frames are short and ranks always read, so a slower rank hangs.
const WRITE_TIME: Duration = Duration::from_mins(1);

struct Hub {
    num_ranks: u32,
    state: Mutex<State>,
}

struct State {
    /// The connection to each rank, for writing.
    seats: Vec<Option<Arc<Mutex<TcpStream>>>>,
    /// Number of ranks that send nothing more.
    num_ended: usize,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    Running,
    Refused(String),
}

/// Accepts ranks through `listener`, in separate threads, which end when the ranks end.
pub(super) fn start(listener: TcpListener, num_ranks: u32, limit: Duration) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let seats = vec![None; num_ranks as usize];
    let state = Mutex::new(State { seats, num_ended: 0, phase: Phase::Gathering });
    let hub = Arc::new(Hub { num_ranks, state });
    let accept = move || hub.accept(&listener, limit);
    Builder::new().name("rendezvous".to_owned()).spawn(accept).map(drop)
}

impl Hub {
    /// Accepts connections until all ranks have connected. If they do not, later connections are refused too.
    fn accept(self: &Arc<Self>, listener: &TcpListener, limit: Duration) {
        let deadline = Deadline::after(limit);
        while self.lock().phase != Phase::Running {
            if deadline.is_over() {
                return self.refuse(&self.missing(limit));
            }
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(POLL);
                continue;
            };
            let hub = Arc::clone(self);
            let serve = move || {
                // A connection that breaks before its rank is known belonged to another program.
                let _ = hub.serve(stream);
            };
            if let Err(error) = Builder::new().name("rendezvous".to_owned()).spawn(serve) {
                return self.refuse(&format!("rank 0 got no thread: {error}"));
            }
        }
    }

    fn missing(&self, limit: Duration) -> String {
        let state = self.lock();
        let seats = (0..self.num_ranks).zip(&state.seats);
        let missing = seats.filter(|(_, seat)| seat.is_none()).map(|(rank, _)| rank.to_string());
        let missing: Vec<String> = missing.collect();
        let (is, have) = if missing.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        let more = if missing.len() > 8 { ", .." } else { "" };
        format!(
            "{is} {}{more} of {} {have} not come within {} s",
            missing[..missing.len().min(8)].join(", "),
            self.num_ranks,
            limit.as_secs_f64()
        )
    }

    /// Forwards the frames of one rank, until it has ended.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING_TIME))?;
        stream.set_write_timeout(Some(WRITE_TIME))?;
        let (rank, num_ranks) = match Frame::read(&mut stream)? {
            Frame::Hello { greeting, rank, num_ranks } if greeting == GREETING => (rank, num_ranks),
            _ => return Ok(()),
        };
        stream.set_read_timeout(None)?;
        let writer = Arc::new(Mutex::new(stream.try_clone()?));
        if let Err(reason) = self.seat(rank, num_ranks, &writer) {
            self.refuse(&reason);
            return Frame::Refused { reason }.write(&mut *lock(&writer));
        }
        loop {
            match Frame::read(&mut stream) {
                Ok(Frame::Message { peer, channel, bytes }) => {
                    self.tell(peer, &Frame::Message { peer: rank, channel, bytes });
                }
                Ok(Frame::Stop { cause, .. }) => {
                    self.tell_others(rank, &Frame::Stop { rank, cause });
                }
                Ok(Frame::End { .. }) => break,
                Ok(_) | Err(_) => {
                    self.refuse(&format!("rank {rank} went away before all had come"));
                    self.tell_others(rank, &Frame::Lost { rank });
                    break;
                }
            }
        }
        self.tell_others(rank, &Frame::End { rank });
        self.end();
        Ok(())
    }

    /// Registers a rank's connection; the last rank starts the run.
    fn seat(
        &self,
        rank: u32,
        num_ranks: u32,
        writer: &Arc<Mutex<TcpStream>>,
    ) -> Result<(), String> {
        let mut state = self.lock();
        if let Phase::Refused(reason) = &state.phase {
            return Err(reason.clone());
        }
        if num_ranks != self.num_ranks {
            return Err(format!(
                "rank {rank} was started as one of {num_ranks} ranks, but rank 0 as one of {}",
                self.num_ranks
            ));
        }
        let Some(seat) = state.seats.get_mut(rank as usize) else {
            return Err(format!("rank {rank} came, but there are {num_ranks} ranks"));
        };
        if seat.is_some() {
            return Err(format!("two processes came as rank {rank}"));
        }
        *seat = Some(Arc::clone(writer));
        if state.seats.iter().all(Option::is_some) {
            // No rank can send before all ranks are informed: their frames are served after this.
            for seat in state.seats.iter().flatten() {
                // A rank that has already disconnected is noticed when it is served.
                let _ = Frame::Ready.write(&mut *lock(seat));
            }
            state.phase = Phase::Running;
        }
        Ok(())
    }

    /// Sends all connected ranks the reason why the run does not start.
    fn refuse(&self, reason: &str) {
        let mut state = self.lock();
        if state.phase != Phase::Gathering {
            return;
        }
        state.phase = Phase::Refused(reason.to_owned());
        for seat in state.seats.iter().flatten() {
            let _ = Frame::Refused { reason: reason.to_owned() }.write(&mut *lock(seat));
        }
    }

    fn tell(&self, rank: u32, frame: &Frame) {
        let seat = self.lock().seats.get(rank as usize).cloned().flatten();
        if let Some(seat) = seat {
            // A rank that has disconnected is noticed where it is served.
            let _ = frame.write(&mut *lock(&seat));
        }
    }

    fn tell_others(&self, own: u32, frame: &Frame) {
        (0..self.num_ranks).filter(|rank| *rank != own).for_each(|rank| self.tell(rank, frame));
    }

    /// Closes all connections together once all ranks have ended, so that none is cut while a frame is on its way.
    fn end(&self) {
        let mut state = self.lock();
        state.num_ended += 1;
        if state.num_ended == state.seats.len() {
            for seat in state.seats.iter().flatten() {
                // It may be closed already.
                let _ = lock(seat).shutdown(Shutdown::Both);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
