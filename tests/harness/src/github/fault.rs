//! What goes wrong at GitHub, on request.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{
    place::Scope,
    route::{Route, RouteKind},
};

/// Which requests a fault meets: all that agree with every set part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    kind: Option<RouteKind>,
    scope: Option<Scope>,
    path: Option<String>,
}

impl Routes {
    /// Every request.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Requests of this kind.
    #[must_use]
    pub fn of(kind: RouteKind) -> Self {
        Self { kind: Some(kind), ..Self::default() }
    }

    /// Of these, those about `scope`.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// Of these, those whose path and query contain `part`.
    #[must_use]
    pub fn path(self, part: impl Into<String>) -> Self {
        Self { path: Some(part.into()), ..self }
    }

    fn meets(&self, route: Option<&Route>, path: &str) -> bool {
        self.kind.is_none_or(|kind| route.is_some_and(|route| route.kind == kind))
            && self
                .scope
                .as_ref()
                .is_none_or(|scope| route.and_then(|route| route.scope.as_ref()).is_some_and(|asked| asked.key() == scope.key()))
            && self.path.as_ref().is_none_or(|part| path.contains(part.as_str()))
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This status with an error body, instead of the answer: 500, 502, 503, a plain 403, 429 and so on.
    Status(u16),
    /// 403 of the secondary rate limit, with `Retry-After`.
    SecondaryLimit {
        /// What `Retry-After` says, in whole seconds.
        retry_after: Duration,
    },
    /// The answer comes this much later.
    Delay(Duration),
    /// No answer, until the client gives up.
    Hang,
    /// The connection is reset.
    Reset,
    /// The answer's body ends in the middle, with a matching `Content-Length`.
    TruncatedJson,
    /// The answer's body comes in this many pieces with a pause before each.
    SlowBody {
        /// Number of pieces, at least 1.
        pieces: u32,
        /// Time before each piece.
        pause: Duration,
    },
}

/// A fault to inject: once unless told otherwise.
///
/// `Fault::new(Routes::of(RouteKind::DeleteRunner), Effect::Reset).performed().times(3)` deletes three runners and lets nobody know.
#[derive(Clone, Debug)]
pub struct Fault {
    routes: Routes,
    effect: Effect,
    left: Option<u64>,
    skip: u64,
    lasting: Option<Duration>,
    performed: bool,
}

impl Fault {
    /// Meets the next request of `routes`.
    #[must_use]
    pub fn new(routes: Routes, effect: Effect) -> Self {
        Self { routes, effect, left: Some(1), skip: 0, lasting: None, performed: false }
    }

    /// Meets the next `count` requests.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self { left: Some(count), ..self }
    }

    /// Meets every request until it is cleared.
    #[must_use]
    pub fn always(self) -> Self {
        Self { left: None, ..self }
    }

    /// Meets every request for `duration` from its injection.
    #[must_use]
    pub fn lasting(self, duration: Duration) -> Self {
        Self { left: None, lasting: Some(duration), ..self }
    }

    /// Lets `count` requests pass first.
    #[must_use]
    pub fn skip(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// What was asked for is done before the answer is delayed or spoilt (`Status`, `SecondaryLimit`, `Delay`, `Hang`, `Reset`);
    /// otherwise it is done after the delay, or not at all.
    #[must_use]
    pub fn performed(self) -> Self {
        Self { performed: true, ..self }
    }
}

/// Identifies an injected fault, to count what it met and to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// What is done to one request.
#[derive(Clone, Debug)]
pub(super) struct Spoil {
    pub(super) effect: Effect,
    pub(super) performed: bool,
}

#[derive(Debug)]
struct Injected {
    id: FaultId,
    fault: Fault,
    until: Option<Instant>,
    hits: u64,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    injected: Vec<Injected>,
    numbers: u64,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault) -> FaultId {
        self.numbers += 1;
        let id = FaultId(self.numbers);
        let until = fault.lasting.and_then(|lasting| Instant::now().checked_add(lasting));
        self.injected.push(Injected { id, fault, until, hits: 0 });
        id
    }

    pub(super) fn clear(&mut self, id: Option<FaultId>) {
        match id {
            Some(id) => self.injected.retain(|injected| injected.id != id),
            None => self.injected.clear(),
        }
    }

    pub(super) fn hits(&self, id: FaultId) -> u64 {
        self.injected.iter().find(|injected| injected.id == id).map_or(0, |injected| injected.hits)
    }

    /// The first fault that meets the request, which thereby counts as used.
    pub(super) fn meet(&mut self, route: Option<&Route>, path: &str) -> Option<Spoil> {
        let now = Instant::now();
        for injected in &mut self.injected {
            let live = injected.fault.left != Some(0) && injected.until.is_none_or(|until| now < until);
            if !live || !injected.fault.routes.meets(route, path) {
                continue;
            }
            if injected.fault.skip > 0 {
                injected.fault.skip -= 1;
                continue;
            }
            if let Some(left) = &mut injected.fault.left {
                *left -= 1;
            }
            injected.hits += 1;
            return Some(Spoil { effect: injected.fault.effect.clone(), performed: injected.fault.performed });
        }
        None
    }
}

/// How entity tags behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// Equal content, equal tag.
    #[default]
    OfContent,
    /// Each access token sees its own tags: after a rotation nothing is "not modified".
    PerToken,
    /// No two answers share a tag.
    NeverEqual,
}

/// How the listings deviate from the truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// The `busy` flag follows the truth this much later.
    pub busy_late_by: Duration,
    /// The `busy` flag of every runner turns false this long after its job began, though the job goes on.
    pub busy_false_after: Option<Duration>,
    /// Names of runners that listings leave out.
    pub omitted: BTreeSet<String>,
    /// How entity tags behave.
    pub tags: Tags,
}
