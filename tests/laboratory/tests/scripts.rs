//! Every failure that was found once, and patterns that GitHub's users found for us.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pacer_laboratory::rules::Rules;
use pacer_laboratory::script::Script;
use pacer_laboratory::world::{Outcome, run};

fn scripts(directory: &str) -> Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut files = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
    files.sort();
    ensure!(!files.is_empty(), "no scripts in {}", directory.display());
    Ok(files)
}

fn play(file: &Path) -> Result<Outcome> {
    let script: Script = fs::read_to_string(file)?.parse().with_context(|| file.display().to_string())?;
    let outcome = run(&script, Rules::default(), true);
    if let Some(violation) = &outcome.violation {
        let trace = outcome.trace.join("\n");
        anyhow::bail!("{}: {violation}\n{trace}", file.display());
    }
    Ok(outcome)
}

#[test]
fn scripts_hold_every_invariant() -> Result<()> {
    for file in scripts("scripts")? {
        play(&file)?;
    }
    Ok(())
}

/// terraform-aws-github-runner PR 5228: the flag is late by a minute and more, or turns false in mid-job, and a removal goes by it.
#[test]
fn no_job_is_lost_to_a_flag_that_is_late_or_drops() -> Result<()> {
    let files = scripts("scripts")?;
    let of_the_flag =
        files.iter().filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pr-5228-")));
    let mut played = 0;
    for file in of_the_flag {
        let outcome = play(file)?;
        ensure!(outcome.unlucky == 0, "{}: {} jobs lost\n{}", file.display(), outcome.unlucky, outcome.trace.join("\n"));
        played += 1;
    }
    ensure!(played == 4, "{played} scripts of PR 5228");
    Ok(())
}
