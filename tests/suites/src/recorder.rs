//! `pacer record` beside a world, and what it has written.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use tokio::process::{Child, Command};

use crate::{NAMESPACE, PATIENCE};

/// A recorder that ends with this.
pub struct Recorder(Child);

impl Recorder {
    /// Begins to record the fleets' namespace into this file, with these further arguments.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn start(world: &World, file: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary().await?);
        command.args(["record", "-n", NAMESPACE, "--out"]).arg(file).args(arguments);
        command.env("KUBECONFIG", world.plane.kubeconfig_path()).stdin(Stdio::null()).kill_on_drop(true);
        Ok(Self(command.spawn()?))
    }

    /// Ends it as a service manager does.
    ///
    /// # Errors
    ///
    /// When it does not end well.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.0.id().context("the recorder is gone")?;
        ensure!(Command::new("kill").arg(pid.to_string()).status().await?.success(), "the recorder is gone");
        let status = self.0.wait().await?;
        ensure!(status.success(), "the recorder ended with {status}");
        Ok(())
    }
}

/// Waits until the file holds so many records of a kind.
///
/// # Errors
///
/// With the state of the world, when it does not in time.
pub async fn recorded(world: &World, file: &Path, kind: &str, count: usize) -> Result<()> {
    let began = Instant::now();
    let word = format!("\"kind\":\"{kind}\"");
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let found = text.lines().filter(|line| line.contains(&word)).count();
        if found >= count {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            world.check(Err::<(), _>(format!("{found} of {count} records {kind}"))).await?;
        }
        // Nobody announces that a file has grown.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
