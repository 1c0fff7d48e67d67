//! What is fixed when the simulation starts: its times, its limits and how it behaves.

use std::time::Duration;

use super::behaviour::Behaviour;

/// How the simulation behaves, fixed at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Life of registration and removal tokens; GitHub's is an hour.
    pub registration_token_lifetime: Duration,
    /// Life of installation access tokens; GitHub's is an hour.
    pub installation_token_lifetime: Duration,
    /// How long a job or a runner waits at least before they are brought together.
    pub assignment_latency: Duration,
    /// How long after its agent vanished a runner is shown online; a minute or so at GitHub.
    pub offline_after: Duration,
    /// How long after its agent vanished a job is given up; about ten minutes at GitHub.
    pub lost_after: Duration,
    /// Requests per hour for each user, App and installation; 5,000 at GitHub. Conditional requests answered 304 are free.
    pub rate_limit: u32,
    /// The secondary limit in points per minute (a GET is 1, others 5), per caller; about 900 at GitHub, off when absent.
    pub points_per_minute: Option<u32>,
    /// How truthful and how prompt it is.
    pub behaviour: Behaviour,
    /// How many requests the log keeps; counters are exact whatever it is.
    pub call_log: usize,
}

/// How long a vanished agent is shown online, and its job is believed to run, where a test does not say otherwise. A real GitHub takes
/// [a minute](Settings::real) and ten: the only two times of the default that are shorter than measured, because each lost runner of a suite would
/// cost it ten minutes. The laboratory loses agents for as long as the real one does, in virtual time.
const OFFLINE_AFTER: Duration = Duration::from_millis(200);
const LOST_AFTER: Duration = Duration::from_secs(2);

impl Settings {
    /// Times and behaviour of the real GitHub.
    #[must_use]
    pub fn real(seed: u64) -> Self {
        Self {
            // Measured for killed agents: offline within a minute, the job is given up after 9 min 36 s to 9 min 45 s.
            offline_after: Duration::from_secs(60),
            lost_after: Duration::from_secs(580),
            behaviour: Behaviour::real(seed),
            ..Self::default()
        }
    }

    /// One that is [prompt and truthful](Behaviour::prompt).
    #[must_use]
    pub fn prompt() -> Self {
        Self { behaviour: Behaviour::prompt(), ..Self::default() }
    }
}

impl Default for Settings {
    /// As it was measured, with patience for agents that vanish of seconds instead of minutes.
    fn default() -> Self {
        Self {
            registration_token_lifetime: Duration::from_secs(3600),
            installation_token_lifetime: Duration::from_secs(3600),
            assignment_latency: Duration::ZERO,
            offline_after: OFFLINE_AFTER,
            lost_after: LOST_AFTER,
            rate_limit: 5_000,
            points_per_minute: None,
            behaviour: Behaviour::real(1),
            call_log: 100_000,
        }
    }
}
