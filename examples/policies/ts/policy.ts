// Which idle runners go first: the youngest, because the caches of the old ones are warm.

interface Settings {
  /** Keeps runners that have been idle for less. */
  minIdleSeconds: number;
}

/** Settings of policies.yaml. */
function read(text: string): Settings {
  const defaults: Settings = { minIdleSeconds: 0 };
  const given = JSON.parse(text) as Record<string, unknown>;
  for (const [key, value] of Object.entries(given)) {
    if (!(key in defaults)) throw `${key}: unknown setting, there is ${Object.keys(defaults).join(", ")}`;
    if (typeof value !== "number") throw `${key}: must be a number`;
  }
  return { ...defaults, ...given };
}

export const lifecycle: Lifecycle = {
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
      throw [{ path: "", message: String(error) }] satisfies Problem[];
    }
  },
};

export const scaleDown: ScaleDown = {
  select({ candidates, surplus, settings }) {
    const { minIdleSeconds } = read(settings);
    const byAgeAndName = (a: Candidate, b: Candidate) => a.age - b.age || (a.name < b.name ? -1 : 1);
    return candidates
      .map((runner, index) => ({ ...runner, index }))
      .filter((runner) => runner.idle >= minIdleSeconds)
      .sort(byAgeAndName)
      .slice(0, surplus)
      .map(({ index, age }) => ({ index, reason: `${age} s old`, attributes: [] }));
  },
};
