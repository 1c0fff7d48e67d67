//! `pacer run`: what is started, in which order, and how it ends.
//!
//! ```text
//! endpoints -> policies -> election -> (leading) watches, controllers -> SIGTERM: controllers finish, lease is given back
//! ```

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use pacer_core::restart::RestartLimits;
use pacer_core::ring::Bounds;
use pacer_core::stop::StopLimits;
use pacer_github::pace::Pace;
use pacer_github::queues::Queues;
use pacer_github::{ClientOptions, CredentialParts, Credentials, CredentialsError, Endpoints, GitHub, KeyFiles, Secret};
use pacer_operator::access::Accesses;
use pacer_operator::account::Accounts;
use pacer_operator::context::{Context, Seed};
use pacer_operator::controllers::{self, News};
use pacer_operator::events::Events;
use pacer_operator::fence::{Fence, FenceLayer};
use pacer_operator::lease::{Election, LeaseConfig, LeaseTiming};
use pacer_operator::ledger::Ledgers;
use pacer_operator::memory::Memory;
use pacer_operator::metrics::{MeterLayer, Metrics, Sources};
use pacer_operator::nodes::Nodes;
use pacer_operator::pod::PodDefaults;
use pacer_operator::policies::{self, Policies};
use pacer_operator::receipts::Receipts;
use pacer_operator::redelivery;
use pacer_operator::settings::Settings;
use pacer_operator::token::Tokens;
use pacer_operator::wake;
use pacer_policy::{Counters, PolicyHost};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::arguments::{ElectionArguments, GitHubArguments, RunArguments};
use crate::health::{self, Health, Phase};
use crate::policy::compile;
use crate::{connection, telemetry, webhook};

/// Longest time for one request to the API server, watches apart: what was begun before the right to act ended is over before anybody
/// else may act.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// Runs until SIGTERM.
pub(crate) fn main(arguments: RunArguments) -> anyhow::Result<()> {
    telemetry::start(&arguments.log_level, arguments.log_format)?;
    for (flag, why) in arguments.obsolete.given() {
        tracing::warn!(flag, why, "flag has no effect");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: RunArguments) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut parts = JoinSet::new();
    parts.spawn(stop_on_signal(stop.clone())?);

    let metrics = Arc::new(Metrics::default());
    let health = Health::new(metrics.clone());
    for address in
        [&arguments.metrics_addr, &arguments.health_probe_bind_address].into_iter().filter(|address| !address.is_empty())
    {
        let listener = health::bind(address).await?;
        tracing::info!(metrics_addr = %health::address(&listener)?, "serving");
        let (health, stop) = (health.clone(), stop.clone());
        parts.spawn(async move { health::serve(listener, health, stop).await });
    }

    let config = kube_config(arguments.kubeconfig.as_deref()).await?;
    let identity = format!("{}_{:016x}", hostname(), Seed::default().draw());
    let fence = if arguments.election.enable_leader_election { Fence::closed() } else { Fence::open() };
    if !arguments.webhook_addr.is_empty() {
        health.receiving(false);
        let server = webhook::Server::new(webhook::Setting {
            address: &arguments.webhook_addr,
            namespace: &arguments.watch_namespace,
            common_labels: &arguments.common_runner_labels,
            receiver: &arguments.receiver,
            github: &arguments.github,
            client: client(&config, Some(Fence::open()), Some(metrics.clone()))?,
            metrics: metrics.receiver().clone(),
        });
        parts.spawn(server.await?.run(health.clone(), stop.clone()));
    }
    let counters = Arc::new(Counters::default());
    let observer = counters.clone();
    let compiler = compile::compiler();
    // Compiles the shipped policy, which takes a moment of CPU.
    let host = move || Arc::new(PolicyHost::compiling_in(compiler, observer));
    let policies = tokio::task::spawn_blocking(host).await.context("starting the policy host")?;
    if let Some(shipped) = policies.shipped() {
        tracing::info!(policy = %shipped, "policies ready");
    }

    let (leading, mut led) = watch::channel(!arguments.election.enable_leader_election);
    let mut election = JoinSet::new();
    let resign = CancellationToken::new();
    if arguments.election.enable_leader_election {
        let election_config = LeaseConfig {
            namespace: arguments.election.leader_election_namespace.clone().unwrap_or_else(|| config.default_namespace.clone()),
            name: arguments.election.leader_election_id.clone(),
            identity: identity.clone(),
            timing: timing(&arguments.election)?,
        };
        let own_client = client(&config, None, None)?;
        election.spawn(Election::new(own_client, election_config, fence.clone()).run(leading, resign.clone()));
    }

    health.set(Phase::Standby);
    let stopped = tokio::select! {
        () = stop.cancelled() => true,
        lead = led.wait_for(|leading| *leading) => lead.is_err(),
    };
    let outcome = if stopped {
        Ok(())
    } else {
        health.set(Phase::Filling);
        lead(&arguments, &config, identity, fence, policies, counters, metrics, &health, led, stop.clone()).await
    };
    // The lease is given back only when nothing acts any more.
    resign.cancel();
    while election.join_next().await.is_some() {}
    stop.cancel();
    while let Some(part) = parts.join_next().await {
        part.context("a part panicked")??;
    }
    tracing::info!("stopped");
    outcome
}

#[expect(clippy::too_many_arguments, reason = "called once, with all that was made before")]
async fn lead(
    arguments: &RunArguments,
    config: &Config,
    identity: String,
    fence: Fence,
    policies: Arc<PolicyHost>,
    counters: Arc<Counters>,
    metrics: Arc<Metrics>,
    health: &Health,
    mut led: watch::Receiver<bool>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let client = client(config, Some(fence.clone()), Some(metrics.clone()))?;
    let settings = settings(arguments)?;
    let endpoints = endpoints(&arguments.github)?;
    let options = ClientOptions { ca_file: arguments.github.github_ca_file.clone(), ..ClientOptions::default() };
    let github = default_github(&arguments.github, &endpoints, &options)?;
    if github.is_none() {
        tracing::warn!("no GitHub credentials: only objects with githubAPICredentialsFrom are served");
    }
    let (watches, stores) = controllers::watches(&client, settings.namespace.as_deref());
    let policies = Arc::new(Policies::new(policies, policy_options(arguments, &config.default_namespace)?));
    let (memory, ledgers) = (Arc::new(Memory::default()), Arc::new(Ledgers::new(client.clone())));
    metrics.read_from(Sources {
        stores: stores.clone(),
        github: github.clone(),
        policies: counters,
        sets: policies.clone(),
        memory: memory.clone(),
        ledgers: ledgers.clone(),
    });
    let (wake, alarms) = wake::channel();
    let (accesses, rosters) = Accesses::new(client.clone(), endpoints, options, github, settings.concurrency, stop.clone());
    let (queues, queue_news) = Queues::new(Pace::queues(), stop.clone());
    let (receipts, writer) = Receipts::new(client.clone(), receipt_bounds(arguments), metrics.clone());
    let (mut writing, written) = (JoinSet::new(), CancellationToken::new());
    if let Some(writer) = writer {
        writing.spawn(writer.run(written.clone()));
    }
    let ctx = Arc::new(Context {
        tokens: Tokens::new(client.clone(), fence.clone()),
        accounts: Accounts::new(client.clone(), arguments.pods.job_pods_cluster_role.clone()),
        events: Events::new(client.clone(), identity),
        nodes: Nodes::new(client.clone()),
        receipts,
        memory,
        seed: Seed::default(),
        client,
        settings,
        stores,
        wake,
        accesses,
        ledgers,
        queues,
        policies,
        metrics,
        fence,
    });
    let mut running = JoinSet::new();
    let news = News { rosters, queues: queue_news };
    running.spawn(controllers::run(ctx.clone(), watches, alarms, news, stop.clone()));
    let full = ctx.stores.full();
    tokio::pin!(full);
    let mut filled = false;
    let outcome = loop {
        tokio::select! {
            _ = &mut full, if !filled => {
                filled = true;
                health.set(Phase::Acting);
                tracing::info!("acting");
            }
            lost = led.wait_for(|leading| !*leading) => {
                // Without election nobody ever says so.
                if lost.is_ok() && !stop.is_cancelled() {
                    stop.cancel();
                    // As controller-runtime does: a process that lost its lease starts anew, with nothing remembered.
                    bail!("the lease was lost");
                }
                running.join_next().await;
                break Ok(());
            }
            ended = running.join_next() => {
                break match ended {
                    Some(Ok(Err(early))) => Err(anyhow::Error::from(early)),
                    Some(Err(panic)) => Err(anyhow::Error::from(panic)),
                    _ => Ok(()),
                };
            }
        }
    };
    // What was decided last is written as well.
    written.cancel();
    while writing.join_next().await.is_some() {}
    ctx.policies.host().join().await;
    ctx.accesses.join().await;
    ctx.queues.join().await;
    outcome
}

pub(crate) fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "stopping"),
            _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "stopping"),
            () = stop.cancelled() => {}
        }
        stop.cancel();
        Ok(())
    })
}

pub(crate) async fn kube_config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("reading --kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using --kubeconfig {}", file.display()))?
        }
        None => Config::infer()
            .await
            .context("no way to the Kubernetes API: give --kubeconfig or KUBECONFIG, or run in a pod with a service account")?,
    };
    // kube would repeat any request, POST included, for minutes; here the reconcile is what is repeated.
    config.default_retry = false;
    Ok(config)
}

pub(crate) fn client(config: &Config, fence: Option<Fence>, metrics: Option<Arc<Metrics>>) -> anyhow::Result<Client> {
    let builder = connection::builder(config)?;
    Ok(match (fence, metrics) {
        (Some(fence), Some(metrics)) => {
            builder.with_layer(&MeterLayer::new(metrics)).with_layer(&FenceLayer::new(fence, REQUEST_DEADLINE)).build()
        }
        _ => builder.build(),
    })
}

fn timing(arguments: &ElectionArguments) -> anyhow::Result<LeaseTiming> {
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

pub(crate) fn endpoints(arguments: &GitHubArguments) -> anyhow::Result<Endpoints> {
    Ok(Endpoints::resolve(
        arguments.github_url.as_deref(),
        arguments.github_enterprise_url.as_deref(),
        arguments.github_upload_url.as_deref(),
        arguments.runner_github_url.as_deref(),
    )?)
}

pub(crate) fn default_github(
    arguments: &GitHubArguments,
    endpoints: &Endpoints,
    options: &ClientOptions,
) -> anyhow::Result<Option<GitHub>> {
    let secret = |text: &Option<String>| text.clone().map(Secret::new);
    let parts = CredentialParts {
        token: secret(&arguments.github_token),
        app_id: arguments.github_app_id.clone(),
        app_installation_id: arguments.github_app_installation_id.clone(),
        app_private_key: secret(&arguments.github_app_private_key),
        basic_username: arguments.github_basicauth_username.clone(),
        basic_password: secret(&arguments.github_basicauth_password),
    };
    match Credentials::from_parts(parts, KeyFiles::Allowed) {
        Ok(credentials) => Ok(Some(GitHub::new(credentials, endpoints.clone(), options)?)),
        Err(CredentialsError::Missing) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn settings(arguments: &RunArguments) -> anyhow::Result<Settings> {
    let pods = &arguments.pods;
    let filled = |text: &String| (!text.is_empty()).then(|| text.clone());
    Ok(Settings {
        namespace: filled(&arguments.watch_namespace),
        pod: PodDefaults {
            runner_image: pods.runner_image.clone(),
            docker_image: pods.docker_image.clone(),
            docker_gid: pods.docker_gid,
            image_pull_secrets: pods.runner_image_pull_secrets.clone(),
            docker_registry_mirror: filled(&pods.docker_registry_mirror),
            status_hook: pods.runner_status_update_hook,
            github_url: endpoints(&arguments.github)?.runners().to_owned(),
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
        },
        restart: RestartLimits::default(),
        redelivery: redelivery::Settings {
            urls: arguments.redelivery.webhook_url.iter().filter(|url| !url.is_empty()).cloned().collect(),
            period: arguments.redelivery.redelivery_period,
            age: arguments.redelivery.redelivery_age,
            attempts: arguments.redelivery.redelivery_attempts,
        },
    })
}

fn receipt_bounds(arguments: &RunArguments) -> Bounds {
    Bounds {
        count: usize::from(arguments.receipts_per_pool),
        bytes: usize::try_from(arguments.receipts_bytes_per_pool).unwrap_or(usize::MAX),
    }
}

fn policy_options(arguments: &RunArguments, own: &str) -> anyhow::Result<policies::Options> {
    let default = crate::default_set::parse(&arguments.policies, own)?;
    Ok(policies::Options { default, namespace: own.to_owned(), builtin_only: arguments.builtin_policies_only })
}

fn hostname() -> String {
    std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()))
        .unwrap_or_else(|_| "pacer".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Command, Pacer};

    fn options(flags: &[&str]) -> anyhow::Result<policies::Options> {
        match Pacer::parse_from(["pacer", "run"].iter().chain(flags)).command {
            Command::Run(arguments) => policy_options(&arguments, "own"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_set_is_named_in_three_ways() {
        let default = |flags: &[&str]| options(flags).unwrap().default.map(|key| key.to_string());
        assert_eq!(default(&[]), Some(format!("own/{}", policies::DEFAULT_NAME)));
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
