//! What somebody who follows a page has run of it, and the pages that somebody follows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use pacer_suites::page;

use super::helm::repository;
use super::pages::{Desk, read};

pub(crate) const README: &str = "README.md";
pub(crate) const BEGINNERS: &str = "docs/getting-started.md";
const PROBE: &str = "docs/decisions/0018-no-python-text.md";
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// Commands that no test runs: where they stand, and why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "docs/install.md",
        "skopeo copy oci:target/image:0.1.0 docker://<registry>/pacer:0.1.0",
        "no machine of the tests has skopeo or a registry with TLS; crane pushes the same layout in `make release-push`",
    ),
    (
        "docs/install.md",
        "sudo install target/release/pacer /usr/local/bin/pacer",
        "changes the machine that runs the tests; their own `pacer` is in the path",
    ),
    (
        "docs/install.md",
        "docker run --rm --network=host --user=\"$(id -u)\" --volume=\"$HOME/.kube/config:/kubeconfig:ro\" \
         --env=KUBECONFIG=/kubeconfig <registry>/pacer:0.1.0 status -A",
        "no machine of the tests has a container engine; `make image-test` runs the image's program on the image's root",
    ),
    ("docs/operations.md", "kubectl apply -k .", "run by the test of deploy/README.md, which has the kustomization"),
    ("docs/operations.md", "make bench", "takes a release build and an hour; CI runs a part of it, `make bench-simulate-short`"),
    (
        "docs/operations.md",
        "make bench-limits",
        "takes twenty minutes; the suite `limits` runs the same tests with fewer runners",
    ),
    (
        "docs/policy-sets.md",
        "oras push registry.example/team/oldest-first:1 oldest-first.wasm:application/wasm",
        "no machine of the tests has oras; `policies` pushes the same artifact to a registry over HTTP",
    ),
    ("docs/policy-sets.md", "oras resolve registry.example/team/oldest-first:1", "no machine of the tests has oras"),
    ("docs/policy-sets.md", "cosign generate-key-pair", "no machine of the tests has cosign; `policies` signs as cosign does"),
    (
        "docs/policy-sets.md",
        "cosign sign --key cosign.key --use-signing-config=false --tlog-upload=false registry.example/team/oldest-first@sha256:...",
        "no machine of the tests has cosign; `policies` signs as cosign does",
    ),
    ("docs/trace.md", "kubectl apply -f trace-reader.yaml", "mounts a claim, which takes a node with storage"),
    (
        "docs/trace.md",
        "kubectl -n actions-runner-system wait --for=condition=Ready --timeout=2m pod/trace-reader",
        "takes a node that runs the pod",
    ),
    (
        "docs/trace.md",
        "kubectl -n actions-runner-system cp trace-reader:/trace trace",
        "takes a kubelet that runs `tar` in the pod's container",
    ),
    ("docs/trace.md", "kubectl -n actions-runner-system delete pod trace-reader", "deletes that pod"),
    (
        PROBE,
        "RUSTFLAGS='--cfg getrandom_backend=\"unsupported\"' cargo build --target wasm32-unknown-unknown --profile policy",
        "what was tried for the decision, with a crate that is not in the repository",
    ),
    (
        PROBE,
        "pacer policy componentize target/wasm32-unknown-unknown/policy/monty_probe.wasm -o probe.wasm",
        "what was tried for the decision, with a crate that is not in the repository",
    ),
    (CONTRIBUTING, "git diff", "shows what the author has changed"),
    (CONTRIBUTING, "CI=1 .ci/run", "runs all tests, this one included"),
];

/// Programs of a page whose commands no test runs, and why.
const PROGRAMS_NOT_RUN: &[(&str, &str, &str)] = &[
    (CONTRIBUTING, "make", "each takes minutes to hours, and most run this test; whether make has the target is looked at here"),
    (CONTRIBUTING, "cargo", "cargo runs this test; whether packages and tests have these names is looked at here"),
];

/// Sections of a page whose blocks another test runs as they stand: it has the heading and reads the page.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("docs/policies.md", "Ten minutes to a policy of your own", "host/pacer/tests/tutorial.rs"),
    ("docs/policies.md", "Into force", "tests/suites/tests/receipts.rs"),
    ("docs/policies.md", "Why did it go?", "tests/suites/tests/receipts.rs"),
    ("docs/policies.md", "JavaScript as text", "host/pacer/tests/tutorial.rs"),
];

/// Programs whose commands a page may have within a sentence. Of some their name and one word more is a command already.
const PROGRAMS: [(&str, usize); 7] =
    [("kubectl", 3), ("helm", 3), ("docker", 3), ("kind", 3), ("skopeo", 3), ("pacer", 2), ("make", 2)];

/// Languages of blocks that are for a shell.
const SHELLS: [&str; 5] = ["sh", "bash", "shell", "console", ""];

/// A command without the comment behind it.
pub(crate) fn bare_command(line: &str) -> &str {
    line.split(" #").next().unwrap_or(line).trim()
}

/// The commands of a block, of which some have several lines.
fn of_block(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut command = String::new();
    for line in text.lines() {
        if command.is_empty() {
            command.push_str(bare_command(line));
        } else {
            command.push('\n');
            command.push_str(line.trim());
        }
        let (first, last) = (command.lines().next().unwrap_or_default(), command.lines().last().unwrap_or_default());
        let goes_on = last.ends_with('\\')
            || match first.split_once("<<'") {
                Some((_, end)) => Some(last) != end.split('\'').next(),
                None => command.matches('\'').count() % 2 == 1,
            };
        if !goes_on {
            found.push(std::mem::take(&mut command));
        }
    }
    found.push(command);
    found.retain(|command| !command.is_empty() && !command.starts_with('#'));
    found
}

/// The commands of a page: those of its blocks, and those within its sentences.
pub(crate) fn commands(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut of_blocks, mut sentences, mut block) = (BTreeSet::new(), String::new(), None);
    for line in text.lines().map(str::trim) {
        match (line.strip_prefix("```"), &mut block) {
            (Some(language), None) => block = Some((language, String::new())),
            (Some(_), Some((language, text))) => {
                if SHELLS.contains(language) {
                    of_blocks.extend(of_block(text));
                }
                block = None;
            }
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {
                sentences.push_str(line);
                sentences.push(' ');
            }
        }
    }
    let spans = sentences.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>());
    let is_command = |words: &Vec<&str>| {
        let program = words.first();
        PROGRAMS.iter().any(|(name, least)| program == Some(name) && words.len() >= *least)
    };
    let within = spans.filter(is_command).map(|words| words.join(" ")).collect();
    (of_blocks, within)
}

/// Commands of a page that no test runs.
fn not_run(page: &str) -> BTreeSet<String> {
    NOT_RUN.iter().filter(|(of, ..)| *of == page).map(|(_, command, _)| (*command).to_owned()).collect()
}

/// Somebody who follows a page, and what is left of it.
pub(crate) struct Reader {
    page: &'static str,
    all: BTreeSet<String>,
    left: BTreeSet<String>,
}

impl Reader {
    /// Somebody who runs every command of a page, those within its sentences too.
    pub(crate) fn of(page: &'static str) -> Result<Self> {
        let (of_blocks, within) = commands(&read(page)?);
        let all: BTreeSet<String> = of_blocks.into_iter().chain(within).collect();
        Ok(Self { page, left: all.clone(), all })
    }

    /// Somebody who runs every command of the blocks of a page, and may run those within its sentences.
    pub(crate) fn of_blocks(page: &'static str) -> Result<Self> {
        let (left, within) = commands(&read(page)?);
        ensure!(!left.is_empty(), "{page} has no block with commands");
        Ok(Self { page, all: left.iter().cloned().chain(within).collect(), left })
    }

    /// Leaves a section to another test.
    pub(crate) fn leaves(&mut self, heading: &str) -> Result<()> {
        let text = read(self.page)?;
        let (others, _) = commands(page::section(&text, heading).with_context(|| format!("no heading {heading}"))?);
        self.left.retain(|command| !others.contains(command));
        Ok(())
    }

    /// A command, which has to stand on the page.
    pub(crate) fn takes<'c>(&mut self, command: &'c str) -> Result<&'c str> {
        ensure!(self.all.contains(command), "{} has no command {command}; it has {:#?}", self.page, self.all);
        self.left.remove(command);
        Ok(command)
    }

    /// The only command of the page that begins so.
    pub(crate) fn finds(&mut self, beginning: &str) -> Result<String> {
        let mut found = self.all.iter().filter(|command| command.starts_with(beginning));
        let command = found.next().with_context(|| format!("{} has no command {beginning}", self.page))?.clone();
        ensure!(found.next().is_none(), "{} has several commands {beginning}", self.page);
        self.left.remove(&command);
        Ok(command)
    }

    /// Runs a command that ends with this code and says this.
    pub(crate) async fn ends(&mut self, desk: &Desk<'_>, command: &str, code: i32, saying: &str) -> Result<String> {
        let said = desk.try_to_run(self.takes(command)?).await?;
        ensure!(
            said.code == Some(code) && said.text.contains(saying),
            "$ {command}\nends with {:?}, not {code}, or without {saying:?}:\n{}",
            said.code,
            said.text
        );
        Ok(said.text)
    }

    /// Runs a command that succeeds and says this.
    pub(crate) async fn runs(&mut self, desk: &Desk<'_>, command: &str, saying: &str) -> Result<String> {
        self.ends(desk, command, 0, saying).await
    }

    /// Runs a command with words in the place of those in capitals.
    pub(crate) async fn runs_with(
        &mut self,
        desk: &mut Desk<'_>,
        command: &str,
        words: &[(&'static str, &str)],
        saying: &str,
    ) -> Result<String> {
        let before = desk.words.len();
        desk.words.extend(words.iter().map(|(word, meant)| (*word, (*meant).to_owned())));
        let outcome = self.runs(desk, command, saying).await;
        desk.words.truncate(before);
        outcome
    }

    /// Nothing is left but what is not run, and nothing of that was run.
    pub(crate) fn closes(self) -> Result<()> {
        let not_run = not_run(self.page);
        ensure!(
            self.left == not_run,
            "{}: not run, or listed as not run: {:?}",
            self.page,
            self.left.symmetric_difference(&not_run)
        );
        Ok(())
    }
}

/// Every page of the documentation: what is in docs/, and the pages beside it with commands of an installation.
fn all_pages() -> Result<Vec<String>> {
    let mut found: Vec<String> = [README, CONTRIBUTING, "deploy/README.md"].map(str::to_owned).to_vec();
    let mut left = vec!["docs".to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(repository(&directory))? {
            let entry = entry?;
            let path = format!("{directory}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                left.push(path);
            } else if entry.path().extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The pages that tests of this suite follow to their end.
fn followed() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(repository("tests/suites/tests/chart"))? {
        let path = entry?.path();
        let is_followers = path.extension().is_some_and(|end| end == "rs") && !path.ends_with("reader.rs");
        if !is_followers {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let openings = text.split("Reader::of").skip(1).filter_map(|rest| rest.split_once("(\"")?.1.split_once('"'));
        let pages: Vec<&str> = openings.map(|(page, _)| page).collect();
        let (opened, closed) = (text.matches("Reader::of").count(), text.matches(".closes()?").count());
        let closed = closed + text.matches(".closes()\n").count();
        ensure!(pages.len() == opened && opened == closed, "{}: {opened} readers, {closed} read to the end", path.display());
        found.extend(pages.into_iter().map(str::to_owned));
    }
    Ok(found)
}

/// Commands of a page that a test runs by the headings above them.
fn run_elsewhere(page: &str, text: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (_, heading, test) in ELSEWHERE.iter().filter(|(of, ..)| *of == page) {
        let source = read(test)?;
        let name = page.rsplit('/').next().unwrap_or(page);
        ensure!(source.contains(&format!("commands(\"{heading}\")")), "{test} runs no {heading}");
        ensure!(source.contains(&format!("{name}\")")), "{test} does not read {page}");
        let section = page::section(text, heading).with_context(|| format!("{page} has no heading {heading}"))?;
        let (of_blocks, _) = commands(section);
        ensure!(!of_blocks.is_empty(), "{page}, {heading}: no block");
        found.extend(of_blocks);
    }
    Ok(found)
}

#[test]
fn commands_of_a_page_are_those_of_blocks_and_of_sentences() {
    let text = "# A\n\nRun `pacer doctor`, or\n`helm\nrollback a`; `helm upgrade` and `x y z` are none.\n\n```sh\nb c   # why it's so\n```\n\n- d\n\n  \
                ```sh\n  e f\n  g \\\n    h\n  ```\n\n```yaml\ng: h\n```\n\n```console\ni 'j\nk'\nl <<'EOF'\nm's\nEOF\nn\n```\n";
    let (of_blocks, within) = commands(text);
    let expected = ["b c", "e f", "g \\\nh", "i 'j\nk'", "l <<'EOF'\nm's\nEOF", "n"];
    assert_eq!(of_blocks.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(within.into_iter().collect::<Vec<_>>(), ["helm rollback a", "pacer doctor"]);
}

#[test]
fn commands_that_are_not_run_are_those_of_the_pages() -> Result<()> {
    for (path, command, why) in NOT_RUN {
        let (of_blocks, within) = commands(&read(path)?);
        ensure!(of_blocks.contains(*command) || within.contains(*command), "{path} has no command {command}");
        ensure!(!why.is_empty());
    }
    Ok(())
}

#[test]
fn every_command_of_a_block_of_every_page_is_run_by_a_test_or_listed_with_the_reason() -> Result<()> {
    let followed = followed()?;
    let mut missing: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in all_pages()? {
        // Of these the reader looks at every command.
        if followed.contains(&path) {
            continue;
        }
        let text = read(&path)?;
        let (mut left, _) = commands(&text);
        for known in run_elsewhere(&path, &text)?.into_iter().chain(not_run(&path)) {
            left.remove(&known);
        }
        let programs: Vec<&str> =
            PROGRAMS_NOT_RUN.iter().filter(|(of, ..)| *of == path).map(|(_, program, _)| *program).collect();
        left.retain(|command| !programs.iter().any(|program| program_of(command) == *program));
        if !left.is_empty() {
            missing.insert(path, left);
        }
    }
    ensure!(missing.is_empty(), "no test runs these commands: {missing:#?}");
    Ok(())
}

/// The first word that sets no variable.
fn program_of(command: &str) -> &str {
    command.split_whitespace().find(|word| !word.contains('=')).unwrap_or_default()
}

#[test]
fn commands_of_the_page_for_contributors_name_what_there_is() -> Result<()> {
    let (of_blocks, _) = commands(&read(CONTRIBUTING)?);
    let of = |program: &'static str| of_blocks.iter().filter(move |command| program_of(command) == program);
    ensure!(of("make").count() > 10 && of("cargo").count() > 3, "{of_blocks:?}");
    let makefile = read("Makefile")?;
    for target in of("make").flat_map(|command| command.split_whitespace().skip(1)).filter(|word| !word.contains('=')) {
        ensure!(makefile.contains(&format!("\n{target}:")), "make {target}: no such target");
    }
    let flows = read("tests/suites/tests/flows.rs")?;
    for command in of("cargo") {
        let words: Vec<&str> = command.split_whitespace().collect();
        let package = words.windows(2).find_map(|pair| (pair[0] == "-p").then_some(pair[1]));
        match (package, words.windows(2).find_map(|pair| (pair[0] == "--test").then_some(pair[1]))) {
            (Some("pacer-policy-NAME"), None) => ensure!(repository("policies/oldest-first/Cargo.toml").is_file()),
            (Some("pacer-core"), None) => ensure!(repository("host/core/Cargo.toml").is_file()),
            (None, Some("suites")) => {
                let name = words.last().filter(|word| word.contains('_')).filter(|word| !word.contains('/'));
                ensure!(name.is_none_or(|name| flows.contains(&format!("fn {name}("))), "{command}: no such test");
            }
            other => anyhow::bail!("{command}: this test does not know {other:?}"),
        }
    }
    Ok(())
}
