// The page of a running operator, in headless Chromium: `node live.mjs URL`.
//
// It talks with whoever started it by lines: it says what it has seen, and goes on when it is told to. The suite of the page makes happen what it asks for
// (tests/suites/tests/page/browser.rs).

import assert from "node:assert/strict";
import { createInterface } from "node:readline";

import { launch, open } from "./browser.mjs";
import { POLICY } from "./server.mjs";

const SCREENS = ["fleet", "queue", "waits", "capacity", "decisions", "simulation", "repositories", "github", "failures"];
const NOTHING = /null|undefined|NaN|Invalid/;
/** What Chromium says itself while nobody listens. */
const UNREACHABLE = /ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY_RESPONSE|network error/;

const [url] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Says what was seen, and waits for the word to go on. */
async function seen(what) {
  console.log(what);
  const { done } = await lines.next();
  assert.ok(!done, `nobody answered ${what}`);
}

const answer = await fetch(url);
assert.equal(answer.headers.get("content-security-policy"), POLICY, "the canned server has another policy");

const browser = await launch();
try {
  const { page, errors } = await open(browser, url);
  await page.locator("#live[data-live=yes]").waitFor();
  const tiles = () => page.locator("button.tile");
  await tiles().nth(2).waitFor();
  for (const screen of SCREENS) {
    await page.getByRole("tab", { name: new RegExp(`^${screen}$`, "i") }).click();
    await page.locator(`#screen-${screen}`).waitFor();
    const text = await page.locator(`#screen-${screen}`).innerText();
    assert.ok(text.trim().length > 0, `${screen} is empty`);
    assert.doesNotMatch(text, NOTHING, screen);
  }
  await page.getByRole("tab", { name: /^fleet$/i }).click();
  await seen("idle");

  await page.locator("button.tile.busy").first().waitFor();
  await page.getByRole("tab", { name: /^queue$/i }).click();
  await page.locator("#screen-queue").getByText("the maximum is reached").first().waitFor();
  await page.locator('#screen-queue [data-title="Place"]').getByText("1 of 1", { exact: true }).waitFor();
  await page.getByRole("tab", { name: /^waits$/i }).click();
  await page.locator('#screen-waits svg[aria-label^="1 span"], #screen-waits svg[aria-label^="2 spans"]').waitFor();
  assert.equal(await page.locator('#screen-waits [data-title="Jobs"]:visible').innerText(), "3");
  await seen("busy");

  await page.locator("#live[data-live=no]").waitFor();
  await page.locator("#banner").getByText(/^Not live since/).waitFor();
  await seen("lost");

  await page.locator("#live[data-live=yes]").waitFor();
  await page.locator("#banner").waitFor({ state: "hidden" });
  await page.getByRole("tab", { name: /^fleet$/i }).click();
  await page.locator("button.tile.busy").first().waitFor();
  assert.equal(await tiles().count(), 3);
  assert.deepEqual(errors.filter((error) => !UNREACHABLE.test(error)), []);
  console.log("done");
} finally {
  await browser.close();
}
process.exit(0);
