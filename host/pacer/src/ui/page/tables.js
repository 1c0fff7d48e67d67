// The screens that are tables: queue, capacity, decisions, GitHub, failures.

import { h, keyed, say, set, setSince, since } from "./dom.js";
import { called, count, duration, groups, quantile, tally } from "./state.js";

/** Rows shown at once; a button shows more. */
const ROWS = 200;

/**
 * A table whose rows are kept by key. Roles are stated because the narrow layout shows rows as cards, which takes a table's own semantics
 * away. `columns`: [title, class, make(cell), update(cell, value)].
 */
export function table(caption, columns) {
  const body = h("tbody", { role: "rowgroup" });
  const head = h("tr", { role: "row" }, columns.map(([title, kind]) => h("th", { role: "columnheader", scope: "col", class: kind }, title)));
  const more = h("button", { type: "button", class: "more", hidden: true });
  const whole = h("table", { role: "table" }, h("caption", {}, caption), h("thead", { role: "rowgroup" }, head), body);
  const element = h("div", { class: "table" }, whole, more);
  let shown = ROWS;
  let last = [];
  const row = (key) => {
    const cells = columns.map(([title, kind, make]) => h("td", { role: "cell", class: kind, "data-title": title }, make?.(key)));
    return h("tr", { role: "row" }, cells);
  };
  const fill = (tr, value) => columns.forEach((column, index) => column[3](tr.children[index], value));
  const show = (entries) => {
    last = entries;
    keyed(body, entries.slice(0, shown), row, fill);
    more.hidden = entries.length <= shown;
    say(more, `Show ${Math.min(ROWS, entries.length - shown)} more of ${entries.length}`);
    element.hidden = entries.length === 0;
  };
  more.addEventListener("click", () => {
    shown += ROWS;
    show(last);
  });
  return { element, show };
}

export const text = (of) => (cell, value) => say(cell, String(of(value) ?? ""));
export const moment = (of) => (cell, value) => setSince(cell.firstChild, of(value));
export const age = () => since(null);
export const ascending = (of) => (one, other) => (of(one[1]) < of(other[1]) ? -1 : Number(of(one[1]) > of(other[1])));
// Keys are counted anew in each shard, and tell nothing across shards.
const newestFirst = (entries) => [...entries].sort((one, other) => Date.parse(other[1].at) - Date.parse(one[1].at) || (one[0] < other[0] ? 1 : -1));

export function described(cell, strong, rest) {
  keyed(cell, [["a", strong], ["b", rest ?? ""]], (key) => h(key === "a" ? "b" : "span"), say);
}

/** What it waits for, and since when. */
function reasoned(cell, job) {
  const said = [["a", job.reason?.word ?? ""], ["b", job.reason?.text ?? ""], ...(job.reason_since ? [["since", job.reason_since]] : [])];
  const make = (key) => (key === "since" ? h("span", { class: "stands" }, "for ", since(null)) : h(key === "a" ? "b" : "span"));
  keyed(cell, said, make, (element, value) => (element.className === "stands" ? setSince(element.lastChild, value) : say(element, value)));
}

/** When it will start; until when in nine of ten cases is told on demand. */
function estimated(cell, job) {
  setSince(cell.firstChild, job.estimate?.likely);
  set(cell.firstChild, "data-past", "any moment");
  set(cell, "title", job.estimate ? `nine times out of ten by ${new Date(job.estimate.latest).toLocaleTimeString()}` : null);
}

export const queue = {
  id: "queue",
  title: "Queue",

  make(panel) {
    this.waits = table("Waits by pool", [
      ["Pool", "name", null, text((one) => called(one.pool))],
      ["Waiting", "number", null, text((one) => one.waiting)],
      ["p50", "number", null, text((one) => one.p50)],
      ["p95", "number", null, text((one) => one.p95)],
      ["Longest", "number", null, text((one) => one.longest)],
      ["Until a runner was online, of late (p50 / p90 / p99)", "number wide", null, text((one) => one.late)],
    ]);
    const columns = (moved) => [
      [moved, "age", age, moment((job) => job.since)],
      ["Repository and workflow", "name", null, (cell, job) => described(cell, job.repository || "unknown repository", job.workflow)],
      ["Labels", "labels", null, text((job) => job.labels.join(", "))],
      ["Pool", "", null, text((job) => called(job.pool))],
    ];
    const id = ["Job", "number", null, text((job) => (job.attempt > 1 ? `${job.id}, attempt ${job.attempt}` : job.id))];
    const why = ["Why it waits", "wide", null, reasoned];
    const turn = ["Place", "number", null, text((job) => (job.place ? `${job.place} of ${job.waiting}` : ""))];
    const starts = ["Probably starts", "age", age, estimated];
    const place = ["Runner", "name", null, text((job) => job.runner ?? "not known yet")];
    this.waiting = table("Jobs that wait, the oldest first", [...columns("For"), turn, why, starts, id]);
    this.running = table("Jobs that run, the longest first", [...columns("For"), place, id]);
    this.empty = h("p", { class: "empty" });
    panel.append(this.waits.element, this.waiting.element, this.running.element, this.empty);
  },

  render(state, page) {
    const matching = [...state.jobs].filter(([, job]) => page.matches(job.id, job.repository, job.workflow, job.pool, job.runner, ...job.labels));
    const of = (word) => matching.filter(([, job]) => job.state === word).sort(ascending((job) => job.since));
    const waiting = of("queued");
    this.waiting.show(waiting);
    this.running.show(of("running"));
    this.waits.show(waitsOf(state, waiting, page));
    say(this.empty, state.jobs.size > 0 ? (matching.length > 0 ? "" : "No job matches the filter.") : "No job is known. Jobs are known where webhooks arrive, or an autoscaler lists them.");
  },
};

/** Of those that wait now, from the jobs; of those that got a runner of late, from the operator. */
function waitsOf(state, waiting, page) {
  const ages = new Map(groups(waiting, (job) => job.pool).map(([pool, jobs]) => [pool, jobs.map(([, job]) => (page.now() - Date.parse(job.queued)) / 1000).sort((a, b) => a - b)]));
  const told = (seconds) => (seconds === null || seconds === undefined ? "" : duration(seconds));
  return [...state.pools]
    .filter(([key, pool]) => ages.has(key) || (pool.online_after && page.matches(key)))
    .map(([key, pool]) => {
      const now = ages.get(key) ?? [];
      const late = pool.online_after;
      return [key, {
        pool: key,
        waiting: now.length,
        p50: told(quantile(now, 0.5)),
        p95: told(quantile(now, 0.95)),
        longest: told(now.at(-1)),
        late: late ? `${duration(late.p50)} / ${duration(late.p90)} / ${duration(late.p99)} (${count(late.samples, "job")})` : "",
      }];
    });
}

export const capacity = {
  id: "capacity",
  title: "Capacity",

  make(panel) {
    const number = (title, of) => [title, "number", null, text(of)];
    this.table = table("Runners by pool: how many there may be, should be, are", [
      ["Pool", "name", null, (cell, pool) => described(cell, `${pool.namespace}/${pool.name}`, pool.kind)],
      ["Use", "wide", bars, fillBars],
      number("Min", (pool) => pool.min ?? "–"),
      number("Desired", (pool) => pool.desired),
      number("Actual", (pool) => pool.actual),
      number("Max", (pool) => pool.max ?? "–"),
      ["What limits it", "wide", null, (cell, pool) => described(cell, pool.limit?.word ?? (pool.autoscaler ? "" : "no autoscaler"), pool.limit?.text)],
      ["Policies", "", null, text((pool) => pool.policies ?? "default")],
    ]);
    this.empty = h("p", { class: "empty" });
    panel.append(h("p", { class: "hint" }, "Bars: solid are busy, hollow are idle, striped are on their way. The line is what is desired; the track ends at the maximum."), this.table.element, this.empty);
  },

  render(state, page) {
    const shown = [...state.pools].filter(([key, pool]) => page.matches(key, pool.autoscaler, pool.policies));
    this.table.show(shown.sort(ascending((pool) => `${pool.namespace}/${pool.name}/${pool.kind}`)));
    say(this.empty, shown.length > 0 ? "" : state.pools.size > 0 ? "No pool matches the filter." : "There are no RunnerDeployments, RunnerSets or RunnerReplicaSets.");
  },
};

const PARTS = ["busy", "idle", "coming"];

function bars() {
  return h("div", { class: "use", role: "img" }, PARTS.map((part) => h("i", { class: part })), h("i", { class: "desired" }));
}

function fillBars(cell, pool) {
  const bar = cell.firstChild;
  const whole = Math.max(1, pool.max ?? 0, pool.desired, pool.actual);
  const parts = { busy: pool.counts.busy, idle: pool.counts.idle, coming: pool.counts.pending + pool.counts.starting };
  PARTS.forEach((part, index) => bar.children[index].style.setProperty("--share", parts[part] / whole));
  bar.lastChild.style.setProperty("--share", pool.desired / whole);
  set(bar, "aria-label", `${pool.actual} of at most ${pool.max ?? "no stated maximum"}: ${parts.busy} busy, ${parts.idle} idle, ${parts.coming} on their way; desired ${pool.desired}`);
}

export const decisions = {
  id: "decisions",
  title: "Decisions",

  make(panel) {
    this.compared = table("What policies in shadow answered to the same questions, the newest first", [
      ["Since", "age", age, moment((one) => one.at)],
      ["Pool", "name", null, text((one) => called(one.pool))],
      ["Decision", "", null, text((one) => one.decision)],
      ["Shadow", "", () => h("span", { class: "agreement" }), agreement],
      ["In force answered", "wide", null, (cell, one) => described(cell, one.answered, one.in_force)],
      ["In shadow answered", "wide", null, (cell, one) => described(cell, one.would, one.shadow)],
    ]);
    this.table = table("What was decided since this process leads, the newest first", [
      ["When", "age", age, moment((one) => one.at)],
      ["Pool", "name", null, text((one) => called(one.pool))],
      ["Decision", "", null, text((one) => one.decision)],
      ["What", "wide", null, what],
      ["Decided by", "", null, text((one) => one.policy)],
    ]);
    this.empty = h("p", { class: "empty" });
    panel.append(this.compared.element, this.table.element, this.empty);
  },

  render(state, page) {
    const compared = [...state.comparisons].filter(([, one]) => page.matches(one.pool, one.decision, one.in_force, one.shadow, one.answered, one.would, AGREEMENTS[one.agreement]));
    this.compared.show(newestFirst(compared));
    const shown = [...state.decisions].filter(([, one]) => page.matches(one.pool, one.decision, one.policy, one.summary, ...one.items.map((item) => item.runner)));
    this.table.show(newestFirst(shown));
    say(this.empty, shown.length > 0 ? "" : state.decisions.size > 0 ? "No decision matches the filter." : "Nothing was decided since this process leads. `pacer explain` reads what earlier ones decided.");
  },
};

/** What people read of how two answers stand to each other; the colour only repeats it. */
const AGREEMENTS = { same: "= agrees", differs: "≠ differs", failed: "! failed" };

function agreement(cell, one) {
  say(cell.firstChild, AGREEMENTS[one.agreement] ?? one.agreement);
  set(cell.firstChild, "class", `agreement ${one.agreement}`);
}

function what(cell, one) {
  const named = one.items.map((item) => h("li", {}, h("b", {}, item.runner), ` ${item.text}`));
  const rest = one.more > 0 ? h("li", {}, `and ${count(one.more, "more runner")}`) : null;
  const list = one.items.length > 0 ? h("details", {}, h("summary", {}, one.summary), h("ul", {}, named, rest)) : h("span", {}, one.summary);
  cell.replaceChildren(list);
}

export const github = {
  id: "github",
  title: "GitHub",

  make(panel) {
    this.budgets = table("Requests left, by credentials", [
      ["Credentials", "name", null, (cell, one) => described(cell, one.credentials, one.owner ? `for ${one.owner}` : "")],
      ["Budget", "", null, text((one) => one.resource)],
      ["Left", "wide", () => h("div", { class: "use", role: "img" }, h("i", { class: "left" })), fillLeft],
      ["Full again", "age", age, moment((one) => one.resets_at)],
      ["Secondary limit until", "age", age, moment((one) => one.secondary_until)],
    ]);
    this.calls = table("Calls by outcome, since the client was made", [
      ["Credentials", "name", null, text((one) => one.name)],
      ["Answered", "number", null, text((one) => one.calls.success)],
      ["Unchanged (free)", "number", null, text((one) => one.calls.not_modified)],
      ["Held back here", "number", null, text((one) => one.held_back)],
      ["Rate limited", "number", null, text((one) => one.calls.rate_limited)],
      ["Refused", "number", null, text((one) => one.calls.refused)],
      ["Server errors", "number", null, text((one) => one.calls.server_error)],
      ["No answer", "number", null, text((one) => one.calls.no_answer)],
    ]);
    this.listings = table("Listings of runners", [
      ["Scope", "name", null, (cell, one) => described(cell, one.scope, one.credentials)],
      ["Last good one", "age", age, moment((one) => one.at)],
      ["Runners", "number", null, text((one) => one.runners)],
      ["Failed since", "number", null, text((one) => one.failures)],
      ["What GitHub said", "wide", null, text((one) => one.error ?? "")],
    ]);
    this.redeliveries = table("Failed deliveries of webhooks, since this process began", [
      ["Missing now", "number", null, text((one) => one.missing)],
      ["Asked for again", "number", null, text((one) => one.asked)],
      ["Delivered then", "number", null, text((one) => one.delivered)],
      ["Refused by GitHub", "number", null, text((one) => one.refused)],
      ["Given up", "number", null, text((one) => one.given_up)],
    ]);
    this.webhooks = h("p", { class: "hint" });
    this.empty = h("p", { class: "empty" });
    panel.append(this.budgets.element, this.listings.element, this.calls.element, this.redeliveries.element, this.webhooks, this.empty);
  },

  render(state, page) {
    const credentials = [...state.credentials].filter(([key]) => page.matches(key));
    const rows = credentials.flatMap(([key, one]) =>
      one.budgets.map((budget) => [`${key}/${budget.owner}/${budget.resource}`, { credentials: one.name, secondary_until: one.secondary_until, ...budget }]),
    );
    this.budgets.show(rows);
    this.calls.show(credentials);
    this.listings.show([...state.listings].filter(([key]) => page.matches(key)).sort(ascending((one) => one.scope)));
    const missing = state.operator.missing_webhooks;
    const again = state.operator.redeliveries;
    const known = again && (missing > 0 || Object.values(again).some((number) => number > 0));
    // A trace does not tell.
    this.redeliveries.show(known && !page.recorded ? [["all", { missing, ...again }]] : []);
    say(this.webhooks, page.recorded ? "" : missing > 0 ? `${count(missing, "webhook delivery").replace("deliverys", "deliveries")} failed and ${missing === 1 ? "is" : "are"} asked for again.` : "No webhook delivery is known to be missing.");
    say(this.empty, state.credentials.size > 0 ? "" : "GitHub was not asked yet.");
  },
};

function fillLeft(cell, one) {
  const bar = cell.firstChild;
  const share = one.limit > 0 ? one.remaining / one.limit : 0;
  bar.firstChild.style.setProperty("--share", share);
  set(bar.firstChild, "class", share < 0.1 ? "left low" : "left");
  set(bar, "aria-label", `${one.remaining} of ${one.limit} left`);
  set(bar, "data-text", `${one.remaining} of ${one.limit}`);
}

export const failures = {
  id: "failures",
  title: "Failures",

  make(panel) {
    this.causes = table("By cause", [
      ["Cause", "name", null, text((one) => one.cause)],
      ["Now", "number", null, text((one) => one.now)],
      ["Since this process leads", "number", null, text((one) => one.total)],
      ["Last", "age", age, moment((one) => one.last)],
    ]);
    this.table = table("The newest first", [
      ["When", "age", age, moment((one) => one.at)],
      ["Runner", "name", null, (cell, one) => described(cell, one.runner, called(one.pool))],
      ["What happened", "", null, (cell, one) => described(cell, one.situation, one.cause)],
      ["What the cluster says", "wide", null, text((one) => one.message)],
    ]);
    this.empty = h("p", { class: "empty" });
    panel.append(this.causes.element, this.table.element, this.empty);
  },

  render(state, page) {
    const shown = [...state.failures].filter(([, one]) => page.matches(one.runner, one.pool, one.cause, one.situation, one.message));
    this.causes.show([...state.causes].filter(([key]) => page.matches(key)).sort((one, other) => other[1].now - one[1].now || other[1].total - one[1].total));
    this.table.show(newestFirst(shown));
    say(this.empty, shown.length > 0 ? "" : state.failures.size > 0 ? "No failure matches the filter." : "Nothing has failed since this process leads.");
  },
};

/** The line of figures at the top. */
export function summary(state, now) {
  const counts = tally(state.runners.values());
  const waiting = [...state.jobs.values()].filter((job) => job.state === "queued");
  const oldest = Math.min(...waiting.map((job) => Date.parse(job.queued)));
  const left = [...state.credentials.values()].flatMap((one) => one.budgets).map((budget) => Math.floor((100 * budget.remaining) / Math.max(1, budget.limit)));
  const troubled = [...state.runners.values()].filter((runner) => runner.trouble).length;
  return [
    ["Runners", String(state.runners.size), ""],
    ["Busy", String(counts.get("busy")), ""],
    ["Idle", String(counts.get("idle")), ""],
    ["Jobs waiting", String(waiting.length), ""],
    ["Longest wait", waiting.length > 0 ? duration((now - oldest) / 1000) : "–", ""],
    ["In trouble", String(troubled), troubled > 0 ? "bad" : ""],
    ["GitHub left", left.length > 0 ? `${Math.min(...left)} %` : "–", Math.min(...left) < 10 ? "bad" : ""],
  ];
}
