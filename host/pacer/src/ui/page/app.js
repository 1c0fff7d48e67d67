// The page: tabs, figures, banner and panel, drawn at most once per frame from the newest state.

import { Lives, fill } from "./detail.js";
import { h, keyed, roving, say, set } from "./dom.js";
import { fleet } from "./fleet.js";
import { follow } from "./live.js";
import { past } from "./past.js";
import { repositories } from "./repositories.js";
import { simulation } from "./simulation.js";
import { apply, count, duration, read } from "./state.js";
import { capacity, decisions, failures, github, queue, summary } from "./tables.js";
import { waits } from "./waits.js";

const SCREENS = [fleet, queue, waits, capacity, decisions, simulation, repositories, github, failures];
/** A gap in the connection that is shorter than this is nobody's concern. */
const PATIENCE = 3_000;
/** Screen readers hear the figures again after this. */
const SPEECH = 15_000;

const $ = (id) => document.getElementById(id);
const lives = new Lives();
let state = null;
let chosen = SCREENS[0];
let looked = null;
let opener = null;
let filter = "";
let lost = { since: Date.now(), why: "connecting" };
let skew = 0;
let drawn = true;
let spoken = 0;
/** The first and the last moment of the trace that is shown instead of the operator. */
const { from, to, report } = document.body.dataset;
const recorded = from !== undefined;

/** What screens may ask of the page. */
const page = {
  recorded,
  /** Whether a report of `pacer simulate` was given. */
  reported: report !== undefined,
  // In a trace nothing ages.
  now: () => (recorded ? (state?.at ?? 0) : Date.now() + skew),
  matches: (...texts) => filter === "" || texts.some((text) => text && String(text).toLowerCase().includes(filter)),
  refresh,
  open(key, from) {
    looked = key;
    opener = from;
    $("detail").hidden = false;
    refresh();
    $("detail").focus();
  },
};

function close() {
  looked = null;
  $("detail").hidden = true;
  opener?.focus();
}

/** Draws with the next frame. */
function refresh() {
  if (drawn) {
    drawn = false;
    requestAnimationFrame(draw);
  }
}

function draw() {
  drawn = true;
  if (state) {
    chosen.render(state, page);
    figures();
    if (looked) {
      fill($("detail"), looked, state, lives, close);
    }
  }
  tick();
}

function figures() {
  const figures = summary(state, page.now());
  keyed($("counts"), figures.map(([title, text, kind]) => [title, { text, kind }]), (title) => h("div", {}, h("dt", {}, title), h("dd", {})), (element, figure) => {
    say(element.lastChild, figure.text);
    set(element, "class", figure.kind);
  });
  if (Date.now() - spoken > SPEECH) {
    spoken = Date.now();
    say($("spoken"), figures.map(([title, text]) => `${title}: ${text}`).join(", "));
  }
  const { role, version, left_out: left } = state.operator;
  const words = { acting: "leads", filling: "reads the cluster", standby: "stands by; another replica leads and knows more", starting: "starts" };
  const missing = left.runners + left.jobs > 0 ? `; ${count(left.runners, "runner")} and ${count(left.jobs, "job")} are not shown` : "";
  say($("operator"), recorded ? `a trace by ${version}${missing}` : `${version}, ${words[role] ?? role}${missing}`);
}

/** Ages, and whether the page is live: both change by themselves. */
function tick() {
  const now = page.now();
  for (const time of document.querySelectorAll("[role=tabpanel]:not([hidden]) time, #detail:not([hidden]) time")) {
    const at = Date.parse(time.getAttribute("datetime"));
    const past = () => time.dataset.past ?? duration((now - at) / 1000);
    const told = Number.isNaN(at) ? "" : at > now + 1000 ? `in ${duration((at - now) / 1000)}` : past();
    say(time, told);
  }
  const away = lost && Date.now() - lost.since > PATIENCE;
  const banner = $("banner");
  if (away) {
    const since = state ? `Not live since ${new Date(state.at).toLocaleTimeString()}` : "Not connected";
    say(banner, recorded ? `This moment can't be shown: ${lost.why}.` : `${since}: ${lost.why}. Trying again.`);
  }
  banner.hidden = !away;
  set(document.body, "data-stale", away && state ? "yes" : null);
  say($("live"), lost ? "connecting" : recorded ? "recorded" : "live");
  set($("live"), "data-live", lost ? "no" : "yes");
}

function onEvent({ event, data }) {
  if (event === "snapshot") {
    state = read(JSON.parse(data));
  } else if (event === "delta") {
    if (!state || !apply(state, JSON.parse(data))) {
      return false;
    }
  } else if (event === "beat" && state) {
    state.at = Date.parse(JSON.parse(data).at);
  }
  if (state) {
    skew = state.at - Date.now();
    lives.follow(state, looked);
  }
  refresh();
  return true;
}

function onChange(live, why) {
  lost = live ? null : { since: lost?.since ?? Date.now(), why };
  tick();
}

function choose(screen, focus) {
  chosen = screen;
  for (const one of SCREENS) {
    const here = one === screen;
    $(`tab-${one.id}`).setAttribute("aria-selected", String(here));
    $(`tab-${one.id}`).setAttribute("tabindex", here ? "0" : "-1");
    $(`screen-${one.id}`).hidden = !here;
  }
  if (focus) {
    history.replaceState(null, "", `#${screen.id}`);
  }
  document.title = `${screen.title} – pacer`;
  refresh();
}

function build() {
  for (const screen of SCREENS) {
    const tab = h("button", { type: "button", role: "tab", id: `tab-${screen.id}`, "aria-controls": `screen-${screen.id}`, click: () => choose(screen, true), focus: () => choose(screen, true) }, screen.title);
    const panel = h("section", { role: "tabpanel", id: `screen-${screen.id}`, "aria-labelledby": `tab-${screen.id}`, hidden: true }, h("h2", { class: "unseen" }, screen.title));
    $("tabs").append(tab);
    $("screens").append(panel);
    screen.make(panel, page);
  }
  roving($("tabs"), "[role=tab]");
  const input = h("input", { type: "search", id: "filter", placeholder: "name, repository, node …", input: () => {
    filter = input.value.trim().toLowerCase();
    refresh();
  } });
  document.querySelector("nav").append(h("label", { class: "filter" }, h("span", {}, "Filter"), input));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && looked) {
      close();
    }
  });
  const named = () => SCREENS.find((screen) => `#${screen.id}` === location.hash);
  window.addEventListener("hashchange", () => named() && choose(named(), false));
  choose(named() ?? SCREENS[0], false);
  setInterval(() => (document.hidden ? null : tick()), 1000);
}

/** What a trace tells of one moment. */
function onPast(snapshot) {
  const next = read(snapshot);
  if (state && next.at < state.at) {
    lives.seen.clear();
  }
  state = next;
  lives.follow(state, looked);
  refresh();
}

build();
if (recorded) {
  past(from, to, onPast, (why) => onChange(why === null, why));
} else {
  follow("events", onEvent, onChange);
}
