//! etcd's data of a control plane that serves and has nothing but its definitions. A start that begins with it needs half of the API server's processor
//! time: the default roles are there, and no kind is defined while it serves.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::manifest;

/// Where a template is, or is going to be.
#[derive(Debug)]
pub(super) struct Template {
    directory: PathBuf,
}

impl Template {
    /// That of these executables and definitions, in a directory of the executables.
    ///
    /// # Errors
    ///
    /// When a definition can't be read.
    pub(super) fn of(assets: &Path, definitions: &[PathBuf]) -> io::Result<Self> {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        for path in definitions {
            let mut files = manifest::files(path)?;
            files.sort();
            for file in files {
                context.update(&fs::read(file)?);
            }
        }
        let digest = hex::encode(context.finish());
        let name = digest.get(..16).unwrap_or(&digest);
        Ok(Self { directory: assets.join("data").join(name) })
    }

    /// Copies it to where an etcd is going to look for its data. False when there is none.
    ///
    /// # Errors
    ///
    /// When it can't be copied.
    pub(super) fn copy_to(&self, data: &Path) -> io::Result<bool> {
        let there = self.directory.is_dir();
        if there {
            copy(&self.directory, data)?;
        }
        Ok(there)
    }

    /// The right to make it, for one process at a time. None where another one is at it, or has been.
    ///
    /// # Errors
    ///
    /// When nothing may be written beside the executables.
    pub(super) fn claim(&self) -> io::Result<Option<Claim>> {
        let above = self.directory.parent().unwrap_or(&self.directory);
        fs::create_dir_all(above)?;
        let lock = File::create(self.directory.with_extension("lock"))?;
        match lock.try_lock() {
            Ok(()) if self.directory.is_dir() => Ok(None),
            Ok(()) => Ok(Some(Claim { _lock: lock, directory: self.directory.clone() })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The right to make a template; it ends when dropped.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: File,
    directory: PathBuf,
}

impl Claim {
    /// Keeps the data of an etcd that has ended.
    ///
    /// # Errors
    ///
    /// When it can't be copied.
    pub(super) fn keep(self, data: &Path) -> io::Result<()> {
        let part = self.directory.with_extension("part");
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        copy(data, &part)?;
        fs::rename(part, &self.directory)
    }
}

/// Copies a directory. Zeroes at the end of a write-ahead log, which is as long as it may become from the beginning, are left out.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (from, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if from.is_dir() {
            copy(&from, &to)?;
        } else if from.extension().is_some_and(|extension| extension == "wal") {
            let log = fs::read(from)?;
            // Records are filled up to eight bytes with zeroes, which belong to them.
            let end = log.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(8));
            fs::write(to, log.get(..end).unwrap_or(&log))?;
        } else {
            fs::copy(from, to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_copied_once_it_is_kept_and_made_by_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let (assets, data) = (directory.path().join("assets"), directory.path().join("data"));
        let definition = directory.path().join("kind.yaml");
        fs::write(&definition, "kind: A").unwrap();
        let of = || Template::of(&assets, std::slice::from_ref(&definition)).unwrap();
        let template = of();
        assert!(!template.copy_to(&data).unwrap() && !data.exists());

        let claim = template.claim().unwrap().unwrap();
        assert!(template.claim().unwrap().is_none(), "two make it");
        let etcd = directory.path().join("etcd");
        fs::create_dir_all(etcd.join("member/wal")).unwrap();
        fs::write(etcd.join("member/db"), [1, 0, 0]).unwrap();
        fs::write(etcd.join("member/wal/0.wal"), [[1; 10], [0; 10]].concat()).unwrap();
        claim.keep(&etcd).unwrap();
        assert!(template.claim().unwrap().is_none(), "it is made again");

        assert!(template.copy_to(&data).unwrap());
        assert_eq!(fs::read(data.join("member/db")).unwrap(), [1, 0, 0]);
        assert_eq!(fs::read(data.join("member/wal/0.wal")).unwrap(), [[1; 10].as_slice(), &[0; 7]].concat());
        fs::write(&definition, "kind: B").unwrap();
        assert!(!of().copy_to(&directory.path().join("other")).unwrap(), "other definitions have their own");
    }
}
