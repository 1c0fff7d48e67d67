// Which idle runners go first: the youngest, because the caches of the old ones are warm.

export const name = "newest-first";
export const version = "0.1.0";
export const summary = "Removes the youngest runners and keeps those with warm caches";

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

export function scaleDown({ candidates, surplus }, settings) {
  const { minIdleSeconds } = { ...defaults, ...settings };
  const order = candidates.map((_, index) => index).filter((index) => candidates[index].idle >= minIdleSeconds);
  order.sort((a, b) => candidates[a].age - candidates[b].age || (candidates[a].name < candidates[b].name ? -1 : 1));
  return order.slice(0, surplus).map((index) => ({ index, reason: `${candidates[index].age} s old` }));
}
