//! The program that checks and tests the rules of Prometheus.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The promtool to run; `None` where this machine has no way to get one, which is not accepted in CI.
///
/// # Errors
///
/// When it can't be got although there is a way.
pub fn find() -> Result<Option<PathBuf>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../promtool/get.sh");
    let output = Command::new("/bin/sh").arg(script).stderr(Stdio::inherit()).output()?;
    match output.status.code() {
        Some(0) => Ok(Some(String::from_utf8(output.stdout)?.trim().into())),
        Some(3) if std::env::var_os("CI").is_none_or(|ci| ci.is_empty()) => Ok(None),
        _ => bail!("tests/promtool/get.sh: {}", output.status),
    }
}

/// Runs it.
///
/// # Errors
///
/// With its own words when it fails.
pub fn succeeds(promtool: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new(promtool).args(arguments).output().context("running promtool")?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {}: {}", arguments.join(" "), String::from_utf8_lossy(&said));
    Ok(())
}
