//! Vector clocks: the events that are known to have happened before a point of a stream or thread.

use std::collections::BTreeMap;

/// A stream or thread, whose actions are totally ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agent {
    /// A stream of a device, by its number.
    Stream(u32),
    /// A thread of the host, by its number.
    Thread(u32),
}

/// The `time`-th counted action of an agent, from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The agent.
    pub agent: Agent,
    /// Number of the action among the agent's.
    pub time: u64,
}

/// Vector clock: a lower bound of the number of ended actions of each agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(BTreeMap<Agent, u64>);

impl Clock {
    /// Returns whether the action with this stamp has ended.
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.0.get(&stamp.agent).is_some_and(|time| *time >= stamp.time)
    }

    /// Merges another clock: the element-wise maximum.
    pub fn join(&mut self, other: &Self) {
        for (agent, time) in &other.0 {
            let own = self.0.entry(*agent).or_default();
            *own = (*own).max(*time);
        }
    }

    /// The stamp of the agent's next action, which the clock includes from now on.
    pub fn tick(&mut self, agent: Agent) -> Stamp {
        let time = self.0.entry(agent).or_default();
        *time += 1;
        Stamp { agent, time: *time }
    }
}
