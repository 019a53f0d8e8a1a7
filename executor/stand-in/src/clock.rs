//! Vector clocks: what has certainly happened, as far as a stream or a thread can know.

use std::collections::BTreeMap;

/// Who does things in an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agent {
    /// A stream of a device, by its number.
    Stream(u32),
    /// A thread of the host, by its number.
    Thread(u32),
}

/// One thing that an agent did: the `time`-th of those that are counted, from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Who did it.
    pub agent: Agent,
    /// Which of the agent's doings it is.
    pub time: u64,
}

/// How many of each agent's doings have ended, at least.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(BTreeMap<Agent, u64>);

impl Clock {
    /// Whether what bears the stamp has ended.
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.0.get(&stamp.agent).is_some_and(|time| *time >= stamp.time)
    }

    /// Learns all that another clock knows.
    pub fn join(&mut self, other: &Self) {
        for (agent, time) in &other.0 {
            let own = self.0.entry(*agent).or_default();
            *own = (*own).max(*time);
        }
    }

    /// The stamp of the agent's next doing, which the clock knows from now on.
    pub fn tick(&mut self, agent: Agent) -> Stamp {
        let time = self.0.entry(agent).or_default();
        *time += 1;
        Stamp { agent, time: *time }
    }
}
