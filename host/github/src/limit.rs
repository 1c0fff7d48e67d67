//! What GitHub's answers say about its rate limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

/// GitHub asks for at least a minute when a secondary limit comes without `Retry-After`.
const SECONDARY_DEFAULT: Duration = Duration::from_secs(60);
/// No limit of GitHub's lasts longer than an hour; a wrong clock or header must not stop a client for days.
const LONGEST: Duration = Duration::from_secs(3660);

/// The `x-ratelimit-*` headers of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) resource: Resource,
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    pub(crate) used: u32,
    /// At most [`LONGEST`] after the answer, whatever it says.
    pub(crate) resets_at: Timestamp,
    /// Time until the reset on GitHub's own clock.
    pub(crate) resets_in: Duration,
}

/// The budgets that GitHub counts separately and pacer can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Most of the REST API: 5,000 to 15,000 calls an hour.
    Core,
    /// Registration of runners: 10,000 calls an hour.
    RunnerRegistration,
    /// Any budget that GitHub calls by another name.
    Other,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; 3] = [Self::Core, Self::RunnerRegistration, Self::Other];

    /// Name for metrics: GitHub's own, where there is one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::RunnerRegistration => "actions_runner_registration",
            Self::Other => "other",
        }
    }
}

/// A refusal because of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) wait: Duration,
    pub(crate) secondary: bool,
}

/// Reads the budget from an answer's headers; none where the instance keeps no limits (GHES by default).
pub(crate) fn report(headers: &HeaderMap, now: Timestamp) -> Option<Report> {
    let limit = number(headers, "x-ratelimit-limit")?;
    let remaining = number(headers, "x-ratelimit-remaining")?;
    let reset = number::<i64>(headers, "x-ratelimit-reset")?;
    let reset = Timestamp::from_second(reset).ok()?;
    let clock = clock_of(headers, now);
    let resource = match text(headers, "x-ratelimit-resource") {
        None | Some("core") => Resource::Core,
        Some("actions_runner_registration") => Resource::RunnerRegistration,
        Some(_) => Resource::Other,
    };
    Some(Report {
        resource,
        limit,
        remaining,
        used: number(headers, "x-ratelimit-used").unwrap_or_else(|| limit.saturating_sub(remaining)),
        resets_at: reset.min(clock.saturating_add(LONGEST).unwrap_or(reset)),
        resets_in: until(reset, clock).min(LONGEST),
    })
}

/// Tells whether an answer is a refusal because of a rate limit, and for how long.
pub(crate) fn limited(
    status: StatusCode,
    headers: &HeaderMap,
    message: &str,
    documentation_url: Option<&str>,
    now: Timestamp,
) -> Option<Limited> {
    if status != StatusCode::FORBIDDEN && status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let asked = retry_after(headers, now);
    let primary = report(headers, now).filter(|report| report.remaining == 0).map(|report| report.resets_in);
    let secondary = asked.is_some()
        || documentation_url.is_some_and(names_a_secondary_limit)
        || speaks_of_a_secondary_limit(message)
        || (status == StatusCode::TOO_MANY_REQUESTS && primary.is_none());
    if secondary {
        let wait = asked.unwrap_or(SECONDARY_DEFAULT).max(primary.unwrap_or_default());
        return Some(Limited { wait: bounded(wait), secondary: true });
    }
    primary.map(|wait| Limited { wait: bounded(wait), secondary: false })
}

/// The `Retry-After` header, as seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = text(headers, "retry-after")?;
    if let Ok(seconds) = value.trim().parse::<u64>() {
        return Some(bounded(Duration::from_secs(seconds)));
    }
    Some(bounded(until(http_date(value)?, clock_of(headers, now))))
}

fn names_a_secondary_limit(documentation_url: &str) -> bool {
    let anchor = documentation_url.rsplit_once('#').map(|(_, anchor)| anchor).unwrap_or_default();
    anchor.contains("abuse-rate-limit") || anchor.contains("secondary-rate-limit")
}

fn speaks_of_a_secondary_limit(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("secondary rate limit") || message.contains("abuse detection")
}

fn bounded(wait: Duration) -> Duration {
    wait.clamp(Duration::from_secs(1), LONGEST)
}

/// GitHub's clock as of the answer, so that a wrong local clock does not lengthen or shorten waits.
pub(crate) fn clock_of(headers: &HeaderMap, now: Timestamp) -> Timestamp {
    date(headers).unwrap_or(now)
}

/// When an answer was made, on the clock of whoever made it.
pub(crate) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    text(headers, "date").and_then(http_date)
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

fn http_date(value: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn number<N: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<N> {
    text(headers, name)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use pacer_core::scope::Scope;

    use super::*;
    use crate::budget::Ledger;
    use crate::call::{Call, Endpoint};

    const NOW: i64 = 1_800_000_000;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn judged(status: u16, pairs: &[(&'static str, &str)], message: &str, docs: Option<&str>) -> Option<(u64, bool)> {
        let now = Timestamp::from_second(NOW).unwrap();
        limited(StatusCode::from_u16(status).unwrap(), &headers(pairs), message, docs, now)
            .map(|limited| (limited.wait.as_secs(), limited.secondary))
    }

    #[test]
    fn every_known_form_of_a_limit_is_recognised() {
        let used_up = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1800000120")];
        assert_eq!(judged(403, &used_up, "API rate limit exceeded", None), Some((120, false)));
        assert_eq!(judged(429, &used_up, "API rate limit exceeded", None), Some((120, false)));
        assert_eq!(judged(403, &[("retry-after", "17")], "", None), Some((17, true)));
        assert_eq!(judged(429, &[], "", None), Some((60, true)));
        for docs in ["#abuse-rate-limits", "#secondary-rate-limits", "#about-secondary-rate-limits"] {
            let docs = format!("https://docs.github.com/rest/overview/rate-limits-for-the-rest-api{docs}");
            assert_eq!(judged(403, &[], "slow down", Some(&docs)), Some((60, true)), "{docs}");
        }
        for message in ["You have exceeded a secondary rate limit.", "You have triggered an abuse detection mechanism."] {
            assert_eq!(judged(403, &[], message, None), Some((60, true)), "{message}");
        }
    }

    #[test]
    fn a_missing_right_is_no_limit() {
        let left = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "12"), ("x-ratelimit-reset", "1800000120")];
        let docs = "https://docs.github.com/rest/actions/self-hosted-runners#list";
        assert_eq!(judged(403, &left, "Resource not accessible by integration", Some(docs)), None);
        assert_eq!(judged(404, &[("retry-after", "9")], "", None), None);
        assert_eq!(judged(503, &[("retry-after", "9")], "", None), None);
    }

    #[test]
    fn waits_are_measured_on_the_clock_of_github_and_bounded() {
        // GitHub's clock is an hour behind ours here: 1800000120 lies 120 s after its date, not in our past.
        let date = "Fri, 15 Jan 2027 08:00:00 GMT";
        let skewed =
            [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1800000120"), ("date", date)];
        assert_eq!(http_date(date).unwrap().as_second(), NOW);
        let late = Timestamp::from_second(NOW + 3600).unwrap();
        let found = limited(StatusCode::FORBIDDEN, &headers(&skewed), "", None, late).unwrap();
        assert_eq!(found.wait, Duration::from_secs(120));
        assert_eq!(judged(403, &[("retry-after", "99999999")], "", None), Some((3660, true)));
        assert_eq!(judged(403, &[("retry-after", "0")], "", None), Some((1, true)));
        let dated = [("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT")];
        assert_eq!(judged(403, &dated, "", None), Some((30, true)));
    }

    #[test]
    fn a_reset_that_is_far_away_is_taken_for_one_in_an_hour() {
        let read = |reset: &str, now: i64| {
            let told = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)];
            let read = report(&headers(&told), Timestamp::from_second(now).unwrap()).unwrap();
            (read.resets_at.as_second(), read.resets_in)
        };
        assert_eq!(read("4070908800", NOW), (NOW + 3_660, LONGEST), "the year 2099");
        assert_eq!(read("1800001800", NOW - 18_000), (NOW - 14_340, LONGEST), "no date, and a local clock that is hours behind");
        assert_eq!(read("1800003600", NOW), (NOW + 3_600, Duration::from_secs(3_600)));
        assert_eq!(read("1799999000", NOW), (NOW - 1_000, Duration::ZERO));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_can_stop_the_client_for_longer_than_an_hour(
            status in 100_u16..600,
            value in "[ -~]{0,24}",
            budget in proptest::option::of((0_u32..2, 0_i64..4_000_000_000)),
            message in ".*",
        ) {
            let Ok(value) = http::HeaderValue::from_str(&value) else { return Ok(()) };
            let mut map = HeaderMap::new();
            for name in ["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-limit", "date"] {
                map.insert(name, value.clone());
            }
            // A text is next to never a budget that is used up.
            if let Some((remaining, ahead)) = budget {
                map.insert("x-ratelimit-limit", http::HeaderValue::from(5_000_u32));
                map.insert("x-ratelimit-remaining", http::HeaderValue::from(remaining));
                map.insert("x-ratelimit-reset", http::HeaderValue::from(NOW + ahead));
            }
            let now = Timestamp::from_second(NOW).unwrap();
            let found = limited(StatusCode::from_u16(status).unwrap(), &map, &message, Some(&message), now);
            proptest::prop_assert!(found.is_none_or(|found| found.wait <= LONGEST && !found.wait.is_zero()));
            let (ledger, call) = (Ledger::new(false), Call::new(Endpoint::ListRunners, Scope::Organization("acme".into())));
            ledger.note(&call, report(&map, now), found, (200..300).contains(&status), now);
            let standing = ledger.standing(&call);
            proptest::prop_assert!(standing.is_none_or(|block| block.wait <= LONGEST));
            let used_up = budget.is_some_and(|(remaining, ahead)| remaining == 0 && ahead > 60);
            proptest::prop_assert!(!used_up || standing.is_some());
        }
    }
}
