//! GitHub's JSON objects.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    credential::Installation,
    hook::{Delivery, Silence},
    job::{Job, JobState, Run},
    place::{Accounts, Group, HookId, Place, PlaceId, Scope},
    runner::{IMPLICIT_LABELS, Runner},
};

/// A moment as GitHub writes it, to the second.
pub(super) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A commit that every run and job is of.
pub(super) const COMMIT: &str = "e3103f8eb03e1ad7f2331c5446b23c070fc54055";

/// Links that GitHub gives with every repository, as key and path below the repository.
const REPOSITORY_LINKS: [(&str, &str); 38] = [
    ("archive_url", "/{archive_format}{/ref}"),
    ("assignees_url", "/assignees{/user}"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("branches_url", "/branches{/branch}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("comments_url", "/comments{/number}"),
    ("commits_url", "/commits{/sha}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("contents_url", "/contents/{+path}"),
    ("contributors_url", "/contributors"),
    ("deployments_url", "/deployments"),
    ("downloads_url", "/downloads"),
    ("events_url", "/events"),
    ("forks_url", "/forks"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("hooks_url", "/hooks"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("issue_events_url", "/issues/events{/number}"),
    ("issues_url", "/issues{/number}"),
    ("keys_url", "/keys{/key_id}"),
    ("labels_url", "/labels{/name}"),
    ("languages_url", "/languages"),
    ("merges_url", "/merges"),
    ("milestones_url", "/milestones{/number}"),
    ("notifications_url", "/notifications{?since,all,participating}"),
    ("pulls_url", "/pulls{/number}"),
    ("releases_url", "/releases{/id}"),
    ("stargazers_url", "/stargazers"),
    ("statuses_url", "/statuses/{sha}"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("tags_url", "/tags"),
    ("teams_url", "/teams"),
    ("trees_url", "/git/trees{/sha}"),
    ("svn_url", ""),
    ("url", ""),
];

/// Links that GitHub gives with every user and organization.
const USER_LINKS: [(&str, &str); 10] = [
    ("url", ""),
    ("followers_url", "/followers"),
    ("following_url", "/following{/other_user}"),
    ("gists_url", "/gists{/gist_id}"),
    ("starred_url", "/starred{/owner}{/repo}"),
    ("subscriptions_url", "/subscriptions"),
    ("organizations_url", "/orgs"),
    ("repos_url", "/repos"),
    ("events_url", "/events{/privacy}"),
    ("received_events_url", "/received_events"),
];

fn add_links(object: &mut Value, base: &str, links: &[(&str, &str)]) {
    if let Value::Object(members) = object {
        members.extend(links.iter().map(|(key, path)| ((*key).to_owned(), Value::String(format!("{base}{path}")))));
    }
}

pub(super) fn user(origin: &str, login: &str, number: u64, kind: &str) -> Value {
    let mut user = json!({
        "login": login,
        "id": number,
        "node_id": format!("U_{number}"),
        "avatar_url": format!("{origin}/avatars/u/{number}?v=4"),
        "gravatar_id": "",
        "html_url": format!("{origin}/{login}"),
        "type": kind,
        "site_admin": false,
    });
    add_links(&mut user, &format!("{origin}/users/{login}"), &USER_LINKS);
    user
}

fn owner(origin: &str, accounts: &Accounts, place: &Place) -> Value {
    let owner = place.parent.and_then(|parent| accounts.get(parent));
    match owner {
        Some(owner) => user(origin, &owner.scope.to_string(), owner.number, if owner.user { "User" } else { "Organization" }),
        None => Value::Null,
    }
}

pub(super) fn repository(origin: &str, accounts: &Accounts, place: &Place) -> Value {
    let full_name = place.scope.to_string();
    let name = full_name.split_once('/').map_or(full_name.as_str(), |(_, name)| name);
    let mut repository = json!({
        "id": place.number,
        "node_id": format!("R_{}", place.number),
        "name": name,
        "full_name": full_name,
        "private": true,
        "visibility": "private",
        "owner": owner(origin, accounts, place),
        "html_url": format!("{origin}/{full_name}"),
        "clone_url": format!("{origin}/{full_name}.git"),
        "git_url": format!("git://127.0.0.1/{full_name}.git"),
        "ssh_url": format!("git@127.0.0.1:{full_name}.git"),
        "description": null,
        "homepage": null,
        "mirror_url": null,
        "language": null,
        "license": null,
        "fork": false,
        "archived": false,
        "disabled": false,
        "default_branch": "main",
        "created_at": "2024-01-02T03:04:05Z",
        "updated_at": "2024-01-02T03:04:05Z",
        "pushed_at": "2024-01-02T03:04:05Z",
        "topics": [],
    });
    add_links(&mut repository, &format!("{origin}/repos/{full_name}"), &REPOSITORY_LINKS);
    if let Value::Object(members) = &mut repository {
        for count in
            ["size", "forks", "forks_count", "stargazers_count", "watchers", "watchers_count", "open_issues", "open_issues_count"]
        {
            members.insert(count.to_owned(), json!(0));
        }
        for feature in ["has_issues", "has_projects", "has_wiki", "has_pages", "has_downloads"] {
            members.insert(feature.to_owned(), json!(false));
        }
    }
    repository
}

pub(super) fn runner(runner: &Runner) -> Value {
    let implicit = IMPLICIT_LABELS.iter().zip(1_u64..).map(|(name, id)| json!({"id": id, "name": name, "type": "read-only"}));
    let custom = runner.labels.iter().map(|name| {
        // Equal labels have equal numbers at GitHub; the value means nothing.
        let id = name.bytes().fold(100_u64, |sum, byte| (sum * 31 + u64::from(byte.to_ascii_lowercase())) % 1_000_003 + 100);
        json!({"id": id, "name": name, "type": "custom"})
    });
    json!({
        "id": runner.id.0,
        "name": runner.name,
        "os": "Linux",
        "status": if runner.online { "online" } else { "offline" },
        "busy": runner.shown_busy,
        "ephemeral": runner.ephemeral,
        "labels": implicit.chain(custom).collect::<Vec<_>>(),
        "runner_group_id": runner.group.0,
    })
}

pub(super) fn organization_group(origin: &str, organization: &str, group: &Group, inherited: bool) -> Value {
    let url = format!("{origin}/orgs/{organization}/actions/runner-groups/{}", group.id);
    let mut value = json!({
        "id": group.id.0,
        "name": group.name,
        "visibility": visibility(group),
        "default": group.default,
        "runners_url": format!("{url}/runners"),
        "inherited": inherited,
        "allows_public_repositories": true,
        "restricted_to_workflows": false,
        "selected_workflows": [],
        "workflow_restrictions_read_only": false,
    });
    if visibility(group) == "selected"
        && let Value::Object(members) = &mut value
    {
        members.insert("selected_repositories_url".to_owned(), json!(format!("{url}/repositories")));
    }
    value
}

pub(super) fn enterprise_group(origin: &str, slug: &str, group: &Group) -> Value {
    let url = format!("{origin}/enterprises/{slug}/actions/runner-groups/{}", group.id);
    json!({
        "id": group.id.0,
        "name": group.name,
        "visibility": visibility(group),
        "default": group.default,
        "runners_url": format!("{url}/runners"),
        "allows_public_repositories": true,
        "restricted_to_workflows": false,
        "selected_workflows": [],
        "workflow_restrictions_read_only": false,
    })
}

fn visibility(group: &Group) -> &'static str {
    match group.visibility {
        super::GroupVisibility::All => "all",
        super::GroupVisibility::Selected(_) => "selected",
    }
}

/// A job as in a run's listing and, as `workflow_job`, in a webhook.
pub(super) fn job(origin: &str, repository: &str, job: &Job) -> Value {
    let at = |at: Option<Timestamp>| at.map(moment);
    let api = format!("{origin}/repos/{repository}");
    let has_begun = job.state > JobState::Queued;
    let (runner, started) = (job.runner.as_ref().filter(|_| has_begun), job.started_at.filter(|_| has_begun));
    let steps = match (job.state, job.conclusion) {
        (JobState::Pending | JobState::Waiting | JobState::Queued, _) => json!([]),
        (state, conclusion) => json!([{
            "name": "Set up job",
            "status": state.as_str(),
            "conclusion": conclusion.map(step_conclusion),
            "number": 1,
            "started_at": at(started),
            "completed_at": at(job.completed_at),
        }]),
    };
    json!({
        "id": job.id.0,
        "run_id": job.run.0,
        "workflow_name": job.spec.workflow,
        "head_branch": "main",
        "run_url": format!("{api}/actions/runs/{}", job.run),
        "run_attempt": job.attempt,
        "node_id": format!("CR_{}", job.id),
        "head_sha": COMMIT,
        "url": format!("{api}/actions/jobs/{}", job.id),
        "html_url": format!("{origin}/{repository}/actions/runs/{}/job/{}", job.run, job.id),
        "status": job.state.as_str(),
        "conclusion": job.conclusion.map(super::Conclusion::as_str),
        "created_at": moment(job.queued_at),
        "started_at": moment(started.unwrap_or(job.queued_at)),
        "completed_at": at(job.completed_at),
        "name": job.spec.name,
        "steps": steps,
        "check_run_url": format!("{api}/check-runs/{}", job.id),
        "labels": job.spec.labels,
        "runner_id": runner.map(|runner| runner.id.0),
        "runner_name": runner.map(|runner| runner.name.as_str()),
        "runner_group_id": runner.map(|runner| runner.group.0),
        "runner_group_name": runner.map(|runner| runner.group_name.as_str()),
    })
}

/// Steps know fewer conclusions than jobs.
fn step_conclusion(conclusion: super::Conclusion) -> &'static str {
    match conclusion {
        super::Conclusion::TimedOut => super::Conclusion::Failure.as_str(),
        other => other.as_str(),
    }
}

pub(super) fn hook(origin: &str, scope: &Scope, id: HookId, url: &str, silence: Option<Silence>) -> Value {
    let (api, kind) = (
        format!("{origin}/{}/hooks/{id}", scope.api_path()),
        match scope {
            Scope::Repository { .. } => "Repository",
            Scope::Organization(_) | Scope::Enterprise(_) => "Organization",
        },
    );
    json!({
        "type": kind,
        "id": id.0,
        "name": "web",
        "active": silence != Some(Silence::SwitchedOff),
        "events": [if silence == Some(Silence::OtherEvents) { "push" } else { "workflow_job" }],
        "config": {"url": url, "content_type": "json", "insecure_ssl": "0", "secret": "********"},
        "created_at": "2027-01-15T08:00:00Z",
        "updated_at": "2027-01-15T08:00:00Z",
        "url": api,
        "test_url": format!("{api}/test"),
        "ping_url": format!("{api}/pings"),
        "deliveries_url": format!("{api}/deliveries"),
        "last_response": {"code": null, "status": "unused", "message": null},
    })
}

pub(super) fn run(origin: &str, accounts: &Accounts, place: &Place, run: &Run, conclusion: Option<&str>) -> Value {
    let api = format!("{origin}/repos/{}/actions", place.scope);
    let url = format!("{api}/runs/{}", run.id);
    let actor = owner(origin, accounts, place);
    json!({
        "id": run.id.0,
        "name": run.workflow,
        "display_title": run.workflow,
        "node_id": format!("WFR_{}", run.id),
        "head_branch": "main",
        "head_sha": COMMIT,
        "path": ".github/workflows/ci.yml",
        "run_number": run.id.0 % 1_000_000,
        "run_attempt": run.attempt,
        "event": "push",
        "status": run.state.as_str(),
        "conclusion": conclusion,
        "workflow_id": place.number,
        "check_suite_id": run.id.0,
        "check_suite_node_id": format!("CS_{}", run.id),
        "url": url,
        "html_url": format!("{origin}/{}/actions/runs/{}", place.scope, run.id),
        "pull_requests": [],
        "created_at": moment(run.created_at),
        "updated_at": moment(run.updated_at),
        "run_started_at": moment(run.created_at),
        "actor": actor,
        "triggering_actor": actor,
        "jobs_url": format!("{url}/jobs"),
        "logs_url": format!("{url}/logs"),
        "check_suite_url": format!("{origin}/repos/{}/check-suites/{}", place.scope, run.id),
        "artifacts_url": format!("{url}/artifacts"),
        "cancel_url": format!("{url}/cancel"),
        "rerun_url": format!("{url}/rerun"),
        "previous_attempt_url": null,
        "workflow_url": format!("{api}/workflows/{}", place.number),
        "head_commit": {
            "id": COMMIT,
            "tree_id": COMMIT,
            "message": "Build",
            "timestamp": moment(run.created_at),
            "author": {"name": "Octocat", "email": "octocat@example.com"},
            "committer": {"name": "Octocat", "email": "octocat@example.com"},
        },
    })
}

/// The object's text with further members that are rendered already.
pub(super) fn with_members(object: &Value, members: &[(&str, &str)]) -> String {
    let mut text = object.to_string();
    text.truncate(text.len().saturating_sub(1));
    for (key, value) in members {
        text.push_str(&format!(",\"{key}\":{value}"));
    }
    text.push('}');
    text
}

pub(super) fn permissions(installation: &Installation) -> Value {
    let entries = installation.permissions.iter().map(|(name, access)| (name.clone(), json!(access.as_str())));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// The agents of one version, as GitHub lists what can be downloaded.
pub(super) fn downloads(version: &str) -> Value {
    let one = |os: &str, architecture: &str, kind: &str| {
        let filename = format!("actions-runner-{os}-{architecture}-{version}.{kind}");
        json!({
            "os": os,
            "architecture": architecture,
            "download_url": format!("https://github.com/actions/runner/releases/download/v{version}/{filename}"),
            "filename": filename,
            "sha256_checksum": "0".repeat(64),
        })
    };
    json!([one("osx", "x64", "tar.gz"), one("linux", "x64", "tar.gz"), one("linux", "arm64", "tar.gz"), one("win", "x64", "zip")])
}

pub(super) fn installation(origin: &str, accounts: &Accounts, app: u64, installation: &Installation) -> Value {
    let account = accounts.find(&installation.account).and_then(|account| accounts.get(account));
    let (number, is_user) = account.map_or((0, false), |account| (account.number, account.user));
    let kind = if is_user { "User" } else { "Organization" };
    json!({
        "id": installation.id,
        "app_id": app,
        "app_slug": format!("app-{app}"),
        "client_id": format!("Iv1.{app:016x}"),
        "account": user(origin, &installation.account.to_string(), number, kind),
        "target_id": number,
        "target_type": kind,
        "repository_selection": selection(installation),
        "access_tokens_url": format!("{origin}/app/installations/{}/access_tokens", installation.id),
        "repositories_url": format!("{origin}/installation/repositories"),
        "html_url": format!("{origin}/organizations/{}/settings/installations/{}", installation.account, installation.id),
        "permissions": permissions(installation),
        "events": ["workflow_job"],
        "created_at": "2024-01-02T03:04:05Z",
        "updated_at": "2024-01-02T03:04:05Z",
        "single_file_name": null,
        "has_multiple_single_files": false,
        "single_file_paths": [],
        "suspended_by": null,
        "suspended_at": installation.suspended.then_some("2024-01-02T03:04:05Z"),
    })
}

pub(super) fn selection(installation: &Installation) -> &'static str {
    if installation.repositories.is_some() { "selected" } else { "all" }
}

/// The body of a `workflow_job` event.
pub(super) fn job_event(origin: &str, accounts: &Accounts, delivery: &Delivery, repository_id: PlaceId) -> Value {
    let Some(place) = accounts.get(repository_id) else { return Value::Null };
    let mut event = json!({
        "action": delivery.action.map(super::JobAction::as_str),
        "workflow_job": delivery.job.as_ref().map(|it| job(origin, &place.scope.to_string(), it)),
        "repository": repository(origin, accounts, place),
        "sender": user(origin, "octocat", 583_231, "User"),
    });
    let Value::Object(members) = &mut event else { return event };
    for above in accounts.lineage(repository_id).filter_map(|above| accounts.get(above)) {
        match &above.scope {
            Scope::Organization(login) if !above.user => {
                let url = format!("{origin}/orgs/{login}");
                let organization = json!({
                    "login": login,
                    "id": above.number,
                    "node_id": format!("O_{}", above.number),
                    "url": url,
                    "repos_url": format!("{url}/repos"),
                    "events_url": format!("{url}/events"),
                    "hooks_url": format!("{url}/hooks"),
                    "issues_url": format!("{url}/issues"),
                    "members_url": format!("{url}/members{{/member}}"),
                    "public_members_url": format!("{url}/public_members{{/member}}"),
                    "avatar_url": format!("{origin}/avatars/u/{}?v=4", above.number),
                    "description": "",
                });
                members.insert("organization".to_owned(), organization);
            }
            Scope::Enterprise(slug) => {
                let enterprise = json!({
                    "id": above.number,
                    "slug": slug,
                    "name": slug,
                    "node_id": format!("E_{}", above.number),
                    "avatar_url": format!("{origin}/avatars/b/{}?v=4", above.number),
                    "description": null,
                    "website_url": null,
                    "html_url": format!("{origin}/enterprises/{slug}"),
                    "created_at": "2024-01-02T03:04:05Z",
                    "updated_at": "2024-01-02T03:04:05Z",
                });
                members.insert("enterprise".to_owned(), enterprise);
            }
            Scope::Repository { .. } | Scope::Organization(_) => {}
        }
    }
    if let Some(id) = delivery.installation {
        members.insert("installation".to_owned(), json!({"id": id, "node_id": format!("MDIzOk{id}")}));
    }
    event
}
