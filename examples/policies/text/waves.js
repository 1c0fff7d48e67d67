// Three decisions in one text, for a pool whose jobs come in waves:
// runners that worked last stay longest, one more runner than there are jobs is held, and what an eviction took is made again at once.

export const name = "waves";
export const version = "0.1.0";
export const summary = "Keeps runners that worked lately, holds a spare one, retries evictions";

const NEVER = 0xffffffff;

export function scaleDown({ candidates, surplus }) {
  const since = (runner) => runner.lastJobEnd ?? NEVER;
  return candidates
    .map((runner, index) => ({ ...runner, index }))
    .sort((a, b) => since(b) - since(a) || b.idle - a.idle || (a.name < b.name ? -1 : 1))
    .slice(0, surplus)
    .map((runner) => ({
      index: runner.index,
      reason: runner.lastJobEnd === null ? "has not worked yet" : `worked last ${runner.lastJobEnd} s ago`,
    }));
}

export function restart({ subjects }) {
  return subjects.map((subject, index) => {
    if (subject.cause === "evicted") return { index, action: "replace", reason: "evicted: not its own fault" };
    if (subject.attempts > 5) return { index, action: "quarantine", reason: `${subject.attempts} attempts failed` };
    return { index, action: "replace", after: 10 * subject.attempts, reason: subject.cause };
  });
}

export function capacity({ jobs }, { spare = 1, seconds = 600 }) {
  const reservations = jobs.map((job) => ({
    id: `job-${job.id}`,
    jobs: [job.id],
    replicas: 1,
    effective: 0,
    expires: seconds,
    reason: `${job.repository} ${job.state}`,
  }));
  if (jobs.length > 0 && spare > 0) {
    reservations.push({ id: "spare", jobs: [], replicas: spare, effective: 0, expires: seconds, reason: "for the next of the wave" });
  }
  return { reservations };
}
