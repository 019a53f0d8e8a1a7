//! Rank 0's side of a rendezvous: all ranks connect to it, and it hands their letters on.

use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

use super::frame::Frame;
use super::{Deadline, POLL};
use crate::lock::lock;

/// A stranger that connects and says nothing is not waited for longer.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Letters are short and ranks always read, so one that takes nothing for so long hangs.
const WRITE_TIME: Duration = Duration::from_mins(1);

struct Hub {
    num_ranks: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The connection to each rank, to write to.
    seats: Vec<Option<Arc<Mutex<TcpStream>>>>,
    /// Ranks that say nothing more.
    ended: BTreeSet<u32>,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    Running,
    Refused(String),
}

/// Lets ranks connect through `listener`, in threads of its own, which end with the ranks.
pub(super) fn start(listener: TcpListener, num_ranks: u32, limit: Duration) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let state = State {
        seats: (0..num_ranks).map(|_| None).collect(),
        ended: BTreeSet::new(),
        phase: Phase::Gathering,
    };
    let hub = Arc::new(Hub { num_ranks, state: Mutex::new(state), changed: Condvar::new() });
    let accept = move || hub.accept(&listener, limit);
    Builder::new().name("rendezvous".to_owned()).spawn(accept).map(drop)
}

impl Hub {
    /// Takes connections until all ranks are there. If that cannot be, those that come later are
    /// told so too.
    fn accept(self: &Arc<Self>, listener: &TcpListener, limit: Duration) {
        let deadline = Deadline::after(limit);
        while self.lock().phase != Phase::Running {
            if deadline.is_over() {
                return self.refuse(&self.missing(limit));
            }
            let Ok((stream, _)) = listener.accept() else {
                let state = self.lock();
                drop(self.changed.wait_timeout(state, POLL));
                continue;
            };
            let hub = Arc::clone(self);
            let serve = move || {
                // A connection that breaks before its rank is known was a stranger's.
                let _ = hub.serve(stream);
            };
            if let Err(error) = Builder::new().name("rendezvous".to_owned()).spawn(serve) {
                return self.refuse(&format!("rank 0 got no thread: {error}"));
            }
        }
    }

    fn missing(&self, limit: Duration) -> String {
        let state = self.lock();
        let missing: Vec<String> = (0..self.num_ranks)
            .filter(|rank| state.seats[*rank as usize].is_none())
            .map(|rank| rank.to_string())
            .collect();
        let (is, have) = if missing.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        let named = if missing.len() > 8 { &missing[..8] } else { &missing };
        let more = if missing.len() > 8 { ", .." } else { "" };
        format!(
            "{is} {}{more} of {} {have} not come within {} s",
            named.join(", "),
            self.num_ranks,
            limit.as_secs_f64()
        )
    }

    /// Hands on what one rank says, until it has ended.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING_TIME))?;
        stream.set_write_timeout(Some(WRITE_TIME))?;
        let Frame::Hello { rank, num_ranks } = Frame::read(&mut stream)? else { return Ok(()) };
        stream.set_read_timeout(None)?;
        let writer = Arc::new(Mutex::new(stream.try_clone()?));
        if let Err(reason) = self.seat(rank, num_ranks, &writer) {
            self.refuse(&reason);
            return Frame::Refused { reason }.write(&mut *lock(&writer));
        }
        loop {
            match Frame::read(&mut stream) {
                Ok(Frame::Letter { peer, lane, bytes }) => {
                    self.tell(peer, &Frame::Letter { peer: rank, lane, bytes });
                }
                Ok(Frame::Stop { cause, .. }) => self.tell_others(&Frame::Stop { rank, cause }),
                Ok(Frame::End { .. }) => break,
                Ok(_) | Err(_) => {
                    self.refuse(&format!("rank {rank} went away before all had come"));
                    self.tell_others(&Frame::Lost { rank });
                    break;
                }
            }
        }
        self.tell_others(&Frame::End { rank });
        self.end(rank);
        Ok(())
    }

    /// Gives a rank its seat; the last one to come starts the run.
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
            // Nobody can say anything before all are told: those who may are served after this.
            for seat in state.seats.iter().flatten() {
                // A rank that is gone again is noticed when it is served.
                let _ = Frame::Ready.write(&mut *lock(seat));
            }
            state.phase = Phase::Running;
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Tells all that have come why the others have not.
    fn refuse(&self, reason: &str) {
        let mut state = self.lock();
        if state.phase != Phase::Gathering {
            return;
        }
        state.phase = Phase::Refused(reason.to_owned());
        for seat in state.seats.iter().flatten() {
            let _ = Frame::Refused { reason: reason.to_owned() }.write(&mut *lock(seat));
        }
        self.changed.notify_all();
    }

    fn tell(&self, rank: u32, frame: &Frame) {
        let seat = self.lock().seats.get(rank as usize).cloned().flatten();
        if let Some(seat) = seat {
            // One that has gone is noticed where it is served.
            let _ = frame.write(&mut *lock(&seat));
        }
    }

    fn tell_others(&self, frame: &Frame) {
        let (Frame::Stop { rank: own, .. } | Frame::Lost { rank: own } | Frame::End { rank: own }) =
            frame
        else {
            return;
        };
        for rank in (0..self.num_ranks).filter(|rank| rank != own) {
            self.tell(rank, frame);
        }
    }

    /// When all have ended, the connections are closed, all at once: none is cut while a letter is
    /// on its way.
    fn end(&self, rank: u32) {
        let mut state = self.lock();
        state.ended.insert(rank);
        if state.ended.len() == state.seats.len() {
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
