// The panel about one runner: what it is, what it runs, what the page saw of its life, and the decisions that name it.

import { h, setSince, since } from "./dom.js";

/** Changes that are remembered of a runner while the page is open. */
const CHANGES = 30;

/** What the page has seen of the runners that there are. */
export class Lives {
  seen = new Map();

  /** Takes note of states; forgets runners that are gone, but for the one that is looked at. */
  follow(state, looked) {
    for (const [key, runner] of state.runners) {
      const life = this.seen.get(key) ?? [];
      const last = life.at(-1);
      const repository = runner.job?.repository ?? "";
      if (last?.state !== runner.state || last?.repository !== repository) {
        life.push({ state: runner.state, at: runner.since, repository });
        this.seen.set(key, life.slice(-CHANGES));
      }
    }
    for (const key of this.seen.keys()) {
      if (!state.runners.has(key) && key !== looked) {
        this.seen.delete(key);
      }
    }
  }
}

function row(term, ...value) {
  return value.every((one) => one === null || one === "") ? [] : [h("dt", {}, term), h("dd", {}, ...value)];
}

function moment(text) {
  const element = since(text);
  setSince(element, text);
  return element;
}

/** Fills the panel. */
export function fill(panel, key, state, lives, close) {
  const runner = state.runners.get(key);
  const [namespace, name] = key.split("/");
  const life = lives.seen.get(key) ?? [];
  const told = [...state.decisions.values()].flatMap((one) => one.items.filter((item) => item.runner === name && one.pool.includes(`/${namespace}/`)).map((item) => ({ at: one.at, decision: one.decision, policy: one.policy, text: item.text })));
  const failed = [...state.failures.values()].filter((one) => one.runner === name && one.namespace === namespace);
  // What has not changed stays as it is: somebody may be reading or copying it.
  const content = JSON.stringify([key, runner, life, told, failed]);
  if (panel.dataset.content === content) {
    return;
  }
  panel.dataset.content = content;
  const focused = panel.contains(document.activeElement) ? document.activeElement.id : "";
  const line = (one, text) => h("li", {}, moment(one.at), ` ago: ${text}`);
  panel.replaceChildren(
    ...[
      h("div", { class: "heading" }, h("h2", { id: "detail-title" }, name), h("button", { type: "button", id: "detail-close", click: close }, "Close")),
      runner
        ? h("p", { class: "state" }, h("span", { class: `tile ${runner.state}`, "aria-hidden": "true" }), h("span", {}, `${runner.state} for `, moment(runner.since)))
        : h("p", { class: "state" }, "It is gone."),
      h("dl", {},
        runner?.trouble ? row("In trouble", h("b", {}, `${runner.trouble.situation}: ${runner.trouble.cause}`), " for ", moment(runner.trouble.since), runner.trouble.message ? `: ${runner.trouble.message}` : "") : [],
        runner?.job ? row("Job", `${runner.job.repository} ${runner.job.workflow} (${runner.job.id}), for `, moment(runner.job.since)) : [],
        row("Namespace", namespace),
        row("Pool", runner?.pool ?? ""),
        row("Node", runner?.node ?? ""),
        runner ? row("Made", moment(runner.created), " ago") : [],
        runner?.protected ? row("Protected", "by annotation: no scale-down takes it") : [],
      ),
      h("h3", {}, "Its life, as this page has seen it"),
      h("ol", { class: "life" }, life.map((one) => line(one, one.repository ? `${one.state}, ${one.repository}` : one.state))),
      h("h3", {}, "Decisions that name it"),
      told.length > 0 ? h("ol", { class: "life" }, told.map((one) => line(one, `${one.decision} by ${one.policy}: ${one.text}`))) : h("p", { class: "hint" }, "None since this process leads."),
      failed.length > 0 ? h("h3", {}, "Failures") : null,
      failed.length > 0 ? h("ol", { class: "life" }, failed.map((one) => line(one, `${one.situation}: ${one.cause}. ${one.message}`))) : null,
      h("h3", {}, "More"),
      h("pre", {}, `pacer explain runner ${name} -n ${namespace}\nkubectl describe runner ${name} -n ${namespace}`),
    ].filter((part) => part !== null),
  );
  if (focused) {
    document.getElementById(focused)?.focus();
  }
}
