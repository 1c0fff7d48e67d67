// Snapshots of invented fleets, always the same for the same size.

const STATES = ["busy", "busy", "busy", "busy", "busy", "idle", "idle", "starting", "pending", "stopping"];
const POOLS = ["web", "api", "mobile-ios-and-android", "data", "infra", "release"];

/** A moment so many seconds before `now`. */
const ago = (now, seconds) => new Date(now - seconds * 1000).toISOString();

/** A small random number generator: the same numbers for the same seed. */
function numbers(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** The runner of that number. */
function runner(index, now, draw) {
  const pool = POOLS[index % POOLS.length];
  const state = index === 17 ? "offline" : index === 23 ? "ended" : index === 31 ? "quarantined" : STATES[draw(STATES.length)];
  const name = `${pool}-7f9c4-${(index + 46656).toString(36)}`;
  const value = {
    namespace: "ci", name, pool: `RunnerDeployment/ci/${pool}`, state, since: ago(now, 5 + draw(4000)), created: ago(now, 5000 + draw(9000)),
    ephemeral: true, protected: index === 2,
  };
  if (!["pending"].includes(state)) {
    value.node = `node-${String(index % 12).padStart(2, "0")}`;
  }
  if (state === "busy") {
    value.job = { id: 38000000000 + index, repository: `acme/${pool}`, workflow: "build", since: value.since };
  }
  if (["ended", "quarantined"].includes(state)) {
    value.trouble = { situation: "ended", cause: "oom-killed", message: "container runner: OOMKilled, exit code 137", since: value.since };
  }
  if (state === "pending" && draw(2) === 0) {
    value.trouble = { situation: "not-starting", cause: "unschedulable", message: "0/12 nodes are available: 12 Insufficient cpu.", since: value.since };
  }
  return [`ci/${name}`, value];
}

/** A pool as its runners are. */
function pool(name, runners) {
  const of = (state) => runners.filter((runner) => runner.pool.endsWith(`/${name}`) && runner.state === state).length;
  const counts = Object.fromEntries(["busy", "idle", "starting", "pending", "stopping", "offline", "ended", "quarantined"].map((state) => [state, of(state)]));
  const actual = Object.values(counts).reduce((sum, number) => sum + number, 0);
  const full = name === "web";
  return {
    kind: "RunnerDeployment", namespace: "ci", name, labels: ["self-hosted", "linux", name], min: 2, max: full ? actual : actual + 40, desired: actual, actual, counts,
    autoscaler: `${name}-scaler`, policies: name === "data" ? "emptiest-node-first" : null,
    limit: full ? { word: "MaxReplicas", text: `${actual + 13} are wanted, the maximum is ${actual}` } : { word: "Reserved", text: "runners are reserved for the jobs that are known" },
    online_after: { samples: 200, p50: 14, p90: 61, p99: 190 },
  };
}

/** A snapshot with so many runners. */
export function snapshot(size, now = Date.now()) {
  const draw = numbers(size);
  const runners = Array.from({ length: size }, (_, index) => runner(index, now, draw));
  const all = runners.map(([, value]) => value);
  const jobs = all.filter((one) => one.job).map((one) => [`ci/x/${one.job.id}`, { id: one.job.id, autoscaler: `${one.pool.split("/")[2]}-scaler`, pool: one.pool, repository: one.job.repository, workflow: one.job.workflow, labels: ["self-hosted", "linux"], attempt: 1, state: "running", queued: ago(now, 5000), since: one.since, runner: one.name }]);
  const reasons = [
    ["MaximumReached", "the maximum is reached: 15 are wanted, the maximum is 12"],
    ["PodStarting", "the pod of runner web-x7k2p-1 is starting"],
    ["PodPending", "no node takes the pod of runner web-x7k2p-2: 0/12 nodes are available: 12 Insufficient cpu."],
    ["Assignment", "runner web-x7k2p-3 is online and idle: GitHub has to give it the job"],
  ];
  const wait = Math.max(1, Math.ceil(size / 40));
  /** Of the jobs of a pool that wait, those from this number on: later ones have waited longer. */
  const queued = (pool, from) => Array.from({ length: wait }, (_, index) => index).filter((index) => index >= from && index % POOLS.length === pool).length;
  const waiting = Array.from({ length: wait }, (_, index) => {
    const [word, text] = reasons[index % reasons.length];
    const since = ago(now, 4 + index * 37);
    const name = POOLS[index % POOLS.length];
    return [`ci/x/${39000000000 + index}`, { id: 39000000000 + index, autoscaler: `${name}-scaler`, pool: `RunnerDeployment/ci/${name}`, repository: `acme/${name}`, workflow: "integration tests", labels: ["self-hosted", "linux", "x64"], attempt: 1 + (index % 2), state: "queued", queued: since, since, runner: null, place: queued(index % POOLS.length, index), waiting: queued(index % POOLS.length, 0), reason: { word, text }, reason_since: since, estimate: index % 4 === 2 ? undefined : { likely: ago(now, -30 - index), latest: ago(now, -300 - index) } }];
  });
  const five = 300_000;
  const waitRow = (name, labels, others, seed) => {
    // Some spans have no job.
    const bins = Array.from({ length: 24 }, (_, index) => index).filter((index) => (index + seed) % 7 !== 0).map((index) => {
      const p50 = 8 + ((index * 7 + seed * 3) % 25);
      const p95 = p50 * 2 + ((index * 13) % 70);
      return { from: new Date((Math.floor(now / five) - 23 + index) * five).toISOString(), jobs: 5 + ((index * 5) % 20), p50, p95, max: p95 + ((index * 29) % 200) };
    });
    const pool = `RunnerDeployment/ci/${name}`;
    const sum = bins.reduce((jobs, bin) => jobs + bin.jobs, 0);
    const row = { pool, labels, others, jobs: sum, p50: 19, p95: 96, max: Math.max(...bins.map((bin) => bin.max)), bins };
    return [others ? pool : `${pool} ${labels.join(",")}`, row];
  };
  const pools = [...new Set(all.map((one) => one.pool.split("/")[2]))];
  const first = all[0].name;
  const decision = (number, seconds, rest) => [String(number).padStart(12, "0"), { at: ago(now, seconds), pool: `RunnerDeployment/ci/${pools[0]}`, items: [], more: 0, policy: "default@sha256:0123456789ab", ...rest }];
  const comparison = (number, seconds, decision, answered, would, agreement) => [String(number).padStart(12, "0"), { at: ago(now, seconds), pool: `RunnerDeployment/ci/${pools[0]}`, decision, in_force: "default@sha256:0123456789ab", shadow: "emptiest-node-first@sha256:fedcba987654", answered, would, agreement }];
  const figure = (metric, unit, recorded, in_force, shadow) => ({ metric, unit, recorded, in_force, shadow });
  const failure = (number, seconds, index) => [String(number).padStart(12, "0"), { at: ago(now, seconds), namespace: "ci", runner: all[index % all.length].name, pool: all[index % all.length].pool, situation: "ended", cause: "oom-killed", message: "container runner: OOMKilled, exit code 137" }];
  return {
    version: 1, number: 1, at: new Date(now).toISOString(),
    operator: { role: "acting", version: "0.1.0", missing_webhooks: 1, redeliveries: { asked: 14, delivered: 11, refused: 1, given_up: 1 }, left_out: { runners: 0, jobs: 0 } },
    pools: Object.fromEntries(pools.map((name) => [`RunnerDeployment/ci/${name}`, pool(name, all)])),
    runners: Object.fromEntries(runners),
    jobs: Object.fromEntries([...jobs, ...waiting]),
    decisions: Object.fromEntries([
      decision(1, 3000, { decision: "capacity", summary: "from 8 to 12 runners: 12 runners for 12 jobs" }),
      decision(2, 400, { decision: "scale-down", summary: "2 of 5 runners that were idle go", items: [{ runner: first, verdict: "removed", text: "was removed: it has been idle longest" }, { runner: `${pools[0]}-gone-1`, verdict: "busy", text: "stays: GitHub says that it runs a job" }] }),
      decision(3, 20, { decision: "restart", summary: "1 runner is replaced", items: [{ runner: first, verdict: "replaced", text: "was replaced: its memory ran out" }] }),
    ]),
    credentials: {
      default: { name: "default", kind: "app", held_back: 0, secondary_until: null, budgets: [{ resource: "core", owner: "acme", limit: 15000, remaining: 12405, resets_at: ago(now, -1800) }], calls: { success: 4210, not_modified: 18021, rate_limited: 0, refused: 3, server_error: 1, no_answer: 0 } },
      "ci/team-b": { name: "ci/team-b", kind: "token", held_back: 12, secondary_until: ago(now, -40), budgets: [{ resource: "core", owner: null, limit: 5000, remaining: 240, resets_at: ago(now, -600) }], calls: { success: 900, not_modified: 12, rate_limited: 4, refused: 0, server_error: 0, no_answer: 2 } },
    },
    listings: {
      "default/acme": { credentials: "default", scope: "acme", at: ago(now, 4), runners: size, failures: 0, error: null },
      "ci/team-b/acme/secret": { credentials: "ci/team-b", scope: "acme/secret", at: ago(now, 400), runners: 0, failures: 7, error: "403: Resource not accessible by personal access token" },
    },
    comparisons: Object.fromEntries([
      comparison(1, 900, "capacity", "12 reserved in 12 reservations", "12 reserved in 12 reservations", "same"),
      comparison(2, 400, "scale-down", `remove ${first} (1 runner)`, `remove ${pools[0]}-7f9c4-10k (1 runner)`, "differs"),
      comparison(3, 60, "restart", `replace ${first}`, "its answer came after 50 ms, which is too late", "failed"),
    ]),
    simulations: {
      [`ci/${pools[0]}`]: { since: ago(now, 10_800), jobs: 412, wait_error: 0.6, runner_minutes_error: 0.012, figures: [figure("runners", "", 40, 41, 33), figure("wait.p50", "s", 12, 12.4, 13.1), figure("wait.p95", "s", 61, 60.2, 88.4), figure("runner-minutes", "min", 5210, 5272, 4380.5), figure("idle-minutes", "min", 1310, 1290, 402)] },
      "ci/nightly": { since: ago(now, 10_800), jobs: 0, wait_error: 0, runner_minutes_error: 0, figures: [], refused: { word: "NoJob", text: "no job has come in that time" } },
    },
    expenses: Object.fromEntries([
      ...pools.map((name, index) => [`acme/${name}`, { payer: "repository", jobs: 130 - index * 17, busy_minutes: 1540.5 - index * 190, idle_minutes: 88.2 + index * 13, cost: 41.2 - index * 5.1, unpriced_minutes: 0 }]),
      ["nobody", { payer: "nobody", jobs: 0, busy_minutes: 0, idle_minutes: 402.3, cost: 8.75, unpriced_minutes: 12.5 }],
    ]),
    waits: Object.fromEntries([
      ...pools.map((name, index) => waitRow(name, ["linux", "self-hosted", name].sort(), false, index)),
      waitRow(pools[0], ["gpu", "linux", "self-hosted"], false, 9),
      waitRow(pools[0], [], true, 4),
    ]),
    failures: Object.fromEntries([failure(1, 700, 0), failure(2, 90, 1)]),
    causes: { "oom-killed": { cause: "oom-killed", now: 2, total: 9, last: ago(now, 90) }, unschedulable: { cause: "unschedulable", now: size > 10 ? 5 : 0, total: 40, last: ago(now, 300) } },
  };
}

/** A difference that makes so many idle or pending runners busy, and the other way round; the snapshot is changed with it. */
export function churn(snapshot, changes, seed) {
  const draw = numbers(seed);
  const keys = Object.keys(snapshot.runners);
  const changed = {};
  for (let index = 0; index < changes; index += 1) {
    const key = keys[draw(keys.length)];
    const before = snapshot.runners[key];
    const busy = before.state !== "busy";
    changed[key] = { ...before, state: busy ? "busy" : "idle", since: new Date().toISOString(), trouble: undefined, job: busy ? { id: 1, repository: "acme/new", workflow: "build", since: new Date().toISOString() } : undefined };
    snapshot.runners[key] = changed[key];
  }
  return difference(snapshot, { runners: changed });
}

/** The next difference of a snapshot. */
export function difference(snapshot, changed, removed = {}) {
  const delta = { number: snapshot.number + 1, after: snapshot.number, at: new Date().toISOString(), changed, removed };
  snapshot.number += 1;
  for (const [section, values] of Object.entries(changed)) {
    Object.assign(snapshot[section], values);
  }
  for (const [section, gone] of Object.entries(removed)) {
    gone.forEach((key) => delete snapshot[section][key]);
  }
  return delta;
}
