//! Discrete events of a run: failures, restarts, nodes that come back.

use std::collections::VecDeque;

use serde::Serialize;
use simulator::uniform_deviates;

use super::components::Component;
use super::job::{Failures, OnFailure, TrainingJob};

/// Lost time of a run: all time that is not spent on lasting steps at full speed. Together with the time without
/// failures, it is the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LostTime {
    /// Steps after the last checkpoint, computed again.
    pub lost_work: f64,
    /// Stops for checkpoints.
    pub checkpoints: f64,
    /// From a failure until training goes on, except for the wait for nodes.
    pub restarts: f64,
    /// Waiting until enough nodes are repaired.
    pub waiting_for_nodes: f64,
    /// Running with fewer replicas, or with a plan for fewer nodes.
    pub fewer_nodes: f64,
    /// Waiting in each step for slow nodes.
    pub slow_nodes: f64,
}

impl LostTime {
    /// Parts of the sum.
    pub(super) fn parts(&mut self) -> [&mut f64; 6] {
        let Self { lost_work, checkpoints, restarts, waiting_for_nodes, fewer_nodes, slow_nodes } =
            self;
        [lost_work, checkpoints, restarts, waiting_for_nodes, fewer_nodes, slow_nodes]
    }
}

/// A run simulated to its end, or until it takes more than [`MOST_TIMES_LONGER`].
#[derive(Clone, Debug)]
pub(super) struct PlayedRun {
    /// Seconds until the end.
    pub seconds: f64,
    /// Share of the steps that are done.
    pub done: f64,
    /// Seconds that were lost.
    pub lost: LostTime,
    /// Number of failures of each component.
    pub failures: Vec<u64>,
}

/// Largest ratio of a run's time to the time without failures. A run that takes longer is not simulated further, and
/// counts as one that makes too little progress.
pub(super) const MOST_TIMES_LONGER: f64 = 50.0;

/// Event that ends a stretch of training.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Finished,
    Failed,
    /// Nodes or replicas come back.
    Back,
}

/// State of a run. Training seconds are those of steps at full speed.
struct Simulation<'a, U> {
    job: &'a TrainingJob,
    failures: &'a Failures,
    /// Training seconds between checkpoints.
    interval: f64,
    /// Uniform random numbers.
    uniform: U,
    now: f64,
    next_failure: f64,
    /// Training seconds of the whole run.
    work: f64,
    /// Training seconds that are done, and those that a restart keeps.
    done: f64,
    durable: f64,
    /// Seconds of training since the last durable checkpoint, including the stops for checkpoints begun since.
    since_checkpoint: f64,
    /// Number of working nodes, spares included; all nodes, where there is always a spare one.
    healthy: u32,
    /// Times at which nodes are repaired, in order.
    repairs: VecDeque<f64>,
    lost: LostTime,
    counts: Vec<u64>,
}

/// Simulates a run of `work` seconds of steps, with the random numbers of a seed.
///
/// Failures are a Poisson process over the run's whole time, as logs of interruptions count them. A failure during a
/// recovery is found at the end of that recovery, and takes a recovery of its own.
pub(super) fn play(job: &TrainingJob, failures: &Failures, work: f64, seed: u64) -> PlayedRun {
    let mut simulation = Simulation {
        job,
        failures,
        interval: failures.interval(job),
        uniform: uniform_deviates(seed),
        now: 0.0,
        next_failure: 0.0,
        work,
        done: 0.0,
        durable: 0.0,
        since_checkpoint: 0.0,
        healthy: job.num_nodes + failures.spares.unwrap_or(0),
        repairs: VecDeque::new(),
        lost: LostTime::default(),
        counts: vec![0; failures.components.len()],
    };
    simulation.draw_failure(1.0);
    match failures.on_failure {
        OnFailure::Shrink => simulation.go_on_with_fewer_replicas(),
        OnFailure::Wait | OnFailure::Replan => simulation.restart_each_time(),
    }
    let Simulation { now, done, lost, counts, .. } = simulation;
    PlayedRun { seconds: now, done: done / work, lost, failures: counts }
}

impl<U: Iterator<Item = f64>> Simulation<'_, U> {
    /// Stops at each failure, goes back to the last checkpoint, and restarts with the largest plan for which there are
    /// nodes.
    fn restart_each_time(&mut self) {
        let mut plan = 0;
        while self.gets_on() {
            let share = self.nodes_of(plan);
            let until = self.larger_plan_at(plan);
            match self.train(self.speed_of(plan), until) {
                End::Finished => return,
                End::Failed => {
                    self.fail(share);
                    self.roll_back();
                    plan = self.restart(share, self.failures.detection_seconds);
                }
                End::Back => {
                    let save = self.job.checkpoint.stall + self.job.checkpoint.lag;
                    self.lost.checkpoints += save;
                    self.now += save;
                    self.durable = self.done;
                    self.since_checkpoint = 0.0;
                    plan = self.restart(share, 0.0);
                }
            }
        }
    }

    /// Recovers, again for each failure that comes meanwhile; returns the plan that runs then.
    fn restart(&mut self, share: f64, mut detection: f64) -> usize {
        let restart = self.failures.restart_seconds + self.job.checkpoint.load;
        let mut pending = 1;
        loop {
            pending += self.pass(detection, share).len();
            let (plan, failed) = self.wait_for_plan();
            pending += failed;
            pending += self.pass(restart, self.nodes_of(plan)).len();
            pending -= 1;
            if pending == 0 || !self.gets_on() {
                self.draw_failure(self.nodes_of(plan));
                return plan;
            }
            detection = self.failures.detection_seconds;
        }
    }

    /// Waits until there are enough nodes for some plan; returns the largest such plan, and the number of failures
    /// meanwhile.
    fn wait_for_plan(&mut self) -> (usize, usize) {
        let mut failed = 0;
        loop {
            self.take_back_repaired();
            let plan = (0..=self.job.smaller.len()).find(|&it| self.num_nodes(it) <= self.healthy);
            let plan = plan.or_else(|| (!self.gets_on()).then_some(0));
            if let Some(plan) = plan {
                return (plan, failed);
            }
            let until = self.repairs.front().copied().expect("nodes that are missing are repaired");
            let left = f64::from(self.healthy) / f64::from(self.job.num_nodes);
            self.draw_failure(left);
            let end = until.min(self.next_failure);
            self.lost.waiting_for_nodes += end - self.now;
            self.now = end;
            if end < until {
                self.fail(left);
                failed += 1;
            } else {
                self.draw_failure(1.0);
            }
        }
    }

    /// Time at which there are enough nodes for the next larger plan, if that plan gains more than a restart with it
    /// costs; else infinity.
    fn larger_plan_at(&self, plan: usize) -> f64 {
        let Some(larger) = plan.checked_sub(1) else { return f64::INFINITY };
        let missing = (self.num_nodes(larger)).saturating_sub(self.healthy) as usize;
        let at = match missing.checked_sub(1) {
            None => self.now,
            Some(index) => self.repairs.get(index).copied().unwrap_or(f64::INFINITY),
        };
        let times = &self.job.checkpoint;
        let cost = times.stall + times.lag + times.load + self.failures.restart_seconds;
        let between = 1.0 / self.failures.rate(self.job, 1.0);
        let left = (self.work - self.done) / self.speed_of(plan);
        let gain = 1.0 - self.speed_of(plan) / self.speed_of(larger);
        if gain * between.min(left) > cost { at.max(self.now) } else { f64::INFINITY }
    }

    /// Goes on with the replicas that are left; each failure stops all of them for a while. A group of replicas comes
    /// back after a restart, with another node in place of one that is taken out. A group that lacks a node lends its
    /// other nodes.
    fn go_on_with_fewer_replicas(&mut self) {
        let all = self.job.replica_groups;
        let recovery = self.failures.detection_seconds
            + self.failures.restart_seconds
            + self.job.checkpoint.load;
        let mut groups = Groups { up: all, without_node: 0, back: VecDeque::new(), recovery };
        while self.gets_on() {
            self.bring_back(&mut groups);
            let repaired = self.repairs.front().filter(|_| groups.without_node > 0);
            let back = groups.back.front().into_iter().chain(repaired);
            let until = back.fold(f64::INFINITY, |least, at| least.min(*at));
            let end = if groups.up == 0 {
                self.stand_still(!groups.back.is_empty(), until)
            } else {
                self.train(f64::from(groups.up) / f64::from(all), until)
            };
            match end {
                End::Finished => return,
                End::Back => {}
                End::Failed => {
                    let mut failed = vec![self.fail(1.0)];
                    while failed.pop().is_some() {
                        failed.extend(self.take_down(&mut groups));
                    }
                }
            }
        }
    }

    /// Lets time pass while no group trains, until one comes back or a failure comes.
    fn stand_still(&mut self, restarts: bool, until: f64) -> End {
        self.roll_back();
        let end = until.min(self.next_failure);
        let waited =
            if restarts { &mut self.lost.restarts } else { &mut self.lost.waiting_for_nodes };
        *waited += end - self.now;
        self.now = end;
        if end < until { End::Failed } else { End::Back }
    }

    /// Takes down the group that a failure hits; returns the failures that come while all other groups stop. If the
    /// group is down already, its restart begins again.
    fn take_down(&mut self, groups: &mut Groups) -> Vec<usize> {
        let mut failed = Vec::new();
        let running = f64::from(groups.up) / f64::from(self.job.replica_groups);
        if self.draw() < running {
            groups.up -= 1;
            failed = self.pass(self.failures.stall_seconds, 1.0);
        } else if groups.back.pop_back().is_none() {
            return failed;
        }
        if self.num_groups_without_node() > groups.without_node {
            groups.without_node += 1;
        } else {
            groups.back.push_back(self.now + groups.recovery);
        }
        failed
    }

    /// Brings back groups that have restarted by now, and repaired nodes for groups that lack one.
    fn bring_back(&mut self, groups: &mut Groups) {
        while groups.back.front().is_some_and(|at| *at <= self.now) {
            groups.back.pop_front();
            groups.up += 1;
        }
        self.take_back_repaired();
        while groups.without_node > self.num_groups_without_node() {
            groups.without_node -= 1;
            groups.back.push_back(self.now + groups.recovery);
        }
    }

    /// Number of groups of replicas for which there are not enough nodes.
    fn num_groups_without_node(&self) -> u32 {
        let TrainingJob { num_nodes, replica_groups, .. } = *self.job;
        let missing = num_nodes.saturating_sub(self.healthy);
        (u64::from(missing) * u64::from(replica_groups)).div_ceil(num_nodes.into()) as u32
    }

    /// Trains at a share of the full speed until a time, a failure or the end of the run.
    fn train(&mut self, share: f64, until: f64) -> End {
        let pace = share / self.job.slowdown;
        let (interval, times) = (self.interval, self.job.checkpoint);
        let cycle = interval + times.stall;
        // `computed` gives the seconds of computing in the first `elapsed` seconds of cycles of computing and
        // checkpoints; `elapsed_at` is its inverse.
        let computed = |elapsed: f64| {
            let cycles = (elapsed / cycle).floor();
            cycles * interval + (elapsed - cycles * cycle).min(interval)
        };
        let elapsed_at =
            |computed: f64| computed + times.stall * ((computed / interval).ceil() - 1.0).max(0.0);
        let before = self.since_checkpoint;
        let left = (self.work - self.done) / pace;
        let finish = self.now + (elapsed_at(computed(before) + left) - before).max(left);
        let end = finish.min(until.max(self.now)).min(self.next_failure);
        let elapsed = end - self.now;
        let since = before + elapsed;
        let finishes = end >= finish;
        let computing = if finishes { left } else { computed(since) - computed(before) };
        let written = ((since - times.lag) / cycle).floor().max(0.0);
        if written > 0.0 {
            // A checkpoint that began in an earlier stretch counts at the pace of this one.
            self.durable = self.done + (written * interval - computed(before)) * pace;
        }
        self.since_checkpoint = since - written * cycle;
        self.done = if finishes { self.work } else { self.done + computing * pace };
        // Without stops, `elapsed` and `computing` differ only by rounding.
        self.lost.checkpoints += (elapsed - computing).max(0.0);
        self.lost.fewer_nodes += computing * (1.0 - share);
        self.lost.slow_nodes += computing * (share - pace);
        self.now = end;
        if finishes {
            End::Finished
        } else if end >= self.next_failure {
            End::Failed
        } else {
            End::Back
        }
    }

    /// Lets time pass without training; returns the components that fail meanwhile.
    fn pass(&mut self, seconds: f64, share: f64) -> Vec<usize> {
        let end = self.now + seconds;
        let mut failed = Vec::new();
        while self.next_failure <= end {
            self.now = self.next_failure;
            failed.push(self.fail(share));
        }
        self.lost.restarts += seconds;
        self.now = end;
        failed
    }

    /// Counts a failure now, on a share of the nodes; returns the component that fails.
    fn fail(&mut self, share: f64) -> usize {
        let mut point = self.draw() * self.failures.rate(self.job, share);
        let is_here = |it: &Component| {
            point -= self.job.rate(it, share);
            point < 0.0
        };
        let components = &self.failures.components;
        let component = components.iter().position(is_here).unwrap_or(components.len() - 1);
        self.counts[component] += 1;
        self.take_back_repaired();
        let takes_node = self.failures.components[component].replaces_node;
        if takes_node && self.failures.spares.is_some() && self.healthy > 0 {
            self.healthy -= 1;
            self.repairs.push_back(self.now + self.failures.repair_seconds);
        }
        self.draw_failure(share);
        component
    }

    fn take_back_repaired(&mut self) {
        while self.repairs.front().is_some_and(|at| *at <= self.now) {
            self.repairs.pop_front();
            self.healthy += 1;
        }
    }

    fn roll_back(&mut self) {
        self.lost.lost_work += self.done - self.durable;
        self.done = self.durable;
        self.since_checkpoint = 0.0;
    }

    /// Draws the time of the next failure, with a share of the nodes in use.
    fn draw_failure(&mut self, share: f64) {
        self.next_failure = self.now - self.draw().ln() / self.failures.rate(self.job, share);
    }

    fn draw(&mut self) -> f64 {
        self.uniform.next().expect("random numbers do not end")
    }

    fn gets_on(&self) -> bool {
        self.now < self.work * MOST_TIMES_LONGER
    }

    /// Number of nodes of a plan: 0 is the job's own plan, 1 the next smaller one, and so on.
    fn num_nodes(&self, plan: usize) -> u32 {
        plan.checked_sub(1).map_or(self.job.num_nodes, |index| self.job.smaller[index].num_nodes)
    }

    fn nodes_of(&self, plan: usize) -> f64 {
        f64::from(self.num_nodes(plan)) / f64::from(self.job.num_nodes)
    }

    fn speed_of(&self, plan: usize) -> f64 {
        let step = |index: usize| self.job.step_seconds / self.job.smaller[index].step_seconds;
        plan.checked_sub(1).map_or(1.0, step)
    }
}

/// Groups of replicas.
struct Groups {
    /// Number of groups that train.
    up: u32,
    /// Number of groups that wait for a node.
    without_node: u32,
    /// Times at which restarting groups come back, in order.
    back: VecDeque<f64>,
    /// Seconds that a restart takes.
    recovery: f64,
}
