//! From the flags of `pacer run` to the settings of its parts.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use pacer_cluster::lease::LeaseTiming;
use pacer_cluster::object::ObjectKey;
use pacer_core::allowed::Allowed;
use pacer_core::price::Prices;
use pacer_core::recovery::Budget;
use pacer_core::restart::RestartLimits;
use pacer_core::ring::Bounds;
use pacer_core::shard::{Shards, Share};
use pacer_core::stop::StopLimits;
use pacer_demand::redelivery;
use pacer_operator::pod::PodDefaults;
use pacer_operator::settings::Settings;
use pacer_policyset::{Options, PolicySets};
use pacer_registry::{Registries, VerificationKeys};
use pacer_trace::Limits;
use tokio::sync::Semaphore;

use crate::arguments::{ElectionArguments, FactArguments, RunArguments};
use crate::connection::REQUEST_DEADLINE;
use crate::record::{Defaults, LINES_OF_A_FILE, Plan, Setting};

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

/// How many shards there are.
pub(super) fn shards(arguments: &ElectionArguments) -> anyhow::Result<Shards> {
    let shards = Shards::new(arguments.shards).with_context(|| format!("--shards: 1 to {}", Shards::MOST))?;
    if shards != Shards::ONE && !arguments.enable_leader_election {
        bail!("--shards {} needs --enable-leader-election: the Leases of the shards say who acts for which", shards.count());
    }
    Ok(shards)
}

/// What the operator records of itself, where it was told to: of a shard in a directory of its own.
pub(super) fn recording(arguments: &RunArguments, share: Option<Share>, policies: &Arc<PolicySets>) -> Option<Setting> {
    let directory = arguments.record.clone()?;
    let directory = match share {
        Some(Share { shard, .. }) => directory.join(format!("shard-{shard}")),
        None => directory,
    };
    let limits = Limits { total: arguments.record_bytes, lines: LINES_OF_A_FILE };
    let defaults = Defaults { policies: Some(policies.clone()), ..untold(arguments) };
    let namespace = filled(&arguments.watch_namespace);
    Some(Setting { directory, limits, defaults, namespace, share, allowed: Arc::new(allowed(&arguments.facts)) })
}

/// The text of a flag, unless it is empty.
fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// How simulations for policies in shadow are made, unless they are switched off.
pub(super) fn simulations(arguments: &RunArguments, turn: Arc<Semaphore>) -> Option<Plan> {
    let interval = arguments.shadow_simulation_interval;
    let policies_decide = !arguments.builtin_policies_only;
    (policies_decide && !interval.is_zero()).then(|| Plan { interval, defaults: untold(arguments), turn })
}

/// Settings that a trace tells of and no object does.
fn untold(arguments: &RunArguments) -> Defaults {
    let labels = arguments.common_runner_labels.iter().filter(|label| !label.is_empty());
    Defaults {
        idle_confirmation: Some(arguments.idle_confirmation),
        scale_down_delay: arguments.default_scale_down_delay,
        labels: labels.map(|label| Arc::from(label.as_str())).collect(),
        ramp: NonZeroU32::new(arguments.max_new_runners_per_minute),
        policies: None,
    }
}

/// Settings of the controllers, as the flags say.
pub(crate) fn settings(arguments: &RunArguments) -> Settings {
    let pods = &arguments.pods;
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
        share: None,
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
        recovery: arguments.recovery.recover_jobs.then_some(Budget {
            per_run: arguments.recovery.recover_jobs_per_run,
            per_hour: arguments.recovery.recover_jobs_per_hour,
        }),
        redelivery: redelivery::Settings {
            urls: arguments.redelivery.webhook_url.iter().filter(|url| !url.is_empty()).cloned().collect(),
            period: arguments.redelivery.redelivery_period,
            age: arguments.redelivery.redelivery_age,
            attempts: arguments.redelivery.redelivery_attempts,
        },
    }
}

pub(super) fn allowed(arguments: &FactArguments) -> Allowed {
    let filled = |list: &[String]| list.iter().map(|key| key.trim()).filter(|key| !key.is_empty()).map(str::to_owned).collect();
    Allowed {
        node_labels: filled(&arguments.policy_node_labels),
        labels: filled(&arguments.policy_labels),
        annotations: filled(&arguments.policy_annotations),
    }
}

/// Reads `--node-prices`; no prices where it is not given.
pub(super) fn prices(file: Option<&Path>) -> anyhow::Result<Prices> {
    let Some(file) = file else { return Ok(Prices::default()) };
    let text = std::fs::read_to_string(file).with_context(|| format!("reading --node-prices {}", file.display()))?;
    table(&text).with_context(|| format!("--node-prices {}", file.display()))
}

fn table(text: &str) -> anyhow::Result<Prices> {
    let table = serde_saphyr::from_str(text).map_err(|error| {
        anyhow::anyhow!("it is no table of instance types and prices, as in \"m5.large: 0.096\": {}", error.without_snippet())
    })?;
    Ok(Prices::new(table)?)
}

/// What policies are pulled with, and the keys of `--policy-verification-key`.
pub(super) fn registries(arguments: &RunArguments) -> anyhow::Result<Registries> {
    let mut keys = VerificationKeys::default();
    for file in &arguments.policy_verification_key {
        let pem = std::fs::read(file).with_context(|| format!("reading --policy-verification-key {}", file.display()))?;
        keys.add(&pem).with_context(|| format!("--policy-verification-key {}", file.display()))?;
    }
    let mut registries = Registries::new(keys, pacer_policy::RAW_BYTES);
    if let Some(file) = &arguments.github.github_ca_file {
        registries = registries.with_authorities(file.clone());
    }
    Ok(if arguments.policy_registries_on_loopback { registries.with_loopback() } else { registries })
}

pub(super) fn receipt_bounds(arguments: &RunArguments) -> Bounds {
    Bounds {
        count: usize::from(arguments.receipts_per_pool),
        bytes: usize::try_from(arguments.receipts_bytes_per_pool).unwrap_or(usize::MAX),
    }
}

pub(super) fn policy_options(arguments: &RunArguments, own: &str, share: Option<Share>) -> anyhow::Result<Options> {
    let default = crate::default_set::parse(&arguments.policies, own)?;
    // Every shard follows the default set, and whoever has its namespace tells of it.
    let elsewhere = |set: &ObjectKey| share.is_some_and(|share| !share.has(&set.namespace));
    Ok(Options {
        default_is_anothers: default.as_ref().is_some_and(elsewhere),
        default,
        namespace: own.to_owned(),
        builtin_only: arguments.builtin_policies_only,
    })
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
            Command::Run(arguments) => policy_options(&arguments, "own", None),
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

    #[test]
    fn a_file_without_keys_is_refused_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cosign.pub");
        let registries = || match Pacer::parse_from(["pacer", "run", "--policy-verification-key", file.to_str().unwrap()]).command
        {
            Command::Run(arguments) => registries(&arguments).map(|registries| registries.keys().is_empty()),
            other => panic!("{other:?}"),
        };
        let refused = || format!("{:#}", registries().unwrap_err());
        assert!(refused().contains("cosign.pub"), "{}", refused());
        std::fs::write(&file, "ssh-ed25519 AAAA\n").unwrap();
        assert!(refused().contains("cosign.pub: it has no public key in PEM"), "{}", refused());
        std::fs::write(&file, include_str!("../../../registry/tests/signed/key.pub")).unwrap();
        assert!(!registries().unwrap());
    }

    fn allowed_by(flags: &[&str]) -> Allowed {
        match Pacer::parse_from(["pacer", "run"].iter().chain(flags)).command {
            Command::Run(arguments) => allowed(&arguments.facts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn policies_see_common_labels_of_nodes_and_nothing_else_unless_told() {
        let default = allowed_by(&[]);
        assert_eq!(default.node_labels.join(","), pacer_core::node::LABELS);
        assert!(default.node_labels.len() == 9 && default.labels.is_empty() && default.annotations.is_empty());
        assert_eq!(allowed_by(&["--policy-node-labels="]).node_labels, [""; 0]);
        let told = allowed_by(&["--policy-node-labels=a, b", "--policy-labels=acme.io/", "--policy-annotations=x/,,y/"]);
        assert_eq!((told.node_labels, told.labels), (vec!["a".to_owned(), "b".to_owned()], vec!["acme.io/".to_owned()]));
        assert_eq!(told.annotations, ["x/", "y/"]);
    }

    #[test]
    fn prices_are_read_from_yaml_and_json() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prices");
        for (text, expected) in [
            ("m5.large: 0.096\nm5.large/spot: 0.035\n", Ok(Some(0.035))),
            (r#"{"m5.large": 1}"#, Ok(Some(1.0))),
            ("{}", Ok(None)),
            ("m5.large: cheap", Err("no table of instance types and prices")),
            ("[1, 2]", Err("no table of instance types and prices")),
            ("m5.large: -1", Err("the price of \"m5.large\" is -1")),
        ] {
            std::fs::write(&file, text).unwrap();
            match (prices(Some(&file)), expected) {
                (Ok(prices), Ok(expected)) => assert_eq!(prices.of("m5.large", Some("spot")), expected, "{text}"),
                (Err(error), Err(expected)) => assert!(format!("{error:#}").contains(expected), "{text}: {error:#}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        assert!(prices(None).is_ok() && prices(Some(&directory.path().join("none"))).is_err());
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

#[cfg(test)]
mod decoders {
    #[test]
    fn table_of_prices_is_read_or_refused_whatever_it_says() {
        pacer_fuzz::text!(["m5.large: 0.096\nm5.large/spot: 0.04\n", "{}", "{\"t3.micro\": 1e-3}"], |text| {
            let read = super::table(text);
            if let Ok(prices) = &read {
                assert!(prices.of("m5.large", Some("spot")).is_none_or(|price| price.is_finite() && price >= 0.0));
            }
            read.is_ok()
        });
    }
}
