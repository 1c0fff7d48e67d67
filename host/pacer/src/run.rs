//! `pacer run`: what is started, in which order, and how it ends.
//!
//! ```text
//! endpoints -> policies -> election -> (leading) watches, controllers -> SIGTERM: controllers finish, lease is given back
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use pacer_core::restart::RestartLimits;
use pacer_core::stop::StopLimits;
use pacer_github::{ClientOptions, CredentialParts, Credentials, CredentialsError, Endpoints, GitHub, KeyFiles, Secret};
use pacer_operator::access::Accesses;
use pacer_operator::context::{Context, Seed};
use pacer_operator::controllers;
use pacer_operator::events::Events;
use pacer_operator::fence::{Fence, FenceLayer};
use pacer_operator::lease::{Election, LeaseConfig, LeaseTiming};
use pacer_operator::memory::Memory;
use pacer_operator::metrics::{MeterLayer, Metrics, Sources};
use pacer_operator::pod::PodDefaults;
use pacer_operator::settings::Settings;
use pacer_operator::token::Tokens;
use pacer_operator::wake;
use pacer_policy::{Counters, PolicyHost};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::arguments::{GitHubArguments, RunArguments};
use crate::health::{self, Health, Phase};
use crate::telemetry;

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

    let config = kube_config(&arguments).await?;
    let identity = format!("{}_{:016x}", hostname(), Seed::default().draw());
    let fence = if arguments.election.enable_leader_election { Fence::closed() } else { Fence::open() };
    let counters = Arc::new(Counters::default());
    let observer = counters.clone();
    // Compiles the shipped policy, which takes a moment of CPU.
    let policies =
        tokio::task::spawn_blocking(move || Arc::new(PolicyHost::new(observer))).await.context("starting the policy host")?;
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
            timing: timing(&arguments)?,
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
    let (watches, stores) = controllers::watches(&client, settings.namespace.as_deref());
    metrics.read_from(Sources { stores: stores.clone(), github: github.clone(), policies: counters });
    let (wake, alarms) = wake::channel();
    let (accesses, news) = Accesses::new(client.clone(), endpoints, options, github, stop.clone());
    let ctx = Arc::new(Context {
        tokens: Tokens::new(client.clone(), fence.clone()),
        events: Events::new(client.clone(), identity),
        memory: Memory::default(),
        seed: Seed::default(),
        client,
        settings,
        stores,
        wake,
        accesses,
        policies,
        metrics,
        fence,
    });
    let mut running = JoinSet::new();
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
    ctx.accesses.join().await;
    outcome
}

fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
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

async fn kube_config(arguments: &RunArguments) -> anyhow::Result<Config> {
    let mut config = match &arguments.kubeconfig {
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

fn client(config: &Config, fence: Option<Fence>, metrics: Option<Arc<Metrics>>) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config.clone()).context("building the Kubernetes client")?;
    Ok(match (fence, metrics) {
        (Some(fence), Some(metrics)) => {
            builder.with_layer(&MeterLayer::new(metrics)).with_layer(&FenceLayer::new(fence, REQUEST_DEADLINE)).build()
        }
        _ => builder.build(),
    })
}

fn timing(arguments: &RunArguments) -> anyhow::Result<LeaseTiming> {
    let timing = LeaseTiming {
        duration: arguments.election.lease_duration,
        renew_deadline: arguments.election.lease_renew_deadline,
        retry: arguments.election.lease_retry_period,
    };
    if timing.renew_deadline >= timing.duration || timing.retry >= timing.renew_deadline || timing.retry.is_zero() {
        bail!(
            "--lease-retry-period must be shorter than --lease-renew-deadline, and that shorter than --lease-duration: otherwise two operators could act at once"
        );
    }
    Ok(timing)
}

fn endpoints(arguments: &GitHubArguments) -> anyhow::Result<Endpoints> {
    Ok(Endpoints::resolve(
        arguments.github_url.as_deref(),
        arguments.github_enterprise_url.as_deref(),
        arguments.github_upload_url.as_deref(),
        arguments.runner_github_url.as_deref(),
    )?)
}

fn default_github(arguments: &GitHubArguments, endpoints: &Endpoints, options: &ClientOptions) -> anyhow::Result<Option<GitHub>> {
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
        Err(error @ CredentialsError::Missing) => {
            tracing::warn!(%error, "only objects with githubAPICredentialsFrom are served");
            Ok(None)
        }
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
        stop: StopLimits {
            drain: arguments.drain_timeout,
            registration: arguments.registration_timeout,
            linger: arguments.force_delete_after,
        },
        restart: RestartLimits::default(),
    })
}

fn hostname() -> String {
    std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()))
        .unwrap_or_else(|_| "pacer".to_owned())
}
