// All four decisions. Each export beside `lifecycle` is one: delete those that the shipped policy shall go on making, and name another world in
// package.json, such as scale-down-policy.

const known = ["minIdleSeconds"];

/** Settings of policies.yaml. */
function read(text) {
  const settings = { minIdleSeconds: 0, ...JSON.parse(text) };
  const unknown = Object.keys(settings).find((key) => !known.includes(key));
  if (unknown !== undefined) throw `${unknown}: unknown setting, there is ${known.join(", ")}`;
  return settings;
}

export const lifecycle = {
  describe: () => ({
    name: "newest-first",
    version: "0.1.0",
    summary: "Makes all four decisions, and removes the youngest runners first",
    settingsSchema: null,
    attributes: [],
  }),
  validateSettings(text) {
    try {
      read(text);
    } catch (error) {
      throw [{ path: "", message: String(error) }];
    }
  },
};

/** Which idle runners go first: the youngest, because the caches of the old ones are warm. */
export const scaleDown = {
  select({ candidates, surplus, settings }) {
    const { minIdleSeconds } = read(settings);
    return ordered(candidates, (runner) => [runner.age, runner.name])
      .filter(([, runner]) => runner.idle >= minIdleSeconds)
      .slice(0, surplus)
      .map(([index, runner]) => ({ index, reason: `${runner.age} s old`, attributes: [] }));
  },
};

/** What to do about runners that ended or failed: others take their places, later after each failure. */
export const restart = {
  decide({ subjects }) {
    return subjects.map(({ cause, attempts }, index) => {
      if (cause === "completed") return { index, action: "replace", after: null, reason: "its job is done", attributes: [] };
      if (attempts > 5) return { index, action: "quarantine", after: null, reason: `${attempts} attempts failed`, attributes: [] };
      return { index, action: "replace", after: 10 * attempts, reason: cause, attributes: [] };
    });
  },
};

/** How much capacity to hold: one runner for each job. Add reservations of your own to it. */
export const capacity = {
  plan: (request) => onePerJob(request),
};

/** Which jobs that died with their runners run again: once, where their place was taken away. */
export const recover = {
  decide({ jobs }) {
    const taken = ["node-lost", "evicted", "preempted"];
    return jobs.map(({ cause, attempt }, index) => {
      const again = attempt === 1 && taken.includes(cause);
      const reason = attempt > 1 ? `attempt ${attempt} of its run` : cause;
      return { index, action: again ? "rerun" : "leave", after: null, reason, attributes: [] };
    });
  },
};

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
    plan.push({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires, reason, attributes: [] });
  }
  const lookAgain = plan.length === 0 ? null : plan.reduce((soonest, held) => Math.min(soonest, held.expires), life);
  return { reservations: plan, ceiling: null, lookAgain, attributes: [] };
}
