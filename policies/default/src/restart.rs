//! What to do about runners that ended, never registered, or went missing.
//!
//! The cause comes first: what happened *to* a runner (eviction, a lost node, a full quota) costs nothing but time, what it did *itself*
//! is tried again more and more slowly, and a version that GitHub refuses is not tried again at all. Where there is no cause, the
//! situation's clock decides.

use pacer_policy_sdk::Restart;
use pacer_policy_sdk::limits::RESTART_WAIT_MAX;
use pacer_policy_sdk::restart::{Action, Request, Subject, Verdict};
use pacer_policy_sdk::types::{Quantiles, duration, shortened};

use crate::{Default, Settings};

/// Below that, a 99th percentile is an anecdote.
const ENOUGH_SAMPLES: u32 = 20;

/// What an unknown state, or one that GitHub can't be asked about, is looked at again after.
const MINUTE: u32 = 60;

impl Restart for Default {
    fn decide(request: &Request, settings: &Settings) -> Result<Vec<Verdict>, String> {
        let rules = Rules { settings, start_time: request.pool.start_time.as_ref() };
        Ok((0_u32..).zip(&request.subjects).map(|(index, subject)| rules.verdict(index, subject)).collect())
    }
}

/// An action that doesn't know yet whether the runner keeps its name.
enum Remedy {
    Keep,
    LookAgain(u32),
    /// Another one in its place after so many seconds.
    Renew(u32),
    Quarantine,
}

struct Rules<'a> {
    settings: &'a Settings,
    start_time: Option<&'a Quantiles>,
}

impl Rules<'_> {
    fn verdict(&self, index: u32, subject: &Subject) -> Verdict {
        let (remedy, reason) = self.by_cause(subject).unwrap_or_else(|| self.by_situation(subject));
        let action = match remedy {
            Remedy::Keep => Action::Keep,
            Remedy::LookAgain(after) => Action::LookAgain(after),
            Remedy::Renew(after) if subject.stand_alone => Action::Recreate(after),
            Remedy::Renew(after) => Action::Replace(after),
            Remedy::Quarantine => Action::Quarantine,
        };
        Verdict::new(index, action, reason)
    }

    /// Causes that mean the same in every situation.
    fn by_cause(&self, subject: &Subject) -> Option<(Remedy, String)> {
        Some(match subject.cause.as_str() {
            "deprecated-version" => (
                Remedy::Quarantine,
                "GitHub refuses this runner version, a new one would fail alike: update the runner image".to_owned(),
            ),
            "evicted" => at_once("evicted, not its own fault"),
            "node-lost" => at_once("its node is lost, not its own fault"),
            "pod-deleted" => at_once("somebody deleted its pod"),
            "quota" if subject.situation == "pod-missing" => {
                let after = self.backoff(subject.attempts.max(2));
                (Remedy::Renew(after), format!("a quota is used up: next try after {}", duration(after)))
            }
            "quota" => self.wait(subject, "a quota is used up", ""),
            "unschedulable" => self.wait(subject, "no node takes its pod", ""),
            _ => return None,
        })
    }

    fn by_situation(&self, subject: &Subject) -> (Remedy, String) {
        match subject.situation.as_str() {
            "ended" => self.ended(subject),
            "not-starting" => self.not_starting(subject),
            "pod-missing" => self.again(subject.attempts, "its pod is gone"),
            "never-registered" => match subject.github.as_str() {
                "online" | "offline" => (Remedy::Keep, "GitHub lists it by now".to_owned()),
                _ => self.when_over(subject, self.registration_timeout(), "not registered"),
            },
            "offline" => match subject.github.as_str() {
                "online" => (Remedy::Keep, "GitHub has contact again".to_owned()),
                _ => self.when_over(subject, self.settings.offline_timeout_seconds, "offline at GitHub"),
            },
            "unregistered" => match subject.github.as_str() {
                "online" | "offline" => (Remedy::Keep, "GitHub lists it again".to_owned()),
                _ if subject.ephemeral => self.when_over(
                    subject,
                    self.settings.unregistered_confirm_seconds,
                    "finished, or removed at GitHub, its registration gone",
                ),
                _ => self.when_over(subject, self.settings.unregistered_confirm_seconds, "its registration gone"),
            },
            other => (Remedy::LookAgain(MINUTE), format!("situation `{}` is unknown to this policy", shortened(other, 60))),
        }
    }

    fn ended(&self, subject: &Subject) -> (Remedy, String) {
        let failed_late = subject.was_registered && subject.age >= self.settings.early_exit_seconds;
        match subject.cause.as_str() {
            "completed" if subject.ephemeral => at_once("its job is done"),
            "completed" => at_once("exited cleanly"),
            "oom-killed" if failed_late => at_once("out of memory while it ran: raise the memory limit if this goes on"),
            "oom-killed" => self.again(self.started_badly(subject), "out of memory at the start: raise the memory limit"),
            "unregistered-exit" => {
                self.again(subject.attempts, "exited without registering: check credentials, scope and runner group")
            }
            "never-started" => {
                // What the kubelet says begins with its reason, such as `OutOfcpu`.
                let why = if subject.message.is_empty() { "nothing says why" } else { shortened(&subject.message, 120) };
                self.again(subject.attempts, &format!("its pod never started: {why}"))
            }
            "bad-credentials" => self.again(subject.attempts.max(2), "GitHub refused its credentials"),
            "config-error" => self.again(subject.attempts.max(2), "its configuration is wrong"),
            "image-pull" => self.again(subject.attempts.max(2), "its image can't be pulled: check image name and pull secret"),
            _ => {
                let age = duration(subject.age);
                let what = match subject.exit_code {
                    Some(code) => format!("exit code {code} after {age}"),
                    None => format!("ended after {age}, nothing says why"),
                };
                if failed_late { at_once(&what) } else { self.again(self.started_badly(subject), &what) }
            }
        }
    }

    /// The kubelet tries these again itself and more cheaply than a new pod would, so only silence runs into a limit.
    fn not_starting(&self, subject: &Subject) -> (Remedy, String) {
        match subject.cause.as_str() {
            "image-pull" => {
                self.wait(subject, "its image can't be pulled", ", the kubelet tries again: check image name and pull secret")
            }
            "bad-credentials" => self.wait(subject, "GitHub refuses the credentials", ""),
            "config-error" => {
                self.wait(subject, "its container can't be made from its configuration", ", the kubelet tries again")
            }
            _ => self.when_over(subject, self.settings.start_timeout_seconds, "not ready"),
        }
    }

    /// A runner that came online counts as no failed attempt, even if it dies right after; without a second look it would be made again
    /// without pause.
    fn started_badly(&self, subject: &Subject) -> u32 {
        if subject.was_registered { subject.attempts.max(2) } else { subject.attempts }
    }

    fn again(&self, attempts: u32, what: &str) -> (Remedy, String) {
        match self.backoff(attempts) {
            0 => at_once(what),
            after => (Remedy::Renew(after), format!("{what}; attempt {attempts}, next one after {}", duration(after))),
        }
    }

    /// The first failure may be chance; from the second on the wait doubles.
    fn backoff(&self, attempts: u32) -> u32 {
        match attempts.checked_sub(2) {
            None => 0,
            Some(doublings) => {
                let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
                let wait = self.settings.backoff_seconds.saturating_mul(factor).min(self.settings.max_backoff_seconds);
                // The operator waits no longer, so no reason may say that it does.
                wait.min(RESTART_WAIT_MAX)
            }
        }
    }

    /// Looks again after as long as it has lasted already, so the looks get rarer.
    fn wait(&self, subject: &Subject, what: &str, advice: &str) -> (Remedy, String) {
        let most = self.settings.max_backoff_seconds.max(self.settings.backoff_seconds);
        let after = subject.since.clamp(self.settings.backoff_seconds, most);
        (Remedy::LookAgain(after), format!("{what} for {}{advice}", duration(subject.since)))
    }

    fn when_over(&self, subject: &Subject, limit: u32, what: &str) -> (Remedy, String) {
        let since = duration(subject.since);
        match limit.saturating_sub(subject.since) {
            // Nothing is known about GitHub's side, so nothing can be concluded from its silence.
            0 if subject.github == "unknown" && subject.situation != "not-starting" => {
                (Remedy::LookAgain(MINUTE), format!("{what} for {since}, and GitHub can't be asked"))
            }
            0 => {
                let (remedy, text) = self.again(subject.attempts, what);
                (remedy, format!("{text} ({since}, limit {})", duration(limit)))
            }
            left => (Remedy::LookAgain(left), format!("{what} for {since} of at most {}", duration(limit))),
        }
    }

    /// A fixed limit makes a pool that starts slowly restart for ever.
    fn registration_timeout(&self) -> u32 {
        let known = self.start_time.filter(|time| time.samples >= ENOUGH_SAMPLES).map_or(0, |time| time.p99.saturating_mul(2));
        self.settings.registration_timeout_seconds.max(known)
    }
}

fn at_once(what: &str) -> (Remedy, String) {
    (Remedy::Renew(0), what.to_owned())
}
