// Fleet: one tile per runner, grouped by pool or node, coloured and patterned by state.

import { h, keyed, roving, say, set } from "./dom.js";
import { STATES, called, groups, tally } from "./state.js";

const UNPLACED = "no node yet";
const ALONE = "stand-alone runners";

export const fleet = {
  id: "fleet",
  title: "Fleet",

  make(panel, page) {
    this.legend = h("ul", { class: "legend", "aria-label": "States of runners" });
    for (const [state, meaning] of STATES) {
      this.legend.append(
        h("li", { title: meaning }, h("span", { class: `tile ${state}`, "aria-hidden": "true" }), h("span", {}, state), h("b", {}, "0")),
      );
    }
    this.legend.append(
      h("li", { title: "a red corner: see its cause in the runner's details" }, h("span", { class: "tile trouble", "aria-hidden": "true" }), "in trouble"),
    );
    const by = (value, label, checked) =>
      h("label", {}, h("input", { type: "radio", name: "by", value, checked, change: () => this.regroup(value, page) }), label);
    this.by = "pool";
    this.groups = h("div", { class: "groups" });
    this.empty = h("p", { class: "empty" });
    panel.append(
      h("div", { class: "bar" }, h("fieldset", {}, h("legend", {}, "Group by"), by("pool", "pool", true), by("node", "node")), this.legend),
      this.groups,
      this.empty,
    );
    this.groups.addEventListener("click", (event) => {
      const tile = event.target.closest(".tile");
      if (tile) {
        page.open(tile.dataset.key, tile);
      }
    });
  },

  regroup(value, page) {
    this.by = value;
    page.refresh();
  },

  render(state, page) {
    const shown = [...state.runners].filter(([, runner]) => page.matches(runner.name, runner.node, runner.job?.repository, runner.pool, runner.state));
    const counts = tally(shown.map(([, runner]) => runner));
    [...this.legend.children].slice(0, STATES.length).forEach((item, index) => say(item.lastChild, String(counts.get(STATES[index][0]))));
    const name = this.by === "pool" ? (runner) => called(runner.pool) || ALONE : (runner) => runner.node || UNPLACED;
    keyed(this.groups, groups(shown, name), group, (element, members) => fill(element, members, page));
    say(this.empty, shown.length > 0 ? "" : state.runners.size > 0 ? "No runner matches the filter." : "There are no runners.");
  },
};

function group(name) {
  const title = h("h3", {}, name);
  const tiles = h("div", { class: "tiles", role: "group", "aria-label": `runners of ${name}` });
  roving(tiles, ".tile");
  return h("section", { class: "group" }, h("div", { class: "heading" }, title, h("p", {})), tiles);
}

function fill(element, members, page) {
  const [heading, tiles] = element.children;
  const counts = tally(members.map(([, runner]) => runner));
  const words = [...counts].filter(([, number]) => number > 0).map(([state, number]) => `${number} ${state}`);
  say(heading.lastChild, words.join(", "));
  // What the browser assumes of groups that are out of sight, so that the scroll bar does not jump.
  element.style.setProperty("--tiles", members.length);
  keyed(tiles, members, tile, (button, runner) => paint(button, runner, page));
  if (!tiles.querySelector('[tabindex="0"]')) {
    tiles.firstChild?.setAttribute("tabindex", "0");
  }
}

function tile(key) {
  return h("button", { type: "button", "data-key": key, tabindex: "-1" });
}

function paint(button, runner) {
  set(button, "class", `tile ${runner.state}${runner.trouble ? " trouble" : ""}`);
  const job = runner.job ? `, ${runner.job.repository}` : "";
  const trouble = runner.trouble ? `, in trouble: ${runner.trouble.cause}` : "";
  const words = `${runner.name}, ${runner.state}${job}${trouble}`;
  set(button, "aria-label", words);
  set(button, "title", words);
}
