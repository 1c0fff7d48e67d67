//! What is left of GitHub's hourly budgets, and whether it lasts at this pace.

use std::time::Duration;

use pacer_github::Budget;

use super::Reached;
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};

/// The part of the hourly budget below which it is worth saying.
const LOW: u32 = 10;

/// How long GitHub's windows are.
const WINDOW: Duration = Duration::from_secs(3_600);

/// How much of a window must be over before it tells a pace: at its start the operator may just have listed everything.
const TELLING: Duration = Duration::from_secs(900);

pub(super) fn check(reached: &[Reached<'_>]) -> Checked {
    let budgets: Vec<Budget> = reached.iter().flat_map(|one| one.github.budgets()).collect();
    let left = budgets.iter().min_by_key(|budget| budget.remaining);
    let healthy = match left {
        Some(budget) => format!("GitHub's budget lasts: {} of {} calls of this hour are left", budget.remaining, budget.limit),
        None => "GitHub says nothing of a limit".to_owned(),
    };
    Checked { healthy, findings: budgets.iter().filter_map(finding).collect() }
}

fn finding(budget: &Budget) -> Option<Finding> {
    let Budget { remaining, limit, .. } = *budget;
    let lasts = lasts(remaining, limit, budget.resets_in());
    let pace = match lasts {
        Some(lasts) => format!("; at this pace they last {} min", lasts.as_secs() / 60),
        None if remaining < limit / LOW => String::new(),
        None => return None,
    };
    let owner = budget.owner.as_ref().map(|owner| format!(" of {owner}")).unwrap_or_default();
    Some(Finding {
        severity: Severity::Warning,
        object: format!("GitHub, {} calls{owner}", budget.resource.name()),
        what: format!("{remaining} of {limit} calls of this hour are left{pace}"),
        why: format!("with none left, runners do not register until {}", budget.resets_at),
        cure: "use a GitHub App, whose budget grows with the organization, webhooks in place of polling, or credentials for each team"
            .to_owned(),
    })
}

/// For how long what is left lasts at the pace of this window, where that is not to its end. None where it is, and where the window has not
/// lasted long enough to tell.
fn lasts(remaining: u32, limit: u32, resets_in: Duration) -> Option<Duration> {
    let elapsed = WINDOW.checked_sub(resets_in).filter(|elapsed| *elapsed >= TELLING)?;
    let used = limit.saturating_sub(remaining);
    if used == 0 {
        return None;
    }
    let lasts = elapsed.saturating_mul(remaining).checked_div(used)?;
    (lasts < resets_in).then_some(lasts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_that_is_used_up_before_its_window_is_told_with_the_time_that_is_left() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        for (remaining, left, expected) in [
            // Half an hour has used 4,000 of 5,000: the rest lasts a quarter of that.
            (1_000, minutes(30), Some(minutes(7) + Duration::from_secs(30))),
            (2_500, minutes(30), None),
            (0, minutes(30), Some(Duration::ZERO)),
            (5_000, minutes(30), None),
            // Ten minutes tell nothing yet.
            (1_000, minutes(50), None),
            // Clocks that differ, or another window than an hour.
            (1_000, minutes(90), None),
        ] {
            assert_eq!(lasts(remaining, 5_000, left), expected, "{remaining} left, {left:?} to go");
        }
    }
}
