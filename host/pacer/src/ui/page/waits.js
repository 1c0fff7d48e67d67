// Waits: how long jobs waited over the last two hours, by pool and labels; a line per row, and the same as numbers.

import { h, say, set, setSince, since } from "./dom.js";
import { ascending, table, text } from "./tables.js";
import { called, count, duration } from "./state.js";

/** Milliseconds of a bin, and how many are shown. */
const BIN = 300_000;
const BINS = 24;
const HEIGHT = 24;
/** What is drawn, in the order of the paths of the page's drawing. */
const LINES = ["max", "p95", "p50"];

export const waits = {
  id: "waits",
  title: "Waits",

  make(panel) {
    const seconds = (title, of) => [title, "number", null, text((one) => duration(of(one)))];
    const named = (of) => [
      ["Pool", "name", null, text((one) => called(of(one).pool))],
      ["Labels", "labels", null, text((one) => (of(one).others ? "all other labels" : of(one).labels.join(", ") || "none"))],
    ];
    const figures = (of) => [["Jobs", "number", null, text((one) => of(one).jobs)], seconds("p50", (one) => of(one).p50), seconds("p95", (one) => of(one).p95), seconds("Longest", (one) => of(one).max)];
    const row = (one) => one.row;
    this.table = table("Waits of jobs that started in the last two hours", [...named(row), ...figures(row), ["Over time", "wide", drawing, draw]]);
    this.bins = table("The same by spans of five minutes, the newest first", [
      ["From", "age", () => since(null), (cell, one) => setSince(cell.firstChild, one.bin.from)],
      ...named(row),
      ...figures((one) => one.bin),
    ]);
    this.numbers = h("details", { class: "numbers", toggle: () => this.refresh() }, h("summary", {}, "As numbers"), this.bins.element);
    this.hint = h("p", { class: "hint" }, "From left to right two hours: the thick line is p50, the thin one p95, the dots are the longest wait of each five minutes. The top of each picture is its row's longest wait.");
    this.empty = h("p", { class: "empty" });
    panel.append(this.hint, this.table.element, this.numbers, this.empty);
  },

  render(state, page) {
    this.refresh = page.refresh;
    const shown = [...state.waits].filter(([, row]) => page.matches(row.pool, ...row.labels)).sort(ascending((row) => `${row.pool} ${row.others ? 1 : 0} ${row.labels}`));
    // What is drawn depends on the moment as well.
    const last = Math.floor(page.now() / BIN);
    // The same object for as long as its row looks the same, so that nothing is drawn for nothing.
    const same = (key, row) => (this.rows?.get(key)?.row === row && this.rows.get(key).last === last ? this.rows.get(key) : { row, last });
    this.rows = new Map(shown.map(([key, row]) => [key, same(key, row)]));
    this.table.show([...this.rows]);
    const bins = this.numbers.open ? shown.flatMap(([key, row]) => row.bins.map((bin) => [`${key} ${bin.from}`, { row, bin }])) : [];
    this.bins.show(bins.sort((one, other) => Date.parse(other[1].bin.from) - Date.parse(one[1].bin.from)));
    this.hint.hidden = shown.length === 0;
    this.numbers.hidden = shown.length === 0;
    say(this.empty, shown.length > 0 ? "" : state.waits.size > 0 ? "No pool matches the filter." : "No job is known to have started in the last two hours.");
  },
};

/** The page has it, because a script would have to name an address to make one. */
function drawing() {
  return document.getElementById("drawing").content.firstElementChild.cloneNode(true);
}

/** Spans without a job are gaps. */
function draw(cell, { row, last }) {
  const svg = cell.firstChild;
  const at = (bin) => Math.floor(Date.parse(bin.from) / BIN) - last + BINS - 1;
  const seen = row.bins.filter((bin) => at(bin) >= 0 && at(bin) < BINS);
  const y = (seconds) => (HEIGHT - 1 - ((HEIGHT - 2) * seconds) / Math.max(1, row.max)).toFixed(2);
  LINES.forEach((line, index) => {
    const parts = seen.map((bin, place) => {
      const joined = line !== "max" && place > 0 && at(seen[place - 1]) === at(bin) - 1;
      // Dots are lines without length that have round ends.
      const [from, to] = line === "max" ? [at(bin) + 0.5, at(bin) + 0.5] : [at(bin), at(bin) + 1];
      return `${joined ? "L" : "M"}${from} ${y(bin[line])}L${to} ${y(bin[line])}`;
    });
    set(svg.children[index], "d", parts.join(""));
  });
  const newest = seen.at(-1);
  set(svg, "aria-label", newest ? `${count(seen.length, "span")} of five minutes with jobs; in the newest p50 ${duration(newest.p50)}, p95 ${duration(newest.p95)}, longest ${duration(newest.max)}` : "no job in the last two hours");
}
