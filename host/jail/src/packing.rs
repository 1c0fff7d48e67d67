//! Modules as they lie in a ConfigMap: plain, gzip or zstd, told apart by their first bytes.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use pacer_policy::{LoadError, RAW_BYTES, Refusal, compressed_fits};
use ruzstd::decoding::StreamingDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Largest distance that a zstd frame may refer back over, which the decoder keeps in memory: that of `zstd -19`.
const WINDOW_BYTES: u64 = 8 << 20;

/// Decompresses a module, or passes on one that is not compressed. Never holds more than the largest module and the window of zstd.
///
/// # Errors
///
/// [`Refusal::TooLarge`] for more than [`pacer_policy::COMPRESSED_BYTES`], [`Refusal::Bomb`] for more than [`RAW_BYTES`] inside,
/// [`Refusal::Compression`] for what is damaged.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, LoadError> {
    if bytes.starts_with(&GZIP) {
        compressed_fits(bytes.len())?;
        read("gzip", MultiGzDecoder::new(bytes)).map(Cow::Owned)
    } else if bytes.starts_with(&ZSTD) {
        compressed_fits(bytes.len())?;
        unpack_zstd(bytes).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(bytes))
    }
}

fn unpack_zstd(bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    if window(bytes).is_some_and(|window| window > WINDOW_BYTES) {
        let message =
            format!("its zstd frame needs more than {WINDOW_BYTES} bytes of memory: compress it without --long and --ultra");
        return Err(LoadError::new(Refusal::Bomb, message));
    }
    let mut decoder = StreamingDecoder::new(bytes).map_err(|error| damaged("zstd", &error))?;
    let raw = read("zstd", &mut decoder)?;
    let (rest, frame) = decoder.into_parts();
    if !rest.is_empty() {
        return Err(LoadError::new(Refusal::Compression, "more follows its first zstd frame: compress it as one"));
    }
    match frame.get_checksum_from_data() {
        Some(said) if frame.get_calculated_checksum() != Some(said) => {
            Err(LoadError::new(Refusal::Compression, "it is damaged zstd: its checksum differs; compress it anew"))
        }
        _ => Ok(raw),
    }
}

/// The window that a zstd frame declares (RFC 8878, 3.1.1.1), or its content where that is the window. None for a header that is cut off.
fn window(frame: &[u8]) -> Option<u64> {
    let descriptor = *frame.get(4)?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let window = *frame.get(5)?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    let dictionary = [0, 1, 2, 4].into_iter().nth(usize::from(descriptor & 3))?;
    let width = 1_usize << (descriptor >> 6);
    let size = frame.get(5 + dictionary..5 + dictionary + width)?;
    let size = size.iter().rev().fold(0_u64, |size, &byte| size << 8 | u64::from(byte));
    Some(if width == 2 { size + 256 } else { size })
}

fn read(what: &str, from: impl Read) -> Result<Vec<u8>, LoadError> {
    let mut raw = Vec::new();
    let limit = u64::try_from(RAW_BYTES).unwrap_or(u64::MAX);
    from.take(limit.saturating_add(1)).read_to_end(&mut raw).map_err(|error| damaged(what, &error))?;
    if raw.len() > RAW_BYTES {
        let message = format!("it decompresses to more than the {RAW_BYTES} bytes that a module may have");
        return Err(LoadError::new(Refusal::Bomb, message));
    }
    Ok(raw)
}

fn damaged(what: &str, error: &dyn std::error::Error) -> LoadError {
    LoadError::new(Refusal::Compression, format!("it is damaged {what}: {error}; compress it anew"))
}

#[cfg(test)]
mod tests {
    use pacer_policy::bundle::pack;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn code(bytes: &[u8]) -> Refusal {
        unpack(bytes).unwrap_err().code
    }

    #[test]
    fn modules_come_out_as_they_went_in() {
        let module: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for packed in [module.clone(), pack(&module), zstd(&module)] {
            assert_eq!(unpack(&packed).unwrap(), module);
        }
        assert!(pack(&module).len() < module.len() / 2);
        // A gzip file may have several members.
        assert_eq!(unpack(&[pack(b"one "), pack(b"two")].concat()).unwrap(), b"one two".as_slice());
    }

    #[test]
    fn bombs_are_refused_while_they_grow() {
        let zeroes = vec![0; RAW_BYTES + 1];
        assert_eq!((code(&pack(&zeroes)), code(&zstd(&zeroes))), (Refusal::Bomb, Refusal::Bomb));
        assert_eq!(unpack(&pack(&zeroes[1..])).unwrap().len(), RAW_BYTES);
        // A frame of four bytes that claims to need 64 MiB, and one whose content is said to be as large.
        assert_eq!(code(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x80]), Refusal::Bomb);
        assert_eq!(code(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 4]), Refusal::Bomb);
        assert_eq!(code(&[&GZIP, vec![0; pacer_policy::COMPRESSED_BYTES].as_slice()].concat()), Refusal::TooLarge);
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let module = b"a module that is long enough to be worth it, worth it, worth it".repeat(20);
        for packed in [pack(&module), zstd(&module)] {
            assert_eq!(code(&packed[..packed.len() - 5]), Refusal::Compression);
            assert_eq!(code(&packed[..3.max(packed.len() / 2)]), Refusal::Compression);
        }
        assert_eq!(code(&[zstd(&module), zstd(&module)].concat()), Refusal::Compression);
        assert_eq!(code(&[pack(&module), b"more".to_vec()].concat()), Refusal::Compression);
    }
}

#[cfg(test)]
mod decoders {
    use pacer_policy::bundle::pack;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    #[test]
    fn packed_module_is_read_or_refused_and_never_grows() {
        let module = b"a module that is long enough to be worth it, worth it, worth it".repeat(20);
        let zstd = compress_to_vec(module.as_slice(), CompressionLevel::Fastest);
        pacer_fuzz::bytes!([pack(&module), [pack(b"one "), pack(b"two")].concat(), zstd], |bytes| {
            let raw = unpack(bytes);
            assert!(raw.as_ref().map_or(0, |raw| raw.len()) <= RAW_BYTES.max(bytes.len()));
            raw.is_ok()
        });
    }
}
