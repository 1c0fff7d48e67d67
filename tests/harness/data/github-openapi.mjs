// Makes github-openapi.json: what pacer and the simulated GitHub use of GitHub's published OpenAPI descriptions, without the prose.
//
//   npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
//   node tests/harness/data/github-openapi.mjs package > tests/harness/data/github-openapi.json
//
// The package is MIT licensed (https://github.com/octokit/openapi, Gregor Martynus and contributors).
import { readFileSync } from "node:fs";

const root = process.argv[2];
const version = JSON.parse(readFileSync(`${root}/package.json`)).version;
const load = (name) => JSON.parse(readFileSync(`${root}/generated/${name}.json`));

// github.com, with the operations that only Enterprise Cloud has from its description, and the oldest supported Enterprise Server.
const descriptions = { "github.com": ["api.github.com", "ghec"], "enterprise-server": ["ghes-3.17"] };

const scopes = ["/repos/{owner}/{repo}", "/orgs/{org}", "/enterprises/{enterprise}"];
const scoped = (method, rest) => scopes.map((scope) => [method, `${scope}/${rest}`]);
const operations = [
  ["get", "/rate_limit"],
  ["get", "/app/hook/config"],
  ["get", "/app/installations"],
  ["get", "/app/installations/{installation_id}"],
  ["post", "/app/installations/{installation_id}/access_tokens"],
  ["get", "/users/{username}/installation"],
  ["get", "/orgs/{org}/repos"],
  ["get", "/app/hook/deliveries"],
  ["get", "/app/hook/deliveries/{delivery_id}"],
  ["post", "/app/hook/deliveries/{delivery_id}/attempts"],
  ...scoped("get", "installation"),
  ...scoped("get", "actions/runners"),
  ...scoped("get", "actions/runners/downloads"),
  ...scoped("get", "actions/runners/{runner_id}"),
  ...scoped("delete", "actions/runners/{runner_id}"),
  ...scoped("post", "actions/runners/registration-token"),
  ...scoped("post", "actions/runners/generate-jitconfig"),
  ...scoped("post", "actions/runners/remove-token"),
  ...scoped("get", "actions/runner-groups"),
  ...scoped("get", "actions/runs"),
  ...scoped("get", "actions/runs/{run_id}"),
  ...scoped("get", "actions/runs/{run_id}/jobs"),
  ...scoped("get", "actions/jobs/{job_id}"),
  ["post", "/repos/{owner}/{repo}/actions/jobs/{job_id}/rerun"],
  ["get", "/repos/{owner}/{repo}/commits/{ref}/check-runs"],
  ["post", "/repos/{owner}/{repo}/check-runs"],
  ["patch", "/repos/{owner}/{repo}/check-runs/{check_run_id}"],
  ["post", "/repos/{owner}/{repo}/statuses/{sha}"],
  ...scoped("get", "hooks"),
  ...scoped("get", "hooks/{hook_id}/deliveries"),
  ...scoped("get", "hooks/{hook_id}/deliveries/{delivery_id}"),
  ...scoped("post", "hooks/{hook_id}/deliveries/{delivery_id}/attempts"),
];

const KEPT = new Set([
  "type", "nullable", "enum", "format", "required", "items", "allOf", "anyOf", "oneOf",
]);

function describe(files) {
  const documents = files.map(load);
  const components = {};
  const resolve = (document, ref) => ref.slice(2).split("/").reduce((at, name) => at[name], document);
  const follow = (document, value) => (value?.$ref ? resolve(document, value.$ref) : value);

  function schema(document, value) {
    if (Array.isArray(value)) return value.map((one) => schema(document, one));
    if (value?.$ref) {
      const name = value.$ref.split("/").pop();
      if (!(name in components)) {
        components[name] = {};
        components[name] = schema(document, resolve(document, value.$ref));
      }
      return { $ref: name };
    }
    const kept = {};
    for (const [key, member] of Object.entries(value ?? {})) {
      if (key === "properties") {
        kept.properties = Object.fromEntries(Object.entries(member).map(([name, one]) => [name, schema(document, one)]));
      } else if (["items", "allOf", "anyOf", "oneOf"].includes(key)) {
        kept[key] = schema(document, member);
      } else if (KEPT.has(key)) {
        kept[key] = member;
      }
    }
    return kept;
  }

  const found = {};
  for (const [method, path] of operations) {
    const document = documents.find((one) => one.paths[path]?.[method]);
    if (!document) continue;
    const operation = document.paths[path][method];
    // Some copies of the installation say that its account is a user and an enterprise at once, where the component says one of them.
    if (path === "/app/installations") {
      operation.responses["200"].content["application/json"].schema.items = { $ref: "#/components/schemas/installation" };
    }
    const parameters = [...(document.paths[path].parameters ?? []), ...(operation.parameters ?? [])].map((one) => follow(document, one));
    const query = parameters.filter((one) => one.in === "query");
    const answers = Object.entries(operation.responses).map(([status, response]) => {
      const content = follow(document, response).content?.["application/json"];
      return [status, content ? schema(document, content.schema) : null];
    });
    found[`${method.toUpperCase()} ${path}`] = {
      query: Object.fromEntries(query.map((one) => [one.name, { required: one.required ?? false, schema: schema(document, one.schema) }])),
      path: Object.fromEntries(parameters.filter((one) => one.in === "path").map((one) => [one.name, schema(document, one.schema)])),
      body: operation.requestBody?.required ?? false,
      answers: Object.fromEntries(answers),
    };
  }
  const webhooks = {};
  const events = documents[0]["x-webhooks"] ?? documents[0].webhooks ?? {};
  for (const action of ["queued", "in-progress", "completed", "waiting"]) {
    const event = events[`workflow-job-${action}`];
    if (event) webhooks[action.replace("-", "_")] = schema(documents[0], event.post.requestBody.content["application/json"].schema);
  }
  return { files, operations: found, webhooks, components };
}

const described = Object.fromEntries(Object.entries(descriptions).map(([name, files]) => [name, describe(files)]));
// What is the same everywhere is written once.
const [first, ...others] = Object.values(described);
for (const other of others) {
  for (const [name, component] of Object.entries(other.components)) {
    if (JSON.stringify(component) === JSON.stringify(first.components[name])) delete other.components[name];
  }
}
console.log(JSON.stringify({ source: `@octokit/openapi ${version} (MIT): made by github-openapi.mjs`, descriptions: described }));
