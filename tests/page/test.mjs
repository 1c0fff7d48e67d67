// Every screen against canned snapshots, in headless Chromium: live updates, reconnect, errors, accessibility, both themes, narrow.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, it } from "node:test";

import { launch, open } from "./browser.mjs";
import { churn, difference, snapshot } from "./canned.mjs";
import { serve } from "./server.mjs";
import { reader, pause } from "../../host/pacer/src/ui/page/live.js";
import { apply, duration, quantile, read } from "../../host/pacer/src/ui/page/state.js";

const SCREENS = ["fleet", "queue", "waits", "capacity", "decisions", "simulation", "repositories", "github", "failures"];
const THREE = JSON.parse(await readFile(new URL("three.json", import.meta.url)));
const AXE = await readFile(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** What a value that is not there looks like. */
const NOTHING = /null|undefined|NaN|Invalid/;

const copy = (value) => structuredClone(value);
const live = (page) => page.locator("#live[data-live=yes]").waitFor();

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** Serves a snapshot and opens the page; ends with the test. */
async function scene(test, shown, options = {}, screen = "fleet") {
  const server = await serve(shown);
  const opened = await open(browser, `${server.url}#${screen}`, options);
  test.after(async () => {
    await opened.context.close();
    await server.close();
  });
  await live(opened.page);
  return { server, ...opened };
}

async function violations(page) {
  // Evaluated, not added as an element: the page's policy forbids that.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html).join(" | ")}`);
}

describe("state", () => {
  it("follows differences and notices a gap", () => {
    const shown = snapshot(50);
    const state = read(copy(shown));
    for (let step = 1; step < 30; step += 1) {
      assert.equal(apply(state, churn(shown, 7, step)), true);
    }
    const [first] = Object.keys(shown.runners);
    assert.equal(apply(state, difference(shown, {}, { runners: [first] })), true);
    assert.deepEqual(state, { ...read(copy(shown)), at: state.at });
    assert.equal(apply(state, { number: 99, after: 98, at: new Date().toISOString() }), false);
  });

  it("refuses a form that it does not know", () => {
    assert.throws(() => read({ ...copy(THREE), version: 2 }), /form 2/);
  });

  it("cuts a stream into events wherever it is broken", () => {
    const text = 'event: snapshot\ndata: {"a":1}\n\nevent: beat\ndata: {}\n\n';
    for (let at = 0; at <= text.length; at += 1) {
      const found = [];
      const take = reader((event) => found.push(event));
      take(text.slice(0, at));
      take(text.slice(at));
      assert.deepEqual(found, [{ event: "snapshot", data: '{"a":1}' }, { event: "beat", data: "{}" }]);
    }
  });

  it("backs off, and tells times and ranks", () => {
    assert.deepEqual([0, 1, 2, 9].map((attempt) => pause(attempt, 0.5)), [500, 1000, 2000, 15_000]);
    assert.deepEqual([0, 59, 60, 3600 + 300, 90_000].map((seconds) => duration(seconds)), ["0 s", "59 s", "1 min", "1 h 05", "1 d"]);
    assert.deepEqual([quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 0.95), quantile([], 0.5)], [2, 4, null]);
  });
});

describe("screens", () => {
  for (const [name, make] of [["three runners, as the operator writes them", () => copy(THREE)], ["2,000 runners", () => snapshot(2000)]]) {
    for (const colorScheme of ["light", "dark"]) {
      it(`show ${name}, ${colorScheme}, without an error or a violation, wide and narrow`, async (test) => {
        const { page, errors } = await scene(test, make(), { colorScheme });
        for (const screen of SCREENS) {
          await page.getByRole("tab", { name: new RegExp(`^${screen}$`, "i") }).click();
          await page.locator(`#screen-${screen}`).waitFor();
          for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 740 }]) {
            await page.setViewportSize(viewport);
            const shown = await page.locator(`#screen-${screen} :is(.tile, td):visible`).count();
            assert.ok(shown > 0, `${screen} is empty`);
            const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
            assert.doesNotMatch(await page.locator(`#screen-${screen}`).innerText(), NOTHING);
            assert.equal(overflow, 0, `${screen} is ${overflow} px too wide at ${viewport.width} px`);
            // Two thousand tiles are alike; axe takes half a minute for them.
            if (name.startsWith("three") || screen !== "fleet") {
              assert.deepEqual(await violations(page), [], `${screen} at ${viewport.width} px`);
            }
          }
        }
        assert.deepEqual(errors, []);
      });
    }
  }
});

describe("fleet", () => {
  it("shows states as they change, and the life of a runner that is looked at", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown);
    const tile = page.locator('[data-key="ci/web-1-b"]');
    assert.match(await tile.getAttribute("aria-label"), /web-1-b, idle/);
    await tile.click();
    const panel = page.locator("#detail");
    await panel.getByRole("heading", { name: "web-1-b" }).waitFor();
    const job = { id: 5, repository: "acme/other", workflow: "lint", since: new Date().toISOString() };
    server.send("delta", difference(shown, { runners: { "ci/web-1-b": { ...shown.runners["ci/web-1-b"], state: "busy", since: new Date().toISOString(), job } } }));
    await page.locator('[data-key="ci/web-1-b"].busy').waitFor();
    await panel.getByText("acme/other lint").waitFor();
    assert.match(await panel.innerText(), /ago: idle[\s\S]*ago: busy, acme\/other/);
    assert.doesNotMatch(await panel.innerText(), NOTHING);
    assert.deepEqual(await violations(page), []);
    server.send("delta", difference(shown, {}, { runners: ["ci/web-1-b"] }));
    await panel.getByText("It is gone.").waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await panel.isVisible(), false);
    assert.deepEqual(errors, []);
  });

  it("is used with the keyboard alone", async (test) => {
    const { page } = await scene(test, snapshot(40));
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator("[role=tab][aria-selected=true]").innerText(), "Queue");
    await page.keyboard.press("Home");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    const first = await page.evaluate(() => document.activeElement.dataset.key);
    assert.ok(first, "the first tile has the focus");
    await page.keyboard.press("ArrowRight");
    const second = await page.evaluate(() => document.activeElement.dataset.key);
    assert.notEqual(second, first);
    await page.keyboard.press("Enter");
    await page.locator("#detail").waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.dataset.key), second, "the focus is back");
  });

  it("finds runners by what people know of them, and groups them by node", async (test) => {
    const { page } = await scene(test, snapshot(120));
    await page.getByLabel("node").check();
    await page.getByRole("heading", { name: "node-03", exact: true }).waitFor();
    await page.getByLabel("Filter").fill("acme/web");
    await page.locator("button.tile:not(.busy)").first().waitFor({ state: "detached" });
    const names = await page.locator("button.tile").evaluateAll((tiles) => tiles.map((tile) => tile.getAttribute("aria-label")));
    assert.ok(names.length > 0 && names.every((name) => name.includes("acme/web")), names.join());
    await page.getByLabel("Filter").fill("no such thing");
    await page.getByText("No runner matches the filter.").waitFor();
  });

  it("keeps up with 50 changes a second of 2,000 runners", async (test) => {
    const shown = snapshot(2000);
    const { page, server, errors } = await scene(test, shown);
    await page.evaluate(() => {
      globalThis.longest = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => (globalThis.longest = Math.max(globalThis.longest, entry.duration)))).observe({ entryTypes: ["longtask"] });
    });
    for (let step = 1; step <= 10; step += 1) {
      server.send("delta", churn(shown, 50, step));
      await page.waitForTimeout(200);
    }
    const busy = Object.values(shown.runners).filter((runner) => runner.state === "busy").length;
    await page.locator("#counts div:has(dt:text-is('Busy')) dd").getByText(String(busy), { exact: true }).waitFor();
    assert.equal(await page.locator("button.tile.busy").count(), busy);
    const longest = await page.evaluate(() => globalThis.longest);
    console.log(`longest task of the browser while 50 of 2,000 runners change at a time: ${longest} ms`);
    assert.ok(longest < 400, `${longest} ms`);
    assert.deepEqual(errors, []);
  });
});

describe("connection", () => {
  it("comes back by itself, says since when the page is not live, and takes the newest state", async (test) => {
    const shown = copy(THREE);
    const { page, server } = await scene(test, shown);
    server.refusal = { status: 503, after: "1", text: "20 people are watching already, which is all there is room for\n" };
    server.drop();
    await page.locator("#banner").getByText(/^Not live since .*20 people are watching already/).waitFor();
    assert.deepEqual(await violations(page), []);
    shown.runners["ci/web-1-a"].state = "stopping";
    shown.number = 40;
    server.refusal = null;
    await page.locator('[data-key="ci/web-1-a"].stopping').waitFor();
    await page.locator("#banner").waitFor({ state: "hidden" });
  });

  it("asks for a whole snapshot when a difference is missing", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown);
    difference(shown, { runners: { "ci/new": { ...shown.runners["ci/web-1-a"], name: "new" } } });
    server.send("delta", difference(shown, {}));
    await page.locator('[data-key="ci/new"]').waitFor();
    assert.deepEqual(errors, []);
  });

  it("tells that a token is needed", async (test) => {
    const { page, server } = await scene(test, copy(THREE));
    server.refusal = { status: 401, after: "0", text: "this page asks for the token of --ui-token-file\n" };
    server.drop();
    await page.locator("#banner").getByText(/asks for the token/).waitFor();
  });
});

describe("a trace", () => {
  it("is shown as it was at the moment of the slider, by keyboard, wide and narrow", async (test) => {
    const from = Date.parse("2026-01-01T00:00:00Z");
    const asked = [];
    const at = (moment) => {
      asked.push(moment);
      const shown = { ...copy(THREE), at: moment, operator: { ...THREE.operator, version: "pacer 0.1.0", missing_webhooks: 0 } };
      const [name] = Object.keys(shown.credentials);
      // What is left sinks by ten calls a second.
      const remaining = 5000 - (Date.parse(moment) - from) / 100;
      shown.credentials[name] = { ...shown.credentials[name], calls: {}, budgets: [{ resource: "core", owner: null, limit: 5000, remaining, resets_at: "2026-01-01T01:00:00Z" }] };
      return shown;
    };
    const server = await serve(null, 0, { from: "2026-01-01T00:00:00Z", to: "2026-01-01T00:01:40.5Z", at });
    const { page, errors, context } = await open(browser, `${server.url}#github`);
    test.after(async () => {
      await context.close();
      await server.close();
    });
    await live(page);
    assert.match(await page.locator("header").innerText(), /a trace by pacer 0\.1\.0[\s\S]*recorded/);
    const left = page.locator("#screen-github .use");
    const shows = (text) => page.waitForFunction((wanted) => document.querySelector("#screen-github .use")?.dataset.text === wanted, text);
    assert.equal(asked.at(-1), "2026-01-01T00:01:40.500Z");
    const slider = page.getByLabel("Moment", { exact: true });
    await slider.focus();
    await page.keyboard.press("Home");
    await shows("5000 of 5000");
    await page.keyboard.press("ArrowRight");
    await shows("4990 of 5000");
    assert.equal(asked.at(-1), "2026-01-01T00:00:01.000Z");
    assert.match(await slider.getAttribute("aria-valuetext"), /00:00:01/);
    assert.equal(await left.count(), 1);
    for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 740 }]) {
      await page.setViewportSize(viewport);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      assert.doesNotMatch(await page.locator("body").innerText(), NOTHING);
      assert.deepEqual(await violations(page), []);
    }
    assert.deepEqual(errors, []);
  });
});

describe("decisions", () => {
  it("show what a policy in shadow answered beside them, as it happens", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown, {}, "decisions");
    const row = page.locator("tr:has(.agreement)");
    assert.match(await row.first().innerText(), /ci\/web[\s\S]*scale-down[\s\S]*≠ differs[\s\S]*remove web-1-z[\s\S]*default@sha256[\s\S]*remove web-1-b[\s\S]*fullest-node-last@sha256/);
    const [first] = Object.values(shown.comparisons);
    const told = (number, agreement, would) => server.send("delta", difference(shown, { comparisons: { [String(number).padStart(12, "0")]: { ...first, at: new Date().toISOString(), would, agreement } } }));
    told(2, "same", first.answered);
    await row.first().getByText("= agrees").waitFor();
    told(3, "failed", "it took longer than 50 ms");
    await row.first().getByText("! failed").waitFor();
    await row.first().getByText("it took longer than 50 ms").waitFor();
    assert.equal(await row.count(), 3);
    assert.deepEqual(await violations(page), []);
    await page.getByLabel("Filter").fill("agrees");
    await row.nth(1).waitFor({ state: "detached" });
    assert.match(await row.innerText(), /= agrees/);
    assert.deepEqual(errors, []);
  });
});

describe("simulation", () => {
  it("shows what fleets would be with policies in shadow, and why that is not said", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown, {}, "simulation");
    const cells = () => page.locator("#screen-simulation tr:has-text('wait.p95') td").allInnerTexts();
    assert.deepEqual((await cells()).map((text) => text.replace(/\s+/g, " ").trim()), ["ci/web", "wait.p95", "40.00 s", "39.50 s", "61.25 s +55.1 %"]);
    assert.match(await page.locator("#screen-simulation").innerText(), /40 jobs in 1 h[\s\S]*misses waits by 0\.5 s, runner-minutes by 1\.0 %[\s\S]*NoJob[\s\S]*no job has come in that time/);
    const web = shown.simulations["ci/web"];
    server.send("delta", difference(shown, { simulations: { "ci/web": { ...web, figures: [{ metric: "wait.p95", unit: "s", recorded: 40, in_force: 50, shadow: 50 }] } } }));
    await page.locator("#screen-simulation").getByText("the same").waitFor();
    server.send("delta", difference(shown, {}, { simulations: ["ci/web", "ci/api"] }));
    await page.getByText("Nothing is simulated: no pool has a policy in shadow").waitFor();
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(errors, []);
  });

  it("shows the policies of a report side by side, and what to do without one", async (test) => {
    const spread = (mean, width = 0) => ({ mean, min: mean - width, max: mean + width });
    const report = {
      jobs: 22, seed: 1, seeds: 3, notes: ["the trace tells of no room"], failure: null,
      calibration: { holds: true, bound: {}, deviations: [] },
      comparison: { contenders: ["builtin", "patient", "eager"], rows: [
        { pool: null, metric: "wait.p95", unit: "s", values: [spread(40, 2), spread(50), spread(40)] },
        { pool: "ci/web", metric: "removals", unit: "", values: [spread(0), spread(3), spread(0)] },
      ] },
    };
    const trace = { from: "2026-01-01T00:00:00Z", to: "2026-01-01T00:01:00Z", at: (at) => ({ ...copy(THREE), at }) };
    const show = async (past) => {
      const server = await serve(null, 0, past);
      const opened = await open(browser, `${server.url}#simulation`);
      test.after(async () => {
        await opened.context.close();
        await server.close();
      });
      await live(opened.page);
      return opened;
    };
    const { page, errors } = await show({ ...trace, report });
    const row = async (metric) => (await page.locator(`#screen-simulation tr:has-text('${metric}') td`).allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());
    await page.locator("#screen-simulation").getByText("wait.p95").waitFor();
    assert.deepEqual(await row("wait.p95"), ["all pools", "wait.p95", "40.00 s 38.00 to 42.00", "50.00 s +25.0 %", "40.00 s the same"]);
    assert.deepEqual(await row("removals"), ["ci/web", "removals", "0", "3 +3.00", "0 the same"]);
    assert.match(await page.locator("#screen-simulation").innerText(), /22 jobs, 3 seeds from 1\. The simulation gives what was recorded, within its bound\. the trace tells of no room/);
    for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 740 }]) {
      await page.setViewportSize(viewport);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      assert.doesNotMatch(await page.locator("#screen-simulation").innerText(), NOTHING);
      assert.deepEqual(await violations(page), []);
    }
    assert.deepEqual(errors, []);
    const without = await show(trace);
    await without.page.getByText(/No report was given: pacer simulate --trace FILE/).waitFor();
    assert.deepEqual(without.errors, []);
  });
});

describe("repositories", () => {
  it("tell busy and idle minutes and what they cost, the dearest first", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown, {}, "repositories");
    const rows = async () => (await page.locator("#screen-repositories tbody tr").allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());
    assert.deepEqual(await rows(), ["acme/app 9 31.5 12.0 28 % 0.42", "nobody runners that had no job, or none yet 0 31.5 12.0 28 % 0.42"]);
    const expense = shown.expenses["acme/app"];
    server.send("delta", difference(shown, { expenses: { "acme/dear": { ...expense, cost: 9.5, unpriced_minutes: 3 } } }));
    await page.getByText("acme/dear").waitFor();
    assert.match((await rows())[0], /^acme\/dear 9 31\.5 12\.0 28 % 9\.50$/);
    await page.getByText(/3\.0 minutes have no price/).waitFor();
    const { cost, ...free } = expense;
    server.send("delta", difference(shown, { expenses: { "acme/app": free } }, { expenses: ["acme/dear", "nobody"] }));
    await page.getByText(/Costs are told with --node-prices/).waitFor();
    assert.deepEqual(await rows(), ["acme/app 9 31.5 12.0 28 % –"]);
    assert.deepEqual(errors, []);
  });
});

describe("github", () => {
  it("tells what became of failed deliveries of webhooks, where there were any", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown, {}, "github");
    const table = page.locator(".table:has(caption:text('Failed deliveries'))");
    const cells = async () => (await table.locator("td").allInnerTexts()).map((text) => text.trim());
    assert.deepEqual(await cells(), ["0", "5", "3", "1", "0"]);
    const tell = (redeliveries) => server.send("delta", { ...difference(shown, {}), operator: { ...shown.operator, redeliveries } });
    tell({ asked: 6, delivered: 3, refused: 1, given_up: 1 });
    await page.waitForFunction(() => document.querySelector("#screen-github td[data-title='Given up']")?.textContent === "1");
    assert.deepEqual(await cells(), ["0", "6", "3", "1", "1"]);
    tell({ asked: 0, delivered: 0, refused: 0, given_up: 0 });
    await table.waitFor({ state: "hidden" });
    assert.deepEqual(errors, []);
  });
});

describe("queue", () => {
  it("tells when a job that waits will probably start", async (test) => {
    const shown = copy(THREE);
    const [key, waiting] = Object.entries(shown.jobs).find(([, job]) => job.state === "queued");
    const soon = (seconds) => new Date(Date.now() + seconds * 1000).toISOString();
    const { page, server, errors } = await scene(test, shown, {}, "queue");
    const cell = page.locator('[data-title="Probably starts"]');
    const told = (estimate) => server.send("delta", difference(shown, { jobs: { [key]: { ...waiting, estimate } } }));
    told({ likely: soon(200), latest: soon(900) });
    await cell.getByText("in 3 min").waitFor();
    assert.match(await cell.getAttribute("title"), /nine times out of ten by/);
    assert.equal(await page.locator('[data-title="Place"]').innerText(), "1 of 1");
    const stands = page.locator('[data-title="Why it waits"] time');
    assert.equal(await stands.getAttribute("datetime"), waiting.reason_since);
    told({ likely: soon(-9), latest: soon(30) });
    await cell.getByText("any moment").waitFor();
    told(undefined);
    await page.waitForFunction((cell) => document.querySelector(cell).textContent === "", '[data-title="Probably starts"]');
    assert.deepEqual(errors, []);
  });
});

describe("waits", () => {
  it("are a line per pool and labels, with gaps where no job started, and the same as numbers", async (test) => {
    const shown = copy(THREE);
    const { page, server, errors } = await scene(test, shown, {}, "waits");
    const panel = page.locator("#screen-waits");
    const rows = async (table) => (await panel.locator(".table").nth(table).locator("tbody tr").allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());
    assert.deepEqual(await rows(0), ["ci/web linux, self-hosted 9 12 s 40 s 1 min", "ci/web all other labels 9 12 s 40 s 1 min"]);
    const drawn = panel.locator("svg").first();
    assert.match(await drawn.getAttribute("aria-label"), /^3 spans of five minutes with jobs; in the newest p50 5 s, p95 9 s, longest 9 s$/);
    const line = (name) => drawn.locator(`path.${name}`).getAttribute("d");
    // The second and the third span follow each other, and the first is an hour before.
    assert.match(await line("p50"), /^M11 \S+L12 \S+M22 \S+L23 \S+L23 \S+L24 \S+$/);
    assert.match(await line("max"), /^M11\.5 (\S+)L11\.5 \1M22\.5 1\.00L22\.5 1\.00M/);
    const seen = await drawn.locator("path.p50").evaluate((path) => ({ stroke: getComputedStyle(path).stroke, width: path.getBoundingClientRect().width }));
    assert.ok(seen.stroke.startsWith("rgb") && seen.width > 20, JSON.stringify(seen));
    await panel.getByText("As numbers").click();
    await panel.locator(".table").nth(1).waitFor();
    assert.deepEqual((await rows(1)).map((row) => row.replace(/^.*?ci/, "ci")), ["ci/web linux, self-hosted 2 5 s 9 s 9 s", "ci/web all other labels 9 12 s 40 s 1 min", "ci/web linux, self-hosted 3 12 s 40 s 1 min", "ci/web linux, self-hosted 4 10 s 31 s 40 s"]);
    for (const viewport of [{ width: 360, height: 740 }, { width: 1280, height: 800 }]) {
      await page.setViewportSize(viewport);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      assert.deepEqual(await violations(page), []);
    }
    const key = "RunnerDeployment/ci/web linux,self-hosted";
    // What is drawn depends on the moment.
    const told = (...changes) => server.send("delta", { ...difference(shown, ...changes), at: THREE.at });
    told({ waits: { [key]: { ...shown.waits[key], p95: 250, max: 700 } } });
    await panel.getByText("4 min").waitFor();
    assert.match(await line("p50"), /^M11 22\.69L12 22\.69M/, "the longest wait is the top of the picture");
    server.send("delta", { ...difference(shown, {}), at: new Date(Date.parse(THREE.at) + 3_600_000).toISOString() });
    await page.waitForFunction(() => document.querySelector("#screen-waits svg .p50").getAttribute("d").startsWith("M10 "));
    told({}, { waits: Object.keys(shown.waits) });
    await panel.getByText("No job is known to have started in the last two hours.").waitFor();
    assert.equal(await panel.locator("tr:visible").count(), 0);
    assert.deepEqual(errors, []);
  });
});

describe("what users of the cluster write", () => {
  it("is shown as text, never as markup", async (test) => {
    const shown = copy(THREE);
    const markup = '<img src=x onerror="globalThis.hacked = 1">';
    shown.jobs["ci/web-scaler/38000000002"] = { ...shown.jobs["ci/web-scaler/38000000002"], repository: markup, workflow: markup, labels: [markup] };
    shown.runners["ci/web-1-c"].trouble.message = markup;
    const { page, errors } = await scene(test, shown, {}, "queue");
    await page.getByText(markup).first().waitFor();
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.deepEqual(errors, []);
  });
});
