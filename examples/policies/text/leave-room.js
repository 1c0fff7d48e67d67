// Pools of a namespace share a number of runners. A pool leaves to the more important ones (annotation actions.summerwind.dev/priority) what they have and what
// their waiting jobs need, and takes no more than the rest.

export const name = "leave-room";
export const version = "0.1.0";
export const summary = "Leaves room for the more important pools of the namespace";
export const reads = ["pool", "other-pools"];

const wholeNumbers = { runners: [1, 10000], least: [0, 1000], seconds: [60, 86400] };

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings(settings) {
  const problems = [];
  for (const [path, [least, most]] of Object.entries(wholeNumbers)) {
    const value = settings[path] ?? least;
    if (!Number.isInteger(value) || value < least || value > most) problems.push({ path, message: `must be a whole number from ${least} to ${most}` });
  }
  if (problems.length > 0) throw problems;
}

/** `runners` of all pools together, of which each keeps the `least`. */
export function capacity({ pool, jobs, reservations }, { runners = 50, least = 1, seconds = 600 }) {
  const held = reservations.filter((one) => one.jobs.length === 0);
  for (const job of jobs) {
    if (job.state === "completed") continue;
    held.push({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires: seconds, reason: job.state });
  }
  const facts = new Map(pool.attributes);
  const number = (key) => Number(facts.get(key) ?? 0);

  let left = runners;
  for (const [key] of pool.attributes) {
    // The keys are other-desired:KIND/NAME, one of every pool that is told of.
    if (!key.startsWith("other-desired:")) continue;
    const other = key.slice("other-desired:".length);
    if (number(`other-priority:${other}`) <= number("priority")) continue;
    const needed = Math.max(number(key), number(`other-busy:${other}`) + number(`other-waiting:${other}`));
    left -= facts.has(`other-max:${other}`) ? Math.min(needed, number(`other-max:${other}`)) : needed;
  }
  // Nothing tells when another pool changes.
  return { reservations: held, ceiling: Math.max(left, least), lookAgain: 10 };
}
