//! From the flags of `pacer run` to the settings of its parts.

use std::num::NonZeroU32;

use anyhow::bail;
use pacer_cluster::lease::LeaseTiming;
use pacer_cluster::object::ObjectKey;
use pacer_core::restart::RestartLimits;
use pacer_core::ring::Bounds;
use pacer_core::stop::StopLimits;
use pacer_demand::redelivery;
use pacer_operator::pod::PodDefaults;
use pacer_operator::settings::Settings;
use pacer_policyset::Options;

use crate::arguments::{ElectionArguments, RunArguments};
use crate::connection::REQUEST_DEADLINE;

pub(super) fn timing(arguments: &ElectionArguments) -> anyhow::Result<LeaseTiming> {
    let timing = LeaseTiming {
        duration: arguments.lease_duration,
        renew_deadline: arguments.lease_renew_deadline,
        retry: arguments.lease_retry_period,
    };
    if timing.renew_deadline >= timing.duration || timing.retry >= timing.renew_deadline || timing.retry.is_zero() {
        bail!(
            "--lease-retry-period must be shorter than --lease-renew-deadline, and that shorter than --lease-duration: otherwise two operators could act at once"
        );
    }
    let margin = timing.duration.saturating_sub(timing.renew_deadline);
    if margin < REQUEST_DEADLINE {
        bail!(
            "--lease-duration ({:?}) must be at least {:?} longer than --lease-renew-deadline ({:?}): that long a request that was begun by a leader may last, \
             and until it is over no other may lead",
            timing.duration,
            REQUEST_DEADLINE,
            timing.renew_deadline,
        );
    }
    Ok(timing)
}

/// Settings of the controllers, as the flags say.
pub(crate) fn settings(arguments: &RunArguments) -> Settings {
    let pods = &arguments.pods;
    let filled = |text: &String| (!text.is_empty()).then(|| text.clone());
    Settings {
        namespace: filled(&arguments.watch_namespace),
        pod: PodDefaults {
            runner_image: pods.runner_image.clone(),
            docker_image: pods.docker_image.clone(),
            docker_gid: pods.docker_gid,
            image_pull_secrets: pods.runner_image_pull_secrets.clone(),
            docker_registry_mirror: filled(&pods.docker_registry_mirror),
            status_hook: pods.runner_status_update_hook,
            grace: arguments.drain_timeout,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        },
        common_labels: arguments.common_runner_labels.iter().filter(|label| !label.is_empty()).cloned().collect(),
        sync_period: arguments.sync_period,
        concurrency: arguments.max_concurrent_reconciles,
        idle_confirmation: arguments.idle_confirmation,
        scale_down_delay: arguments.default_scale_down_delay,
        ramp: NonZeroU32::new(arguments.max_new_runners_per_minute),
        claim_retention: arguments.runner_set_claim_retention,
        claim_patience: arguments.runner_set_claim_patience,
        stop: StopLimits {
            drain: arguments.drain_timeout,
            registration: arguments.registration_timeout,
            linger: arguments.force_delete_after,
            confirmation: arguments.idle_confirmation,
        },
        restart: RestartLimits::default(),
        redelivery: redelivery::Settings {
            urls: arguments.redelivery.webhook_url.iter().filter(|url| !url.is_empty()).cloned().collect(),
            period: arguments.redelivery.redelivery_period,
            age: arguments.redelivery.redelivery_age,
            attempts: arguments.redelivery.redelivery_attempts,
        },
    }
}

pub(super) fn receipt_bounds(arguments: &RunArguments) -> Bounds {
    Bounds {
        count: usize::from(arguments.receipts_per_pool),
        bytes: usize::try_from(arguments.receipts_bytes_per_pool).unwrap_or(usize::MAX),
    }
}

pub(super) fn policy_options(arguments: &RunArguments, own: &str) -> anyhow::Result<Options> {
    let default = crate::default_set::parse(&arguments.policies, own)?;
    Ok(Options { default, namespace: own.to_owned(), builtin_only: arguments.builtin_policies_only })
}

pub(super) fn tenancy(arguments: &RunArguments, own: &str) -> anyhow::Result<Option<ObjectKey>> {
    crate::default_set::config_map("--tenancy", &arguments.tenancy, own)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::verb::{Command, Pacer};

    fn options(flags: &[&str]) -> anyhow::Result<Options> {
        match Pacer::parse_from(["pacer", "run"].iter().chain(flags)).command {
            Command::Run(arguments) => policy_options(&arguments, "own"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_set_is_named_in_three_ways() {
        let default = |flags: &[&str]| options(flags).unwrap().default.map(|key| key.to_string());
        assert_eq!(default(&[]), Some(format!("own/{}", pacer_policyset::DEFAULT_NAME)));
        assert_eq!(default(&["--policies=ci"]), Some("own/ci".to_owned()));
        assert_eq!(default(&["--policies=other/ci"]), Some("other/ci".to_owned()));
        assert_eq!(default(&["--policies="]), None);
        for wrong in ["--policies=/ci", "--policies=other/", "--policies=a/b/c"] {
            assert!(options(&[wrong]).is_err(), "{wrong}");
        }
        assert!(options(&["--builtin-policies-only"]).unwrap().builtin_only);
    }

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        election: ElectionArguments,
    }

    fn timing_of(duration: &str, deadline: &str, retry: &str) -> Result<LeaseTiming, String> {
        let flags = [
            "pacer",
            &format!("--lease-duration={duration}"),
            &format!("--lease-renew-deadline={deadline}"),
            &format!("--lease-retry-period={retry}"),
        ];
        timing(&Flags::try_parse_from(flags).unwrap().election).map_err(|error| error.to_string())
    }

    #[test]
    fn a_lease_outlives_the_last_request_of_its_holder() {
        let defaults = timing(&Flags::try_parse_from(["pacer"]).unwrap().election).unwrap();
        assert!(defaults.duration - defaults.renew_deadline >= REQUEST_DEADLINE);
        assert!(timing_of("9s", "4s", "500ms").is_ok());
        for (duration, deadline) in [("8999ms", "4s"), ("5s", "4s"), ("15s", "14s")] {
            let refused = timing_of(duration, deadline, "500ms").unwrap_err();
            assert!(
                refused.contains("--lease-duration") && refused.contains("5s longer than --lease-renew-deadline"),
                "{refused}"
            );
        }
        for (duration, deadline, retry) in [("10s", "10s", "1s"), ("20s", "5s", "5s"), ("20s", "5s", "0s")] {
            let refused = timing_of(duration, deadline, retry).unwrap_err();
            assert!(refused.contains("--lease-retry-period must be shorter"), "{refused}");
        }
    }
}
