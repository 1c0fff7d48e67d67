//! Builders for tests of a policy, and checks that its answer keeps to the contract.
//!
//! ```
//! use pacer_policy_sdk::scenario::Scenario;
//!
//! let scenario = Scenario::pool("ci")
//!     .node("n1", |node| node.draining = true)
//!     .candidate_on("n1", "a", |runner| runner.idle = 600)
//!     .busy_on("n1", 1)
//!     .surplus(1);
//! assert_eq!(scenario.scale_down().nodes[0].runners, 2);
//! ```

use crate::types::{Node, Pool};
use crate::{Capacity, Recover, Restart, ScaleDown, capacity, contract, recover, restart, scale_down};

/// A pool and what is to be decided about it. Unset facts are zero, empty or absent.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pool: Pool,
    nodes: Vec<Node>,
    candidates: Vec<scale_down::Candidate>,
    surplus: Option<u32>,
    subjects: Vec<restart::Subject>,
    jobs: Vec<capacity::Job>,
    reservations: Vec<capacity::Reservation>,
    dead: Vec<recover::DeadJob>,
    now: f64,
    settings: String,
}

/// A runner that a policy chose to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picked {
    /// Name of the chosen candidate.
    pub name: String,
    /// What the people on call will read.
    pub reason: String,
}

/// What a policy decided about a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Name of the subject that was decided about.
    pub name: String,
    /// The contract's name of the action.
    pub action: String,
    /// Seconds to wait first.
    pub after: Option<u32>,
    /// What the people on call will read.
    pub reason: String,
}

/// What a policy decided about a job that died with its runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Id of the job that was decided about.
    pub id: u64,
    /// The contract's name of the action.
    pub action: String,
    /// Seconds to wait first.
    pub after: Option<u32>,
    /// What the people on call will read.
    pub reason: String,
}

impl Scenario {
    /// A pool of ephemeral runners of a RunnerReplicaSet without anything in it.
    #[must_use]
    pub fn pool(name: &str) -> Self {
        let pool = Pool {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            kind: "RunnerReplicaSet".to_owned(),
            ephemeral: true,
            ..Pool::default()
        };
        Self { pool, ..Self::default() }
    }

    /// Changes the pool's facts.
    #[must_use]
    pub fn with_pool(mut self, change: impl FnOnce(&mut Pool)) -> Self {
        change(&mut self.pool);
        self
    }

    /// Unix time in seconds.
    #[must_use]
    pub fn now(mut self, now: f64) -> Self {
        self.now = now;
        self
    }

    /// JSON, as in the policy set.
    #[must_use]
    pub fn settings(mut self, json: &str) -> Self {
        json.clone_into(&mut self.settings);
        self
    }

    /// Adds a node, or changes the one of that name.
    #[must_use]
    pub fn node(mut self, name: &str, change: impl FnOnce(&mut Node)) -> Self {
        self.change_node(name, change);
        self
    }

    /// Puts `count` more busy runners of the pool on a node.
    #[must_use]
    pub fn busy_on(mut self, node: &str, count: u32) -> Self {
        self.pool.counts.busy += count;
        self.change_node(node, |node| {
            node.runners += count;
            node.busy += count;
        });
        self
    }

    /// Adds a runner that may be removed, of the newest template and on no known node.
    #[must_use]
    pub fn candidate(mut self, name: &str, change: impl FnOnce(&mut scale_down::Candidate)) -> Self {
        let mut candidate = scale_down::Candidate { name: name.to_owned(), current: true, ..Default::default() };
        change(&mut candidate);
        self.pool.counts.idle += 1;
        self.candidates.push(candidate);
        self
    }

    /// As [`candidate`](Self::candidate), on a node, whose count of runners grows by one.
    #[must_use]
    pub fn candidate_on(mut self, node: &str, name: &str, change: impl FnOnce(&mut scale_down::Candidate)) -> Self {
        let index = self.change_node(node, |node| node.runners += 1);
        self.candidate(name, |candidate| {
            candidate.node = Some(index);
            change(candidate);
        })
    }

    /// How many runners to remove; 1 when never set.
    #[must_use]
    pub fn surplus(mut self, surplus: u32) -> Self {
        self.surplus = Some(surplus);
        self
    }

    /// Adds a runner that needs a decision: ephemeral, of the newest template, its first failed attempt.
    #[must_use]
    pub fn subject(mut self, name: &str, situation: &str, cause: &str, change: impl FnOnce(&mut restart::Subject)) -> Self {
        let mut subject = restart::Subject {
            name: name.to_owned(),
            situation: situation.to_owned(),
            cause: cause.to_owned(),
            github: "absent".to_owned(),
            attempts: 1,
            ephemeral: true,
            current: true,
            ..Default::default()
        };
        change(&mut subject);
        self.subjects.push(subject);
        self
    }

    /// Adds a queued job in its first attempt.
    #[must_use]
    pub fn job(mut self, id: u64, change: impl FnOnce(&mut capacity::Job)) -> Self {
        let mut job = capacity::Job { id, state: "queued".to_owned(), attempt: 1, ..Default::default() };
        change(&mut job);
        self.jobs.push(job);
        self
    }

    /// Adds a reservation of one runner that is in force: made `age` seconds ago, over in `expires` seconds.
    #[must_use]
    pub fn reservation(mut self, id: &str, jobs: &[u64], age: u32, expires: u32) -> Self {
        self.reservations.push(capacity::Reservation {
            id: id.to_owned(),
            jobs: jobs.to_vec(),
            replicas: 1,
            effective: i32::try_from(age).map_or(i32::MIN, |age| -age),
            expires,
            ..Default::default()
        });
        self
    }

    /// Adds a job that died with its runner, in the first attempt of its run.
    #[must_use]
    pub fn dead_job(mut self, id: u64, cause: &str, change: impl FnOnce(&mut recover::DeadJob)) -> Self {
        let mut job = recover::DeadJob { id, cause: cause.to_owned(), attempt: 1, ..Default::default() };
        change(&mut job);
        self.dead.push(job);
        self
    }

    /// The request of a scale-down decision.
    #[must_use]
    pub fn scale_down(&self) -> scale_down::Request {
        scale_down::Request {
            now: self.now,
            settings: self.settings.clone(),
            pool: self.pool.clone(),
            nodes: self.nodes.clone(),
            candidates: self.candidates.clone(),
            surplus: self.surplus.unwrap_or(1),
            attributes: Vec::new(),
        }
    }

    /// The request of a restart decision.
    #[must_use]
    pub fn restart(&self) -> restart::Request {
        restart::Request {
            now: self.now,
            settings: self.settings.clone(),
            pool: self.pool.clone(),
            nodes: self.nodes.clone(),
            subjects: self.subjects.clone(),
            attributes: Vec::new(),
        }
    }

    /// The request of a capacity decision.
    #[must_use]
    pub fn capacity(&self) -> capacity::Request {
        capacity::Request {
            now: self.now,
            settings: self.settings.clone(),
            pool: self.pool.clone(),
            jobs: self.jobs.clone(),
            reservations: self.reservations.clone(),
            attributes: Vec::new(),
        }
    }

    /// The request of a recover decision.
    #[must_use]
    pub fn recover(&self) -> recover::Request {
        recover::Request {
            now: self.now,
            settings: self.settings.clone(),
            pool: self.pool.clone(),
            nodes: self.nodes.clone(),
            jobs: self.dead.clone(),
            attributes: Vec::new(),
        }
    }

    /// Asks `P` which runners go.
    ///
    /// # Errors
    /// What the policy says, or the rule of the contract that its answer breaks.
    pub fn select<P: ScaleDown>(&self) -> Result<Vec<Picked>, String> {
        let request = self.scale_down();
        let choices = contract::choices(&request, scale_down::answer::<P>(&request)?)?;
        let named = |choice: scale_down::Choice| {
            Some(Picked { name: request.candidates.get(choice.index as usize)?.name.clone(), reason: choice.reason })
        };
        Ok(choices.into_iter().filter_map(named).collect())
    }

    /// Asks `P` what shall happen to the subjects.
    ///
    /// # Errors
    /// What the policy says, or the rule of the contract that its answer breaks.
    pub fn decide<P: Restart>(&self) -> Result<Vec<Decided>, String> {
        let request = self.restart();
        let verdicts = contract::verdicts(&request, restart::answer::<P>(&request)?)?;
        let named = |verdict: restart::Verdict| {
            let name = request.subjects.get(verdict.index as usize)?.name.clone();
            Some(Decided { name, action: verdict.action, after: verdict.after, reason: verdict.reason })
        };
        Ok(verdicts.into_iter().filter_map(named).collect())
    }

    /// Asks `P` which reservations shall exist.
    ///
    /// # Errors
    /// What the policy says, or the rule of the contract that its answer breaks.
    pub fn plan<P: Capacity>(&self) -> Result<capacity::Plan, String> {
        let request = self.capacity();
        contract::plan(&request, capacity::answer::<P>(&request)?)
    }

    /// Asks `P` which of the jobs that died with their runners run again.
    ///
    /// # Errors
    /// What the policy says, or the rule of the contract that its answer breaks.
    pub fn recovered<P: Recover>(&self) -> Result<Vec<Recovered>, String> {
        let request = self.recover();
        let verdicts = contract::recoveries(&request, recover::answer::<P>(&request)?)?;
        let named = |verdict: recover::Verdict| {
            let id = request.jobs.get(verdict.index as usize)?.id;
            Some(Recovered { id, action: verdict.action, after: verdict.after, reason: verdict.reason })
        };
        Ok(verdicts.into_iter().filter_map(named).collect())
    }

    fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) -> u32 {
        let known = self.nodes.iter().position(|node| node.name == name);
        if known.is_none() {
            self.nodes.push(Node { name: name.to_owned(), ..Default::default() });
        }
        let index = known.unwrap_or(self.nodes.len() - 1);
        if let Some(node) = self.nodes.get_mut(index) {
            change(node);
        }
        u32::try_from(index).unwrap_or(u32::MAX)
    }
}
