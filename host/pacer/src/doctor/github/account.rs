//! Whose credentials a fleet uses, and a client with them.

use std::fmt;
use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use pacer_github::{CredentialsError, GitHub};
use pacer_operator::access::client_of_secret;

use super::names;
use crate::arguments::GitHubArguments;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::fleet::Fleet;
use crate::doctor::tenancy::CredentialsNamespaces;
use crate::reader::Reader;
use crate::{default_github, plain};

/// Who has credentials.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// The operator, for every fleet that names none.
    Operator,
    /// A Secret that `githubAPICredentialsFrom` names.
    Secret { namespace: String, name: String },
}

impl Holder {
    pub(super) fn of(fleet: &Fleet, places: &CredentialsNamespaces) -> Self {
        match fleet.secret() {
            None => Self::Operator,
            Some(name) => Self::Secret { namespace: places.of(fleet.target.namespace()).to_owned(), name: name.to_owned() },
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("the operator's credentials"),
            Self::Secret { namespace, name } => write!(f, "the credentials in Secret {namespace}/{name}"),
        }
    }
}

/// What there is to ask GitHub with.
pub(super) enum Usable {
    Client(GitHub),
    /// There are none, and nobody needs them; or they could not be read, which was noted.
    Nothing,
    Broken(Box<Finding>),
}

/// The client of a holder whose fleets these are. `own` is the operator's namespace.
pub(super) async fn client(
    reader: &mut Reader,
    holder: &Holder,
    fleets: &[&Fleet],
    arguments: &GitHubArguments,
    own: &str,
) -> Usable {
    match holder {
        Holder::Operator => operators(reader, fleets, arguments, own),
        Holder::Secret { namespace, name } => {
            let secret = match Api::<Secret>::namespaced(reader.client.clone(), namespace).get_opt(name).await {
                Ok(secret) => secret,
                Err(error) => {
                    reader.unread.push(format!("{holder}: {}", plain::causes(&error.into())));
                    return Usable::Nothing;
                }
            };
            tenants(secret.as_ref(), namespace, name, fleets, arguments)
        }
    }
}

fn operators(reader: &mut Reader, fleets: &[&Fleet], arguments: &GitHubArguments, own: &str) -> Usable {
    let object = format!("Namespace {own}");
    match default_github::client(arguments, &default_github::options(arguments)) {
        Ok(Some(github)) => Usable::Client(github),
        Ok(None) if fleets.is_empty() => Usable::Nothing,
        Ok(None) => broken(
            object,
            "the operator has no GitHub credentials".to_owned(),
            format!("fleets without githubAPICredentialsFrom cannot register runners: {}", names(fleets)),
            format!(
                "kubectl create secret generic controller-manager --namespace={own} --from-literal=github_token=TOKEN; \
                 kubectl rollout restart deployment --namespace={own}"
            ),
        ),
        Err(error) if is_in_the_pod(arguments.github_app_private_key.as_deref(), &error) => {
            // The path is not told: what only looks like one may be a part of the key.
            reader.unread.push(
                "GitHub with the operator's credentials: the App's key is a file of the operator's pod, and there is no such file here; \
                 copy it to the same path, or give --no-github"
                    .to_owned(),
            );
            Usable::Nothing
        }
        Err(error) => broken(
            object,
            format!("the operator's GitHub credentials make no sense: {}", plain::causes(&error)),
            "the operator does not start with them".to_owned(),
            format!("correct the Secret that the operator's Deployment in {own} names, then restart it"),
        ),
    }
}

/// Whether an App's key makes no sense here for being the path of a file that only the operator's pod has. What is no path makes no sense there
/// either.
fn is_in_the_pod(key: Option<&str>, error: &anyhow::Error) -> bool {
    let path = key.map(str::trim).filter(|key| key.starts_with('/')).map(Path::new);
    matches!(error.downcast_ref::<CredentialsError>(), Some(CredentialsError::Key { .. }))
        && path.is_some_and(|path| !path.exists())
}

fn tenants(secret: Option<&Secret>, namespace: &str, name: &str, fleets: &[&Fleet], arguments: &GitHubArguments) -> Usable {
    let why = format!("runners cannot register: {}", names(fleets));
    let object = format!("Secret {namespace}/{name}");
    let Some(secret) = secret else {
        let what = "is named in githubAPICredentialsFrom and does not exist".to_owned();
        let cure = format!("kubectl create secret generic {name} --namespace={namespace} --from-literal=github_token=TOKEN");
        return broken(object, what, why, cure);
    };
    let client = default_github::endpoints(arguments)
        .map_err(|error| plain::causes(&error))
        .and_then(|endpoints| client_of_secret(secret, &endpoints, &default_github::options(arguments)));
    match client {
        Ok(github) => Usable::Client(github),
        Err(error) => {
            let cure = format!(
                "kubectl create secret generic {name} --namespace={namespace} --from-literal=github_token=TOKEN \
                 --dry-run=client --output=yaml | kubectl apply --filename=-"
            );
            broken(object, format!("makes no GitHub credentials: {error}"), why, cure)
        }
    }
}

fn broken(object: String, what: String, why: String, cure: String) -> Usable {
    Usable::Broken(Box::new(Finding { severity: Severity::Problem, object, what, why, cure }))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        github: GitHubArguments,
    }

    fn arguments(flags: &[&str]) -> GitHubArguments {
        let mut github = <Line as clap::Parser>::try_parse_from(["doctor"].iter().chain(flags)).unwrap().github;
        // A machine may have one in its environment.
        github.github_token = None;
        github
    }

    /// Reads from an API server that denies everything.
    fn reader() -> Reader {
        let service = tower::service_fn(|_: Request<Body>| async {
            let status =
                json!({"kind": "Status", "status": "Failure", "message": "no secrets", "reason": "Forbidden", "code": 403});
            let answer = Response::builder().status(403).body(Body::from(status.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer?)
        });
        Reader::new(Client::new(service, "default"), None)
    }

    #[tokio::test]
    async fn why_credentials_cannot_be_had_is_told_once() {
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), [0xff]).unwrap();
        let key = format!("--github-app-private-key={}", key.path().display());
        let broken = arguments(&["--github-app-id=1", "--github-app-installation-id=2", &key]);
        let mut reader = reader();
        let Usable::Broken(finding) = operators(&mut reader, &[], &broken, "own") else { panic!("the key is no text") };
        assert_eq!(finding.what.matches("UTF-8").count(), 1, "{}", finding.what);

        let holder = Holder::Secret { namespace: "ci".to_owned(), name: "team".to_owned() };
        assert!(matches!(client(&mut reader, &holder, &[], &arguments(&[]), "own").await, Usable::Nothing));
        assert_eq!(reader.unread, ["the credentials in Secret ci/team: no secrets: Forbidden"]);
    }

    #[test]
    fn key_that_is_a_path_may_be_in_the_pod_unless_it_is_here() {
        let refused = anyhow::Error::from(CredentialsError::Key { reason: "no PEM text".to_owned() });
        let here = tempfile::NamedTempFile::new().unwrap();
        for (key, expected) in [
            (Some("/etc/actions-runner-controller/absent.pem"), true),
            (Some("/etc/actions-runner-controller/absent.pem\n"), true),
            (here.path().to_str(), false),
            (Some("MIIEowIBAAKCAQEA/absent"), false),
            (Some("absent.pem"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(is_in_the_pod(key, &refused), expected, "{key:?}");
        }
        assert!(!is_in_the_pod(Some("/absent.pem"), &anyhow::Error::from(CredentialsError::Missing)));
    }
}
