//! Why a job waits, as far as the operator's own objects tell.

use super::{Counts, Reason};

/// What a job that waits may wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prospect<'a> {
    /// Jobs of its pool that have waited longer.
    pub(super) ahead: usize,
    /// Its pool, if that exists.
    pub(super) pool: Option<PoolNow<'a>>,
    /// Why the autoscaler does not scale, if it does not.
    pub(super) refused: Option<&'a Reason>,
}

/// How its pool is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolNow<'a> {
    pub(super) counts: Counts,
    pub(super) desired: u32,
    pub(super) max: Option<u32>,
    /// Why its number is what it is.
    pub(super) limit: Option<&'a Reason>,
    /// Why runners of it do not start: a cause, what the cluster says, and how many they are.
    pub(super) trouble: Option<(&'a str, &'a str, usize)>,
}

/// Reasons of an autoscaler's condition `Scaling` that keep the number down.
const BRAKES: [&str; 3] = ["PolicyCeiling", "RampLimit", "MetricUnavailable"];

/// Why it waits.
pub(super) fn why(prospect: &Prospect<'_>) -> Reason {
    let reason = |word: &str, text: String| Reason { word: word.to_owned(), text };
    let Some(pool) = prospect.pool else {
        return reason("no target", "what the autoscaler is to scale does not exist".to_owned());
    };
    if let Some(refused) = prospect.refused {
        return reason("autoscaler", refused.text.clone());
    }
    let place = prospect.ahead.saturating_add(1);
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let (idle, coming) = (count(pool.counts.idle), count(pool.counts.pending.saturating_add(pool.counts.starting)));
    let stuck = pool.trouble.map_or(0, |(_, _, stuck)| stuck).min(coming);
    if place <= idle {
        return reason(
            "idle runner",
            format!(
                "runners of the pool are idle ({idle}): GitHub has not handed it to one of them; their labels and their group have to fit"
            ),
        );
    }
    if place <= idle.saturating_add(coming.saturating_sub(stuck)) {
        return reason("starting", format!("a runner for it is on its way ({} are)", coming.saturating_sub(stuck)));
    }
    if let Some((cause, message, stuck)) = pool.trouble.filter(|_| place <= idle.saturating_add(coming)) {
        return reason(cause, format!("runners of the pool do not start ({stuck}): {message}"));
    }
    let behind = place.saturating_sub(idle).saturating_sub(coming);
    if let Some(max) = pool.max.filter(|max| pool.desired >= *max) {
        return reason("maximum", format!("the pool has all {max} runners that it may have; number {behind} in line"));
    }
    match pool.limit.filter(|limit| BRAKES.contains(&limit.word.as_str())) {
        Some(limit) => reason("held back", format!("{}; number {behind} in line", limit.text)),
        None => reason("deciding", "no runner was asked for it yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_waiting_has_its_word() {
        let counts = |idle, pending, starting, busy| Counts { idle, pending, starting, busy, ..Counts::default() };
        let said = |word: &str| Reason { word: word.to_owned(), text: format!("because of {word}") };
        let (brake, reserved, refused) = (said("RampLimit"), said("Reserved"), said("Invalid"));
        let pool = PoolNow { counts: counts(0, 0, 0, 4), desired: 4, max: Some(9), ..PoolNow::default() };
        let stuck = Some(("unschedulable", "no node", 2));
        for (ahead, pool, refused, word, part) in [
            (0, None, None, "no target", "does not exist"),
            (0, Some(pool), Some(&refused), "autoscaler", "because of Invalid"),
            (0, Some(PoolNow { counts: counts(1, 0, 0, 4), ..pool }), None, "idle runner", "(1)"),
            (1, Some(PoolNow { counts: counts(1, 0, 1, 4), ..pool }), None, "starting", "on its way"),
            (0, Some(PoolNow { counts: counts(0, 2, 0, 4), trouble: stuck, ..pool }), None, "unschedulable", "no node"),
            (0, Some(PoolNow { counts: counts(0, 2, 1, 4), trouble: stuck, ..pool }), None, "starting", "(1 are)"),
            (2, Some(PoolNow { desired: 9, ..pool }), None, "maximum", "all 9 runners that it may have; number 3 in line"),
            (0, Some(PoolNow { limit: Some(&brake), ..pool }), None, "held back", "because of RampLimit; number 1"),
            (0, Some(PoolNow { limit: Some(&reserved), ..pool }), None, "deciding", "yet"),
        ] {
            let why = why(&Prospect { ahead, pool, refused });
            assert!(why.word == word && why.text.contains(part), "{word}: {why:?}");
        }
    }
}
