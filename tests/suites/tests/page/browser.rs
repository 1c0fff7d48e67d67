//! The page of a running operator in headless Chromium. The other half is `tests/page/live.mjs`: it says what it sees, and this makes happen what it waits for.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_harness::github::Scope;
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{PATIENCE, apply, brisk_world, deployment, queue, running, settled};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::autoscaler;

/// Where this is set, a machine without a browser fails instead of passing it over.
const REQUIRED: &str = "PACER_BROWSER";

/// Longer than the browser is watched.
const LONG: Duration = Duration::from_secs(600);

/// Why the page can't be opened here; none where it can.
fn lacks() -> Option<&'static str> {
    let chromium = std::env::var_os("CHROMIUM").map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../page/node_modules/playwright-core");
    match (chromium.exists(), modules.exists()) {
        (false, _) => Some("there is no Chromium"),
        (true, false) => Some("tests/page/node_modules is not there: make page-test"),
        (true, true) => None,
    }
}

/// A browser that looks at the page.
struct Browser {
    child: Child,
    says: Lines<BufReader<ChildStdout>>,
    told: ChildStdin,
}

impl Browser {
    fn open(url: &str) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../page/live.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(url).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("node")?;
        let says = BufReader::new(child.stdout.take().context("its output")?).lines();
        let told = child.stdin.take().context("its input")?;
        Ok(Self { child, says, told })
    }

    /// Waits until it has seen this.
    async fn sees(&mut self, what: &str) -> Result<()> {
        let line = timeout(PATIENCE, self.says.next_line()).await.with_context(|| format!("waiting for {what:?}"))??;
        ensure!(line.as_deref() == Some(what), "it says {line:?}, not {what:?}; the reason is above");
        Ok(())
    }

    async fn go_on(&mut self) -> Result<()> {
        Ok(self.told.write_all(b"\n").await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_running_operator_is_live_in_a_browser_and_comes_back_after_a_restart() -> Result<()> {
    if let Some(lack) = lacks() {
        ensure!(std::env::var_os(REQUIRED).is_none(), "{lack}");
        println!("SKIPPED: the page in a browser: {lack}");
        return Ok(());
    }
    // It has to be at the same place after the restart.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut world = brisk_world(&[&format!("--ui-addr=127.0.0.1:{port}")], receive).await?;
    hook(&world, Scope::repository("acme", "app"))?;
    apply(&world, &deployment("web", 3)).await?;
    apply(&world, &autoscaler(3, 3)).await?;
    settled(&world, 3).await?;

    let mut browser = Browser::open(&format!("http://127.0.0.1:{port}/"))?;
    browser.sees("idle").await?;
    browser.go_on().await?;
    queue(&world, "web", 4, LONG)?;
    running(&world, 3).await?;
    browser.sees("busy").await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    browser.go_on().await?;
    browser.sees("lost").await?;
    operator.restart().await?;
    browser.go_on().await?;
    browser.sees("done").await?;
    ensure!(timeout(PATIENCE, browser.child.wait()).await??.success(), "the browser failed");
    world.stop().await;
    Ok(())
}
