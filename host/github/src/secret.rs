//! A text that must never be printed.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// How GitHub's tokens begin (GitHub docs, "About authentication to GitHub"), and JSON Web Tokens.
pub const TOKEN_BEGINNINGS: [&str; 7] = ["ghp_", "github_pat_", "gho_", "ghu_", "ghs_", "ghr_", "eyJ"];

/// A token, password or key: wiped from memory when dropped, shown as `[redacted]` by `Debug`, without `Display` or `Serialize`.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The text itself. Whatever receives it must not log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
