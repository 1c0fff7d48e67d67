//! Logs: constant messages, everything that varies in fields.

use anyhow::bail;
use tracing::Level;
use tracing_subscriber::EnvFilter;

use crate::arguments::LogFormat;

/// Crates of this workspace; others speak from `warn` on.
const OURS: [&str; 9] = [
    "pacer",
    "pacer_core",
    "pacer_api",
    "pacer_cluster",
    "pacer_github",
    "pacer_policy",
    "pacer_demand",
    "pacer_policyset",
    "pacer_operator",
];

/// Installs the subscriber. `RUST_LOG` wins over the flag.
pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let level = parse(level)?;
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => EnvFilter::try_new(directives)?,
        _ => {
            let ours: Vec<String> = OURS.iter().map(|name| format!("{name}={level}")).collect();
            EnvFilter::try_new(format!("{},{}", level.min(Level::WARN), ours.join(",")))?
        }
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_target(false).init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
    Ok(())
}

/// ARC's levels: names, or zap's integers, where -1 is debug and anything below more than that.
fn parse(text: &str) -> anyhow::Result<Level> {
    Ok(match text {
        "debug" => Level::DEBUG,
        "info" => Level::INFO,
        "warn" => Level::WARN,
        "error" => Level::ERROR,
        other => match other.parse::<i8>() {
            Ok(..=-2) => Level::TRACE,
            Ok(-1) => Level::DEBUG,
            Ok(0) => Level::INFO,
            Ok(1) => Level::WARN,
            Ok(_) => Level::ERROR,
            Err(_) => bail!("--log-level {other:?}: say debug, info, warn, error, or a zap level such as -4"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_arcs() {
        for (text, level) in
            [("debug", Level::DEBUG), ("-4", Level::TRACE), ("-1", Level::DEBUG), ("0", Level::INFO), ("2", Level::ERROR)]
        {
            assert_eq!(parse(text).unwrap(), level, "{text}");
        }
        assert!(parse("loud").is_err());
    }
}
