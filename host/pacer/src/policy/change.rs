//! `set`, `promote`, `rollback`, `disable`, `enable`: one decision of a policy set in the cluster, and what the operator made of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use pacer_api::duration;
use pacer_api::names::annotation;
use pacer_cluster::object::ObjectKey;
use pacer_policy::bundle::{FILE, pack};
use pacer_policy::{Decision, Digest, Mode, text};
use pacer_policyset::report::{Report as SetReport, content_digest};
use pacer_policyset::{Phase, history};

use super::configmap::key_of;
use super::cure;
use super::draft::{Difference, Draft, NewModule, Setting};
use super::set::{Content, examine, too_large};
use super::settings;
use super::source::{Source, jail};
use crate::archive::when;
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::default_set::DefaultSetArguments;
use crate::denial::unreadable;
use crate::plain;
use crate::report::Report;

/// How often a change is made again that somebody else came before.
const ATTEMPTS: usize = 5;

/// How often the operator's word is looked for.
const GLANCE: Duration = Duration::from_millis(200);

/// HTTP status of a write when somebody else has changed or made the object meanwhile.
const CONFLICT: u16 = 409;

/// Which set, and how it is changed.
#[derive(clap::Args, Debug)]
pub(crate) struct Common {
    /// ConfigMap of the policy set. Default: the cluster's default policy set.
    #[arg(long, value_name = "CONFIGMAP")]
    set: Option<String>,
    /// Shows what would change without changing it. The API server validates the change too.
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for the operator to accept or refuse the change.
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "DURATION", conflicts_with_all = ["no_wait", "dry_run"])]
    timeout: Duration,
    /// Does not wait for the operator.
    #[arg(long, conflicts_with = "dry_run")]
    no_wait: bool,
    #[command(flatten)]
    default_set: DefaultSetArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Arguments of `pacer policy set`.
#[derive(clap::Args, Debug)]
pub(crate) struct SetArguments {
    /// scale-down, restart, capacity or recover.
    decision: Decision,
    /// The component, or `builtin`. Default: only the settings change.
    #[arg(required_unless_present_any = ["settings", "no_settings"])]
    policy: Option<Source>,
    /// enforce: the policy decides. shadow: it is compared with the policy that decides.
    #[arg(long, default_value = "enforce", value_name = "enforce|shadow", value_parser = mode)]
    mode: Mode,
    /// YAML or JSON file with settings. Default: the decision keeps the settings that it has in this mode.
    #[arg(long, value_name = "FILE", conflicts_with = "no_settings")]
    settings: Option<std::path::PathBuf>,
    /// Removes the settings.
    #[arg(long)]
    no_settings: bool,
    /// Does not compress the module.
    #[arg(long, requires = "policy")]
    plain: bool,
    /// Creates the ConfigMap if it does not exist.
    #[arg(long, requires = "policy")]
    create: bool,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `pacer policy promote`.
#[derive(clap::Args, Debug)]
pub(crate) struct PromoteArguments {
    /// scale-down, restart, capacity or recover.
    decision: Decision,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `pacer policy rollback`, `disable` and `enable`.
#[derive(clap::Args, Debug)]
pub(crate) struct PartArguments {
    /// scale-down, restart, capacity or recover. Default: the whole policy set.
    decision: Option<Decision>,
    #[command(flatten)]
    common: Common,
}

fn mode(word: &str) -> Result<Mode, String> {
    let known = [Mode::Enforce, Mode::Shadow];
    known.into_iter().find(|mode| mode.as_str() == word).ok_or_else(|| "say enforce or shadow".to_owned())
}

/// `pacer policy set`.
pub(crate) fn set(arguments: &SetArguments) -> Result<Report> {
    let module = match &arguments.policy {
        None => None,
        Some(Source::Builtin) => {
            ensure!(!arguments.plain, "--plain has no effect on builtin, which is no module");
            Some(NewModule::Builtin)
        }
        Some(source) => Some(module(source, arguments)?),
    };
    let settings = match (&arguments.settings, arguments.no_settings) {
        (Some(file), _) => Some(serde_json::from_str(&settings::read(Some(file))?)?),
        (None, true) => Some(serde_json::json!({})),
        (None, false) => None,
    };
    let setting = Setting { module, settings };
    let (decision, mode) = (arguments.decision, arguments.mode);
    change(&arguments.common, arguments.create, &async |_, draft: &mut Draft| {
        draft.set(decision, mode, &setting)?;
        Ok(Vec::new())
    })
}

fn module(source: &Source, arguments: &SetArguments) -> Result<NewModule> {
    let jail = jail()?;
    let component = source.read(&jail)?;
    let policy = pacer_policy::Policy::load(&jail, &component).map_err(|error| cure::refused(source, &error))?;
    ensure!(
        policy.takes(arguments.decision),
        "{source} does not take the decision {}: it takes {}",
        arguments.decision,
        super::case::takes(&policy)
    );
    let bytes = match text::text_of(&component) {
        Some(text) => text.as_bytes().to_vec(),
        None if arguments.plain => component,
        None => pack(&component),
    };
    Ok(NewModule::File { key: key_of(&policy, arguments.plain), bytes })
}

/// `pacer policy promote`.
pub(crate) fn promote(arguments: &PromoteArguments) -> Result<Report> {
    change(&arguments.common, false, &async |_, draft: &mut Draft| {
        draft.promote(arguments.decision)?;
        Ok(Vec::new())
    })
}

/// `pacer policy rollback`.
pub(crate) fn rollback(arguments: &PartArguments) -> Result<Report> {
    let own = &arguments.common.default_set.operator_namespace;
    change(&arguments.common, false, &async |target: &Target, draft: &mut Draft| {
        let past = history::contents(target.cluster.client.clone(), own, &target.key).await;
        let past = past.map_err(|error| {
            let what = format!("the history of {} in namespace {own} can't be read", target.key);
            unreadable(error, what, "list ConfigMaps there")
        })?;
        let usable = || past.iter().filter(|past| past.rejected.is_none());
        let Some(earlier) = usable().find(|past| !draft.says_as(&content_of(&past.content), arguments.decision)) else {
            let what = arguments.decision.map_or_else(|| "anything".to_owned(), |decision| format!("about {decision}"));
            bail!(
                "there is nothing to go back to: {} earlier contents of ConfigMap {} are kept in namespace {own}, and none of them that was good says \
                 {what} else (where the operator is elsewhere: --operator-namespace)",
                past.len(),
                target.key
            );
        };
        draft.take_back(&content_of(&earlier.content), arguments.decision)?;
        Ok(vec![format!("back to {}, activated {}", short(&earlier.digest), when(earlier.activated, jiff::Timestamp::now()))])
    })
}

/// `pacer policy disable`.
pub(crate) fn disable(arguments: &PartArguments) -> Result<Report> {
    change(&arguments.common, false, &async |_, draft: &mut Draft| {
        draft.disable(arguments.decision)?;
        Ok(Vec::new())
    })
}

/// `pacer policy enable`.
pub(crate) fn enable(arguments: &PartArguments) -> Result<Report> {
    change(&arguments.common, false, &async |_, draft: &mut Draft| {
        draft.enable(arguments.decision)?;
        Ok(Vec::new())
    })
}

/// A set in a cluster.
struct Target {
    cluster: Cluster,
    key: ObjectKey,
}

/// A ConfigMap that was changed, and what the user is told about the change.
struct Written {
    object: ConfigMap,
    /// Of the set; none where only a switch changed.
    digest: Option<Digest>,
    lines: Vec<String>,
    policies: Vec<String>,
}

impl Common {
    fn key(&self, cluster: &Cluster) -> Result<ObjectKey> {
        match (&self.set, self.default_set.key()?) {
            (Some(name), _) => Ok(ObjectKey::new(&cluster.namespace, name)),
            (None, Some(default)) => {
                ensure!(
                    self.cluster.namespace.as_ref().is_none_or(|given| *given == default.namespace),
                    "--namespace has no effect on the cluster's default set, which is {default}: name a set by --set"
                );
                Ok(default)
            }
            (None, None) => bail!("which set? There is no default one (--policies=): name one by --set"),
        }
    }
}

fn change(common: &Common, create: bool, edit: &impl AsyncFn(&Target, &mut Draft) -> Result<Vec<String>>) -> Result<Report> {
    cluster::with(&common.cluster, async |cluster| {
        let key = common.key(&cluster)?;
        let target = Target { cluster, key };
        let Some(written) = target.write(common, create, edit).await? else {
            return Ok(Report::text(format!("ConfigMap {}: nothing to change, it says that already\n", target.key)));
        };
        let how = if common.dry_run { " would change" } else { "" };
        let mut report = Report::text(format!("ConfigMap {}{how}\n", target.key));
        for line in &written.lines {
            report.text.push_str(&format!("  {line}\n"));
        }
        if let Some(manager) = applied_by(&written.object) {
            report.notes.push_str(&format!(
                "note: {} applies this ConfigMap as well: change its manifest too, or the next time takes this back\n",
                plain::line(&manager)
            ));
        }
        if common.dry_run || common.no_wait {
            return Ok(report);
        }
        match target.wait(&written, common.timeout).await? {
            Ok(words) => report.text.push_str(&format!("{words}\n")),
            Err(words) => report.failure = Some(words),
        }
        Ok(report)
    })
}

impl Target {
    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client.clone(), &self.key.namespace)
    }

    /// Makes the change and sends it; again where somebody else changed the ConfigMap meanwhile. None where there is nothing to do.
    async fn write(
        &self,
        common: &Common,
        create: bool,
        edit: &impl AsyncFn(&Self, &mut Draft) -> Result<Vec<String>>,
    ) -> Result<Option<Written>> {
        let key = &self.key;
        let parameters = PostParams { dry_run: common.dry_run, field_manager: Some("pacer-policy".to_owned()) };
        for _ in 0..ATTEMPTS {
            let found = self.api().get_opt(&key.name).await.with_context(|| format!("reading ConfigMap {key}"))?;
            let object = match (&found, create) {
                (Some(object), _) => object.clone(),
                (None, true) => fresh(key),
                (None, false) => {
                    bail!("there is no ConfigMap {key}: correct --set and --namespace, or make it with pacer policy set --create")
                }
            };
            ensure!(
                object.immutable != Some(true),
                "ConfigMap {key} is immutable: make another one, and name that in the annotation {}",
                annotation::POLICIES
            );
            let before = Draft::new(content_of(&object), object.metadata.annotations.clone().unwrap_or_default())
                .with_context(|| format!("ConfigMap {key}"))?;
            let mut after = before.clone();
            let mut lines = edit(self, &mut after).await.with_context(|| format!("ConfigMap {key}"))?;
            after.finish(&before);
            if (&after.content, &after.annotations) == (&before.content, &before.annotations) {
                return Ok(None);
            }
            if let Some(message) = too_large(&after.content) {
                bail!("ConfigMap {key}: {message}");
            }
            let mut policies = Vec::new();
            let mut digest = None;
            if after.content != before.content {
                let examined = examine(&after.content).await?.map_err(|error| {
                    anyhow::anyhow!("ConfigMap {key} is left as it is, the operator would refuse this. {}", error.text())
                })?;
                digest = Some(examined.bundle.digest());
                for (decision, mode, _) in examined.bundle.entries() {
                    let how = if mode == Mode::Enforce { "by" } else { "in shadow by" };
                    policies.extend(examined.policy(decision, mode).map(|policy| format!("{decision} {how} {policy}")));
                }
            }
            lines.extend(after.differences(&before).iter().map(line));
            if after.is_disabled() != before.is_disabled() {
                lines.push(if after.is_disabled() { "the set is switched off" } else { "the set is switched on" }.to_owned());
            }
            if after.content != before.content {
                lines.push("everything else stays as it is".to_owned());
            }
            let changed = with_content(object, after);
            let sent = match found {
                Some(_) => self.api().replace(&key.name, &parameters, &changed).await,
                None => self.api().create(&parameters, &changed).await,
            };
            match sent {
                Ok(object) => return Ok(Some(Written { object, digest, lines, policies })),
                // Each time what is there now is changed, not what was there.
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                Err(error) => return Err(error).with_context(|| format!("ConfigMap {key} is not changed")),
            }
        }
        bail!("ConfigMap {key} is not changed: others changed it {ATTEMPTS} times meanwhile; try again")
    }

    /// Waits for the operator's word on what was written: in force, or why not.
    async fn wait(&self, written: &Written, timeout: Duration) -> Result<Result<String, String>> {
        let began = Instant::now();
        let content = content_digest(&written.object).to_string();
        let disabled = is_disabled(&written.object);
        let mut last = None;
        loop {
            let object =
                self.api().get_metadata_opt(&self.key.name).await.with_context(|| format!("reading ConfigMap {}", self.key))?;
            let Some(object) = object else { return Ok(Err(format!("ConfigMap {} was deleted meanwhile", self.key))) };
            let report = object.annotations().get(annotation::POLICY_STATUS).and_then(|status| SetReport::read(status));
            if let Some(verdict) = report.as_ref().and_then(|report| verdict(report, &content, written.digest, disabled)) {
                let took = began.elapsed().as_secs_f64();
                return Ok(match verdict {
                    Ok(words) => {
                        let by = if written.policies.is_empty() {
                            String::new()
                        } else {
                            format!(": {}", written.policies.join("; "))
                        };
                        Ok(format!("{words} after {took:.1} s{by}"))
                    }
                    Err(words) => Err(words),
                });
            }
            last = report.map(|report| report.phase).or(last);
            if began.elapsed() >= timeout {
                let said = last.map_or_else(
                    || "has said nothing about this set".to_owned(),
                    |phase| format!("still says {} of what was there before", plain::line(&phase)),
                );
                return Ok(Err(format!(
                    "ConfigMap {} is changed, but within {} s the operator {said}: does it run, does a pool ask for this set (annotation {}) or is it the \
                     default one? pacer policy status tells",
                    self.key,
                    timeout.as_secs(),
                    annotation::POLICIES
                )));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }
}

/// What a status says about a content; none while it does not speak of it.
fn verdict(report: &SetReport, content: &str, digest: Option<Digest>, disabled: bool) -> Option<Result<String, String>> {
    let is = |phase: Phase| report.phase == phase.as_str();
    let matches = digest.map(|digest| report.digest.as_deref() == Some(digest.to_string().as_str()));
    // An operator that does not say which content it speaks of can be believed where it names the set.
    let judged = report.content.as_deref().map_or(matches != Some(false), |judged| judged == content);
    if !judged || disabled != is(Phase::Disabled) {
        return None;
    }
    if disabled {
        return Some(Ok(match digest {
            Some(_) => "taken, but the set is switched off and the shipped policies decide (pacer policy enable)",
            None => "the shipped policies decide",
        }
        .to_owned()));
    }
    let in_force = is(Phase::Active) || is(Phase::Degraded);
    if in_force && matches != Some(false) {
        return Some(Ok(
            if is(Phase::Degraded) { "in force, though a policy of it keeps failing," } else { "in force" }.to_owned()
        ));
    }
    let error = report.last_error.as_ref()?;
    let cure = cure::of_reason(&error.reason).map_or_else(String::new, |cure| format!("\n  what to do: {cure}"));
    let (reason, message) = (plain::line(&error.reason), plain::line(&error.message));
    Some(Err(format!("the operator refused it, and {} decides: {reason}: {message}{cure}", stays(report))))
}

fn stays(report: &SetReport) -> String {
    report
        .digest
        .as_deref()
        .map_or_else(|| "nothing of the set".to_owned(), |digest| format!("the content before ({})", short(digest)))
}

fn short(digest: &str) -> String {
    plain::line(digest).chars().take(19).collect()
}

fn line(difference: &Difference) -> String {
    let Difference { decision, mode, before, after } = difference;
    let what = match mode {
        Mode::Enforce => decision.to_string(),
        Mode::Shadow => format!("{decision} in shadow"),
    };
    let words = |side: &Option<String>| side.as_deref().map_or_else(|| "not mentioned".to_owned(), plain::line);
    format!("{what}: {} -> {}", words(before), words(after))
}

fn content_of(object: &ConfigMap) -> Content {
    let modules = object.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
    Content::of(object.data.clone().unwrap_or_default(), modules.collect())
}

fn is_disabled(object: &ConfigMap) -> bool {
    object.annotations().get(annotation::POLICIES_DISABLED).is_some_and(|word| word == "true")
}

fn fresh(key: &ObjectKey) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(key.name.clone()), namespace: Some(key.namespace.clone()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(FILE.to_owned(), String::new())])),
        ..ConfigMap::default()
    }
}

fn with_content(mut object: ConfigMap, draft: Draft) -> ConfigMap {
    object.metadata.annotations = Some(draft.annotations).filter(|all| !all.is_empty());
    let (data, modules) = draft.content.parts();
    object.data = Some(data);
    let modules: BTreeMap<String, ByteString> = modules.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect();
    object.binary_data = Some(modules).filter(|modules| !modules.is_empty());
    object
}

/// Whoever applies the ConfigMap from a manifest.
fn applied_by(object: &ConfigMap) -> Option<String> {
    let managers = object.metadata.managed_fields.iter().flatten();
    let mut applying = managers.filter(|entry| {
        entry.operation.as_deref() == Some("Apply") || entry.manager.as_deref().is_some_and(|manager| manager.contains("apply"))
    });
    applying.next().and_then(|entry| entry.manager.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: &serde_json::Value) -> SetReport {
        SetReport::read(&json.to_string()).unwrap()
    }

    #[test]
    fn a_verdict_is_about_the_content_that_was_written() {
        let digest = Digest::of(b"new");
        let (ours, theirs) = (digest.to_string(), Digest::of(b"old").to_string());
        let error = serde_json::json!({"reason": "PolicySetInvalid", "message": "line 2", "at": "2026-01-01T00:00:00Z"});
        let forged = serde_json::json!({"reason": "A\nb", "message": "line\u{1b}[2J\n2", "at": "2026-01-01T00:00:00Z"});
        for (status, about, disabled, expected) in [
            (serde_json::json!({"phase": "Active", "digest": ours, "content": "c"}), Some(digest), false, Some(Ok("in force"))),
            (
                serde_json::json!({"phase": "Degraded", "digest": ours, "content": "c"}),
                Some(digest),
                false,
                Some(Ok("keeps failing")),
            ),
            // What was there before.
            (serde_json::json!({"phase": "Active", "digest": theirs, "content": "b"}), Some(digest), false, None),
            (
                serde_json::json!({"phase": "LastGood", "digest": theirs, "content": "b", "lastError": error}),
                Some(digest),
                false,
                None,
            ),
            (
                serde_json::json!({"phase": "LastGood", "digest": theirs, "content": "c", "lastError": error}),
                Some(digest),
                false,
                Some(Err("PolicySetInvalid: line 2\n  what to do: correct the line")),
            ),
            (
                serde_json::json!({"phase": "LastGood", "digest": theirs, "content": "c", "lastError": forged}),
                Some(digest),
                false,
                Some(Err(": A b: line [2J 2")),
            ),
            (
                serde_json::json!({"phase": "Refused", "content": "c", "lastError": error}),
                Some(digest),
                false,
                Some(Err("nothing of the set decides")),
            ),
            // An operator that does not name the content.
            (serde_json::json!({"phase": "Active", "digest": ours}), Some(digest), false, Some(Ok("in force"))),
            (serde_json::json!({"phase": "Active", "digest": theirs}), Some(digest), false, None),
            // Switches.
            (serde_json::json!({"phase": "Active", "digest": ours, "content": "c"}), None, true, None),
            (serde_json::json!({"phase": "Disabled", "content": "c"}), None, true, Some(Ok("the shipped policies decide"))),
            (serde_json::json!({"phase": "Disabled", "content": "c"}), Some(digest), true, Some(Ok("switched off"))),
            (serde_json::json!({"phase": "Disabled", "content": "c"}), None, false, None),
            (serde_json::json!({"phase": "Active", "digest": theirs, "content": "c"}), None, false, Some(Ok("in force"))),
        ] {
            let said = verdict(&report(&status), "c", about, disabled);
            match (&said, expected) {
                (None, None) => {}
                (Some(Ok(words)), Some(Ok(part))) | (Some(Err(words)), Some(Err(part))) => {
                    assert!(words.contains(part), "{status}: {words}");
                }
                other => panic!("{status}: {other:?}"),
            }
        }
    }

    #[test]
    fn lines_tell_before_and_after() {
        let difference =
            Difference { decision: Decision::Restart, mode: Mode::Shadow, before: None, after: Some("a.wasm".into()) };
        assert_eq!(line(&difference), "restart in shadow: not mentioned -> a.wasm");
        let forged = Difference { after: Some("a\n\u{1b}[2Jb".into()), ..difference };
        assert_eq!(line(&forged), "restart in shadow: not mentioned -> a [2Jb");
    }
}
