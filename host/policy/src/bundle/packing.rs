//! Modules as they go into a ConfigMap. They are decompressed elsewhere, in the crate `pacer-jail`.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses a module for a ConfigMap (gzip, best).
#[must_use]
pub fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Whether a module is compressed already, by what gzip and zstd begin with.
#[must_use]
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}
