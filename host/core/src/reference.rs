//! What names a module in a registry: `oci://registry/repository@sha256:...`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::is_subdomain;

/// What such a name begins with.
pub const SCHEME: &str = "oci://";

/// Longest name, in bytes.
const LONGEST: usize = 512;
/// Longest repository, in bytes.
const REPOSITORY: usize = 255;

/// An artifact in a registry. Its digest says which bytes it has, so that nobody can put others in their place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    /// 64 hexadecimal digits.
    digest: String,
}

/// Why a text names no artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It has no digest.
    #[error("name the digest: {SCHEME}registry/repository@sha256:...; a tag can be given to other bytes later")]
    NoDigest,
    /// It has a tag beside the digest.
    #[error("leave the tag out: the digest says which artifact it is")]
    Tag,
    /// The digest is another one, or damaged.
    #[error("the digest must be sha256: and 64 lower-case hexadecimal digits")]
    Digest,
    /// No name of a server.
    #[error(
        "the registry must be a host name in lower case or an address, and may have a port: {SCHEME}registry.example:5000/repository@sha256:..."
    )]
    Registry,
    /// No path in a registry.
    #[error(
        "the repository must be words of lower-case letters and digits, with slashes between them: {SCHEME}registry/team/policy@sha256:..."
    )]
    Repository,
    /// It is too long.
    #[error("it may have {LONGEST} bytes")]
    Long,
}

impl Reference {
    /// Reads what stands in a policy set; none where that names no artifact of a registry at all.
    ///
    /// # Errors
    ///
    /// When it begins like one and can't be understood, or has no digest.
    pub fn parse(text: &str) -> Option<Result<Self, ReferenceError>> {
        text.strip_prefix(SCHEME).map(read)
    }

    /// The host, with its port where one is given.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path in the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// `sha256:` and 64 digits.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("sha256:{}", self.digest)
    }

    /// The 64 hexadecimal digits of the digest, without `sha256:`.
    #[must_use]
    pub fn digits(&self) -> &str {
        &self.digest
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}@sha256:{}", self.registry, self.repository, self.digest)
    }
}

fn read(rest: &str) -> Result<Reference, ReferenceError> {
    if rest.len() > LONGEST {
        return Err(ReferenceError::Long);
    }
    let (name, digest) = rest.split_once('@').ok_or(ReferenceError::NoDigest)?;
    let digest = digest.strip_prefix("sha256:").filter(|digest| is_digest(digest)).ok_or(ReferenceError::Digest)?;
    let (registry, repository) = name.split_once('/').ok_or(ReferenceError::Repository)?;
    if !is_registry(registry) {
        return Err(ReferenceError::Registry);
    }
    if repository.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        return Err(ReferenceError::Tag);
    }
    if !is_path(repository) {
        return Err(ReferenceError::Repository);
    }
    Ok(Reference { registry: registry.to_owned(), repository: repository.to_owned(), digest: digest.to_owned() })
}

/// Whether these are the digits of a SHA-256, in lower case.
#[must_use]
pub fn is_digest(digits: &str) -> bool {
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Host and port of `host`, `host:port`, `[address]` or `[address]:port`.
fn split(registry: &str) -> Option<(&str, Option<&str>)> {
    match registry.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            if port.is_empty() { Some((address, None)) } else { Some((address, Some(port.strip_prefix(':')?))) }
        }
        None => Some(registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)))),
    }
}

/// Whether this is a path in a registry.
pub(crate) fn is_path(repository: &str) -> bool {
    repository.len() <= REPOSITORY && repository.split('/').all(is_part)
}

/// Whether this is a host, with or without a port.
pub(crate) fn is_registry(registry: &str) -> bool {
    let Some((host, port)) = split(registry) else { return false };
    let is_host = if registry.starts_with('[') { host.parse::<Ipv6Addr>().is_ok() } else { is_subdomain(host) };
    is_host
        && port
            .is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Whether a host, with or without a port, is this machine. Only there may connections be without TLS.
#[must_use]
pub fn is_loopback(registry: &str) -> bool {
    let Some((host, _)) = split(registry) else { return false };
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
}

/// Words of lower-case letters and digits, with one dot, one or two underscores, or hyphens between them.
fn is_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(is_word) && part.bytes().next_back().is_some_and(is_word);
    ends && part.bytes().all(|byte| is_word(byte) || b"._-".contains(&byte))
        && part
            .split(|char: char| char.is_ascii_alphanumeric())
            .all(|gap| matches!(gap, "" | "." | "_" | "__") || gap.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_are_read_as_they_are_printed() {
        for name in [
            "ghcr.io/acme/pacer-policies/oldest-first",
            "registry.example:5000/policy",
            "localhost:5000/a__b/c--d.e",
            "[::1]:5000/policy",
            "127.0.0.1/policy",
        ] {
            let text = format!("oci://{name}@sha256:{DIGITS}");
            let read = Reference::parse(&text).unwrap().unwrap();
            assert_eq!((read.to_string(), read.digits()), (text, DIGITS));
        }
        for other in ["policy.wasm", "builtin", "https://ghcr.io/acme/policy", "OCI://ghcr.io/a@sha256:0", ""] {
            assert_eq!(Reference::parse(other), None);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_cure() {
        let long = "a".repeat(600);
        let cases = [
            ("ghcr.io/acme/policy".to_owned(), ReferenceError::NoDigest),
            ("ghcr.io/acme/policy:v1".to_owned(), ReferenceError::NoDigest),
            (format!("ghcr.io/acme/policy:v1@sha256:{DIGITS}"), ReferenceError::Tag),
            ("ghcr.io/acme/policy@sha256:0123".to_owned(), ReferenceError::Digest),
            (format!("ghcr.io/acme/policy@sha512:{DIGITS}"), ReferenceError::Digest),
            (format!("ghcr.io/acme/policy@sha256:{}", DIGITS.to_uppercase()), ReferenceError::Digest),
            (format!("ghcr.io@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("ghcr.io/@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("ghcr.io/a//b@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("ghcr.io/../b@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("ghcr.io/a/B@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("ghcr.io/a?b@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("ghcr.io/a..b@sha256:{DIGITS}"), ReferenceError::Repository),
            (format!("user:word@ghcr.io/a@sha256:{DIGITS}"), ReferenceError::Digest),
            (format!("GHCR.io/a@sha256:{DIGITS}"), ReferenceError::Registry),
            (format!("ghcr.io:0/a@sha256:{DIGITS}"), ReferenceError::Registry),
            (format!("ghcr.io:+5/a@sha256:{DIGITS}"), ReferenceError::Registry),
            (format!("ghcr.io:/a@sha256:{DIGITS}"), ReferenceError::Registry),
            (format!("[fe80::1%25eth0]/a@sha256:{DIGITS}"), ReferenceError::Registry),
            (format!("/a@sha256:{DIGITS}"), ReferenceError::Registry),
            (long, ReferenceError::Long),
        ];
        for (text, error) in cases {
            assert_eq!(Reference::parse(&format!("oci://{text}")), Some(Err(error)), "{text}");
        }
        assert!(ReferenceError::NoDigest.to_string().starts_with("name the digest: oci://"));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "10.0.0.1", "[::2]:5000", "registry.example", "1270.0.0.1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
