// The idle runner on the most expensive node goes first. A runner that shares its node with others saves less than one that is alone there, so the
// price of a node is divided among all runners on it, those of other pools included.

export const name = "priciest-node-first";
export const version = "0.1.0";
export const summary = "Removes the runner on the most expensive node first";
export const reads = ["node-price", "node-neighbours"];

const fact = (node, key) => node?.attributes.find(([found]) => found === key)?.[1];

function share(node) {
  const price = Number(fact(node, "price-per-hour") ?? NaN);
  const runners = node ? node.runners + Number(fact(node, "other-runners") ?? 0) : 0;
  return Number.isNaN(price) ? null : price / Math.max(1, runners);
}

export function scaleDown({ candidates, nodes, surplus }, { currency = "" }) {
  const shares = nodes.map(share);
  const costOf = (runner) => (runner.node === null ? null : shares[runner.node]);
  return candidates
    .map((runner, index) => ({ index, name: runner.name, idle: runner.idle, cost: costOf(runner), node: runner.node }))
    .sort((a, b) => (b.cost ?? -1) - (a.cost ?? -1) || b.idle - a.idle || (a.name < b.name ? -1 : 1))
    .slice(0, surplus)
    .map(({ index, cost, node }) => ({
      index,
      reason:
        cost === null
          ? "nobody said what its node costs"
          : `its share of node ${nodes[node].name} costs ${cost.toFixed(3)}${currency && " " + currency} per hour`,
    }));
}
