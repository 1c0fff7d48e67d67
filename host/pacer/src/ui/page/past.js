// The slider over a trace: the page shows what was recorded of one moment.

import { h, say, set } from "./dom.js";

/**
 * Puts the slider into the page and shows the end of the trace. `onSnapshot` is told what there was at each moment that is chosen, `onTrouble`
 * why that is not known, or null.
 */
export function past(begin, end, onSnapshot, onTrouble) {
  const [from, to] = [Date.parse(begin), Date.parse(end)];
  const span = Math.max(0, Math.ceil((to - from) / 1000));
  const at = (second) => new Date(Math.min(from + second * 1000, to));
  const shown = h("output", { for: "moment" });
  const slider = h("input", { type: "range", id: "moment", min: 0, max: span, step: 1, value: span, input: () => move(Number(slider.value)) });
  document.querySelector("nav").after(h("section", { class: "past", "aria-label": "Moment of the trace" }, h("label", { for: "moment" }, "Moment"), slider, shown));
  let wanted = span;
  let asking = false;

  /** One question at a time; what was chosen meanwhile is asked next, and nothing in between. */
  async function ask() {
    if (asking) {
      return;
    }
    asking = true;
    try {
      for (let second = null; second !== wanted; ) {
        second = wanted;
        const response = await fetch(`snapshot.json?at=${at(second).toISOString()}`, { cache: "no-store" });
        if (!response.ok) {
          throw new Error((await response.text()).trim());
        }
        onSnapshot(await response.json());
        onTrouble(null);
      }
    } catch (error) {
      onTrouble(error instanceof TypeError ? "pacer ui can't be reached" : error.message);
    } finally {
      asking = false;
    }
  }

  function move(second) {
    wanted = second;
    const text = at(second).toLocaleString();
    say(shown, text);
    set(slider, "aria-valuetext", text);
    ask();
  }

  move(span);
}
