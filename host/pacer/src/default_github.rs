//! The operator's own GitHub credentials: those of every object that names none.

use anyhow::Result;
use pacer_github::{ClientOptions, CredentialParts, Credentials, CredentialsError, Endpoints, GitHub, KeyFiles, Secret};

use crate::arguments::GitHubArguments;

/// Where GitHub is, as flags and environment tell.
pub(crate) fn endpoints(arguments: &GitHubArguments) -> Result<Endpoints> {
    Ok(Endpoints::resolve(
        arguments.github_url.as_deref(),
        arguments.github_enterprise_url.as_deref(),
        arguments.github_upload_url.as_deref(),
        arguments.runner_github_url.as_deref(),
    )?)
}

/// Options of every GitHub client of this process. Clients made with the same ones, or clones, share GitHub's limits where their credentials are equal.
pub(crate) fn options(arguments: &GitHubArguments) -> ClientOptions {
    ClientOptions { ca_file: arguments.github_ca_file.clone(), ..ClientOptions::default() }
}

/// A client with the credentials in flags and environment, and with [`options`]; none without any.
pub(crate) fn client(arguments: &GitHubArguments, options: &ClientOptions) -> Result<Option<GitHub>> {
    let secret = |text: &Option<String>| text.clone().map(Secret::new);
    let parts = CredentialParts {
        token: secret(&arguments.github_token),
        app_id: arguments.github_app_id.clone(),
        app_installation_id: arguments.github_app_installation_id.clone(),
        app_private_key: secret(&arguments.github_app_private_key),
        basic_username: arguments.github_basicauth_username.clone(),
        basic_password: secret(&arguments.github_basicauth_password),
    };
    match Credentials::from_parts(parts, KeyFiles::Allowed) {
        Ok(credentials) => Ok(Some(GitHub::new(credentials, endpoints(arguments)?, options)?)),
        Err(CredentialsError::Missing) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
