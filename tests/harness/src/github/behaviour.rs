//! How GitHub behaves towards clients that would rather have it prompt and truthful.
//!
//! Each knob names its source: `TF n` is a pull request of terraform-aws-github-runner, `docs` are GitHub's. What has no source is a choice
//! and says so. Everything that is drawn comes from a seed.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The table of knobs; [`Behaviour::real`] is GitHub as it was measured, [`Behaviour::prompt`] a kinder one for tests about other things.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// The `busy` flag follows the truth so much later, drawn for each change. 25 to 60 s and more (TF 5228).
    pub busy_late: RangeInclusive<Duration>,
    /// DELETE goes by the late flag: 204 for a runner at work whose flag is not up yet (TF 5228, 5397).
    pub delete_trusts_flag: bool,
    /// Probability that an agent whose registration is gone cancels its job at its next poll; otherwise it finishes it. The agent's code
    /// leads to the first, TF 5086 reports the second.
    pub cancels_when_removed: f64,
    /// When an agent notices that its registration is gone. Its poll lasts 50 s (actions/runner), and it starts a new one with each job.
    pub removal_noticed: RangeInclusive<Duration>,
    /// Probability that the flag of a job's runner turns false for a minute in mid-job (TF 5228, 5085; the number is a choice).
    pub busy_drops: f64,
    /// How long a registered runner is listed offline before it listens (canonical/github-runner-operator PR 281; the number is a choice).
    pub online_late: RangeInclusive<Duration>,
    /// How long a job or a runner waits before they are brought together (actions/runner 676; the number is a choice).
    pub assigned_late: RangeInclusive<Duration>,
    /// How long a job that an agent was given is still said to be queued, and not told to have begun: the agent acknowledges and acquires it first
    /// (github-behaviour 11: start, acquire; the number is a choice).
    pub in_progress_late: RangeInclusive<Duration>,
    /// How late an event is sent, drawn for each delivery, so that they overtake each other: order is not guaranteed and minutes are normal (docs:
    /// troubleshooting webhooks; GARM 381 saw 33 minutes). The numbers are a choice, and a kind one: every job of a suite waits for its events.
    pub events_late: Tail,
    /// How long an event that somebody asks for again takes, while newer ones go ahead (docs: redelivering webhooks, which promises no time; the number
    /// is a choice).
    pub redelivery_late: RangeInclusive<Duration>,
    /// A job that waits for an approval is announced as `queued`, with the status `waiting`, before it is said to wait (runs-on 539).
    pub waiting_twice_queued: bool,
    /// Probability that an agent that may update itself does so at its first contact (github-behaviour 11: self update; the number is a choice).
    pub updates_itself: f64,
    /// How long such an agent is offline until its new version listens, under the same number (the number is a choice).
    pub update_takes: RangeInclusive<Duration>,
    /// How long a page of runners, runs, jobs or deliveries takes; pages of one listing are of different moments (measured by users of large
    /// organizations).
    pub page_takes: RangeInclusive<Duration>,
    /// Entity tags belong to a token and are weak or strong, and a 304 has no `Link` (otterdog 201; github-conditional-http-transport).
    pub tags_per_token: bool,
    /// Points a minute for each caller and endpoint, a GET being 1 and a mutation 5 (docs: rate limits, 900); no limit when absent.
    pub points_per_endpoint: Option<u32>,
    /// Requests a minute for each caller that create something (docs: rate limits, about 80); no limit when absent. Which requests these are is
    /// not documented: here every POST, so that registration tokens and redeliveries count and removals do not.
    pub creations: Option<u32>,
    /// Probability that a limit, primary or secondary, is refused with 429 rather than 403 (docs: both happen; the number is a choice).
    pub limit_is_429: f64,
    /// Probability that such a refusal says when to come back, by `Retry-After` (gh-code-scanning 10: it may be missing; the number is a choice).
    pub limit_tells_wait: f64,
}

impl Behaviour {
    /// GitHub as it was measured.
    #[must_use]
    pub fn real(seed: u64) -> Self {
        let seconds = |from: f64, to: f64| Duration::from_secs_f64(from)..=Duration::from_secs_f64(to);
        Self {
            seed,
            busy_late: seconds(0.0, 60.0),
            delete_trusts_flag: true,
            cancels_when_removed: 0.5,
            removal_noticed: seconds(0.0, 50.0),
            busy_drops: 0.05,
            online_late: seconds(0.5, 3.0),
            assigned_late: seconds(0.5, 2.0),
            in_progress_late: seconds(0.0, 1.0),
            events_late: Tail { median: Duration::from_millis(200), longest: Duration::from_secs(3) },
            redelivery_late: seconds(1.0, 4.0),
            waiting_twice_queued: true,
            updates_itself: 0.05,
            update_takes: seconds(3.0, 10.0),
            page_takes: seconds(0.1, 0.5),
            tags_per_token: true,
            points_per_endpoint: Some(900),
            creations: Some(80),
            limit_is_429: 0.5,
            limit_tells_wait: 0.7,
        }
    }

    /// One that tells the truth at once and refuses nobody, for tests of this simulation, for benchmarks of the operator's own speed, and for the
    /// few suites whose bounds leave GitHub no time: their names say so.
    #[must_use]
    pub fn prompt() -> Self {
        let at_once = Duration::ZERO..=Duration::ZERO;
        Self {
            seed: 0,
            busy_late: at_once.clone(),
            delete_trusts_flag: false,
            cancels_when_removed: 0.0,
            removal_noticed: at_once.clone(),
            busy_drops: 0.0,
            online_late: at_once.clone(),
            assigned_late: at_once.clone(),
            in_progress_late: at_once.clone(),
            events_late: Tail::default(),
            redelivery_late: at_once.clone(),
            waiting_twice_queued: false,
            updates_itself: 0.0,
            update_takes: at_once.clone(),
            page_takes: at_once,
            tags_per_token: false,
            points_per_endpoint: None,
            creations: None,
            limit_is_429: 0.0,
            limit_tells_wait: 1.0,
        }
    }
}

/// A time that is short as a rule and long at times: log-normal, but never longer than what one in a hundred exceeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Half of the times are shorter; always at once where it is zero.
    pub median: Duration,
    /// The longest, which one in a hundred takes.
    pub longest: Duration,
}

/// By so many standard deviations one in a hundred exceeds the median.
const ONE_IN_A_HUNDRED: f64 = 2.326;

/// Random numbers, the same for the same seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in 0..1, drawn evenly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit into an f64")]
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of that probability, 0 to 1, happens.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// A time with a tail.
    pub(super) fn of(&mut self, tail: Tail) -> Duration {
        if tail.median.is_zero() {
            return Duration::ZERO;
        }
        // Box and Muller's way to a normal number.
        let (radius, angle) = ((-2.0 * (1.0 - self.share()).ln()).sqrt(), std::f64::consts::TAU * self.share());
        let spread = (tail.longest.as_secs_f64() / tail.median.as_secs_f64()).ln() / ONE_IN_A_HUNDRED;
        let drawn = tail.median.as_secs_f64() * (spread * radius * angle.cos()).exp();
        Duration::try_from_secs_f64(drawn).unwrap_or(tail.longest).min(tail.longest)
    }

    /// A time of the range, drawn evenly.
    pub(super) fn within(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        *range.start() + range.end().saturating_sub(*range.start()).mul_f64(self.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_repeats_and_stays_within_its_range() {
        let range = Duration::from_secs(2)..=Duration::from_secs(4);
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..1_000).map(|_| chance.within(&range)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|drawn| range.contains(drawn)));
        let mut chance = Chance::new(1);
        let happened = (0..10_000).filter(|_| chance.happens(0.5)).count();
        assert!((4_800..5_200).contains(&happened), "{happened}");
        assert!(!chance.happens(0.0));
    }

    #[test]
    fn a_time_with_a_tail_is_short_as_a_rule_and_never_longer_than_its_longest() {
        let tail = Tail { median: Duration::from_secs(1), longest: Duration::from_secs(30) };
        let mut chance = Chance::new(3);
        let drawn: Vec<Duration> = (0..10_000).map(|_| chance.of(tail)).collect();
        let within = |seconds| drawn.iter().filter(|drawn| **drawn <= Duration::from_secs_f64(seconds)).count();
        assert!((4_800..5_200).contains(&within(1.0)), "{}", within(1.0));
        assert!((9_800..9_980).contains(&within(29.999)), "{}", within(29.999));
        assert_eq!((within(30.0), chance.of(Tail::default())), (10_000, Duration::ZERO));
    }
}
