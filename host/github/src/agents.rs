//! Versions of the runner agent.

use std::fmt;

use pacer_core::scope::Scope;
use serde::Deserialize;

use crate::call::Endpoint;
use crate::client::GitHub;
use crate::error::Error;

/// A version of the runner agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentVersion {
    /// Before the first dot.
    pub major: u32,
    /// Between the dots; raised by every release but corrections.
    pub minor: u32,
    /// After the second dot.
    pub patch: u32,
}

impl AgentVersion {
    /// The first version in a text, such as the tag of an image or the name of a file.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        text.split(|sign: char| !(sign.is_ascii_digit() || sign == '.')).find_map(|word| {
            let mut parts = word.trim_matches('.').split('.').map(str::parse);
            match (parts.next(), parts.next(), parts.next(), parts.next()) {
                (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Some(Self { major, minor, patch }),
                _ => None,
            }
        })
    }
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[derive(Deserialize)]
struct Wire {
    filename: String,
}

impl GitHub {
    /// The newest agent that GitHub offers for the runners of a scope; none where it names no version.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`crate::ErrorKind`].
    pub async fn newest_agent(&self, scope: &Scope) -> Result<Option<AgentVersion>, Error> {
        let files: Vec<Wire> = self.get(Endpoint::ListAgents, scope, "actions/runners/downloads").await?.json()?;
        Ok(files.iter().filter_map(|file| AgentVersion::find(&file.filename)).max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_names_of_files_and_images() {
        let found = |text| AgentVersion::find(text).map(|version| version.to_string());
        assert_eq!(found("actions-runner-linux-x64-2.330.0.tar.gz").as_deref(), Some("2.330.0"));
        assert_eq!(found("v2.300.2-ubuntu-22.04").as_deref(), Some("2.300.2"));
        for text in ["latest", "ubuntu-22.04", "v2", "1.2.3.4", ""] {
            assert_eq!(found(text), None, "{text}");
        }
        assert!(AgentVersion::find("2.99.9") < AgentVersion::find("2.100.0"));
    }
}
