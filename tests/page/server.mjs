// Serves the page as the operator does, with a snapshot that a test holds in its hand.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";

const PAGE = new URL("../../host/pacer/src/ui/page/", import.meta.url);
const TYPES = { html: "text/html; charset=utf-8", css: "text/css; charset=utf-8", js: "text/javascript; charset=utf-8" };
/** The operator's own; live.mjs compares them. */
export const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** `past`: `{from, to, at(moment), report}` makes it the page of a trace, without events. */
export async function serve(snapshot, port = 0, past = null) {
  const canned = { snapshot, viewers: new Set(), refusal: null, silent: false };
  const server = createServer(async (request, response) => {
    const { pathname: path, searchParams } = new URL(request.url, "http://localhost");
    response.setHeader("content-security-policy", POLICY);
    response.setHeader("x-content-type-options", "nosniff");
    if (past && path === "/snapshot.json") {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(past.at(searchParams.get("at"))));
      return;
    }
    if (past?.report && path === "/report.json") {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(past.report));
      return;
    }
    if (!past && path === "/events") {
      if (canned.refusal) {
        response.writeHead(canned.refusal.status, { "retry-after": canned.refusal.after }).end(canned.refusal.text);
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(event("snapshot", canned.snapshot));
      canned.viewers.add(response);
      response.on("close", () => canned.viewers.delete(response));
      return;
    }
    const name = path === "/" ? "index.html" : path.slice(1);
    try {
      const body = /^[a-z]+\.(html|css|js)$/.test(name) ? await readFile(new URL(name, PAGE)) : null;
      const whole = past && name === "index.html" ? body.toString().replace("<body>", `<body data-from="${past.from}" data-to="${past.to}"${past.report ? " data-report" : ""}>`) : body;
      response.writeHead(body ? 200 : 404, { "content-type": TYPES[name.split(".")[1]] ?? "text/plain" }).end(whole ?? "");
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return Object.assign(canned, {
    url: `http://127.0.0.1:${server.address().port}/`,
    send: (name, data) => canned.viewers.forEach((viewer) => viewer.write(event(name, data))),
    drop: () => canned.viewers.forEach((viewer) => viewer.destroy()),
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  });
}

function event(name, data) {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
