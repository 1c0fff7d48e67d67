//! What policies are told of the last jobs of persistent runners after a restart of the operator.

use super::*;

/// Keeps nobody, and asks for last jobs.
const ASKING: &str = r#"
export const name = "asking";
export const reads = ["last-job"];
export function scaleDown({ candidates, surplus }) {
  return candidates.map((_, index) => ({ index, reason: "asked for" })).slice(0, surplus);
}
"#;

/// What the newest receipt of a scale-down says of last jobs, by runner: how long ago it ended, and of which repository and workflow it was.
fn last_jobs(world: &World) -> Result<BTreeMap<String, (u64, String)>> {
    let told = newest(world, "scale-down")?;
    let candidates = told["input"]["candidates"].as_array().context("candidates")?;
    let worked = candidates.iter().filter_map(|candidate| {
        let facts = attributes(candidate);
        let of = format!("{:?} {:?}", facts.get("last-job-repository"), facts.get("last-job-workflow"));
        Some((candidate["name"].as_str()?.to_owned(), (candidate["last-job-end"].as_u64()?, of)))
    });
    Ok(worked.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_job_of_a_persistent_runner_is_known_after_a_kill_of_the_operator() -> Result<()> {
    let mut world = hooked_world_of_prompt_flags(&[]).await?;
    apply(&world, &opinions("scale-down: {module: policy.js}", ASKING)).await?;
    let mut web = with_spec(deployment("web", 4), "ephemeral", json!(false));
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    apply(&world, &autoscaler(4, 4)).await?;
    settled(&world, 4).await?;
    opinions_decide(&world).await?;
    let jobs = queue(&world, "web", 2, Duration::from_secs(15))?;
    busy(&world, 2).await?;
    succeeded(&world, 2).await?;
    busy(&world, 0).await?;
    // A listing may tell of idle runners before the last event of their jobs comes, and what comes while nobody listens is lost.
    pacer_suites::no_open_jobs(&world).await?;
    let worked: BTreeSet<String> = jobs.iter().filter_map(|job| Some(world.github.job(*job)?.runner?.name)).collect();
    ensure!(worked.len() == 2, "{worked:?}");
    let ended = Instant::now();

    world.operator.as_mut().context("no operator")?.kill9().await;
    operator_again(&mut world).await?;
    apply(&world, &autoscaler(3, 4)).await?;
    settled(&world, 3).await?;
    let told = last_jobs(&world)?;
    ensure!(told.keys().cloned().collect::<BTreeSet<_>>() == worked, "{told:#?}, worked: {worked:?}");
    let longest = ended.elapsed().as_secs() + 60;
    for (runner, (ago, of)) in &told {
        ensure!(*ago <= longest, "{runner}: its last job ended {ago} s ago, which is {longest} at most");
        ensure!(of.contains("acme/app") && !of.contains("None"), "{runner}: {of}");
    }
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
