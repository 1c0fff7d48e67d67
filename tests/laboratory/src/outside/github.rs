//! GitHub: registrations, a flag that is late and lies, a removal that believes it, listings that are torn, limits.

use std::collections::{BTreeMap, VecDeque};

use crate::agenda::{Event, Stage};
use crate::clock::{At, MINUTE, SECOND};
use crate::invariant::Invariant;
use crate::object::RunnerId;
use crate::outside::api::Fate;
use crate::outside::{Broken, Faults, Outside};
use crate::script::Refusal;

/// Points of a minute (docs: rate limits for the REST API).
const POINTS: u32 = 900;

/// Requests of a minute that create something.
const CREATIONS: u32 = 80;

/// A runner that lost contact is offline after this.
const CONTACT: At = MINUTE;

/// A lost runner is busy for so long (github-behaviour 5.7).
pub(super) const LEASE: At = 10 * MINUTE;

#[derive(Clone, Debug)]
struct Registration {
    runner: RunnerId,
    life: u32,
    /// Listings have it from then on.
    visible: At,
    online: bool,
    /// Its job, and when that began.
    job: Option<(u32, At)>,
    /// The flag follows the job from then on.
    flagged: At,
    /// After a job: the flag stays until then. An ephemeral runner is removed then.
    released: Option<At>,
    /// Contact was lost, and whether it had a job.
    lost: Option<(At, bool)>,
}

/// What is at GitHub.
#[derive(Clone, Debug, Default)]
pub struct GitHub {
    registrations: BTreeMap<u64, Registration>,
    count: u64,
    /// Points and creations of the last minute.
    requests: VecDeque<(At, u32, u32)>,
    points: u32,
    creations: u32,
    /// The most points that any minute had.
    pub most_points: u32,
}

/// No answer that says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The process died.
    #[error("the process died")]
    Died,
    /// GitHub refuses.
    #[error("GitHub refuses")]
    Refused(Refusal),
}

impl From<Broken> for Unanswered {
    fn from(_: Broken) -> Self {
        Self::Died
    }
}

/// GitHub's answer to a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// 204: the runner is not registered any more.
    Removed,
    /// 404, and its siblings are seen.
    Absent,
    /// 422: the runner has a job, by GitHub's flag.
    Busy,
}

/// The pages of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Runners that the listing shows, which may lack one where it is torn.
    pub listed: Vec<Listed>,
    /// Their number is the one that each page tells.
    pub complete: bool,
    /// How many they are.
    pub pages: u32,
}

/// One runner of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// GitHub's id.
    pub id: u64,
    /// Number of the Runner object whose name it has.
    pub runner: RunnerId,
    /// Whether GitHub shows it as online.
    pub online: bool,
    /// GitHub's busy flag, which may be late or wrong.
    pub busy: bool,
}

impl Registration {
    fn busy(&self, now: At, drops: &[(At, At)]) -> bool {
        if let Some((lost, worked)) = self.lost {
            return worked && now < lost + LEASE;
        }
        match self.job {
            Some((_, began)) => {
                let dropped = drops.iter().any(|(from, until)| *from > began && (*from..*until).contains(&now));
                now >= self.flagged && !dropped
            }
            None => self.released.is_some_and(|released| now < released),
        }
    }

    fn is_online(&self, now: At) -> bool {
        self.online && self.lost.is_none_or(|(lost, _)| now < lost + CONTACT)
    }
}

impl GitHub {
    /// Whether GitHub refuses now.
    #[must_use]
    pub fn refuses(&self, now: At, faults: &Faults) -> bool {
        faults.refusal.is_some_and(|(_, until)| now < until)
    }

    /// Registers a runner. One of the same name makes room.
    pub fn register(&mut self, runner: RunnerId, life: u32, visible: At) -> u64 {
        self.registrations.retain(|_, registration| registration.runner != runner);
        self.count += 1;
        let registration =
            Registration { runner, life, visible, online: false, job: None, flagged: 0, released: None, lost: None };
        self.registrations.insert(self.count, registration);
        self.count
    }

    /// A runner has a session.
    pub fn connect(&mut self, id: u64) {
        if let Some(registration) = self.registrations.get_mut(&id) {
            registration.online = true;
        }
    }

    /// A runner ended without a word.
    pub fn disconnect(&mut self, id: u64, now: At, worked: bool) {
        if let Some(registration) = self.registrations.get_mut(&id) {
            registration.lost = registration.lost.or(Some((now, worked)));
            registration.job = None;
        }
    }

    /// Who can be given a job: runner and the UID of its pod.
    pub(super) fn waiting(&self) -> Vec<(u64, u32)> {
        let free = self
            .registrations
            .iter()
            .filter(|(_, one)| one.online && one.lost.is_none() && one.job.is_none() && one.released.is_none());
        free.map(|(id, one)| (*id, one.life)).collect()
    }

    /// A runner is given a job.
    pub(super) fn begin(&mut self, id: u64, job: u32, now: At, flagged: At) -> Option<RunnerId> {
        let registration = self.registrations.get_mut(&id)?;
        (registration.job, registration.flagged) = (Some((job, now)), flagged);
        Some(registration.runner)
    }

    /// A runner's job is over. `released` says until when the flag stays.
    pub(super) fn finish(&mut self, id: u64, released: At, ephemeral: bool) {
        if let Some(registration) = self.registrations.get_mut(&id) {
            registration.job = None;
            registration.released = ephemeral.then_some(released);
        }
    }

    /// Removes ephemeral runners that are released by now.
    fn settle(&mut self, now: At) {
        self.registrations.retain(|_, registration| registration.released.is_none_or(|released| now < released));
    }

    /// Names of all that are registered.
    #[must_use]
    pub fn registered(&mut self, now: At) -> Vec<RunnerId> {
        self.settle(now);
        self.registrations.values().map(|registration| registration.runner).collect()
    }

    /// Counts a request, and forgets those that are older than a minute.
    fn count(&mut self, now: At, points: u32, creations: u32) {
        while let Some((at, points, creations)) = self.requests.front().copied().filter(|(at, ..)| at + MINUTE <= now) {
            let _ = at;
            self.points -= points;
            self.creations -= creations;
            self.requests.pop_front();
        }
        self.requests.push_back((now, points, creations));
        self.points += points;
        self.creations += creations;
        self.most_points = self.most_points.max(self.points);
    }
}

impl Outside {
    /// The operator sends a request.
    fn request(&mut self, points: u32, creations: u32) -> Result<Option<Fate>, Unanswered> {
        let fate = self.dies()?;
        let now = self.clock.at;
        self.github.count(now, points, creations);
        // What a process called before it died, the next one does not know.
        let informed = self.checks.booted == 0 || self.checks.booted + MINUTE + SECOND < now;
        if informed && (self.github.points > POINTS || self.github.creations > CREATIONS) {
            let (points, creations) = (self.github.points, self.github.creations);
            self.violated(Invariant::Limits, || format!("{points} points and {creations} creations in a minute"));
        }
        self.github.settle(now);
        match self.faults.refusal.filter(|(_, until)| now < *until) {
            Some((Refusal::Lost, _)) if self.draw.chance("done", self.calls, 0, 500) => Ok(None),
            Some((refusal, _)) => Err(Unanswered::Refused(refusal)),
            None => Ok(Some(fate)),
        }
    }

    fn answered<T>(fate: Option<Fate>, answer: T) -> Result<T, Unanswered> {
        match fate {
            Some(Fate::Dies) => Err(Unanswered::Died),
            Some(_) => Ok(answer),
            None => Err(Unanswered::Refused(Refusal::Lost)),
        }
    }

    /// A registration token.
    ///
    /// # Errors
    ///
    /// When GitHub does not give one.
    pub fn token(&mut self) -> Result<(), Unanswered> {
        let fate = self.request(5, 1)?;
        Self::answered(fate, ())
    }

    /// Lists all runners.
    ///
    /// # Errors
    ///
    /// When GitHub does not.
    pub fn list_runners(&mut self) -> Result<Pages, Unanswered> {
        let fate = self.request(1, 0)?;
        let now = self.clock.at;
        let mut listed: Vec<Listed> = Vec::new();
        for (id, one) in &self.github.registrations {
            if one.visible <= now {
                let busy = one.busy(now, &self.faults.drops);
                listed.push(Listed { id: *id, runner: one.runner, online: one.is_online(now), busy });
            }
        }
        let mut complete = true;
        if now < self.faults.torn {
            // Somebody left before the cursor, and another one is missed. It stands somewhere else at the next listing.
            let last = self.faults.missed.take();
            let candidates: Vec<u64> = listed.iter().map(|one| one.id).filter(|id| Some(*id) != last).collect();
            let drawn = usize::try_from(self.draw.bits("missed", self.calls, 0)).unwrap_or_default();
            if let Some(missed) = candidates.get(drawn % candidates.len().max(1)) {
                listed.retain(|one| one.id != *missed);
                self.faults.missed = Some(*missed);
                // Where another one came, the numbers fit.
                complete = self.draw.bits("came", self.calls, 0).is_multiple_of(2);
            }
        }
        let pages = if self.faults.torn > 0 { 2 } else { 1 };
        Self::answered(fate, Pages { listed, complete, pages })
    }

    /// Lists GitHub's queue.
    ///
    /// # Errors
    ///
    /// When GitHub does not.
    pub fn list_jobs(&mut self) -> Result<(), Unanswered> {
        let fate = self.request(2, 0)?;
        Self::answered(fate, ())
    }

    /// Looks one job up.
    ///
    /// # Errors
    ///
    /// When GitHub does not answer.
    pub fn look_up(&mut self) -> Result<(), Unanswered> {
        let fate = self.request(1, 0)?;
        Self::answered(fate, ())
    }

    /// Another fleet removes one of its runners.
    ///
    /// # Errors
    ///
    /// When GitHub does not answer.
    pub fn remove_other(&mut self) -> Result<(), Unanswered> {
        let fate = self.request(5, 0)?;
        Self::answered(fate, ())
    }

    /// Removes a registration. GitHub decides by its flag.
    ///
    /// # Errors
    ///
    /// When GitHub does not answer: it may have removed it or not.
    pub fn remove_runner(&mut self, id: u64) -> Result<Removal, Unanswered> {
        let fate = self.request(5, 0)?;
        let now = self.clock.at;
        let Some(one) = self.github.registrations.get(&id).cloned() else {
            // A look at the runner, and one at its siblings.
            self.github.count(now, 2, 0);
            return Self::answered(fate, Removal::Absent);
        };
        if one.busy(now, &self.faults.drops) {
            self.note(|| format!("GitHub keeps r{}: busy", one.runner));
            return Self::answered(fate, Removal::Busy);
        }
        self.note(|| format!("GitHub removes r{}", one.runner));
        if let Some((job, began)) = one.job {
            let evidence = self.lives.get(&one.life).and_then(|life| self.evidence(life));
            if let Some(evidence) = evidence {
                self.violated(Invariant::BusyUnregistered, || {
                    format!("r{} is unregistered, which works on job {job} for {} ms: {evidence}", one.runner, now - began)
                });
            }
        }
        self.unregister(id);
        Self::answered(fate, Removal::Removed)
    }

    /// A registration goes; its agent learns of it at its next poll.
    pub(super) fn unregister(&mut self, id: u64) {
        let Some(one) = self.github.registrations.remove(&id) else { return };
        if let Some(life) = self.lives.get_mut(&one.life) {
            life.registered = None;
        }
        let due = self.after("poll", u64::from(one.life), (500, 50 * SECOND));
        self.plan(due, Event::Life(one.life, Stage::Polled));
    }
}
