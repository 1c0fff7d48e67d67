//! The tenancy in force: read from a ConfigMap, asked by every controller before it registers or makes anything.
//!
//! ```text
//! watch of the ConfigMap -> read -> in force | the last good one stays -> everything is reconciled again
//! labels of namespaces, where the file selects by labels --^
//! ```
//!
//! Without `--tenancy` everything is as in ARC. With it, nothing new is made before a good file was read; the last good one is kept in an
//! annotation of the ConfigMap, so that a restart while the file is broken changes nothing. What runs is left alone in any case.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use kube::ResourceExt;
use pacer_api::{Runner, RunnerConfig};
use pacer_cluster::object::ObjectKey;
use pacer_core::reference::Reference;
use pacer_core::tenancy::{Namespace, Quota, Quotas, Refusal, Request, Tenancy};
use pacer_github::Endpoints;
use tokio::sync::watch;

mod bills;
mod follow;
mod room;

pub(crate) use follow::follow;
pub(crate) use room::Rooms;

/// Whether a tenancy is in force, for metrics, log and people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None is asked for.
    Off,
    /// The one that the file has now.
    Active,
    /// An earlier one, since the file is broken or gone.
    LastGood,
    /// Nothing is allowed, since there never was a good one.
    Closed,
}

impl Standing {
    /// All of them, for metrics.
    pub const ALL: [Self; 4] = [Self::Off, Self::Active, Self::LastGood, Self::Closed];

    /// The word in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "none",
            Self::Active => "active",
            Self::LastGood => "last_good",
            Self::Closed => "closed",
        }
    }
}

/// Answers what namespaces may do.
#[derive(Debug)]
pub struct Tenancies {
    key: Option<ObjectKey>,
    state: RwLock<State>,
    /// It was looked at once.
    settled: watch::Sender<bool>,
    pub(crate) rooms: Rooms,
    bills: bills::Bills,
}

#[derive(Debug, Default)]
struct State {
    tenancy: Option<Arc<Tenancy>>,
    /// What is wrong with the file.
    wrong: Option<String>,
    /// Labels of all namespaces; none where nobody reads them.
    labels: Option<HashMap<String, BTreeMap<String, String>>>,
}

impl Tenancies {
    /// The tenancy of this ConfigMap; none where everything is as in ARC.
    #[must_use]
    pub fn new(key: Option<ObjectKey>) -> Self {
        let settled = watch::Sender::new(key.is_none());
        Self { key, state: RwLock::default(), settled, rooms: Rooms::default(), bills: bills::Bills::default() }
    }

    /// Whether one is asked for.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        self.key.is_some()
    }

    /// Learns when it has been looked at once: nothing is decided before.
    #[must_use]
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    /// Whether a tenancy is in force, and which one.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let state = self.read();
        match (&self.key, &state.tenancy, &state.wrong) {
            (None, ..) => Standing::Off,
            (Some(_), Some(_), None) => Standing::Active,
            (Some(_), Some(_), Some(_)) => Standing::LastGood,
            (Some(_), None, _) => Standing::Closed,
        }
    }

    /// Whether a namespace may have runners of this configuration.
    ///
    /// # Errors
    ///
    /// Why not, with the cure.
    pub fn admits(&self, namespace: &str, config: &RunnerConfig) -> Result<(), Refusal> {
        if config.credentials_secret().is_some() {
            return self.judge(namespace, Request::Own);
        }
        // A configuration without a scope is refused for that elsewhere.
        let Ok(scope) = config.scope() else { return Ok(()) };
        self.judge(namespace, Request::Register { scope: &scope, group: config.group.as_deref() })
    }

    /// Whether credentials of a namespace may name these URLs, where they are not those of the operator.
    ///
    /// # Errors
    ///
    /// Why not, with the cure.
    pub fn admits_hosts(&self, namespace: &str, named: &Endpoints, own: &Endpoints) -> Result<(), Refusal> {
        self.judge(namespace, Request::Own)?;
        let known = own.hosts();
        let mut others = named.hosts().into_iter().filter(|host| !known.contains(host));
        others.try_for_each(|host| self.judge(namespace, Request::Host(&host)))
    }

    /// Whether policies of a namespace may come from there.
    ///
    /// # Errors
    ///
    /// Why not, with the cure.
    pub fn admits_pull(&self, namespace: &str, reference: &Reference) -> Result<(), Refusal> {
        self.judge(namespace, Request::Pull(reference))
    }

    /// The namespace in which the Secrets lie that objects of a namespace name: its own, unless the file says otherwise.
    ///
    /// # Errors
    ///
    /// When nobody knows.
    pub fn credentials_namespace(&self, namespace: &str) -> Result<String, Refusal> {
        let place = self.ask(namespace, |tenancy, namespace| Ok(tenancy.credentials(namespace)?.map(str::to_owned)))?;
        Ok(place.unwrap_or_else(|| namespace.to_owned()))
    }

    /// How much a namespace may have.
    ///
    /// # Errors
    ///
    /// When nobody knows.
    pub fn quotas(&self, namespace: &str) -> Result<Quotas, Refusal> {
        self.ask(namespace, Tenancy::quotas)
    }

    /// Whether a Runner may have a pod: not when its namespace has as many older ones as it may have.
    ///
    /// # Errors
    ///
    /// Why not, with the cure.
    pub fn admits_pod(&self, runner: &Runner, all: impl FnOnce(&str) -> Vec<Arc<Runner>>) -> Result<(), Refusal> {
        let namespace = runner.namespace().unwrap_or_default();
        let Some(most) = self.quotas(&namespace)?.runners else { return Ok(()) };
        let age = |runner: &Runner| (runner.metadata.creation_timestamp.as_ref().map(|time| time.0), runner.name_any());
        let own = age(runner);
        let older = all(&namespace).iter().filter(|other| age(other) < own).count();
        if u32::try_from(older).unwrap_or(u32::MAX) < most {
            return Ok(());
        }
        Err(Refusal::Quota { namespace, quota: Quota::Runners, most })
    }

    fn judge(&self, namespace: &str, request: Request<'_>) -> Result<(), Refusal> {
        self.ask(namespace, |tenancy, namespace| tenancy.judge(namespace, request))
    }

    /// What the tenancy in force says of a namespace; the default where none is asked for.
    fn ask<T: Default>(
        &self,
        namespace: &str,
        question: impl FnOnce(&Tenancy, Namespace<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if self.key.is_none() {
            return Ok(T::default());
        }
        let state = self.read();
        let tenancy = state.tenancy.as_ref().ok_or_else(|| self.closed(&state))?;
        question(tenancy, state.namespace(namespace))
    }

    fn closed(&self, state: &State) -> Refusal {
        let key = self.key.as_ref().map(ToString::to_string).unwrap_or_default();
        let why = state.wrong.as_deref().unwrap_or("it has not been read yet");
        Refusal::NoFile { why: format!("ConfigMap {key}: {why}") }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn namespace<'a>(&'a self, name: &'a str) -> Namespace<'a> {
        // One that the watch has not shown has no labels that anybody could know.
        Namespace { name, labels: self.labels.as_ref().and_then(|all| all.get(name)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, labels: &[(&str, &str)]) -> Tenancies {
        let tenancies = Tenancies::new(Some(ObjectKey::new("own", "tenancy")));
        tenancies.change(|state| {
            state.tenancy = Some(Arc::new(pacer_policy::tenancy::read(text, "own").unwrap()));
            let labelled =
                |(name, value): &(&str, &str)| ((*name).to_owned(), BTreeMap::from([("tenant".to_owned(), (*value).to_owned())]));
            state.labels = Some(labels.iter().map(labelled).collect());
        });
        tenancies
    }

    fn config(organization: &str, secret: Option<&str>) -> RunnerConfig {
        let from = secret.map(|name| serde_json::json!({"secretRef": {"name": name}}));
        serde_json::from_value(serde_json::json!({"organization": organization, "githubAPICredentialsFrom": from})).unwrap()
    }

    #[test]
    fn everything_is_allowed_without_a_file_and_nothing_before_the_first() {
        let (off, closed) = (Tenancies::new(None), Tenancies::new(Some(ObjectKey::new("own", "tenancy"))));
        assert_eq!((off.standing(), closed.standing()), (Standing::Off, Standing::Closed));
        for secret in [None, Some("own")] {
            assert!(off.admits("a", &config("victim", secret)).is_ok());
            let refused = closed.admits("a", &config("victim", secret)).unwrap_err();
            assert_eq!(refused.reason(), "TenancyUnknown");
            assert!(refused.to_string().contains("own/tenancy"), "{refused}");
        }
        assert!(off.quotas("a").is_ok() && closed.quotas("a").is_err());
        assert!(*off.settled().borrow() && !*closed.settled().borrow());
    }

    #[test]
    fn namespace_at_its_quota_of_calls_waits_and_no_other_does() {
        use pacer_core::allowance::Purpose;
        let tenancies = Arc::new(of("{namespaces: [{names: [a], quotas: {callsPerMinute: 2}}]}", &[]));
        let (bounded, free) = (tenancies.payer("a"), tenancies.payer("b"));
        assert!(bounded.ask(Purpose::Start, 1).is_ok() && bounded.wait(Purpose::Start).is_zero());
        assert!(bounded.ask(Purpose::Start, 1).is_ok() && tenancies.calls_put_off("a").is_none());
        assert!(bounded.ask(Purpose::Start, 1).is_err() && !bounded.wait(Purpose::Start).is_zero());
        assert!((0..9).all(|_| free.ask(Purpose::Start, 9).is_ok()));
        assert_eq!(tenancies.calls_put_off("a").map(|refusal| refusal.reason()), Some("QuotaExceeded"));
        assert_eq!(tenancies.calls_put_off("b"), None);
        assert_eq!(tenancies.put_off(), [("a".to_owned(), 1)]);
        bounded.give_back(1);
        assert!(bounded.ask(Purpose::Start, 1).is_ok());
        tenancies.change(|state| state.tenancy = Some(Arc::new(Tenancy::default())));
        assert!(bounded.ask(Purpose::Start, 1).is_ok(), "the quota is gone");
        tenancies.forget_bills();
        assert_eq!(tenancies.put_off().len(), 1, "what was called a moment ago counts if the quota comes back");
    }

    #[test]
    fn scopes_bind_the_operators_credentials_and_hosts_bind_others() {
        let text = "{strict: true, namespaces: [{labels: {tenant: a}, scopes: [acme], hosts: [ghe.example.com]}]}";
        let tenancies = of(text, &[("ci", "a"), ("else", "b")]);
        assert_eq!(tenancies.standing(), Standing::Active);
        let table = [
            ("ci", "acme", None, true),
            ("ci", "victim", None, false),
            ("ci", "victim", Some("own"), true),
            ("else", "acme", None, false),
            ("else", "acme", Some("own"), false),
            ("unknown", "acme", None, false),
        ];
        for (namespace, organization, secret, expected) in table {
            let admitted = tenancies.admits(namespace, &config(organization, secret)).is_ok();
            assert_eq!(admitted, expected, "{namespace} {organization} {secret:?}");
        }
        let own = Endpoints::default();
        let at = |url: &str| Endpoints::resolve(None, Some(url), None, None).unwrap();
        for (named, expected) in [
            (own.clone(), true),
            (at("https://ghe.example.com"), true),
            (at("https://ghe.example.com:443"), true),
            (at("https://ghe.example.com:8443"), false),
            (at("https://evil.example.com"), false),
        ] {
            assert_eq!(tenancies.admits_hosts("ci", &named, &own).is_ok(), expected, "{named:?}");
        }
    }
}
