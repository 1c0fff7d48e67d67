//! How many runners a set makes or gives up now.
//!
//! A plan never creates and deletes in one step, and reaches a fixed point on an unchanging fleet (property tests below).

use crate::phase::Phase;

/// One runner of the set, as far as counting goes. Order does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Phase of the runner; one that is [`Phase::Stopping`] no longer counts as part of the set.
    pub phase: Phase,
    /// Made from the template that the set has now.
    pub current: bool,
    /// Seconds since it was made.
    pub age: u32,
}

/// What the plan is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet<'a> {
    /// Wanted number of runners.
    pub desired: u32,
    /// All runners of the set. Dead ones hold their place until a restart decision lets them go.
    pub members: &'a [Member],
    /// Creations that the API server has accepted and the watch has not shown yet.
    pub in_flight: u32,
    /// So many runners finished their job after the wanted number was set, and are not replaced until it is set again (ARC's
    /// `effectiveTime`): their jobs were part of it.
    pub finished: u32,
    /// How many more than `desired` may exist while outdated ones are exchanged; 0 counts as 1, since otherwise nothing could move.
    pub surge: u32,
}

/// What to do, exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Neither create nor remove runners.
    Settled,
    /// Make this number of runners.
    Create(u32),
    /// Make none although some are missing: they finished.
    Held {
        /// How many are missing.
        missing: u32,
    },
    /// Make none although some are missing: the namespace may have no more.
    Full {
        /// How many are missing.
        missing: u32,
    },
    /// Remove runners that are surplus or outdated.
    ScaleDown(ScaleDown),
}

/// Most runners that one pass makes. All of them are in memory before the first one is sent, and a number with too many digits is corrected between
/// two passes.
pub const BATCH: u32 = 1_000;

impl Plan {
    /// The part of the plan for one pass, and whether it is all of it: the next pass plans the rest anew.
    #[must_use]
    pub fn batch(self) -> (Self, bool) {
        match self {
            Self::Create(missing) if missing > BATCH => (Self::Create(BATCH), false),
            plan => (plan, true),
        }
    }

    /// The same plan in a namespace that may have so many runners more; none means no limit.
    #[must_use]
    pub fn within(self, room: Option<u32>) -> Self {
        match (self, room) {
            (Self::Create(missing), Some(0)) => Self::Full { missing },
            (Self::Create(missing), Some(room)) => Self::Create(missing.min(room)),
            (plan, _) => plan,
        }
    }
}

/// Who goes, in this order, until the surplus is used up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScaleDown {
    /// Indices of members that are over anyway.
    pub dead: Vec<usize>,
    /// Indices of members whose container has not started, newest first.
    pub unstarted: Vec<usize>,
    /// How many the policy may choose among the idle ones.
    pub ask: u32,
    /// The policy may choose outdated ones only.
    pub outdated_only: bool,
}

/// Decides whether the RunnerReplicaSet creates or removes runners now, and how many.
#[must_use]
pub fn plan(fleet: &Fleet<'_>) -> Plan {
    let held = |member: &&Member| member.phase != Phase::Stopping;
    let total = count(fleet.members.iter().filter(held)).saturating_add(fleet.in_flight);
    let outdated = count(fleet.members.iter().filter(held).filter(|member| !member.current));
    if total < fleet.desired {
        let missing = fleet.desired.saturating_sub(total);
        return match missing.saturating_sub(fleet.finished) {
            0 => Plan::Held { missing },
            unmet => Plan::Create(unmet),
        };
    }
    if outdated == 0 {
        return scale_down(fleet, total.saturating_sub(fleet.desired));
    }
    exchange(fleet, total, outdated)
}

/// Removes `surplus` runners, of any template. An idle runner is not removed for one that GitHub has no contact with: that one may never come.
fn scale_down(fleet: &Fleet<'_>, surplus: u32) -> Plan {
    let online = count(fleet.members.iter().filter(|member| member.phase.is_online()));
    give_up(fleet, surplus, online.saturating_sub(fleet.desired), false)
}

/// Some members are of an earlier template: new ones first, within the surge, then as many old ones go as new ones are online.
///
/// Nothing is held back here: what is made stands in for no finished runner.
fn exchange(fleet: &Fleet<'_>, total: u32, outdated: u32) -> Plan {
    let current = total.saturating_sub(outdated);
    let online = count(fleet.members.iter().filter(|member| member.current && member.phase.is_online()));
    let joining = current.saturating_sub(online);
    let surplus = total.saturating_sub(fleet.desired);
    let plan = give_up(fleet, surplus.min(outdated), surplus.saturating_sub(joining), true);
    if plan != Plan::Settled {
        return plan;
    }
    let limit = fleet.desired.saturating_add(fleet.surge.max(1));
    let excess = current.saturating_sub(fleet.desired).max(total.saturating_sub(limit));
    if excess > 0 {
        return scale_down(fleet, excess);
    }
    match limit.saturating_sub(total).min(fleet.desired.saturating_sub(current)) {
        0 => Plan::Settled,
        create => Plan::Create(create),
    }
}

/// Gives up to `surplus` members up, at most `spare` of them idle.
fn give_up(fleet: &Fleet<'_>, surplus: u32, spare: u32, outdated_only: bool) -> Plan {
    let eligible = |wanted: fn(Phase) -> bool| {
        fleet
            .members
            .iter()
            .enumerate()
            .filter(move |(_, member)| wanted(member.phase) && !(outdated_only && member.current))
            .map(|(index, member)| (index, member.age))
    };
    let mut left = surplus as usize;
    let dead: Vec<usize> = eligible(|phase| phase == Phase::Dead).map(|(index, _)| index).take(left).collect();
    left = left.saturating_sub(dead.len());
    let mut unstarted: Vec<(usize, u32)> = eligible(|phase| phase == Phase::Pending).collect();
    unstarted.sort_by_key(|(index, age)| (*age, *index));
    let unstarted: Vec<usize> = unstarted.into_iter().map(|(index, _)| index).take(left).collect();
    left = left.saturating_sub(unstarted.len());
    let idle = eligible(|phase| matches!(phase, Phase::Idle(_))).count();
    let ask = u32::try_from(left.min(idle)).unwrap_or(u32::MAX).min(spare);
    if dead.is_empty() && unstarted.is_empty() && ask == 0 {
        return Plan::Settled;
    }
    Plan::ScaleDown(ScaleDown { dead, unstarted, ask, outdated_only })
}

fn count<'a>(members: impl Iterator<Item = &'a Member>) -> u32 {
    u32::try_from(members.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "fleet/tests.rs"]
mod tests;
