// What the page knows: the newest snapshot of the operator, kept up to date by differences. No DOM in here.

/** The form of snapshots that this page reads. */
export const VERSION = 1;

/** Parts of a snapshot that are lists of things by key. */
export const SECTIONS = ["pools", "runners", "jobs", "decisions", "credentials", "listings", "failures", "causes", "comparisons", "simulations", "expenses", "waits"];

/** States of runners in the order in which people want to see them, and what each means. */
export const STATES = [
  ["busy", "runs a job, or can't be proved not to"],
  ["idle", "registered, connected, without a job"],
  ["starting", "its container runs; GitHub does not list it yet"],
  ["pending", "its container has not started"],
  ["stopping", "on its way out"],
  ["offline", "registered, but GitHub lost contact"],
  ["ended", "over; it is decided what becomes of it"],
  ["quarantined", "left as it is, for people to look at"],
];

/** The state that a whole snapshot describes. */
export function read(snapshot) {
  if (snapshot.version !== VERSION) {
    throw new Error(`the operator sends snapshots of form ${snapshot.version}, this page reads form ${VERSION}: load it again`);
  }
  const state = { number: snapshot.number, at: Date.parse(snapshot.at), operator: snapshot.operator };
  for (const section of SECTIONS) {
    state[section] = new Map(Object.entries(snapshot[section] ?? {}));
  }
  return state;
}

/** Brings a state up to date. False when a difference is missing in between: then only a whole snapshot helps. */
export function apply(state, delta) {
  if (delta.after !== state.number) {
    return false;
  }
  state.number = delta.number;
  state.at = Date.parse(delta.at);
  state.operator = delta.operator ?? state.operator;
  for (const [section, keys] of Object.entries(delta.removed ?? {})) {
    for (const key of keys) {
      state[section]?.delete(key);
    }
  }
  for (const [section, values] of Object.entries(delta.changed ?? {})) {
    for (const [key, value] of Object.entries(values)) {
      state[section]?.set(key, value);
    }
  }
  return true;
}

/** Groups values by what `of` says, in the order of the names; values of a group in the order of their keys. */
export function groups(entries, of) {
  const found = new Map();
  for (const entry of entries) {
    const name = of(entry[1]);
    if (!found.has(name)) {
      found.set(name, []);
    }
    found.get(name).push(entry);
  }
  const byName = (one, other) => (one[0] < other[0] ? -1 : Number(one[0] > other[0]));
  for (const members of found.values()) {
    members.sort(byName);
  }
  return [...found].sort(byName);
}

/** How many of each state, those that there are, in the order of `STATES`. */
export function tally(runners) {
  const counts = new Map(STATES.map(([name]) => [name, 0]));
  for (const runner of runners) {
    counts.set(runner.state, (counts.get(runner.state) ?? 0) + 1);
  }
  return counts;
}

/** The value at or below which that part of the values lies, by nearest rank. */
export function quantile(sorted, part) {
  return sorted.length === 0 ? null : sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)];
}

/** `12 s`, `3 min`, `2 h 05`, `3 d`. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${String(minutes % 60).padStart(2, "0")}` : `${Math.floor(hours / 24)} d`;
}

/** `1 runner`, `2 runners`. */
export function count(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

/** A pool as people call it: `namespace/name`, without the kind that its key begins with. */
export function called(pool) {
  return pool ? pool.slice(pool.indexOf("/") + 1) : "";
}
