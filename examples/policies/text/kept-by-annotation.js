// Runners stay as long as their teams say: an annotation in the template of a pool has the seconds for which its idle runners are kept, so that one policy
// serves all pools. While a job waits for the pool nobody goes, since the next runner may be the one that it gets.

export const name = "kept-by-annotation";
export const version = "0.1.0";
export const summary = "Keeps idle runners for as long as their annotation says, and while jobs wait";
export const reads = ["annotations", "waiting-jobs"];

const defaults = { annotation: "pacer.example.com/keep-seconds", seconds: 60 };

const attribute = ({ attributes }, key) => attributes.find(([found]) => found === key)?.[1];

/** Throws a list of problems where the settings of policies.yaml are wrong. */
export function validateSettings(settings) {
  const { annotation, seconds } = { ...defaults, ...settings };
  const problems = [];
  if (typeof annotation !== "string" || !annotation.includes("/")) problems.push({ path: "annotation", message: "must be a key with a slash" });
  if (!Number.isInteger(seconds) || seconds < 0) problems.push({ path: "seconds", message: "must be a whole number" });
  if (problems.length > 0) throw problems;
}

export function scaleDown(request, settings) {
  const { annotation, seconds } = { ...defaults, ...settings };
  if (Number(attribute(request, "waiting-jobs") ?? 0) > 0) return [];
  // What is no number of seconds counts as not written.
  const keep = (runner) => {
    const written = attribute(runner, annotation);
    return written !== undefined && /^[0-9]{1,7}$/.test(written) ? Number(written) : seconds;
  };
  return request.candidates
    .map((runner, index) => ({ index, name: runner.name, idle: runner.idle, keep: keep(runner) }))
    .filter(({ idle, keep }) => idle >= keep)
    .sort((a, b) => b.idle - b.keep - (a.idle - a.keep) || (a.name < b.name ? -1 : 1))
    .slice(0, request.surplus)
    .map(({ index, idle, keep }) => ({ index, reason: `idle for ${idle} s, kept for ${keep} s` }));
}
