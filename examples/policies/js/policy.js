// Which idle runners go first: the youngest, because the caches of the old ones are warm.

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
    summary: "Removes the youngest runners and keeps those with warm caches",
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

export const scaleDown = {
  select({ candidates, surplus, settings }) {
    const { minIdleSeconds } = read(settings);
    const byAgeAndName = (a, b) => a.age - b.age || (a.name < b.name ? -1 : 1);
    return candidates
      .map((runner, index) => ({ ...runner, index }))
      .filter((runner) => runner.idle >= minIdleSeconds)
      .sort(byAgeAndName)
      .slice(0, surplus)
      .map(({ index, age }) => ({ index, reason: `${age} s old`, attributes: [] }));
  },
};
