//! Which contents of a policy set are tried: one that ended the process that tried it is not tried again by the next one.
//!
//! That a content is being tried is written into the status of its ConfigMap before anything touches it, and the verdict replaces that. A
//! process that finds a trial without a verdict knows that its predecessor died amid it.

use pacer_api::names::annotation;
use pacer_policy::{BundleError, Refusal};

use crate::Failure;
use crate::report::{Report, Subject, Trial};

/// Reason of a content that its predecessor died of.
pub(crate) const QUARANTINED: &str = "PolicyQuarantined";

/// What earlier processes have to say about a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Precedent {
    /// Nothing: that it is tried has to be written down first.
    None,
    /// It was tried, and nobody was harmed.
    Harmless(Trial),
    /// It is not tried.
    Barred(Trial, Failure),
}

/// Looks a content up in the status that earlier processes left.
pub(crate) fn precedent(subject: &Subject, left: Option<&Report>) -> Precedent {
    let Some((left, trial)) = left.and_then(|left| Some((left, left.trial.clone().filter(|trial| trial.subject == *subject)?)))
    else {
        return Precedent::None;
    };
    if left.content.as_ref() != Some(&subject.content) {
        let message = format!(
            "the operator's process that began to try this content at {} ended before it was done, so it is not tried again; {}",
            trial.at,
            cure()
        );
        return Precedent::Barred(trial, Failure { reason: QUARANTINED, message });
    }
    let known = left.last_error.as_ref().and_then(|error| {
        let reason = [QUARANTINED].into_iter().chain(FATAL.map(Refusal::as_str)).find(|reason| *reason == error.reason)?;
        Some(Failure { reason, message: error.message.clone() })
    });
    match known {
        Some(failure) => Precedent::Barred(trial, failure),
        None => Precedent::Harmless(trial),
    }
}

/// Refusals of a content that killed or outlasted the process that tried it: each trial would take that long again.
const FATAL: [Refusal; 2] = [Refusal::Compile, Refusal::CompileTimeout];

/// A refusal as people read it: with the cure, where no later process tries that content, or another trial may do.
pub(crate) fn refusal(error: &BundleError) -> Failure {
    let reason = error.reason();
    let is_fatal = FATAL.into_iter().any(|refusal| refusal.as_str() == reason);
    let message = if is_fatal {
        format!("{error}; it is not tried again: {}", cure())
    } else if error.is_crowded_out() {
        format!("{error}; it is not tried again by itself once there is room: {}", cure())
    } else {
        error.to_string()
    };
    Failure { reason, message }
}

fn cure() -> String {
    format!("change the ConfigMap, or set its annotation {} to another value to try it again", annotation::POLICY_TRY_AGAIN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ConfigMap;
    use pacer_policy::LoadError;

    use super::*;
    use crate::report::LastError;

    fn object(text: &str, request: Option<&str>) -> ConfigMap {
        let mut object =
            ConfigMap { data: Some(BTreeMap::from([("policies.yaml".to_owned(), text.to_owned())])), ..ConfigMap::default() };
        object.metadata.annotations =
            request.map(|request| BTreeMap::from([(annotation::POLICY_TRY_AGAIN.to_owned(), request.to_owned())]));
        object
    }

    fn at() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    /// What a process left that tried `subject`, and found `error` unless it died before.
    fn left(subject: &Subject, content: Option<&Subject>, error: Option<&str>) -> Report {
        Report {
            content: content.map(|subject| subject.content.clone()),
            trial: Some(Trial { subject: subject.clone(), at: at() }),
            last_error: error.map(|reason| LastError { reason: reason.to_owned(), message: "too slow".to_owned(), at: at() }),
            ..Report::default()
        }
    }

    #[test]
    fn content_is_barred_when_a_process_died_of_it_or_it_outlasted_one() {
        let (one, other) = (Subject::of(&object("{}", None)), Subject::of(&object("{} ", None)));
        let barred = |left: &Report| match precedent(&one, Some(left)) {
            Precedent::Barred(trial, failure) => Some((trial.subject, failure.reason)),
            Precedent::None | Precedent::Harmless(_) => None,
        };
        // Without a verdict, be it the first content of the set or not.
        assert_eq!(barred(&left(&one, None, None)), Some((one.clone(), QUARANTINED)));
        assert_eq!(barred(&left(&one, Some(&other), None)), Some((one.clone(), QUARANTINED)));
        // What was wrong with the content before is of no importance.
        assert_eq!(barred(&left(&one, Some(&other), Some("PolicyCompileTimeout"))), Some((one.clone(), QUARANTINED)));
        for reason in ["PolicyQuarantined", "PolicyCompileTimeout", "PolicyCompileFailed"] {
            let left = left(&one, Some(&one), Some(reason));
            assert_eq!(barred(&left), Some((one.clone(), reason)));
            // The words stay the same, so that nothing is written.
            assert!(matches!(precedent(&one, Some(&left)), Precedent::Barred(_, failure) if failure.message == "too slow"));
        }
    }

    #[test]
    fn content_is_tried_without_a_word_when_it_harmed_nobody() {
        let one = Subject::of(&object("{}", None));
        for error in [None, Some("PolicySetInvalid"), Some("PolicySmokeFailed"), Some("PolicyRolledBack")] {
            let found = precedent(&one, Some(&left(&one, Some(&one), error)));
            assert!(matches!(found, Precedent::Harmless(trial) if trial.subject == one), "{error:?}");
        }
    }

    #[test]
    fn content_is_new_when_it_the_version_or_the_request_differs() {
        let one = Subject::of(&object("{}", None));
        let others = [
            Subject::of(&object("{} ", None)),
            Subject::of(&object("{}", Some("once more"))),
            Subject { by: "0.0.0".to_owned(), ..one.clone() },
        ];
        for other in others {
            for content in [None, Some(&other)] {
                assert_eq!(precedent(&one, Some(&left(&other, content, Some("PolicyCompileTimeout")))), Precedent::None);
            }
        }
        assert_eq!(precedent(&one, None), Precedent::None);
        assert_eq!(precedent(&one, Some(&Report::default())), Precedent::None);
    }

    #[test]
    fn refusal_says_how_the_same_content_is_tried_again_where_that_may_do() {
        let told = |code, crowded_out| {
            let error = LoadError { crowded_out, ..LoadError::new(code, "it is large") };
            refusal(&BundleError::Refused { field: "restart".to_owned(), module: "m.wasm".to_owned(), error })
        };
        for (code, crowded_out, says) in [
            (Refusal::TooLarge, true, true),
            (Refusal::TooLarge, false, false),
            (Refusal::Compile, false, true),
            (Refusal::Smoke, false, false),
        ] {
            let Failure { reason, message } = told(code, crowded_out);
            assert_eq!((reason, message.contains(annotation::POLICY_TRY_AGAIN)), (code.as_str(), says), "{message}");
        }
    }

    #[test]
    fn trial_is_read_as_it_was_written() {
        for request in [None, Some("2026-05-04")] {
            let subject = Subject::of(&object("{}", request));
            let report = left(&subject, None, None);
            assert_eq!(Report::read(&report.text()), Some(report));
        }
    }
}
