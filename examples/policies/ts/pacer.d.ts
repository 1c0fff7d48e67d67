// SPDX-License-Identifier: Apache-2.0
// The contract pacer:policy as JavaScript sees it. What the fields mean is in wit/policy/v0.2.0/policy.wit.
//
// A policy is a module that exports `lifecycle` and the decisions that it takes; package.json names the world:
//
//   export const lifecycle: Lifecycle = { ... };
//   export const scaleDown: ScaleDown = { ... };      world scale-down-policy
//   export const restart: Restart = { ... };          world restart-policy
//   export const capacity: Capacity = { ... };        world capacity-policy
//   export const recover: Recover = { ... };          world recover-policy of wit/policy/v0.2.0; policy there for all four
//
// A decision that throws declines: the shipped policy decides then, and people read what was thrown.
//
// What is absent is `null`, in requests and in answers. Numbers are those of componentize-qjs 0.4.5: of identifiers of jobs and runs, which have 64 bits,
// it keeps the first 53, which is far beyond GitHub's; any other number of 2^31 and more arrives as a negative one, which `number >>> 0` undoes.

/** Key and value. */
type Attribute = [string, string];

interface Counts {
  pending: number;
  starting: number;
  idle: number;
  busy: number;
  stopping: number;
}

interface Quantiles {
  samples: number;
  p50: number;
  p90: number;
  p99: number;
}

interface ApiBudget {
  limit: number;
  remaining: number;
  resetsIn: number;
}

interface Pool {
  namespace: string;
  name: string;
  kind: string;
  labels: string[];
  minReplicas: number | null;
  maxReplicas: number | null;
  desired: number;
  counts: Counts;
  lastScaleUp: number | null;
  lastScaleDown: number | null;
  revision: string;
  ephemeral: boolean;
  budget: ApiBudget | null;
  startTime: Quantiles | null;
  runTime: Quantiles | null;
  arrivals: number[];
  attributes: Attribute[];
}

interface Node {
  name: string;
  runners: number;
  busy: number;
  draining: boolean;
  age: number | null;
  attributes: Attribute[];
}

interface Candidate {
  name: string;
  idle: number;
  age: number;
  node: number | null;
  current: boolean;
  lastJobEnd: number | null;
  attributes: Attribute[];
}

interface ScaleDownRequest {
  now: number;
  settings: string;
  pool: Pool;
  nodes: Node[];
  candidates: Candidate[];
  surplus: number;
  attributes: Attribute[];
}

interface Choice {
  index: number;
  reason: string;
  attributes: Attribute[];
}

/** Which idle runners go first. */
interface ScaleDown {
  select(request: ScaleDownRequest): Choice[];
}

interface Subject {
  name: string;
  situation: string;
  cause: string;
  exitCode: number | null;
  message: string;
  github: string;
  wasRegistered: boolean;
  since: number;
  age: number;
  attempts: number;
  ephemeral: boolean;
  standAlone: boolean;
  current: boolean;
  node: number | null;
  attributes: Attribute[];
}

interface RestartRequest {
  now: number;
  settings: string;
  pool: Pool;
  nodes: Node[];
  subjects: Subject[];
  attributes: Attribute[];
}

interface Verdict {
  index: number;
  action: "keep" | "look-again" | "recreate" | "replace" | "quarantine";
  /**
   * Seconds: for look-again 5 to 600, 60 if it is null; for recreate and replace 0 to 600 since the runner got into its situation. The operator
   * changes a number outside these bounds to the nearest bound.
   */
  after: number | null;
  reason: string;
  attributes: Attribute[];
}

/** What to do about a runner that ended, never registered, or went missing. */
interface Restart {
  decide(request: RestartRequest): Verdict[];
}

interface Job {
  id: number;
  state: string;
  queued: number;
  started: number | null;
  repository: string;
  workflow: string;
  labels: string[];
  attempt: number;
  runner: string | null;
  attributes: Attribute[];
}

interface Reservation {
  id: string;
  jobs: number[];
  replicas: number;
  effective: number;
  expires: number;
  reason: string;
  attributes: Attribute[];
}

interface CapacityRequest {
  now: number;
  settings: string;
  pool: Pool;
  jobs: Job[];
  reservations: Reservation[];
  attributes: Attribute[];
}

interface CapacityPlan {
  reservations: Reservation[];
  ceiling: number | null;
  lookAgain: number | null;
  attributes: Attribute[];
}

/** How much capacity to hold for which jobs until when. */
interface Capacity {
  plan(request: CapacityRequest): CapacityPlan;
}

interface DeadJob {
  id: number;
  run: number | null;
  attempt: number;
  repository: string;
  workflow: string;
  labels: string[];
  runner: string;
  cause: string;
  message: string;
  since: number;
  ran: number;
  recoveries: number;
  node: number | null;
  attributes: Attribute[];
}

interface RecoverRequest {
  now: number;
  settings: string;
  pool: Pool;
  nodes: Node[];
  jobs: DeadJob[];
  attributes: Attribute[];
}

interface RecoverVerdict {
  index: number;
  action: "rerun" | "leave";
  /** Seconds, for rerun: 0 to 3600. The operator cuts what is longer. */
  after: number | null;
  reason: string;
  attributes: Attribute[];
}

/** Whether jobs that died with their runners run again. */
interface Recover {
  decide(request: RecoverRequest): RecoverVerdict[];
}

interface Description {
  name: string;
  version: string;
  summary: string;
  settingsSchema: string | null;
  attributes: Attribute[];
}

interface Problem {
  path: string;
  message: string;
}

interface Lifecycle {
  describe(): Description;
  /** Throws a list of problems. */
  validateSettings(settings: string): void;
}
