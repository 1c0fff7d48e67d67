// Simulation: what fleets would be with other policies, side by side. Live, of pools with policies in shadow; over a trace, what `pacer simulate` found.

import { h, say, set } from "./dom.js";
import { count, duration } from "./state.js";
import { described, table, text } from "./tables.js";

const LIVE = ["As it was", "In force, simulated", "In shadow, simulated"];
/** What a policy in shadow is compared with. */
const IN_FORCE = 1;

export const simulation = {
  id: "simulation",
  title: "Simulation",

  make(panel, page) {
    this.head = h("p", { class: "hint" });
    this.sides = h("div", {});
    this.refused = table("Pools of which nothing is said", [
      ["Pool", "name", null, text((one) => one.pool)],
      ["Why", "wide", null, (cell, one) => described(cell, one.refused.word, one.refused.text)],
    ]);
    this.empty = h("p", { class: "empty" });
    panel.append(this.head, this.sides, this.refused.element, this.empty);
    if (page.reported) {
      this.read(page);
    }
  },

  /** The report does not change: it is read once. */
  async read(page) {
    try {
      const response = await fetch("report.json", { cache: "no-store" });
      if (!response.ok) {
        throw new Error((await response.text()).trim());
      }
      this.report = await response.json();
    } catch (error) {
      this.trouble = `The report can't be read: ${error.message}.`;
    }
    page.refresh();
  },

  render(state, page) {
    if (page.recorded) {
      this.renderReport(page);
      return;
    }
    const all = [...state.simulations].filter(([pool]) => page.matches(pool));
    const found = all.filter(([, one]) => !one.refused);
    const rows = found.flatMap(([pool, one]) => one.figures.map((figure) => [`${pool} ${figure.metric}`, row(pool, figure, [figure.recorded, figure.in_force, figure.shadow].map(alone), IN_FORCE)]));
    this.show("Fleets with the policies in force and with those in shadow", LIVE, rows);
    this.refused.show(all.filter(([, one]) => one.refused).map(([pool, one]) => [pool, { pool, ...one }]));
    const told = found.map(([pool, one]) => `${pool}: ${count(one.jobs, "job")} in ${duration((page.now() - Date.parse(one.since)) / 1000)}; the simulation of what is in force misses waits by ${one.wait_error.toFixed(1)} s, runner-minutes by ${percent(one.runner_minutes_error)}`);
    say(this.head, told.join(". "));
    say(this.empty, all.length > 0 ? "" : state.simulations.size > 0 ? "No pool matches the filter." : "Nothing is simulated: no pool has a policy in shadow, or none was simulated yet.");
  },

  renderReport(page) {
    const report = this.report;
    if (!report) {
      say(this.empty, this.trouble ?? (page.reported ? "" : "No report was given: pacer simulate --trace FILE --policies SET --output json > report.json, then pacer ui --trace FILE --report report.json."));
      return;
    }
    const { contenders, rows } = report.comparison;
    const shown = rows.filter((one) => page.matches(group(one), one.metric));
    this.show("Policies side by side; differences are from the first", contenders, shown.map((one) => [`${group(one)} ${one.metric}`, row(group(one), one, one.values, 0)]));
    say(this.head, [`${count(report.jobs, "job")}, ${count(report.seeds, "seed")} from ${report.seed}`, calibrated(report.calibration), report.failure, ...report.notes].filter((part) => part).join(". "));
    say(this.empty, shown.length > 0 ? "" : "No figure matches the filter.");
  },

  /** The columns are made anew where there are other contenders. */
  show(caption, contenders, rows) {
    const wanted = JSON.stringify(contenders);
    if (this.contenders !== wanted) {
      this.contenders = wanted;
      const side = (name, index) => [name, "number", () => [h("b", {}), h("span", {})], (cell, value) => fill(cell, value.sides[index])];
      this.table = table(caption, [["Pool", "name", null, text((one) => one.pool)], ["Figure", "", null, text((one) => one.metric)], ...contenders.map(side)]);
      this.sides.replaceChildren(this.table.element);
    }
    this.table.show(rows);
  },
};

/** Whose figure it is: a pool's, or that of the jobs of a repository or with these labels. */
const group = ({ pool, repository, labels }) => pool ?? repository ?? (labels ? `[${labels}]` : "all pools");

const alone = (value) => ({ mean: value, min: value, max: value });

/** What a row shows: each value, its spread over seeds, and its difference from the one that it is compared with. */
function row(pool, { metric, unit }, values, base) {
  const sides = values.map((value, index) => ({
    told: unit ? `${value.mean.toFixed(2)} ${unit}` : String(Number(value.mean.toFixed(2))),
    more: [value.max - value.min > 0.005 ? `${value.min.toFixed(2)} to ${value.max.toFixed(2)}` : "", index > base ? difference(value.mean, values[base].mean) : ""].filter((part) => part).join(", "),
    far: index > base && Math.abs(value.mean - values[base].mean) > 0.1 * Math.max(Math.abs(values[base].mean), 0.005),
  }));
  return { pool, metric, sides };
}

function fill(cell, side) {
  say(cell.firstChild, side.told);
  say(cell.lastChild, side.more);
  set(cell, "data-far", side.far ? "yes" : null);
}

function difference(value, base) {
  const off = value - base;
  const told = (number, digits) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(digits)}`;
  return Math.abs(base) < 0.005 ? (Math.abs(off) < 0.005 ? "the same" : told(off, 2)) : Math.abs(off) < 0.005 ? "the same" : `${told((100 * off) / base, 1)} %`;
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

function calibrated(calibration) {
  if (!calibration) {
    return "nothing says how true this is: the trace has no runners";
  }
  const far = calibration.deviations.filter((one) => !one.within).map((one) => `${one.pool ? `${one.pool} ` : ""}${one.metric} was ${one.recorded.toFixed(2)} and is simulated as ${one.simulated.toFixed(2)}`);
  return calibration.holds ? "The simulation gives what was recorded, within its bound" : `The simulation is too far from what was recorded: ${far.join("; ")}`;
}
