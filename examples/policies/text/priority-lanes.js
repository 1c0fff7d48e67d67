// Lanes in one pool: jobs of important branches always get runners, the others leave so many of the maximum to them. GitHub gives a runner to whichever
// job waits longest, so a lane is room for new runners and no promise to one job.

export const name = "priority-lanes";
export const version = "0.1.0";
export const summary = "Keeps a part of the maximum for jobs of important branches";
export const reads = ["job"];

const defaults = { important: ["main", "release/"], kept: 2, seconds: 600 };

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings(settings) {
  const { important, kept, seconds } = { ...defaults, ...settings };
  const problems = [];
  if (!Array.isArray(important) || !important.every((branch) => typeof branch === "string")) problems.push({ path: "important", message: "must be a list of branches, or of what they begin with" });
  if (!Number.isInteger(kept) || kept < 0) problems.push({ path: "kept", message: "must be a whole number" });
  if (!Number.isInteger(seconds) || seconds < 60) problems.push({ path: "seconds", message: "must be a whole number of 60 or more" });
  if (problems.length > 0) throw problems;
}

export function capacity({ pool, jobs, reservations }, settings) {
  const { important, kept, seconds } = { ...defaults, ...settings };
  const branchOf = (job) => job.attributes.find(([key]) => key === "branch")?.[1] ?? "";
  const matters = (branch) => important.some((one) => (one.endsWith("/") ? branch.startsWith(one) : branch === one));
  const open = jobs.filter((job) => job.state !== "completed");
  const runs = (job) => job.state === "in-progress";
  const room = pool.maxReplicas === null ? Infinity : Math.max(0, pool.maxReplicas - kept);
  // What runs has its runner already, whatever its lane.
  let others = open.filter((job) => runs(job) && !matters(branchOf(job))).length;
  const plan = reservations.filter((held) => held.jobs.length === 0);
  for (const job of open) {
    const branch = branchOf(job);
    if (!runs(job) && !matters(branch)) {
      if (others >= room) continue;
      others += 1;
    }
    const reason = matters(branch) ? `important: ${branch}` : runs(job) ? "in progress" : `${others} of ${room} that are not important`;
    plan.push({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires: seconds, reason });
  }
  return { reservations: plan, lookAgain: Math.floor(seconds / 2) };
}
