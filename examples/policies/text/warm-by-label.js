// Warm runners by label: one policy for all pools, in which each label says how many idle runners its pool keeps ready beside those with jobs.

export const name = "warm-by-label";
export const version = "0.1.0";
export const summary = "Keeps idle runners ready in pools that have certain labels";

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings({ warm = {}, seconds = 600 }) {
  const problems = [];
  for (const [label, runners] of Object.entries(warm)) {
    if (!Number.isInteger(runners) || runners < 0) problems.push({ path: `warm.${label}`, message: "must be a whole number" });
  }
  if (!Number.isInteger(seconds) || seconds < 60) problems.push({ path: "seconds", message: "must be a whole number of 60 or more" });
  if (problems.length > 0) throw problems;
}

export function capacity({ pool, jobs, reservations }, { warm = {}, seconds = 600 }) {
  const held = reservations.filter((one) => one.jobs.length === 0 && one.id !== "warm");
  for (const job of jobs) {
    if (job.state === "completed") continue;
    held.push({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires: seconds, reason: job.state });
  }
  // The label that asks for most of them counts.
  const [label, replicas] = pool.labels
    .map((label) => [label, Object.hasOwn(warm, label) ? warm[label] : 0])
    .reduce((most, one) => (one[1] > most[1] ? one : most), ["", 0]);
  if (replicas > 0) held.push({ id: "warm", jobs: [], replicas, effective: 0, expires: seconds, reason: `${replicas} warm for label ${label}` });
  return { reservations: held, lookAgain: Math.floor(seconds / 2) };
}
