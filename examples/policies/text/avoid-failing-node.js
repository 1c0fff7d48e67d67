// Nodes and images on which runners fail: idle runners leave such a node first, so that no job begins there, and a runner that failed on one is
// replaced late, so that the scheduler or the node's owner has time. An image that fails everywhere is left for people to look at.

export const name = "avoid-failing-node";
export const version = "0.1.0";
export const summary = "Leaves nodes on which runners fail, and stops an image that fails everywhere";
export const reads = ["failures"];

const number = (of, key) => Number(of?.attributes.find(([found]) => found === key)?.[1] ?? 0);

export function validateSettings({ failures = 3, imageFailures = 20 }) {
  for (const [path, value] of Object.entries({ failures, imageFailures })) {
    if (!Number.isInteger(value) || value < 1) throw [{ path, message: `is ${value}, must be a whole number of 1 or more` }];
  }
}

export function scaleDown({ candidates, nodes, surplus }, { failures = 3 }) {
  const failed = nodes.map((node) => number(node, "failures"));
  const failedUnder = ({ node }) => (node === null || failed[node] < failures ? 0 : failed[node]);
  return candidates
    .map((runner, index) => ({ index, name: runner.name, idle: runner.idle, node: runner.node, failed: failedUnder(runner) }))
    .sort((a, b) => b.failed - a.failed || b.idle - a.idle || (a.name < b.name ? -1 : 1))
    .slice(0, surplus)
    .map(({ index, idle, node, failed }) => ({
      index,
      reason: failed > 0 ? `${failed} runners failed on node ${nodes[node].name} within an hour` : `idle for ${idle} s`,
    }));
}

export function restart({ subjects, nodes, pool }, { failures = 3, imageFailures = 20, seconds = 120 }) {
  const ofImage = number(pool, "image-failures");
  return subjects.map((subject, index) => {
    const { situation, cause, node } = subject;
    if (cause === "completed") return { index, action: "replace", reason: "it did its job" };
    if (cause === "image-pull" && ofImage >= imageFailures) {
      return { index, action: "quarantine", reason: `${ofImage} runners of this image failed within an hour` };
    }
    if (situation === "not-starting" || situation === "offline") return { index, action: "look-again", after: 60, reason: cause };
    const onNode = node === null ? 0 : number(nodes[node], "failures");
    if (onNode >= failures) {
      return { index, action: "replace", after: seconds, reason: `${onNode} runners failed on node ${nodes[node].name} within an hour` };
    }
    return { index, action: "replace", reason: cause };
  });
}
