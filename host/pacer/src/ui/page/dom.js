// Elements, made and kept by key. Text is only ever set as text: nothing that a user of the cluster wrote becomes markup.

/** An element. Properties that are functions become listeners; `null` leaves an attribute out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets text only where it differs, so that nothing is laid out for nothing. */
export function say(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Sets or removes an attribute only where it differs. */
export function set(element, name, value) {
  if (value === null || value === undefined) {
    if (element.hasAttribute(name)) {
      element.removeAttribute(name);
    }
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/**
 * Makes the children of an element those of `entries`, `[key, value]`, in this order: elements of keys that stay are kept, with focus and
 * all. `make(key)` makes one, `update(element, value)` fills it.
 */
export function keyed(parent, entries, make, update) {
  const known = parent.pacerChildren ?? new Map();
  const next = new Map();
  let place = parent.firstChild;
  for (const [key, value] of entries) {
    const element = known.get(key) ?? make(key);
    known.delete(key);
    next.set(key, element);
    if (element.pacerValue !== value) {
      update(element, value);
      element.pacerValue = value;
    }
    if (element === place) {
      place = place.nextSibling;
    } else {
      parent.insertBefore(element, place);
    }
  }
  for (const element of known.values()) {
    element.remove();
  }
  parent.pacerChildren = next;
}

/** A moment, which `refreshAges` keeps telling as an age. */
export function since(text) {
  return h("time", { datetime: text ?? "", title: text ? new Date(text).toLocaleString() : "" });
}

/** Sets another moment. */
export function setSince(element, text) {
  set(element, "datetime", text ?? "");
  set(element, "title", text ? new Date(text).toLocaleString() : "");
}

/** Arrow keys, Home and End move the focus among the elements of a group, of which one is in the tab order. */
export function roving(container, selector) {
  container.addEventListener("focusin", (event) => {
    const chosen = event.target.closest(selector);
    if (chosen) {
      container.querySelector(`${selector}[tabindex="0"]`)?.setAttribute("tabindex", "-1");
      chosen.setAttribute("tabindex", "0");
    }
  });
  container.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    const here = event.target.closest(selector);
    if (step === undefined || !here) {
      return;
    }
    event.preventDefault();
    const all = [...container.querySelectorAll(selector)];
    const place = all.indexOf(here) + step;
    all[Math.min(all.length - 1, Math.max(0, place))].focus();
  });
}
