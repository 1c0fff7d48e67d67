// As many runners as jobs, but no more pods than the nodes take now, and a few that wait so that an autoscaler of nodes sees them. Idle spares only
// while spot nodes have room for them: they must not keep a dear node busy.

export const name = "fits-now";
export const version = "0.1.0";
export const summary = "Reserves what fits on the nodes now, and keeps spares on spot room only";
export const reads = ["room"];

const wholeNumbers = { probes: [0, 1000], spares: [0, 1000], seconds: [60, 86400] };

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings(settings) {
  const problems = [];
  for (const [path, [least, most]] of Object.entries(wholeNumbers)) {
    const value = settings[path] ?? least;
    if (!Number.isInteger(value) || value < least || value > most) problems.push({ path, message: `must be a whole number from ${least} to ${most}` });
  }
  if (problems.length > 0) throw problems;
}

export function capacity({ pool, jobs, reservations }, { probes = 1, spares = 0, seconds = 600 }) {
  const held = reservations.filter((one) => one.jobs.length === 0 && one.id !== "spare");
  for (const job of jobs) {
    if (job.state === "completed") continue;
    held.push({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires: seconds, reason: job.state });
  }
  const facts = new Map(pool.attributes);
  const plan = { reservations: held, lookAgain: 30 };
  // Without the fact, nodes may not be listed, or the template asks for what is not understood.
  if (!facts.has("room-pods")) return plan;

  const { pending, starting, idle, busy } = pool.counts;
  const placed = Math.max(0, pending + starting + idle + busy - Number(facts.get("room-claims")));
  plan.ceiling = placed + Number(facts.get("room-pods")) + probes;

  // The keys are room:INSTANCE-TYPE/CAPACITY-TYPE/ZONE.
  const spot = pool.attributes
    .filter(([key]) => key.startsWith("room:") && key.split("/")[1] === "spot")
    .reduce((sum, [, pods]) => sum + Number(pods), 0);
  const replicas = Math.min(spares, spot + idle);
  if (replicas > 0) held.push({ id: "spare", jobs: [], replicas, effective: 0, expires: seconds, reason: `spot nodes have room for ${spot}` });
  return plan;
}
