// Repositories: what runners' time was spent on, and what it cost.

import { h, say } from "./dom.js";
import { described, table, text } from "./tables.js";

/** Rows that are no repository. */
const PAYERS = {
  others: ["others", "repositories beyond the first 200"],
  unknown: ["unknown", "jobs that nobody told of"],
  nobody: ["nobody", "runners that had no job, or none yet"],
};

export const repositories = {
  id: "repositories",
  title: "Repositories",

  make(panel) {
    const number = (title, of) => [title, "number", null, text(of)];
    this.table = table("What runners did for whom, the dearest first; without prices, the most time first", [
      ["Repository", "name", null, (cell, one) => described(cell, ...(PAYERS[one.payer] ?? [one.name, ""]))],
      number("Jobs", (one) => one.jobs),
      number("Busy minutes", (one) => one.busy_minutes.toFixed(1)),
      number("Idle minutes", (one) => one.idle_minutes.toFixed(1)),
      number("Idle share", (one) => share(one.idle_minutes, one.busy_minutes)),
      number("Cost", (one) => one.cost?.toFixed(2) ?? "–"),
    ]);
    this.hint = h("p", { class: "hint" });
    this.empty = h("p", { class: "empty" });
    panel.append(this.hint, this.table.element, this.empty);
  },

  render(state, page) {
    const all = [...state.expenses].map(([name, one]) => [name, { name, ...one }]);
    const shown = all.filter(([name]) => page.matches(name));
    const spent = (one) => one.busy_minutes + one.idle_minutes;
    this.table.show(shown.sort((one, other) => (other[1].cost ?? 0) - (one[1].cost ?? 0) || spent(other[1]) - spent(one[1])));
    const since = page.recorded ? "from the beginning of the trace" : "since this process leads, twice a minute";
    const unpriced = all.reduce((sum, [, one]) => sum + one.unpriced_minutes, 0);
    const prices = all.some(([, one]) => one.cost !== undefined) ? (unpriced > 0 ? ` ${unpriced.toFixed(1)} minutes have no price: their nodes are not in the file of --node-prices.` : "") : page.recorded ? " A trace has no prices." : " Costs are told with --node-prices.";
    say(this.hint, all.length > 0 ? `Counted ${since}. A runner's time before a job belongs to the repository of that job.${prices}` : "");
    say(this.empty, shown.length > 0 ? "" : all.length > 0 ? "No repository matches the filter." : "No runner was busy or idle yet.");
  },
};

function share(idle, busy) {
  return idle + busy > 0 ? `${Math.round((100 * idle) / (idle + busy))} %` : "–";
}
