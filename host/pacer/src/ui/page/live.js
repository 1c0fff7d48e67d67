// The connection to the operator: server-sent events, read with fetch because EventSource tells neither a status nor a header.

/** The operator says something every five seconds. After so many milliseconds of silence the connection counts as lost. */
const SILENCE = 16_000;

/** Pauses between attempts: doubled each time, never longer than this, and never the same for all viewers. */
export function pause(attempt, random = Math.random()) {
  return Math.min(500 * 2 ** attempt, 15_000) * (0.75 + random / 2);
}

/** Cuts a stream of text into events: `{event, data}`. */
export function reader(onEvent) {
  let rest = "";
  return (text) => {
    const parts = (rest + text).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]);
      const of = (name) => fields.filter((field) => field[0] === name).map((field) => field[1]).join("\n");
      if (of("data") !== "") {
        onEvent({ event: of("event") || "message", data: of("data") });
      }
    }
  };
}

/** What a refusal means, for people. */
function refusal(status, text) {
  return text.trim() || `the operator answered ${status}`;
}

/**
 * Keeps a connection up for ever. `onEvent` is told each event and returns false to start anew; `onChange` is told whether the page is
 * live, and why not.
 */
export async function follow(url, onEvent, onChange) {
  for (let attempt = 0; ; attempt += 1) {
    let wait = pause(attempt);
    try {
      const ended = new AbortController();
      let silence = setTimeout(() => ended.abort(), SILENCE);
      try {
        const response = await fetch(url, { signal: ended.signal, cache: "no-store", headers: { accept: "text/event-stream" } });
        if (!response.ok) {
          wait = Math.max(wait, 1000 * Number(response.headers.get("retry-after") ?? (response.status === 401 ? 30 : 0)));
          throw new Error(refusal(response.status, await response.text()));
        }
        const take = reader((event) => {
          attempt = 0;
          onChange(true, "");
          if (onEvent(event) === false) {
            ended.abort();
          }
        });
        const stream = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let part = await stream.read(); !part.done; part = await stream.read()) {
          clearTimeout(silence);
          silence = setTimeout(() => ended.abort(), SILENCE);
          take(part.value);
        }
        // Every connection has an end; the next one begins at once.
        wait = pause(0);
      } finally {
        clearTimeout(silence);
      }
      onChange(false, "the connection ended");
    } catch (error) {
      onChange(false, error.name === "AbortError" || error instanceof TypeError ? "the operator can't be reached" : error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
