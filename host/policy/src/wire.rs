//! Between the operator's own types and their generated twins: wasmtime's in the crate `pacer-jail`, and the SDK's for the policy that is linked
//! natively.
//!
//! The two sets of twins have the same fields, so one macro writes both conversions and a field that is missing anywhere does not compile.

/// Functions that convert requests to, and answers from, the types found in the given modules.
#[macro_export]
macro_rules! conversions {
    ($types:path, $scale_down:path, $restart:path, $capacity:path) => {
        use pacer_core::policy as ours;
        use $capacity as capacity;
        use $restart as restart;
        use $scale_down as scale_down;
        use $types as types;

        pub(crate) fn scale_down_request(from: &ours::ScaleDownRequest, settings: &str) -> scale_down::Request {
            scale_down::Request {
                now: from.now,
                settings: settings.to_owned(),
                pool: pool(&from.pool),
                nodes: from.nodes.iter().map(node).collect(),
                candidates: from.candidates.iter().map(candidate).collect(),
                surplus: from.surplus,
                attributes: from.attributes.clone(),
            }
        }

        pub(crate) fn choices(from: Vec<scale_down::Choice>) -> Vec<ours::Choice> {
            let choice =
                |from: scale_down::Choice| ours::Choice { index: from.index, reason: from.reason, attributes: from.attributes };
            from.into_iter().map(choice).collect()
        }

        pub(crate) fn restart_request(from: &ours::RestartRequest, settings: &str) -> restart::Request {
            restart::Request {
                now: from.now,
                settings: settings.to_owned(),
                pool: pool(&from.pool),
                nodes: from.nodes.iter().map(node).collect(),
                subjects: from.subjects.iter().map(subject).collect(),
                attributes: from.attributes.clone(),
            }
        }

        pub(crate) fn verdicts(from: Vec<restart::Verdict>) -> Vec<ours::Verdict> {
            let verdict = |from: restart::Verdict| ours::Verdict {
                index: from.index,
                action: from.action,
                after: from.after,
                reason: from.reason,
                attributes: from.attributes,
            };
            from.into_iter().map(verdict).collect()
        }

        pub(crate) fn capacity_request(from: &ours::CapacityRequest, settings: &str) -> capacity::Request {
            capacity::Request {
                now: from.now,
                settings: settings.to_owned(),
                pool: pool(&from.pool),
                jobs: from.jobs.iter().map(job).collect(),
                reservations: from.reservations.iter().map(reservation).collect(),
                attributes: from.attributes.clone(),
            }
        }

        pub(crate) fn plan(from: capacity::Plan) -> ours::CapacityPlan {
            let held = |from: capacity::Reservation| ours::Reservation {
                id: from.id,
                jobs: from.jobs,
                replicas: from.replicas,
                effective: from.effective,
                expires: from.expires,
                reason: from.reason,
                attributes: from.attributes,
            };
            ours::CapacityPlan {
                reservations: from.reservations.into_iter().map(held).collect(),
                ceiling: from.ceiling,
                look_again: from.look_again,
                attributes: from.attributes,
            }
        }

        fn pool(from: &ours::Pool) -> types::Pool {
            types::Pool {
                namespace: from.namespace.clone(),
                name: from.name.clone(),
                kind: from.kind.clone(),
                labels: from.labels.clone(),
                min_replicas: from.min_replicas,
                max_replicas: from.max_replicas,
                desired: from.desired,
                counts: types::Counts {
                    pending: from.counts.pending,
                    starting: from.counts.starting,
                    idle: from.counts.idle,
                    busy: from.counts.busy,
                    stopping: from.counts.stopping,
                },
                last_scale_up: from.last_scale_up,
                last_scale_down: from.last_scale_down,
                revision: from.revision.clone(),
                ephemeral: from.ephemeral,
                budget: from.budget.as_ref().map(|budget| types::ApiBudget {
                    limit: budget.limit,
                    remaining: budget.remaining,
                    resets_in: budget.resets_in,
                }),
                start_time: from.start_time.as_ref().map(quantiles),
                run_time: from.run_time.as_ref().map(quantiles),
                arrivals: from.arrivals.clone(),
                attributes: from.attributes.clone(),
            }
        }

        fn quantiles(from: &ours::Quantiles) -> types::Quantiles {
            types::Quantiles { samples: from.samples, p50: from.p50, p90: from.p90, p99: from.p99 }
        }

        fn node(from: &ours::Node) -> types::Node {
            types::Node {
                name: from.name.clone(),
                runners: from.runners,
                busy: from.busy,
                draining: from.draining,
                age: from.age,
                attributes: from.attributes.clone(),
            }
        }

        fn candidate(from: &ours::Candidate) -> scale_down::Candidate {
            scale_down::Candidate {
                name: from.name.clone(),
                idle: from.idle,
                age: from.age,
                node: from.node,
                current: from.current,
                last_job_end: from.last_job_end,
                attributes: from.attributes.clone(),
            }
        }

        fn subject(from: &ours::Subject) -> restart::Subject {
            restart::Subject {
                name: from.name.clone(),
                situation: from.situation.clone(),
                cause: from.cause.clone(),
                exit_code: from.exit_code,
                message: from.message.clone(),
                github: from.github.clone(),
                was_registered: from.was_registered,
                since: from.since,
                age: from.age,
                attempts: from.attempts,
                ephemeral: from.ephemeral,
                stand_alone: from.stand_alone,
                current: from.current,
                node: from.node,
                attributes: from.attributes.clone(),
            }
        }

        fn job(from: &ours::Job) -> capacity::Job {
            capacity::Job {
                id: from.id,
                state: from.state.clone(),
                queued: from.queued,
                started: from.started,
                repository: from.repository.clone(),
                workflow: from.workflow.clone(),
                labels: from.labels.clone(),
                attempt: from.attempt,
                runner: from.runner.clone(),
                attributes: from.attributes.clone(),
            }
        }

        fn reservation(from: &ours::Reservation) -> capacity::Reservation {
            capacity::Reservation {
                id: from.id.clone(),
                jobs: from.jobs.clone(),
                replicas: from.replicas,
                effective: from.effective,
                expires: from.expires,
                reason: from.reason.clone(),
                attributes: from.attributes.clone(),
            }
        }
    };
}

/// The same for the decision that came with version 0.2.0 of the contract; beside [`conversions`], whose pools and nodes it takes.
#[macro_export]
macro_rules! recover_conversions {
    ($recover:path) => {
        use $recover as recover;

        pub(crate) fn recover_request(from: &ours::RecoverRequest, settings: &str) -> recover::Request {
            let job = |from: &ours::DeadJob| recover::DeadJob {
                id: from.id,
                run: from.run,
                attempt: from.attempt,
                repository: from.repository.clone(),
                workflow: from.workflow.clone(),
                labels: from.labels.clone(),
                runner: from.runner.clone(),
                cause: from.cause.clone(),
                message: from.message.clone(),
                since: from.since,
                ran: from.ran,
                recoveries: from.recoveries,
                node: from.node,
                attributes: from.attributes.clone(),
            };
            recover::Request {
                now: from.now,
                settings: settings.to_owned(),
                pool: pool(&from.pool),
                nodes: from.nodes.iter().map(node).collect(),
                jobs: from.jobs.iter().map(job).collect(),
                attributes: from.attributes.clone(),
            }
        }

        pub(crate) fn recoveries(from: Vec<recover::Verdict>) -> Vec<ours::Recovery> {
            let verdict = |from: recover::Verdict| ours::Recovery {
                index: from.index,
                action: from.action,
                after: from.after,
                reason: from.reason,
                attributes: from.attributes,
            };
            from.into_iter().map(verdict).collect()
        }
    };
}

/// To and from the SDK.
pub(crate) mod sdk {
    conversions!(pacer_policy_sdk::types, pacer_policy_sdk::scale_down, pacer_policy_sdk::restart, pacer_policy_sdk::capacity);
    recover_conversions!(pacer_policy_sdk::recover);
}
