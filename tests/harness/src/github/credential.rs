//! Who asks: personal tokens, passwords, Apps with their installations, and what each may do.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::Value;

use super::place::{Accounts, PlaceId, Scope};

/// What an App's installation may do with a kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Only read.
    Read,
    /// Read and change.
    Write,
}

impl Access {
    /// GitHub's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A user with a personal access token (classic) or a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Login; users of one login share a rate limit.
    pub login: String,
    /// OAuth scopes: `repo`, `admin:org`, `manage_runners:enterprise` and so on.
    pub scopes: BTreeSet<String>,
    /// The scopes that exist for this user, with those below them; everything when absent.
    pub sees: Option<BTreeSet<Scope>>,
}

impl Person {
    /// Somebody who may do everything everywhere.
    #[must_use]
    pub fn admin(login: impl Into<String>) -> Self {
        let scopes = ["repo", "admin:org", "manage_runners:enterprise", "admin:repo_hook", "admin:org_hook"];
        Self { login: login.into(), scopes: scopes.map(str::to_owned).into(), sees: None }
    }

    /// The same user with just these OAuth scopes.
    #[must_use]
    pub fn with_scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        Self { scopes: scopes.into_iter().map(Into::into).collect(), ..self }
    }

    /// The same user, seeing only these scopes and what is below them.
    #[must_use]
    pub fn seeing(self, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { sees: Some(scopes.into_iter().collect()), ..self }
    }
}

/// An App's installation in an organization or a user's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Its number.
    pub id: u64,
    /// Where it is installed: an organization's or user's login.
    pub account: Scope,
    /// Names of the repositories it sees, without the owner; all when absent.
    pub repositories: Option<BTreeSet<String>>,
    /// Permissions by GitHub's names.
    pub permissions: BTreeMap<String, Access>,
    /// Whether its tokens are refused.
    pub suspended: bool,
}

impl Installation {
    /// An installation in `login`'s account with the permissions that runners need in repositories and organizations.
    #[must_use]
    pub fn new(id: u64, login: impl Into<String>) -> Self {
        let permissions = [
            ("actions", Access::Read),
            ("administration", Access::Write),
            ("checks", Access::Read),
            ("metadata", Access::Read),
            ("organization_hooks", Access::Write),
            ("organization_self_hosted_runners", Access::Write),
            ("repository_hooks", Access::Write),
        ];
        Self {
            id,
            account: Scope::organization(login),
            repositories: None,
            permissions: permissions.into_iter().map(|(name, access)| (name.to_owned(), access)).collect(),
            suspended: false,
        }
    }

    /// The same installation with just these permissions.
    #[must_use]
    pub fn with_permissions<N: Into<String>>(self, permissions: impl IntoIterator<Item = (N, Access)>) -> Self {
        Self { permissions: permissions.into_iter().map(|(name, access)| (name.into(), access)).collect(), ..self }
    }

    /// The same installation for these repositories (names without the owner) only.
    #[must_use]
    pub fn with_repositories<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        Self { repositories: Some(names.into_iter().map(Into::into).collect()), ..self }
    }
}

/// Who a request comes from.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    Person(Arc<Person>),
    App(u64),
    Installation { app: u64, id: u64 },
}

impl Caller {
    /// Names the caller without its secret; callers of one name share a rate limit.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Person(person) => format!("user {}", person.login),
            Self::App(app) => format!("app {app}"),
            Self::Installation { id, .. } => format!("installation {id}"),
        }
    }
}

/// What a route asks of its caller: one of the OAuth scopes, or the App permission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) scopes: &'static [&'static str],
    pub(super) permission: Option<(&'static str, Access)>,
}

/// Why a caller may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The scope does not exist, as far as the caller may know.
    Invisible,
    /// A user's token lacks every accepted OAuth scope.
    Scope,
    /// The installation lacks the permission, or Apps cannot have it.
    Permission,
}

#[derive(Debug)]
struct InstallationToken {
    app: u64,
    id: u64,
    expires_at: Timestamp,
}

#[derive(Debug)]
struct App {
    /// PKCS #1 `RSAPublicKey`.
    public_key: Vec<u8>,
    installations: BTreeMap<u64, Installation>,
}

/// Longest life that GitHub accepts for an App's token, in seconds.
const LONGEST_JWT: i64 = 600;

/// Everything that GitHub accepts as identification.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    tokens: HashMap<String, Arc<Person>>,
    passwords: HashMap<(String, String), Arc<Person>>,
    apps: BTreeMap<u64, App>,
    installation_tokens: HashMap<String, InstallationToken>,
}

impl Credentials {
    pub(super) fn add_token(&mut self, token: String, person: Person) {
        self.tokens.insert(token, Arc::new(person));
    }

    pub(super) fn revoke_token(&mut self, token: &str) {
        self.tokens.remove(token);
        self.installation_tokens.remove(token);
    }

    pub(super) fn add_password(&mut self, password: String, person: Person) {
        self.passwords.insert((person.login.clone(), password), Arc::new(person));
    }

    pub(super) fn add_app(&mut self, id: u64, public_key: Vec<u8>) {
        self.apps.insert(id, App { public_key, installations: BTreeMap::new() });
    }

    /// Adds or changes an installation; false when there is no such App.
    pub(super) fn install(&mut self, app: u64, installation: Installation) -> bool {
        let Some(app) = self.apps.get_mut(&app) else { return false };
        app.installations.insert(installation.id, installation);
        true
    }

    pub(super) fn uninstall(&mut self, id: u64) {
        for app in self.apps.values_mut() {
            app.installations.remove(&id);
        }
        self.installation_tokens.retain(|_, token| token.id != id);
    }

    pub(super) fn installations(&self, app: u64) -> Vec<&Installation> {
        self.apps.get(&app).map(|app| app.installations.values().collect()).unwrap_or_default()
    }

    pub(super) fn installation(&self, app: u64, id: u64) -> Option<&Installation> {
        self.apps.get(&app)?.installations.get(&id)
    }

    pub(super) fn installation_for(&self, app: u64, accounts: &Accounts, place: PlaceId) -> Option<&Installation> {
        self.apps.get(&app)?.installations.values().find(|installation| reaches(installation, accounts, place))
    }

    pub(super) fn issue(&mut self, token: String, app: u64, id: u64, expires_at: Timestamp) {
        self.installation_tokens.insert(token, InstallationToken { app, id, expires_at });
    }

    pub(super) fn expire_installation_tokens(&mut self, now: Timestamp) {
        for token in self.installation_tokens.values_mut() {
            token.expires_at = token.expires_at.min(now);
        }
    }

    /// Who sent this `Authorization` header, or the message of GitHub's 401.
    pub(super) fn identify(&self, header: Option<&str>, now: Timestamp) -> Result<Caller, &'static str> {
        const BAD: &str = "Bad credentials";
        let Some((scheme, value)) = header.and_then(|header| header.split_once(' ')) else {
            return Err("Requires authentication");
        };
        let value = value.trim();
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => {
                let text = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(BAD)?;
                let (login, password) = text.split_once(':').ok_or(BAD)?;
                let person = self.passwords.get(&(login.to_owned(), password.to_owned()));
                person.or_else(|| self.tokens.get(password)).cloned().map(Caller::Person).ok_or(BAD)
            }
            "bearer" if value.matches('.').count() == 2 => self.verify_jwt(value, now).map(Caller::App),
            "bearer" | "token" => {
                if let Some(person) = self.tokens.get(value) {
                    return Ok(Caller::Person(Arc::clone(person)));
                }
                let token = self.installation_tokens.get(value).filter(|token| token.expires_at > now).ok_or(BAD)?;
                let live = self.installation(token.app, token.id).is_some_and(|installation| !installation.suspended);
                if live { Ok(Caller::Installation { app: token.app, id: token.id }) } else { Err(BAD) }
            }
            _ => Err("Requires authentication"),
        }
    }

    /// The App that signed a JSON web token.
    fn verify_jwt(&self, token: &str, now: Timestamp) -> Result<u64, &'static str> {
        const UNDECODABLE: &str = "A JSON web token could not be decoded";
        let json = |part: &str| -> Option<Value> { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok() };
        let (signed, signature) = token.rsplit_once('.').ok_or(UNDECODABLE)?;
        let (header, claims) = signed.split_once('.').ok_or(UNDECODABLE)?;
        let (header, claims) = (json(header).ok_or(UNDECODABLE)?, json(claims).ok_or(UNDECODABLE)?);
        if header.get("alg").and_then(Value::as_str) != Some("RS256") {
            return Err(UNDECODABLE);
        }
        let issuer = match claims.get("iss") {
            Some(Value::Number(number)) => number.as_u64(),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        let issuer = issuer.ok_or("'Issuer' claim ('iss') must be an Integer")?;
        let app = self.apps.get(&issuer).ok_or("Integration not found")?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| UNDECODABLE)?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &app.public_key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| UNDECODABLE)?;
        let now = now.as_second();
        let claim = |name: &str| claims.get(name).and_then(Value::as_i64);
        let issued = "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued";
        if claim("iat").is_none_or(|iat| iat > now) {
            return Err(issued);
        }
        match claim("exp") {
            None => Err(
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            ),
            Some(exp) if exp <= now => Err(
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            ),
            Some(exp) if exp > now + LONGEST_JWT => Err("'Expiration time' claim ('exp') is too far in the future"),
            Some(_) => Ok(issuer),
        }
    }

    /// Whether the caller may use a route of `place` that has this need.
    pub(super) fn permits(&self, caller: &Caller, accounts: &Accounts, place: PlaceId, need: Need) -> Result<(), Refused> {
        match caller {
            Caller::Person(person) => {
                let keys: Option<BTreeSet<String>> = person.sees.as_ref().map(|scopes| scopes.iter().map(Scope::key).collect());
                let sees = |keys: &BTreeSet<String>| {
                    accounts.lineage(place).filter_map(|place| accounts.get(place)).any(|place| keys.contains(&place.scope.key()))
                };
                if !keys.as_ref().is_none_or(sees) {
                    return Err(Refused::Invisible);
                }
                let accepted = need.scopes.is_empty() || need.scopes.iter().any(|scope| person.scopes.contains(*scope));
                if accepted { Ok(()) } else { Err(Refused::Scope) }
            }
            Caller::App(_) => Err(Refused::Permission),
            Caller::Installation { app, id } => {
                let installation = self.installation(*app, *id).filter(|it| reaches(it, accounts, place));
                let installation = installation.ok_or(Refused::Invisible)?;
                let granted = need
                    .permission
                    .is_some_and(|(name, access)| installation.permissions.get(name).is_some_and(|granted| *granted >= access));
                if granted { Ok(()) } else { Err(Refused::Permission) }
            }
        }
    }
}

/// Whether the installation is in the account of `place`, and sees it if it is a repository.
///
/// An App cannot be installed where it would see the runners of an enterprise.
fn reaches(installation: &Installation, accounts: &Accounts, place: PlaceId) -> bool {
    let Some(place) = accounts.get(place) else { return false };
    match &place.scope {
        Scope::Repository { owner, name } => {
            installation.account.key() == owner.to_lowercase()
                && installation
                    .repositories
                    .as_ref()
                    .is_none_or(|names| names.iter().any(|selected| selected.eq_ignore_ascii_case(name)))
        }
        scope => installation.account.key() == scope.key(),
    }
}
