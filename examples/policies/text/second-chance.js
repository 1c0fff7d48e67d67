// Whether jobs that died with their runners run again: where their place was taken away, and not when so much work is lost that a person should look first.

export const name = "second-chance";
export const version = "0.1.0";
export const summary = "Runs jobs again whose node or place was taken away, and spares long ones";

const defaults = { attempts: 1, longestSeconds: 3600 };

const taken = { "node-lost": "its node is gone", evicted: "it was evicted", preempted: "it made room for another pod" };

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings(settings) {
  const problems = [];
  for (const [key, value] of Object.entries(settings)) {
    if (!(key in defaults)) problems.push({ path: key, message: `unknown setting, there are ${Object.keys(defaults).join(", ")}` });
    else if (!Number.isInteger(value) || value < 0) problems.push({ path: key, message: "must be a whole number" });
  }
  if (problems.length > 0) throw problems;
}

export function recover({ jobs }, settings) {
  const { attempts, longestSeconds } = { ...defaults, ...settings };
  return jobs.map((job, index) => {
    const why = taken[job.cause];
    if (why === undefined) return { index, action: "leave", reason: `${job.cause} is no proof that it was not its own fault` };
    if (job.attempt > attempts) return { index, action: "leave", reason: `its run is in attempt ${job.attempt}` };
    if (job.ran > longestSeconds) return { index, action: "leave", reason: `it had run for ${job.ran} s` };
    // Whatever took the place may still be at work.
    return { index, action: "rerun", after: 60 * job.attempt, reason: why };
  });
}
