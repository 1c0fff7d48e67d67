//! Logs: constant messages, everything that varies in fields.

use std::fmt;

use anyhow::bail;
use tracing::Level;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};

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
            let others = level.min(Level::WARN);
            // There kube writes the whole text of an answer that it cannot decode, with the secrets in it. Whoever asked tells the error.
            let kube = format!("kube_client::client=error,kube_client::client::tls={others}");
            EnvFilter::try_new(format!("{others},{kube},{}", ours.join(",")))?
        }
    };
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.with_target(false).fmt_fields(fields()).init(),
        LogFormat::Json => subscriber.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
    Ok(())
}

/// `name=value`, and the value in quotes where it could not be told from what follows otherwise: most errors have spaces, some have lines.
fn fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    debug_fn(write).delimited(" ")
}

fn write(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() == "message" {
        return write!(writer, "{value:?}");
    }
    let text = format!("{value:?}");
    // A string has its quotes already.
    let is_plain = text.starts_with('"') || (!text.is_empty() && !text.contains([' ', '=', '"', '\n', '\r', '\t']));
    write!(writer, "{}=", field.name())?;
    if is_plain { writer.write_str(&text) } else { write!(writer, "{text:?}") }
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
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is logged meanwhile.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_with_spaces_or_lines_are_in_quotes() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).without_time();
        tracing::subscriber::with_default(subscriber.with_target(false).fmt_fields(fields()).finish(), || {
            let error = anyhow::anyhow!("no route to \"host\"\nin time");
            tracing::warn!(%error, runner = "web-1", note = "two words", pods = 3, addr = %"127.0.0.1:80", none = %"", "not asked");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text.trim_start(),
            "WARN not asked error=\"no route to \\\"host\\\"\\nin time\" runner=\"web-1\" note=\"two words\" pods=3 addr=127.0.0.1:80 none=\"\"\n"
        );
    }

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
