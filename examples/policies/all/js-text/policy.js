// All four decisions. Each function is a decision: delete those that the shipped policy shall go on making.

export const name = "newest-first";
export const version = "0.1.0";
export const summary = "Makes all four decisions, and removes the youngest runners first";

const defaults = { minIdleSeconds: 0 };

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings(settings) {
  const problems = [];
  for (const [key, value] of Object.entries(settings)) {
    if (!(key in defaults)) problems.push({ path: key, message: `unknown setting, there is ${Object.keys(defaults).join(", ")}` });
    else if (typeof value !== "number") problems.push({ path: key, message: "must be a number" });
  }
  if (problems.length > 0) throw problems;
}

/** Which idle runners go first: the youngest, because the caches of the old ones are warm. */
export function scaleDown({ candidates, surplus }, settings) {
  const { minIdleSeconds } = { ...defaults, ...settings };
  const order = candidates.map((_, index) => index).filter((index) => candidates[index].idle >= minIdleSeconds);
  order.sort((a, b) => candidates[a].age - candidates[b].age || (candidates[a].name < candidates[b].name ? -1 : 1));
  return order.slice(0, surplus).map((index) => ({ index, reason: `${candidates[index].age} s old` }));
}

/** What to do about runners that ended or failed: others take their places, later after each failure. */
export function restart({ subjects }) {
  return subjects.map(({ cause, attempts }, index) => {
    if (cause === "completed") return { index, action: "replace", reason: "its job is done" };
    if (attempts > 5) return { index, action: "quarantine", reason: `${attempts} attempts failed` };
    return { index, action: "replace", after: 10 * attempts, reason: cause };
  });
}

/** How much capacity to hold: one runner for each job. Add reservations of your own to it. */
export function capacity(request) {
  return onePerJob(request);
}

/** Which jobs that died with their runners run again: once, where their place was taken away. */
export function recover({ jobs }) {
  const taken = ["node-lost", "evicted", "preempted"];
  return jobs.map(({ cause, attempt }, index) => {
    if (attempt > 1) return { index, action: "leave", reason: `attempt ${attempt} of its run` };
    return { index, action: taken.includes(cause) ? "rerun" : "leave", reason: cause };
  });
}

// What follows is of use in any policy.

/** Things with their indices, ordered by a key of several parts. */
function ordered(items, key) {
  const keyed = items.map((item, index) => ({ index, item, parts: key(item) }));
  keyed.sort((a, b) => {
    for (let place = 0; place < a.parts.length; place++) {
      const one = a.parts[place];
      const other = b.parts[place];
      if (one !== other) return one < other ? -1 : 1;
    }
    return a.index - b.index;
  });
  return keyed.map(({ index, item }) => [index, item]);
}

/** The value of an attribute; none where there is no such fact. */
function attribute(attributes, key) {
  return attributes.find(([name]) => name === key)?.[1];
}

/**
 * One runner for each job for as long as GitHub has not told its end: a day in the queue and five days in progress at most, which are GitHub's own
 * limits. What others reserved without naming jobs stays until it expires. Every plan is made anew, so that 1,000 jobs fit into the limits of a call
 * in JavaScript: the helpers of Rust, Go, C and Zig keep what is held, with its clock, as the shipped policy does.
 */
function onePerJob({ jobs, reservations, attributes }) {
  const life = Number(attribute(attributes, "reservation-seconds") ?? 600);
  const left = (job) =>
    job.state === "in-progress" ? 432_000 - (job.started ?? 0) : job.state === "queued" ? 86_400 - job.queued : 0;
  const plan = reservations.filter((held) => held.jobs.length === 0);
  for (const job of jobs) {
    const expires = Math.min(life, left(job));
    if (expires <= 0) continue;
    const reason = job.state === "in-progress" ? "in progress" : `queued ${job.queued} s ago`;
    plan.push({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires, reason });
  }
  const lookAgain = plan.length === 0 ? null : plan.reduce((soonest, held) => Math.min(soonest, held.expires), life);
  return { reservations: plan, lookAgain };
}
