//! What a trace tells of nodes and of GitHub: what changed notably, and that seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use pacer_cluster::nodes::Nodes;
use pacer_core::allowed::Allowed;
use pacer_core::node;
use pacer_github::GitHub;
use pacer_operator::access::{Accesses, ScopeListing};
use pacer_trace::surroundings::{Budget, Listings, NodeFacts, NodeState, ScopeListings, TOLD, Window};
use pacer_trace::{Record, What};

/// How often is looked at GitHub's state, for which nobody is asked, and for nodes that are to be read.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// How often a node is read.
const AGE: Duration = Duration::from_secs(60);

/// How long a node is read on after the last of its runners is gone: that a node was lost is known late.
const AFTERWARDS: Duration = Duration::from_secs(300);

/// Nodes that are read at most in one look. Each takes a request.
const MOST: usize = 500;

/// How often something notable is told at most, for each set of credentials.
const OFTEN: SignedDuration = SignedDuration::from_secs(60);

/// How often listings are told of which nothing is notable.
const SELDOM: SignedDuration = SignedDuration::from_secs(600);

/// What a budget has to change by, as a part of its limit: a twentieth.
const STEP: u32 = 20;

/// A listing that takes so long is notable, if it takes twice as long as the one that was told.
const SLOW: u64 = 1_000;

/// What was read of nodes.
#[derive(Debug, Default)]
pub(super) struct ReadNodes {
    /// By name; none where there is no such node.
    found: BTreeMap<String, Option<node::NodeFacts>>,
    /// All that are read, now or another time.
    used: BTreeSet<Arc<str>>,
}

/// Reads the nodes of runners.
pub(super) struct NodeReader {
    nodes: Arc<Nodes>,
    used: BTreeMap<Arc<str>, Use>,
}

/// A node of runners.
#[derive(Clone, Copy)]
struct Use {
    /// When it was seen last with a runner.
    seen: Instant,
    read: Option<Instant>,
}

impl NodeReader {
    pub(super) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, used: BTreeMap::new() }
    }

    /// Reads these nodes, and those that were among them a short while ago, each once a minute. What can't be read in a second is missing.
    pub(super) async fn read(&mut self, in_use: BTreeSet<Arc<str>>) -> ReadNodes {
        let now = Instant::now();
        let age = |since: Instant| now.saturating_duration_since(since);
        for name in in_use {
            self.used.entry(name).or_insert(Use { seen: now, read: None }).seen = now;
        }
        self.used.retain(|_, node| age(node.seen) < AFTERWARDS);
        let due = self.used.iter_mut().filter(|(_, node)| node.read.is_none_or(|read| age(read) >= AGE)).take(MOST);
        let due: BTreeSet<&str> = due
            .map(|(name, node)| {
                node.read = Some(now);
                name.as_ref()
            })
            .collect();
        let found = self.nodes.state(&due).await;
        ReadNodes { found, used: self.used.keys().cloned().collect() }
    }
}

/// One set of credentials at one moment, with what it did since the process began.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    credentials: Arc<str>,
    windows: Vec<Window>,
    deferred: u64,
    held_back: u64,
    secondary_until: Option<Timestamp>,
    scopes: Vec<ScopeListings>,
}

/// All credentials that the operator uses, as they are now.
pub(super) fn readings(accesses: &Accesses, own: Option<&GitHub>) -> Vec<Reading> {
    let listings = accesses.listings();
    let own = own.map(|own| (Arc::from("default"), own));
    let clients: BTreeMap<Arc<str>, &GitHub> =
        own.into_iter().chain(listings.iter().map(|one| (one.credentials.clone(), &one.github))).collect();
    let read = |(credentials, github): (Arc<str>, &GitHub)| Reading {
        windows: windows(github),
        deferred: github.deferred().iter().map(|(_, calls)| *calls).sum(),
        held_back: github.held_back(),
        secondary_until: github.secondary_limit(),
        scopes: listings.iter().filter(|one| one.credentials == credentials).map(scope).collect(),
        credentials,
    };
    clients.into_iter().map(read).collect()
}

/// Those with the smallest rest first.
fn windows(github: &GitHub) -> Vec<Window> {
    let window = |budget: pacer_github::Budget| Window {
        resource: Arc::from(budget.resource.name()),
        owner: budget.owner.map(Arc::from),
        limit: budget.limit,
        used: budget.used,
        remaining: budget.remaining,
        resets_at: budget.resets_at,
    };
    let mut windows: Vec<Window> = github.budgets().into_iter().map(window).collect();
    windows.sort_by_key(Window::left);
    windows.truncate(TOLD);
    windows
}

fn scope(one: &ScopeListing) -> ScopeListings {
    let listing = one.view.as_ref().map(|view| view.listing());
    ScopeListings {
        scope: Arc::from(one.scope.to_string()),
        listings: one.health.listings,
        torn: one.health.torn,
        began: listing.map(|listing| listing.started),
        pages: listing.map_or(0, |listing| listing.pages),
        milliseconds: listing.map_or(0, |listing| u64::try_from(listing.took.as_millis()).unwrap_or(u64::MAX)),
        runners: listing.map_or(0, |listing| listing.runners.len() as u64),
        failures: one.health.failures,
    }
}

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    nodes: BTreeMap<Arc<str>, NodeFacts>,
    /// By credentials: the reading of the last record, and when that was.
    listings: BTreeMap<Arc<str>, (Timestamp, Vec<ScopeListings>)>,
    budgets: BTreeMap<Arc<str>, (Timestamp, Reading)>,
}

impl Surroundings {
    /// Tells nodes anew: another file may have to know them.
    pub(super) fn tell_nodes_anew(&mut self) {
        self.nodes.clear();
    }

    /// How nodes are now, where that is news. Those that are not read any more are forgotten.
    pub(super) fn nodes(&mut self, read: &ReadNodes, allowed: &Allowed, now: Timestamp) -> Vec<Record> {
        let mut news = Vec::new();
        self.nodes.retain(|name, _| read.used.contains(name));
        for (name, facts) in &read.found {
            let known = self.nodes.get(name.as_str());
            let fresh = match facts {
                Some(facts) => node(name, facts, allowed),
                None => NodeFacts { state: NodeState::Gone, ..known.cloned().unwrap_or_else(|| bare(name)) },
            };
            if known != Some(&fresh) {
                self.nodes.insert(fresh.node.clone(), fresh.clone());
                news.push(Record { at: now, what: What::Node(fresh) });
            }
        }
        news
    }

    /// What is notable about credentials. Each gives at most one record of either kind a minute.
    pub(super) fn github(&mut self, readings: Vec<Reading>, now: Timestamp) -> Vec<Record> {
        let used: BTreeSet<Arc<str>> = readings.iter().map(|reading| reading.credentials.clone()).collect();
        self.listings.retain(|credentials, _| used.contains(credentials));
        self.budgets.retain(|credentials, _| used.contains(credentials));
        let mut news = Vec::new();
        for reading in readings {
            news.extend(self.listings(&reading, now).map(|told| Record { at: now, what: What::Listings(told) }));
            news.extend(self.budget(reading, now).map(|told| Record { at: now, what: What::Budget(told) }));
        }
        news
    }

    fn listings(&mut self, reading: &Reading, now: Timestamp) -> Option<Listings> {
        let before = self.listings.get(&reading.credentials);
        let told = |scope: &str| before.and_then(|(_, scopes)| scopes.iter().find(|one| one.scope.as_ref() == scope));
        let since = before.map_or(SignedDuration::MAX, |(at, _)| now.duration_since(*at));
        let is_due = match reading.scopes.iter().any(|one| is_notable(told(&one.scope), one)) {
            true => since >= OFTEN,
            false => since >= SELDOM,
        };
        let mut scopes: Vec<ScopeListings> = reading.scopes.iter().filter_map(|one| news_of(told(&one.scope), one)).collect();
        if !is_due || scopes.is_empty() {
            return None;
        }
        self.listings.insert(reading.credentials.clone(), (now, reading.scopes.clone()));
        scopes.sort_by_key(|one| std::cmp::Reverse((one.failures, one.torn, one.pages)));
        let more = u32::try_from(scopes.len().saturating_sub(TOLD)).unwrap_or(u32::MAX);
        scopes.truncate(TOLD);
        Some(Listings { credentials: reading.credentials.clone(), scopes, more })
    }

    fn budget(&mut self, reading: Reading, now: Timestamp) -> Option<Budget> {
        let before = self.budgets.get(&reading.credentials);
        let (deferred, held_back) = before.map_or((0, 0), |(_, told)| (told.deferred, told.held_back));
        let is_due = match before {
            Some((at, told)) => now.duration_since(*at) >= OFTEN && has_moved(told, &reading),
            None => has_moved(&Reading::default(), &reading),
        };
        if !is_due {
            return None;
        }
        let told = Budget {
            credentials: reading.credentials.clone(),
            windows: reading.windows.clone(),
            deferred: reading.deferred.saturating_sub(deferred),
            held_back: reading.held_back.saturating_sub(held_back),
            secondary_until: reading.secondary_until,
        };
        self.budgets.insert(reading.credentials.clone(), (now, reading));
        Some(told)
    }
}

/// Whether people who look for a cause would like to know it within the minute.
fn is_notable(told: Option<&ScopeListings>, now: &ScopeListings) -> bool {
    let Some(told) = told else { return true };
    let slower = now.milliseconds >= SLOW && now.milliseconds / 2 >= told.milliseconds;
    now.torn > told.torn || now.pages != told.pages || (now.failures > 0) != (told.failures > 0) || slower
}

/// A scope's listings since it was told; none where there were none.
fn news_of(told: Option<&ScopeListings>, now: &ScopeListings) -> Option<ScopeListings> {
    let (listings, torn, failures) = told.map_or((0, 0, 0), |told| (told.listings, told.torn, told.failures));
    let news =
        ScopeListings { listings: now.listings.saturating_sub(listings), torn: now.torn.saturating_sub(torn), ..now.clone() };
    (news.listings > 0 || now.failures != failures).then_some(news)
}

/// Whether a budget changed by a notable step, or a limit began to hold calls back.
fn has_moved(told: &Reading, now: &Reading) -> bool {
    let moved = now.windows.iter().any(|window| {
        let known = told.windows.iter().find(|known| (&known.resource, &known.owner) == (&window.resource, &window.owner));
        known.is_none_or(|known| {
            let step = (window.limit / STEP).max(1);
            known.limit != window.limit
                || known.remaining.abs_diff(window.remaining) >= step
                || (known.remaining == 0) != (window.remaining == 0)
        })
    });
    moved || now.secondary_until != told.secondary_until || now.deferred > told.deferred || now.held_back > told.held_back
}

fn bare(name: &str) -> NodeFacts {
    NodeFacts { node: Arc::from(name), state: NodeState::Gone, zone: None, instance_type: None, capacity_type: None }
}

fn node(name: &str, facts: &node::NodeFacts, allowed: &Allowed) -> NodeFacts {
    let state = match facts {
        facts if facts.deleting || facts.is_leaving() => NodeState::Leaving,
        facts if !facts.ready => NodeState::NotReady,
        facts if facts.cordoned => NodeState::Unschedulable,
        _ => NodeState::Ready,
    };
    NodeFacts {
        node: Arc::from(name),
        state,
        zone: facts.zone(allowed).map(Arc::from),
        instance_type: facts.instance_type(allowed).map(Arc::from),
        capacity_type: facts.capacity_type().map(Arc::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn kinds(news: Vec<Record>) -> Vec<&'static str> {
        let kind = |record: Record| match record.what {
            What::Listings(_) => "listings",
            What::Budget(_) => "budget",
            What::Node(_) => "node",
            _ => "other",
        };
        news.into_iter().map(kind).collect()
    }

    fn idle(second: i64) -> Reading {
        let listings = u64::try_from(second / 10).unwrap();
        let began = Some(at(second));
        let scope =
            ScopeListings { scope: "acme".into(), listings, pages: 2, milliseconds: 300, began, ..ScopeListings::default() };
        let used = u32::try_from(second / 60).unwrap();
        let window =
            Window { resource: "core".into(), owner: None, limit: 5_000, used, remaining: 5_000 - used, resets_at: at(3_600) };
        Reading { credentials: "default".into(), windows: vec![window], scopes: vec![scope], ..Reading::default() }
    }

    #[test]
    fn an_idle_fleet_gives_a_record_in_ten_minutes() {
        let mut surroundings = Surroundings::default();
        let mut told = Vec::new();
        let mut listings = 0;
        for second in (10..=3_610).step_by(15) {
            for record in surroundings.github(vec![idle(second)], at(second)) {
                if let What::Listings(one) = &record.what {
                    listings += one.scopes.iter().map(|scope| scope.listings).sum::<u64>();
                }
                told.push(record);
            }
        }
        let (of_listings, of_budget) = (told.len() - 1, kinds(told).into_iter().filter(|kind| *kind == "budget").count());
        assert_eq!((of_listings, of_budget, listings), (7, 1, 361), "each listing is told once");
    }

    #[test]
    fn what_is_notable_is_told_within_a_minute_and_once_a_minute() {
        let change = |change: fn(&mut Reading)| {
            let mut changed = idle(60);
            change(&mut changed);
            changed
        };
        for (what, changed, expected) in [
            ("nothing", change(|_| ()), &[][..]),
            ("torn", change(|reading| reading.scopes[0].torn = 1), &["listings"]),
            ("failing", change(|reading| reading.scopes[0].failures = 3), &["listings"]),
            ("longer", change(|reading| reading.scopes[0].pages = 3), &["listings"]),
            ("slow", change(|reading| reading.scopes[0].milliseconds = 4_000), &["listings"]),
            ("a little", change(|reading| reading.windows[0].remaining = 4_800), &[]),
            ("a step", change(|reading| reading.windows[0].remaining = 4_750), &["budget"]),
            ("refused", change(|reading| reading.secondary_until = Some(at(90))), &["budget"]),
            ("held back", change(|reading| reading.held_back = 1), &["budget"]),
            ("deferred", change(|reading| reading.deferred = 9), &["budget"]),
        ] {
            let mut surroundings = Surroundings::default();
            assert_eq!(kinds(surroundings.github(vec![idle(0)], at(0))), ["budget"], "no listing yet");
            assert_eq!(kinds(surroundings.github(vec![idle(10)], at(10))), ["listings"]);
            assert_eq!(kinds(surroundings.github(vec![changed.clone()], at(59))), Vec::<&str>::new(), "{what}");
            assert_eq!(kinds(surroundings.github(vec![changed.clone()], at(70))), expected, "{what}");
            assert_eq!(kinds(surroundings.github(vec![changed], at(140))), Vec::<&str>::new(), "{what} is told once");
        }
    }

    #[test]
    fn many_scopes_are_one_record_with_the_worst_first() {
        let scope = |number: u32| ScopeListings {
            scope: format!("org{number}").into(),
            listings: 1,
            failures: u32::from(number == 77),
            pages: 1,
            ..ScopeListings::default()
        };
        let reading = Reading { credentials: "default".into(), scopes: (0..100).map(scope).collect(), ..Reading::default() };
        let news = Surroundings::default().github(vec![reading], at(0));
        let [Record { what: What::Listings(told), .. }] = news.as_slice() else { panic!("{news:?}") };
        assert_eq!((told.scopes.len(), told.more, told.scopes[0].scope.as_ref()), (TOLD, 68, "org77"));
        let bytes = serde_json::to_string(&news[0]).unwrap().len();
        assert!(bytes < 4_096, "{bytes} bytes");
    }

    #[test]
    fn node_is_told_when_it_changes_and_when_it_is_gone() {
        let allowed = Allowed { node_labels: vec!["topology.kubernetes.io/zone".to_owned()], ..Allowed::default() };
        let labels = [("topology.kubernetes.io/zone", "a"), ("node.kubernetes.io/instance-type", "m5.large")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let ready = node::NodeFacts { ready: true, labels, ..node::NodeFacts::default() };
        let cordoned = node::NodeFacts { cordoned: true, ..ready.clone() };
        let silent = node::NodeFacts { ready: false, ..ready.clone() };
        let leaving = node::NodeFacts { taints: vec!["karpenter.sh/disrupted".to_owned()], ..ready.clone() };
        let mut surroundings = Surroundings::default();
        let mut told = |facts: Option<&node::NodeFacts>| {
            let read = ReadNodes { found: [("n-1".to_owned(), facts.cloned())].into(), used: [Arc::from("n-1")].into() };
            let told = |record: Record| match record.what {
                What::Node(node) => (node.state, node.zone, node.instance_type),
                other => panic!("{other:?}"),
            };
            surroundings.nodes(&read, &allowed, at(0)).into_iter().map(told).collect::<Vec<_>>()
        };
        for (facts, expected) in [
            (Some(&ready), NodeState::Ready),
            (Some(&silent), NodeState::NotReady),
            (Some(&cordoned), NodeState::Unschedulable),
            (Some(&leaving), NodeState::Leaving),
            (None, NodeState::Gone),
        ] {
            assert_eq!(told(facts), [(expected, Some("a".into()), None)], "{expected:?}; the other label may not be passed on");
            assert_eq!(told(facts), []);
        }
    }
}
