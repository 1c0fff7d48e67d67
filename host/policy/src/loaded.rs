//! Policies that somebody holds, and how much of them there may be.
//!
//! What is counted are the policies themselves: each as long as anybody holds it, be it a set, a generation or a call, and once however many do. So
//! nothing has to be given back, and nothing that is forgotten to be given back is missing for ever. The shipped policy and the interpreter of texts are
//! the operator's own: they are loaded elsewhere, are not counted, and are never refused here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::component::Digest;
use crate::jail::Stager;
use crate::load::LoadError;
use crate::policy::Policy;

/// Native code and texts of all policies together, in bytes. The shipped container has 512 MiB: for these, for the guests of decisions (see
/// [`crate::room`]), of comparisons and of a simulation, for what is being staged, and for the operator itself. An operator that runs out of them is killed,
/// and runs out of them again when it starts.
const ALL_BYTES: usize = 96 << 20;

/// Those of the policies that one namespace uses: no namespace alone has all there is. The largest component that is accepted takes a good third of it.
const NAMESPACE_BYTES: usize = 48 << 20;

/// What only the cluster's default set may take of [`ALL_BYTES`]. Without it, sets of two namespaces could keep out the one that decides for all others.
const RESERVED_BYTES: usize = 32 << 20;

/// How many bytes of policies may be held.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    all: usize,
    namespace: usize,
    reserved: usize,
}

/// Policies that somebody still holds: the same component is compiled once, however many sets name it.
#[derive(Clone)]
pub(crate) struct Loaded {
    bounds: Bounds,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    policies: HashMap<Digest, Weak<Policy>>,
    /// Of sets that somebody holds.
    holdings: Vec<Weak<Holding>>,
    /// The namespace of the cluster's default set.
    favoured: Option<String>,
}

/// The policies of one set, which count for its namespace as long as somebody holds the set.
#[derive(Debug)]
pub(crate) struct Holding {
    owner: Arc<str>,
    policies: Vec<Arc<Policy>>,
}

impl Holding {
    /// Of a set of this namespace that has no policy yet.
    pub(crate) fn of(owner: Arc<str>) -> Self {
        Self { owner, policies: Vec::new() }
    }
}

impl Default for Loaded {
    fn default() -> Self {
        Self::within(Bounds { all: ALL_BYTES, namespace: NAMESPACE_BYTES, reserved: RESERVED_BYTES })
    }
}

impl Loaded {
    fn within(bounds: Bounds) -> Self {
        Self { bounds, state: Arc::default() }
    }

    /// Keeps [`RESERVED_BYTES`] for the sets of this namespace.
    pub(crate) fn reserve_for(&self, namespace: &str) {
        self.lock().favoured = Some(namespace.to_owned());
    }

    /// A policy that somebody holds.
    pub(crate) fn known(&self, digest: Digest) -> Option<Arc<Policy>> {
        self.lock().policies.get(&digest).and_then(Weak::upgrade)
    }

    /// A policy for a set, loaded unless somebody holds it.
    pub(crate) fn load(
        &self,
        stager: &mut Stager,
        holding: &mut Holding,
        digest: Digest,
        component: &[u8],
    ) -> Result<Arc<Policy>, LoadError> {
        let policy = match self.known(digest) {
            Some(policy) => policy,
            None => Arc::new(stager.load(component)?.0),
        };
        self.admit(holding, policy)
    }

    /// Adds a policy to a set, when there is room for it.
    fn admit(&self, holding: &mut Holding, policy: Arc<Policy>) -> Result<Arc<Policy>, LoadError> {
        let mut state = self.lock();
        // Another set may have loaded the same meanwhile.
        let policy = state.policies.get(&policy.digest).and_then(Weak::upgrade).unwrap_or(policy);
        state.check(self.bounds, holding, &policy)?;
        state.policies.retain(|_, policy| policy.strong_count() > 0);
        state.policies.insert(policy.digest, Arc::downgrade(&policy));
        drop(state);
        holding.policies.push(Arc::clone(&policy));
        Ok(policy)
    }

    /// Counts the policies of a set for its namespace from now on.
    pub(crate) fn keep(&self, holding: Holding) -> Arc<Holding> {
        let holding = Arc::new(holding);
        let mut state = self.lock();
        state.holdings.retain(|holding| holding.strong_count() > 0);
        state.holdings.push(Arc::downgrade(&holding));
        drop(state);
        holding
    }

    /// A poisoned lock means that a thread panicked between two entries; they are still whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a set may have this policy beside those that it and others have.
    fn check(&self, bounds: Bounds, holding: &Holding, policy: &Policy) -> Result<(), LoadError> {
        let size = policy.held();
        let sets: Vec<Arc<Holding>> =
            self.holdings.iter().filter_map(Weak::upgrade).filter(|other| other.owner == holding.owner).collect();
        let own = sets.iter().flat_map(|set| &set.policies).chain(&holding.policies);
        let own: BTreeMap<Digest, usize> = own.map(|own| (own.digest, own.held())).collect();
        let held: usize = own.values().sum();
        if !own.contains_key(&policy.digest) && held.saturating_add(size) > bounds.namespace {
            let message = format!(
                "the operator would hold {size} bytes of code of this policy; it holds {held} of other policies of the namespace (what is active \
                 while this is staged counts as well), and {} are allowed; use fewer or smaller policies in the namespace",
                bounds.namespace
            );
            // One that does not fit by itself will not fit later.
            return Err(LoadError { crowded_out: size <= bounds.namespace, ..LoadError::crowded_out(message) });
        }
        let alive: Vec<Arc<Policy>> = self.policies.values().filter_map(Weak::upgrade).collect();
        let is_alive = alive.iter().any(|other| other.digest == policy.digest);
        let held: usize = alive.iter().map(|policy| policy.held()).sum();
        let is_favoured = self.favoured.as_ref().is_none_or(|favoured| **favoured == *holding.owner);
        let most = if is_favoured { bounds.all } else { bounds.all.saturating_sub(bounds.reserved) };
        if !is_alive && held.saturating_add(size) > most {
            let message = format!(
                "the operator would hold {size} bytes of code of this policy; it holds {held} of other policies of all namespaces, and {most} are \
                 allowed; use fewer or smaller policies, or put those that many namespaces use into the cluster's default policy set"
            );
            return Err(LoadError::crowded_out(message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pacer_core::reads::Reads;

    use super::*;
    use crate::decision::PerDecision;
    use crate::load::Refusal;
    use crate::policy::Description;

    /// A policy with so much native code.
    fn policy(name: &str, bytes: usize) -> Arc<Policy> {
        let description = Description {
            name: name.to_owned(),
            version: String::new(),
            summary: String::new(),
            settings_schema: None,
            reads: Reads::default(),
            unknown_reads: Vec::new(),
        };
        let digest = Digest::of(name.as_bytes());
        Arc::new(Policy {
            description,
            digest,
            size: 1,
            takes: PerDecision::default(),
            code: Arc::from(vec![0; bytes]),
            text: None,
        })
    }

    /// What a set of this namespace holds with these policies, or why it may not have one of them.
    fn set(loaded: &Loaded, owner: &str, policies: &[&Arc<Policy>]) -> Result<Arc<Holding>, LoadError> {
        let mut holding = Holding::of(Arc::from(owner));
        for policy in policies {
            loaded.admit(&mut holding, Arc::clone(policy))?;
        }
        Ok(loaded.keep(holding))
    }

    fn loaded() -> Loaded {
        Loaded::within(Bounds { all: 100, namespace: 60, reserved: 30 })
    }

    #[test]
    fn namespace_has_its_share_and_gets_it_back_with_its_sets() {
        let loaded = loaded();
        let first = set(&loaded, "a", &[&policy("one", 40)]).unwrap();
        // What decides is there while its successor is staged.
        let refused = set(&loaded, "a", &[&policy("two", 30)]).unwrap_err();
        assert!(refused.code == Refusal::TooLarge && refused.crowded_out, "{refused}");
        for part in ["hold 30 bytes of code", "holds 40 of other policies of the namespace", "60 are allowed", "fewer or smaller"]
        {
            assert!(refused.message.contains(part), "{part}: {refused}");
        }
        // The same policy costs nothing more, and neither does it in another namespace.
        let again = set(&loaded, "a", &[&policy("one", 40), &policy("small", 20)]).unwrap();
        let other = set(&loaded, "b", &[&policy("one", 40), &policy("large", 20)]).unwrap();
        drop((first, again));
        let next = set(&loaded, "a", &[&policy("two", 20), &policy("three", 20)]).unwrap();
        assert!(set(&loaded, "a", &[&policy("four", 21)]).is_err());
        drop((other, next));
        let refused = set(&loaded, "a", &[&policy("five", 61)]).unwrap_err();
        assert!(!refused.crowded_out, "it never fits: {refused}");
        assert!(set(&loaded, "a", &[&policy("six", 60)]).is_ok());
    }

    #[test]
    fn policies_are_counted_in_all_for_as_long_as_anybody_holds_one() {
        let loaded = loaded();
        let one = policy("one", 60);
        let first = set(&loaded, "a", &[&one]).unwrap();
        let second = set(&loaded, "b", &[&policy("two", 40)]).unwrap();
        let refused = set(&loaded, "c", &[&policy("three", 1)]).unwrap_err();
        assert!(refused.code == Refusal::TooLarge && refused.crowded_out, "{refused}");
        for part in
            ["hold 1 bytes of code", "holds 100 of other policies of all namespaces", "100 are allowed", "default policy set"]
        {
            assert!(refused.message.contains(part), "{part}: {refused}");
        }
        // What is there already may be used by others.
        let shared = set(&loaded, "c", &[&policy("two", 40)]).unwrap();
        drop((second, first));
        // A call may hold it longer than its set, and so may another set.
        assert!(set(&loaded, "c", &[&policy("three", 1)]).is_err());
        drop((one, shared));
        assert!(set(&loaded, "c", &[&policy("three", 60)]).is_ok());
    }

    #[test]
    fn others_do_not_keep_out_the_default_set_of_the_cluster() {
        let loaded = loaded();
        loaded.reserve_for("own");
        let _first = set(&loaded, "a", &[&policy("one", 50)]).unwrap();
        let _second = set(&loaded, "b", &[&policy("two", 20)]).unwrap();
        let refused = set(&loaded, "c", &[&policy("three", 1)]).unwrap_err();
        assert!(refused.message.contains("70 are allowed"), "{refused}");
        let _default = set(&loaded, "own", &[&policy("default", 30)]).unwrap();
        assert!(set(&loaded, "own", &[&policy("more", 1)]).is_err());
    }

    #[test]
    fn text_counts_by_itself_and_not_by_its_interpreter() {
        let component = policy("component", 60);
        let text = Policy { text: Some(Arc::from("export")), ..Arc::into_inner(policy("text", 60)).unwrap() };
        assert_eq!((component.held(), text.held()), (60, 6));
    }

    #[test]
    fn shipped_bounds_leave_room_for_the_largest_policies() {
        let Bounds { all, namespace, reserved } = Loaded::default().bounds;
        assert_eq!((all, namespace), (96 << 20, 48 << 20));
        assert!(namespace + reserved <= all, "one namespace alone takes all that others may have");
    }
}
