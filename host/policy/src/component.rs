//! What identifies a component, and how large it may be where it lies.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits::COMPRESSED_BYTES;
use crate::load::{LoadError, Refusal};

/// The version of the contract that policies are made for unless they say otherwise.
pub const CONTRACT: &str = "pacer:policy@0.1.0";

/// All versions of the contract that this host speaks, the oldest first.
pub const CONTRACTS: [&str; 2] = [CONTRACT, "pacer:policy@0.2.0"];

/// SHA-256 of some bytes, printed as `sha256:` and hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a value as JSON.
    pub(crate) fn of_json(value: &impl Serialize) -> Self {
        /// Hashes what is written.
        struct Sink(Sha256);
        impl std::io::Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.update(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut sink = std::io::BufWriter::with_capacity(8 << 10, Sink(Sha256::new()));
        // Neither the sink nor the serialisation of plain structs can fail; if one did, the digest would be of what came before.
        let _ = serde_json::to_writer(&mut sink, value);
        sink.into_inner().map_or_else(|_| Self::of(&[]), |sink| Self::finished(sink.0))
    }

    /// The first `digits` hexadecimal digits alone, for names of objects; all 64 when that is more.
    #[must_use]
    pub fn hex(&self, digits: usize) -> String {
        let mut text = hex::encode(self.0);
        text.truncate(digits);
        text
    }

    pub(crate) fn finished(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// With the first twelve digits only, which is enough to tell policies apart by eye.
    #[must_use]
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate("sha256:".len() + 12);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Checks the size of a policy as it lies compressed in a ConfigMap, before it is inflated.
///
/// # Errors
///
/// [`Refusal::TooLarge`] above [`COMPRESSED_BYTES`].
pub fn compressed_fits(bytes: usize) -> Result<(), LoadError> {
    if bytes > COMPRESSED_BYTES {
        let message = format!("it has {bytes} bytes compressed and may have {COMPRESSED_BYTES}");
        return Err(LoadError::new(Refusal::TooLarge, message));
    }
    Ok(())
}
