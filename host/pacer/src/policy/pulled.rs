//! Modules of a set that lie in registries, pulled as the operator does it, with the credentials of whoever runs the command.

use std::collections::BTreeMap;
use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use pacer_policy::bundle::remote;
use pacer_policy::{RAW_BYTES, text};
use pacer_registry::{Credentials, Form, PullError, Registries, VerificationKeys};

use crate::file::{self, FileError};

/// Largest file with credentials of registries, in bytes: what the Secret of a policy set holds at most.
const CONFIG_BYTES: usize = 1 << 20;

/// A module that could not be pulled, by its name.
pub(super) type Lack = (String, PullError);

/// Pulls what a set names in registries. Signatures are the operator's to check: it knows by which keys.
pub(super) async fn pull(data: &BTreeMap<String, String>) -> Result<Result<BTreeMap<String, Vec<u8>>, Lack>> {
    let references = remote(data).references;
    if references.is_empty() {
        return Ok(Ok(BTreeMap::new()));
    }
    let credentials = credentials(&config())?;
    // Whoever runs the command may call what is on their machine.
    let registries = Registries::new(VerificationKeys::default(), RAW_BYTES).with_loopback();
    let mut modules = BTreeMap::new();
    for reference in references {
        match registries.pull(&reference, &credentials).await {
            Ok(module) => {
                let bytes = match module.form {
                    Form::Component => module.bytes.into(),
                    Form::Text => text::module(&module.bytes).with_context(|| reference.to_string())?,
                };
                modules.insert(reference.to_string(), bytes)
            }
            Err(error) => return Ok(Err((reference.to_string(), error))),
        };
    }
    Ok(Ok(modules))
}

/// Where `docker login` and `oras login` write credentials.
fn config() -> PathBuf {
    let directory = env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".docker")));
    directory.unwrap_or_default().join("config.json")
}

fn credentials(file: &Path) -> Result<Credentials> {
    match file::read(file, CONFIG_BYTES, "a file of credentials") {
        Ok(bytes) => Credentials::read(&bytes).with_context(|| format!("{}", file.display())),
        Err(FileError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Credentials::default()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_need_be_no_credentials_but_what_is_there_has_to_be_right() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.json");
        assert_eq!(format!("{:?}", credentials(&file).unwrap()), "{}");
        std::fs::write(&file, r#"{"auths": {"ghcr.io": {"auth": "dTpw"}}}"#).unwrap();
        assert_eq!(format!("{:?}", credentials(&file).unwrap()), r#"{"ghcr.io"}"#);
        std::fs::write(&file, "[]").unwrap();
        assert!(format!("{:#}", credentials(&file).unwrap_err()).contains("config.json: it is no JSON of the form"));
    }
}
