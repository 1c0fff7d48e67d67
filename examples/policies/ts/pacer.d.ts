// SPDX-License-Identifier: Apache-2.0
// The contract pacer:policy@0.1.0 as JavaScript sees it. What the fields mean is in wit/policy/v0.1.0/policy.wit.
//
// A policy is a module that exports `lifecycle` and the decisions that it takes; package.json names the world:
//
//   export const lifecycle: Lifecycle = { ... };
//   export const scaleDown: ScaleDown = { ... };      world scale-down-policy
//   export const restart: Restart = { ... };          world restart-policy
//   export const capacity: Capacity = { ... };        world capacity-policy; policy for all three
//
// A decision that throws declines: the shipped policy decides then, and people read what was thrown.

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
  minReplicas?: number;
  maxReplicas?: number;
  desired: number;
  counts: Counts;
  lastScaleUp?: number;
  lastScaleDown?: number;
  revision: string;
  ephemeral: boolean;
  budget?: ApiBudget;
  startTime?: Quantiles;
  runTime?: Quantiles;
  arrivals: ArrayLike<number>;
  attributes: Attribute[];
}

interface Node {
  name: string;
  runners: number;
  busy: number;
  draining: boolean;
  age?: number;
  attributes: Attribute[];
}

interface Candidate {
  name: string;
  idle: number;
  age: number;
  node?: number;
  current: boolean;
  lastJobEnd?: number;
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
  exitCode?: number;
  message: string;
  github: string;
  wasRegistered: boolean;
  since: number;
  age: number;
  attempts: number;
  ephemeral: boolean;
  standAlone: boolean;
  current: boolean;
  node?: number;
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
  after?: number;
  reason: string;
  attributes: Attribute[];
}

/** What to do about a runner that ended, never registered, or went missing. */
interface Restart {
  decide(request: RestartRequest): Verdict[];
}

interface Job {
  id: bigint;
  state: string;
  queued: number;
  started?: number;
  repository: string;
  workflow: string;
  labels: string[];
  attempt: number;
  runner?: string;
  attributes: Attribute[];
}

interface Reservation {
  id: string;
  jobs: ArrayLike<bigint>;
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
  ceiling?: number;
  lookAgain?: number;
  attributes: Attribute[];
}

/** How much capacity to hold for which jobs until when. */
interface Capacity {
  plan(request: CapacityRequest): CapacityPlan;
}

interface Description {
  name: string;
  version: string;
  summary: string;
  settingsSchema?: string;
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
