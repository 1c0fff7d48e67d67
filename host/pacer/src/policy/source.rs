//! Where the policy of a command comes from.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};
use pacer_policy::bundle::pack;
use pacer_policy::{BUILTIN, Jail, LoadError, Policy, RAW_BYTES, Refusal, SHIPPED, TEXT_BYTES, text};

use super::cure::refused;
use super::jail::launcher;
use crate::file::{self, FileError};
use crate::report::Report;
use crate::table;

/// Largest core module or text that becomes a component, in bytes. Components may have less, but whatever a compiler adds for debuggers is left out of them.
const SOURCE_BYTES: usize = 64 << 20;

/// A file, or the policy in this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `builtin`: the policy that is part of pacer.
    Builtin,
    /// A component: plain, gzip or zstd; or a text that ends in `.js`.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == BUILTIN { Self::Builtin } else { Self::File(PathBuf::from(text)) })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str(BUILTIN),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Source {
    /// The component, decompressed, or the module of a text.
    pub(crate) fn read(&self, jail: &Jail) -> Result<Vec<u8>> {
        let path = match self {
            Self::Builtin => return Ok(SHIPPED.to_vec()),
            Self::File(path) => path,
        };
        let most = if self.is_text() { TEXT_BYTES } else { RAW_BYTES };
        let bytes = match file::read(path, most, "a policy") {
            Err(FileError::Large { .. }) => {
                let message = format!("it has more than {most} bytes, which is the limit");
                return Err(refused(self, &LoadError::new(Refusal::TooLarge, message)));
            }
            read => read?,
        };
        if self.is_text() {
            return text::module(&bytes).map_err(|error| refused(self, &error));
        }
        jail.unpack(&bytes).map_err(|error| refused(self, &error))
    }

    /// Whether it is a text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::File(path) if path.to_str().is_some_and(text::is_text))
    }

    /// Loads it as the operator does.
    pub(crate) fn load(&self, jail: &Jail) -> Result<Policy> {
        Policy::load(jail, &self.read(jail)?).map_err(|error| refused(self, &error))
    }
}

/// Where policies are read and run: the same processes, locks and limits as the operator's.
pub(crate) fn jail() -> Result<Jail> {
    Jail::start(launcher()?).map_err(|error| anyhow!("{error}"))
}

/// Arguments of `pacer policy componentize`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// A core module, or WebAssembly text.
    module: PathBuf,
    /// File to write the component to.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// `pacer policy componentize`.
pub(crate) fn componentize(arguments: &Arguments) -> Result<Report> {
    let Arguments { module, output } = arguments;
    ensure!(
        !is_same(module, output),
        "--output {} is the same file as the source {}: name another file",
        output.display(),
        module.display()
    );
    let source = file::read(module, SOURCE_BYTES, "a core module or WebAssembly text")?;
    let component = jail()?.componentize(&source).map_err(|error| refused(module.display(), &error))?;
    write(output, &component).with_context(|| format!("{} can't be written", output.display()))?;
    let (size, packed) = (table::bytes(component.len()), table::bytes(pack(&component).len()));
    Ok(Report::text(format!("{}: {size}, {packed} compressed\n", output.display())))
}

/// Whether two paths lead to one file, whatever they are called.
fn is_same(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    found(one).zip(found(other)).is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Writes a file, so that nobody finds half of it there, whatever happens meanwhile.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        // A pipe or a terminal can't be replaced.
        return std::fs::write(path, bytes);
    }
    // A link stays one.
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = place.clone().into_os_string();
    name.push(format!(".{}", std::process::id()));
    let new = Path::new(&name);
    let written = std::fs::File::create_new(new).and_then(|mut to| {
        if let Some(there) = there {
            to.set_permissions(there.permissions())?;
        }
        to.write_all(bytes)
    });
    let placed = written.and_then(|()| std::fs::rename(new, &place));
    if placed.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(new);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_never_replaces_what_it_is_made_of() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let module = place("policy.wat");
        std::fs::write(&module, "(module)").unwrap();
        std::os::unix::fs::symlink(&module, place("link.wasm")).unwrap();
        std::fs::hard_link(&module, place("second.wasm")).unwrap();
        for output in [module.clone(), place("./policy.wat"), place("link.wasm"), place("second.wasm")] {
            let error = componentize(&Arguments { module: module.clone(), output }).unwrap_err().to_string();
            assert!(error.contains("is the same file as the source"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&module).unwrap(), "(module)");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        std::fs::write(place("a.wasm"), "old").unwrap();
        std::os::unix::fs::symlink(place("a.wasm"), place("link.wasm")).unwrap();
        write(&place("link.wasm"), b"new").unwrap();
        write(&place("b.wasm"), b"first").unwrap();
        assert_eq!(["a.wasm", "b.wasm"].map(|name| std::fs::read_to_string(place(name)).unwrap()), ["new", "first"]);
        assert!(std::fs::symlink_metadata(place("link.wasm")).unwrap().is_symlink());
        write(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(write(&place("none/c.wasm"), b"c").is_err() && write(directory.path(), b"d").is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3, "nothing is left beside them");
    }

    #[test]
    fn what_is_larger_than_a_policy_can_be_is_refused_before_it_is_read() {
        let error = Source::File("/dev/zero".into()).read(&jail().unwrap()).unwrap_err().to_string();
        assert!(error.contains("PolicyTooLarge") && error.contains("more than 4194304 bytes"), "{error}");
        let error = componentize(&Arguments { module: "/dev/zero".into(), output: "/dev/null".into() }).unwrap_err().to_string();
        assert!(error.contains("/dev/zero has more than 64.0 MiB"), "{error}");
    }

    #[test]
    fn builtin_is_no_file() {
        assert_eq!("builtin".parse(), Ok(Source::Builtin));
        assert_eq!("./builtin".parse(), Ok(Source::File(PathBuf::from("./builtin"))));
        assert!(Source::Builtin.load(&jail().unwrap()).is_ok_and(|policy| policy.decisions().len() == 4));
    }
}
