//! The answers against GitHub's own description of them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::{super::payload, *};

/// GitHub's OpenAPI description of the simulated answers: schemas by answer, and the components that they refer to by name.
#[derive(Deserialize)]
struct Description {
    answers: BTreeMap<String, Value>,
    components: BTreeMap<String, Value>,
}

impl Description {
    fn load() -> Self {
        serde_json::from_str(include_str!("../../../data/github-openapi.json")).unwrap()
    }

    /// Where `value` deviates from the answer's schema.
    fn faults(&self, answer: &str, value: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(self.answers.get(answer).unwrap(), value, answer, &mut faults);
        faults
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        if let Some(name) = schema["$ref"].as_str() {
            return self.check(&self.components[name], value, at, faults);
        }
        if value.is_null() && (schema["nullable"] == true || name_is_nullable(schema)) {
            return;
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check(part, value, at, faults);
        }
        for choice in ["anyOf", "oneOf"] {
            if let Some(options) = schema[choice].as_array() {
                let fits = options.iter().any(|option| {
                    let mut found = Vec::new();
                    self.check(option, value, at, &mut found);
                    found.is_empty()
                });
                if !fits {
                    faults.push(format!("{at}: fits no choice: {value}"));
                }
            }
        }
        let fits = match schema["type"].as_str() {
            None => true,
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_u64() || value.is_i64(),
            Some("number") => value.is_number(),
            Some(other) => panic!("{at}: unknown type {other}"),
        };
        if !fits {
            faults.push(format!("{at}: {value} is no {}", schema["type"]));
            return;
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            faults.push(format!("{at}: {value} is none of {allowed:?}"));
        }
        match (schema["format"].as_str(), value.as_str()) {
            (Some("date-time"), Some(text)) if text.parse::<jiff::Timestamp>().is_err() => {
                faults.push(format!("{at}: {text} is no time"));
            }
            (Some("uri"), Some(text)) if text.parse::<http::Uri>().is_err() => faults.push(format!("{at}: {text} is no URI")),
            _ => {}
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(required).is_none() {
                faults.push(format!("{at}: {required} is missing"));
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(member) = value.get(name) {
                self.check(property, member, &format!("{at}.{name}"), faults);
            }
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check(&schema["items"], item, &format!("{at}[{index}]"), faults);
        }
    }
}

/// A schema without a type whose alternatives may be null themselves.
fn name_is_nullable(schema: &Value) -> bool {
    schema["enum"].as_array().is_some_and(|values| values.contains(&Value::Null))
}

#[test]
fn the_check_finds_deviations() {
    let description = Description::load();
    let good = json!({"total_count": 0, "runners": []});
    assert_eq!(description.faults("runners", &good), Vec::<String>::new());
    for bad in [
        json!({"total_count": 0}),
        json!({"total_count": "0", "runners": []}),
        json!({"total_count": 1, "runners": [{"id": 1}]}),
        json!([]),
    ] {
        assert_ne!(description.faults("runners", &bad), Vec::<String>::new(), "{bad}");
    }
}

#[tokio::test]
async fn every_answer_has_githubs_shape() {
    let github = github().await;
    github.add_enterprise("corp", &["acme"]);
    github.add_app(7);
    assert!(github.install_app(7, Installation::new(70, "acme")));
    github.add_group(&Scope::organization("acme"), "some", GroupVisibility::Selected(["app".to_owned()].into()));
    let hook = github.add_hook(Hook { owner: app().into(), url: "http://127.0.0.1:1/".into(), secret: "s".into() });
    let mut session = runner(&github, &app(), "one");
    let _other = runner(&github, &Scope::organization("acme"), "two");
    let _third = runner(&github, &Scope::enterprise("corp"), "three");
    let done = job(&github);
    session.finish(done, Conclusion::TimedOut);
    let running = job(&github);
    let queued = github.queue_job(JobSpec::new("acme/app", ["absent"])).unwrap();
    assert_eq!((github.jobs().in_progress, github.jobs().queued), (1, 1));
    github.ping(hook);
    github.wait_for(SOON, |view| view.deliveries().failed == 7).await.unwrap();
    let run = |id| github.job(id).unwrap().run;
    let delivery = github.deliveries().into_iter().find(|it| it.job.is_some()).unwrap().id;
    let runner = github.registrations(&Scope::organization("acme"))[0].id;

    let (api, as_app) = (Api::of(&github), Api::with(&github, &format!("Bearer {}", api::jwt(7, -10, 300))));
    let description = Description::load();
    let checks = [
        (&api, Method::POST, "registration-token", "repos/acme/app/actions/runners/registration-token".to_owned()),
        (&api, Method::POST, "registration-token-org", "orgs/acme/actions/runners/registration-token".to_owned()),
        (&api, Method::POST, "registration-token-enterprise", "enterprises/corp/actions/runners/registration-token".to_owned()),
        (&api, Method::POST, "remove-token", "repos/acme/app/actions/runners/remove-token".to_owned()),
        (&api, Method::GET, "runners", "repos/acme/app/actions/runners".to_owned()),
        (&api, Method::GET, "runners-org", "orgs/acme/actions/runners".to_owned()),
        (&api, Method::GET, "runners-enterprise", "enterprises/corp/actions/runners".to_owned()),
        (&api, Method::GET, "runner", format!("orgs/acme/actions/runners/{runner}")),
        (&api, Method::GET, "runner-groups", "orgs/acme/actions/runner-groups".to_owned()),
        (&api, Method::GET, "runner-groups-enterprise", "enterprises/corp/actions/runner-groups".to_owned()),
        (&api, Method::GET, "runs", "repos/acme/app/actions/runs".to_owned()),
        (&api, Method::GET, "jobs", format!("repos/acme/app/actions/runs/{}/jobs", run(done))),
        (&api, Method::GET, "jobs", format!("repos/acme/app/actions/runs/{}/jobs", run(running))),
        (&api, Method::GET, "jobs", format!("repos/acme/app/actions/runs/{}/jobs", run(queued))),
        (&as_app, Method::GET, "installation", "repos/acme/app/installation".to_owned()),
        (&as_app, Method::GET, "installation", "app/installations/70".to_owned()),
        (&as_app, Method::POST, "access-token", "app/installations/70/access_tokens".to_owned()),
        (&api, Method::GET, "deliveries", format!("repos/acme/app/hooks/{hook}/deliveries")),
        (&api, Method::GET, "delivery", format!("repos/acme/app/hooks/{hook}/deliveries/{delivery}")),
        (&api, Method::POST, "redelivery", format!("repos/acme/app/hooks/{hook}/deliveries/{delivery}/attempts")),
        (&api, Method::GET, "rate-limit", "rate_limit".to_owned()),
    ];
    for (api, method, answer, path) in checks {
        let reply = api.try_send(method, &path, None).await.unwrap();
        assert!(reply.status.is_success(), "{path}: {} {}", reply.status, reply.message());
        assert_eq!(description.faults(answer, &reply.json()), Vec::<String>::new(), "{path}");
    }
    let runners = api.get("enterprises/corp/actions/runners").await.json();
    assert_eq!(runners["runners"][0]["labels"][0], json!({"id": 1, "name": "self-hosted", "type": "read-only"}));

    let event = github.deliveries().into_iter().find(|it| it.action == Some(JobAction::InProgress)).unwrap();
    let body = github.with(|state| payload::job_event(state, &event, state.accounts.find(&app()).unwrap()));
    assert_eq!(description.faults("webhook-in-progress", &body), Vec::<String>::new());
    github.stop().await;
}
