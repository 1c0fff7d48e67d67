//! Whether this machine's clock is that of GitHub.

use jiff::SignedDuration;

use super::Reached;
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};

/// How far they may be apart. GitHub's own bound for an App's token, which is dated a minute back for that reason.
const SKEW: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn check(reached: &[Reached<'_>]) -> Checked {
    let ahead = reached.iter().filter_map(|one| one.github.clock_ahead()).max_by_key(|ahead| ahead.unsigned_abs());
    let healthy = match ahead {
        Some(_) => "GitHub's clock and this machine's agree".to_owned(),
        None => "GitHub says nothing of its clock".to_owned(),
    };
    Checked { healthy, findings: ahead.and_then(finding).into_iter().collect() }
}

fn finding(ahead: SignedDuration) -> Option<Finding> {
    let side = if ahead.is_negative() { "ahead of" } else { "behind" };
    (ahead.abs() > SKEW).then(|| Finding {
        severity: Severity::Warning,
        object: "Clock of this machine".to_owned(),
        what: format!("is {} s {side} GitHub's", ahead.as_secs().unsigned_abs()),
        why: "GitHub refuses the tokens of a GitHub App from a process whose clock is wrong, and the operator's node may have the same clock"
            .to_owned(),
        cure: "let NTP set the clocks of this machine and of the cluster's nodes; `date` shows them".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_is_off_by_more_than_a_minute_is_told_with_its_side() {
        let said = |seconds| finding(SignedDuration::from_secs(seconds)).map(|finding| finding.what);
        assert_eq!([0, 60, -60].map(said), [None, None, None]);
        assert_eq!(said(61).as_deref(), Some("is 61 s behind GitHub's"));
        assert_eq!(said(-300).as_deref(), Some("is 300 s ahead of GitHub's"));
    }
}
