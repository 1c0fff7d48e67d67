//! Nodes: which runners are on which, for how long each node has any, and which removals left one without.
//!
//! A trace tells where a runner's pod was, not what nodes have room for. Each recorded node takes as many runners as were ever on it at once, for as
//! long as it was there. A runner that is made goes to the node with the most room left, as the scheduler of Kubernetes spreads pods unless it is
//! told otherwise; where none has room, a further node of the usual size comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use pacer_trace::surroundings::NodeState;
use pacer_trace::{End, History};

use crate::agenda::{Moment, moment};

/// A node as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedNode {
    pub(crate) name: Arc<str>,
    /// Most runners that were on it at once.
    pub(crate) slots: usize,
    pub(crate) from: Moment,
    pub(crate) until: Moment,
}

/// Nodes of a trace, and where its runners were.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedNodes {
    pub(crate) nodes: Vec<RecordedNode>,
    /// By name of the runner, the node's place in `nodes`.
    pub(crate) runners: BTreeMap<Arc<str>, usize>,
}

impl RecordedNodes {
    pub(crate) fn of(history: &History) -> Self {
        let mut lives: BTreeMap<&Arc<str>, Vec<(Moment, i32)>> = BTreeMap::new();
        for life in history.runners.values() {
            let Some(node) = &life.node else { continue };
            let steps = lives.entry(node).or_default();
            steps.push((moment(life.created), 1));
            steps.extend(life.ended.map(|(at, _)| (moment(at), -1)));
        }
        let (begins, ends) = (moment(history.started), moment(history.ended));
        let mut nodes = Vec::new();
        for (name, mut steps) in lives {
            // Who goes makes room for who comes.
            steps.sort_unstable();
            let (mut count, mut most) = (0, 0);
            for (_, step) in &steps {
                count += step;
                most = most.max(count);
            }
            // One that came again under its name is there.
            let told = history.surroundings.nodes.get(name).and_then(|told| told.last());
            let gone = told.filter(|(_, facts)| facts.state == NodeState::Gone);
            let first = steps.first().map_or(begins, |(at, _)| *at);
            nodes.push(RecordedNode {
                name: name.clone(),
                slots: usize::try_from(most).unwrap_or_default(),
                from: first.max(begins),
                until: gone.map_or(ends, |(at, _)| moment(*at)),
            });
        }
        let index: BTreeMap<&Arc<str>, usize> = nodes.iter().enumerate().map(|(index, node)| (&node.name, index)).collect();
        let placed = history.runners.iter().filter_map(|(name, life)| Some((name.clone(), *index.get(life.node.as_ref()?)?)));
        let runners = placed.collect();
        Self { runners, nodes }
    }

    /// Slots of a node that was not recorded: the median of those that were.
    fn usual_slots(&self) -> usize {
        let mut slots: Vec<usize> = self.nodes.iter().map(|node| node.slots).collect();
        slots.sort_unstable();
        slots.get(slots.len() / 2).copied().unwrap_or(1).max(1)
    }
}

/// For how long nodes had runners of a pool, and removals after which they had none of any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupied {
    /// Of all nodes together.
    pub(crate) time: Moment,
    pub(crate) freed: u64,
}

/// Which nodes have how many runners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Occupancy {
    /// By node: runners of all pools, and since when it has any.
    all: BTreeMap<usize, (usize, Moment)>,
    /// The same by node and pool.
    of_pools: BTreeMap<(usize, usize), (usize, Moment)>,
    total: Occupied,
    pools: BTreeMap<usize, Occupied>,
}

impl Occupancy {
    fn count(&self, node: usize) -> usize {
        self.all.get(&node).map_or(0, |(count, _)| *count)
    }

    fn enter(&mut self, node: usize, pool: usize, now: Moment) {
        for (count, since) in [self.all.entry(node).or_default(), self.of_pools.entry((node, pool)).or_default()] {
            if *count == 0 {
                *since = now;
            }
            *count += 1;
        }
    }

    /// A runner goes; `removed` says that it went to make the fleet smaller.
    fn leave(&mut self, node: usize, pool: usize, removed: bool, now: Moment) {
        let of_pool = self.pools.entry(pool).or_default();
        if let Some((count, since)) = self.of_pools.get_mut(&(node, pool)) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                of_pool.time += now - *since;
            }
        }
        if let Some((count, since)) = self.all.get_mut(&node) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.total.time += now - *since;
                self.total.freed += u64::from(removed);
                of_pool.freed += u64::from(removed);
            }
        }
    }

    /// What it comes to by then: by pool, and together.
    pub(crate) fn end(mut self, now: Moment) -> (BTreeMap<usize, Occupied>, Occupied) {
        for (count, since) in self.all.values() {
            self.total.time += if *count > 0 { now - since } else { 0 };
        }
        for ((_, pool), (count, since)) in &self.of_pools {
            self.pools.entry(*pool).or_default().time += if *count > 0 { now - since } else { 0 };
        }
        (self.pools, self.total)
    }
}

/// What was recorded of the nodes from one moment to another. `pools` gives the place of a pool by its name.
pub(crate) fn recorded(
    history: &History,
    nodes: &RecordedNodes,
    pools: &BTreeMap<&Arc<str>, usize>,
    (begins, ends): (Moment, Moment),
) -> (BTreeMap<usize, Occupied>, Occupied) {
    let mut steps = Vec::new();
    for (name, life) in &history.runners {
        let Some((node, pool)) = nodes.runners.get(name).zip(pools.get(&life.pool)) else { continue };
        let gone = life.ended.map(|(at, why)| (moment(at), why));
        if gone.is_some_and(|(at, _)| at <= begins) {
            continue;
        }
        steps.push((moment(life.created).max(begins), 0, *node, *pool, false));
        steps.extend(gone.filter(|(at, _)| *at <= ends).map(|(at, why)| (at, 1, *node, *pool, why == End::Removed)));
    }
    steps.sort_unstable();
    let mut occupancy = Occupancy::default();
    for (now, leaves, node, pool, removed) in steps {
        match leaves {
            0 => occupancy.enter(node, pool, now),
            _ => occupancy.leave(node, pool, removed, now),
        }
    }
    occupancy.end(ends)
}

/// The nodes of a run.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<RecordedNode>,
    usual_slots: usize,
    /// By index of the runner, the index of its node.
    placed: BTreeMap<usize, usize>,
    occupancy: Occupancy,
}

impl Nodes {
    pub(crate) fn new(recorded: &RecordedNodes) -> Self {
        Self {
            usual_slots: recorded.usual_slots(),
            nodes: recorded.nodes.clone(),
            placed: BTreeMap::new(),
            occupancy: Occupancy::default(),
        }
    }

    /// Whether none was recorded, so that none is played.
    pub(crate) fn are_blank(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Finds a node for a runner, unless that is `known`. Gives its name; none where no node was recorded.
    pub(crate) fn place(&mut self, runner: usize, pool: usize, known: Option<usize>, now: Moment) -> Option<Arc<str>> {
        if self.are_blank() {
            return None;
        }
        let node = known.or_else(|| self.roomiest(now)).unwrap_or_else(|| self.further(now));
        self.placed.insert(runner, node);
        self.occupancy.enter(node, pool, now);
        self.nodes.get(node).map(|node| node.name.clone())
    }

    pub(crate) fn leave(&mut self, runner: usize, pool: usize, removed: bool, now: Moment) {
        if let Some(node) = self.placed.remove(&runner) {
            self.occupancy.leave(node, pool, removed, now);
        }
    }

    pub(crate) fn end(self, now: Moment) -> (BTreeMap<usize, Occupied>, Occupied) {
        self.occupancy.end(now)
    }

    /// The node with the most room left, the first of several.
    fn roomiest(&self, now: Moment) -> Option<usize> {
        let there = self.nodes.iter().enumerate().filter(|(_, node)| (node.from..node.until).contains(&now));
        let room = there.map(|(index, node)| (node.slots.saturating_sub(self.occupancy.count(index)), index));
        room.filter(|(room, _)| *room > 0).max_by_key(|(room, index)| (*room, std::cmp::Reverse(*index))).map(|(_, index)| index)
    }

    fn further(&mut self, now: Moment) -> usize {
        let name = Arc::from(format!("further-{}", self.nodes.len()));
        self.nodes.push(RecordedNode { name, slots: self.usual_slots, from: now, until: Moment::MAX });
        self.nodes.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, slots: usize, from: Moment, until: Moment) -> RecordedNode {
        RecordedNode { name: name.into(), slots, from, until }
    }

    #[test]
    fn runner_goes_where_most_room_is_and_to_a_further_node_where_there_is_none() {
        let recorded =
            RecordedNodes { nodes: vec![node("a", 2, 0, 100), node("b", 3, 0, 100), node("c", 9, 50, 60)], ..Default::default() };
        let mut nodes = Nodes::new(&recorded);
        let places: Vec<String> = (0..7).map(|runner| nodes.place(runner, 0, None, 1).unwrap().to_string()).collect();
        assert_eq!(places, ["b", "a", "b", "a", "b", "further-3", "further-3"]);
        nodes.leave(1, 0, false, 2);
        assert_eq!(
            nodes.place(7, 0, None, 2).as_deref(),
            Some("a"),
            "the further one has three slots, as usual, and one left as well"
        );
    }

    #[test]
    fn node_counts_from_its_first_runner_to_its_last_and_is_freed_by_a_removal_alone() {
        let mut occupancy = Occupancy::default();
        occupancy.enter(0, 0, 10);
        occupancy.enter(0, 1, 20);
        occupancy.enter(1, 0, 20);
        occupancy.leave(0, 0, true, 30);
        occupancy.leave(0, 1, true, 50);
        occupancy.leave(1, 0, false, 60);
        occupancy.enter(1, 0, 70);
        let (pools, all) = occupancy.end(100);
        assert_eq!(all, Occupied { time: 40 + 40 + 30, freed: 1 });
        assert_eq!(pools[&0], Occupied { time: 20 + 40 + 30, freed: 0 });
        assert_eq!(pools[&1], Occupied { time: 30, freed: 1 });
    }
}
