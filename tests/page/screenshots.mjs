// Pictures for the documentation: `node screenshots.mjs DIRECTORY [all]`.

import { launch, open } from "./browser.mjs";
import { snapshot } from "./canned.mjs";
import { serve } from "./server.mjs";

const [directory, all] = process.argv.slice(2);
// A fixed moment: the same picture every time.
const NOW = Date.parse("2026-11-23T10:00:00Z");
const SHOTS = [
  { name: "fleet", screen: "fleet", size: 300, options: { colorScheme: "light" } },
  { name: "fleet-dark", screen: "fleet", size: 300, options: { colorScheme: "dark" }, detail: true },
  { name: "queue", screen: "queue", size: 120, options: { colorScheme: "light" } },
  { name: "waits", screen: "waits", size: 120, options: { colorScheme: "light" } },
  { name: "decisions", screen: "decisions", size: 120, options: { colorScheme: "light" } },
  { name: "capacity-narrow", screen: "capacity", size: 120, options: { colorScheme: "dark", viewport: { width: 360, height: 720 } } },
];
const MORE = ["fleet", "queue", "waits", "capacity", "decisions", "simulation", "repositories", "github", "failures"].flatMap((screen) =>
  ["light", "dark"].flatMap((colorScheme) => [
    { name: `${screen}-${colorScheme}-wide`, screen, size: 120, options: { colorScheme } },
    { name: `${screen}-${colorScheme}-360`, screen, size: 120, detail: screen === "fleet" && colorScheme === "light", options: { colorScheme, viewport: { width: 360, height: 720 } } },
  ]),
);

const browser = await launch();
for (const shot of all ? MORE : SHOTS) {
  const server = await serve(snapshot(shot.size, NOW));
  const { page, context } = await open(browser, "about:blank", shot.options);
  await page.clock.setFixedTime(NOW);
  await page.goto(`${server.url}#${shot.screen}`);
  await page.locator("#live[data-live=yes]").waitFor();
  if (shot.detail) {
    await page.locator("button.tile.busy").first().click();
  }
  await page.waitForTimeout(400);
  await page.screenshot({ path: `${directory}/${shot.name}.png` });
  await context.close();
  await server.close();
}
await browser.close();
