//! The alert rules on what a real operator exports. Each fault here is made on the real control plane, and the operator is scraped while all is well
//! and while the fault lasts. Promtool says which alerts fire on those scrapes: none before the fault, and after it those that are listed and no
//! others.
//!
//! Only time is made up: a scrape stands for as many minutes as the fault is said to last, as the rules want minutes that nobody waits for here.

mod faults;
mod recording;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pacer_suites::promtool;
use recording::{RULES, Recording, Scrape};
use serde_json::Value;

/// Makes a test of each fault: a function of [`faults`] that records it, and the alerts that it raises.
macro_rules! recorded {
    ($($fault:ident raises [$($alert:literal),+ $(,)?];)+) => {
        /// Faults, and the alerts that each of them raises.
        const RECORDED: &[(&str, &[&str])] = &[$((stringify!($fault), &[$($alert),+])),+];

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $fault() -> Result<()> {
                let Some(promtool) = promtool::find()? else {
                    eprintln!("SKIPPED: alerts on recorded series, which take promtool");
                    return Ok(());
                };
                faults::$fault().await?.raises(&promtool, &[$($alert),+])
            }
        )+
    };
}

recorded! {
    lease_whose_holder_is_gone_raises_an_alert raises ["PacerNobodyLeads"];
    operator_that_cannot_be_scraped_raises_an_alert raises ["PacerNobodyLeads"];
    job_that_no_runner_gets_raises_an_alert raises ["PacerJobsWaitTooLong"];
    images_that_cannot_be_pulled_raise_an_alert_for_either_kind raises ["PacerRunnersDoNotStart", "PacerRunnersOfSetDoNotStart"];
    runners_that_exit_at_once_raise_an_alert_for_their_cause raises ["PacerRunnersFail", "PacerRunnersDoNotStart"];
    github_that_fails_raises_an_alert_for_reconciles raises ["PacerReconcilesFail", "PacerRunnersDoNotStart"];
    budget_that_is_used_up_raises_an_alert raises ["PacerGitHubBudgetLow"];
    deliveries_without_a_signature_raise_an_alert raises ["PacerWebhooksRefused"];
    deliveries_while_the_api_server_is_away_raise_an_alert raises ["PacerWebhooksUnavailable"];
    deliveries_that_reach_nobody_raise_an_alert_while_missing_and_when_lost raises ["PacerWebhookDeliveriesMissing", "PacerWebhooksLost"];
    ledger_that_is_full_raises_an_alert raises ["PacerLedgerOverflows"];
    policy_that_loops_raises_an_alert_while_it_is_asked_and_when_it_is_not raises ["PacerPolicyFaults", "PacerPolicyNotAsked"];
    policy_set_that_is_broken_raises_an_alert raises ["PacerPolicySetRefused"];
    kernel_without_locks_raises_an_alert raises ["PacerPoliciesNotIsolated"];
    tenancy_that_is_broken_raises_an_alert raises ["PacerTenancyNotInForce"];
    receipts_that_may_not_be_written_raise_an_alert raises ["PacerReceiptsDropped"];
}

/// Names of all rules.
fn rules() -> Result<BTreeSet<String>> {
    let file: Value = serde_saphyr::from_str(&std::fs::read_to_string(RULES)?)?;
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let all = list(&file, "groups").iter().flat_map(|group| list(group, "rules")).collect::<Vec<_>>();
    Ok(all.iter().filter_map(|rule| rule.get("alert")?.as_str().map(str::to_owned)).collect())
}

#[test]
fn every_alert_rule_is_raised_by_a_recorded_fault() -> Result<()> {
    let rules = rules()?;
    let raised: BTreeSet<String> =
        RECORDED.iter().flat_map(|(_, alerts)| alerts.iter().map(|alert| (*alert).to_owned())).collect();
    ensure!(rules.len() > 15, "{RULES} has {rules:?}");
    ensure!(rules == raised, "recorded, or a rule, but not both: {:?}", rules.symmetric_difference(&raised).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn recording_that_raises_another_alert_than_expected_is_refused() -> Result<()> {
    let Some(promtool) = promtool::find()? else {
        eprintln!("SKIPPED: alerts on recorded series, which take promtool");
        return Ok(());
    };
    let scrape = |leading: &str| Scrape::from([("pacer_leading{instance=\"a\"}".to_owned(), leading.to_owned())]);
    let recording = |before: &str, after: &str| Recording::of([scrape(before), scrape(after)]);
    recording("1", "0").raises(&promtool, &["PacerNobodyLeads"])?;
    for (before, after, expected) in [
        // Nothing fires; something does before the fault; another one is expected as well.
        ("1", "1", &["PacerNobodyLeads"][..]),
        ("0", "0", &["PacerNobodyLeads"]),
        ("1", "0", &["PacerNobodyLeads", "PacerReconcilesFail"]),
        ("1", "0", &[]),
    ] {
        ensure!(recording(before, after).raises(&promtool, expected).is_err(), "{before}, {after}: {expected:?}");
    }
    Ok(())
}
