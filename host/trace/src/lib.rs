//! A trace: what happened in a cluster, one record a line, in the order in which it became known.
//!
//! The format is described in `docs/trace.md` and `docs/trace.schema.json`. It is append-only: a recorder that starts again goes on in the same
//! file. Read first: [`Record`] (what a line says), [`mod@file`] (how lines are kept), [`Directory`] (many files), [`History`] (what the lines come to, job by job and runner by
//! runner).

mod directory;
pub mod file;
mod history;
mod pool;
mod record;
mod redaction;
pub mod surroundings;
mod window;

pub use directory::{Directory, Limits, read};
pub use history::{History, JobLife, PoolLife, Problem, RunnerLife};
pub use pool::{PoolKind, PoolName};
pub use record::{About, End, FORMAT, Header, PoolSettings, Record, VERSION, What};
pub use redaction::Redaction;
pub use window::{Bounds, Overflow, Window};

use jiff::Timestamp;

use record::Standing;

/// The header, and the records in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// First line of the file.
    pub header: Header,
    /// All other lines.
    pub records: Vec<Record>,
}

impl Trace {
    /// The part from one moment to another, as a trace of its own. What is known at its beginning is told again: the settings of pools, how nodes
    /// are, what there is no room for, and all that happened to jobs and runners that are not over by then.
    #[must_use]
    pub fn cut(&self, from: Timestamp, to: Timestamp) -> Self {
        let over = self.records.iter().filter(|record| record.at < from && record.what.ends());
        let over: std::collections::BTreeSet<_> = over.filter_map(|record| record.what.subject()).collect();
        let mut standing = std::collections::BTreeMap::new();
        let mut kept = Vec::new();
        for record in self.records.iter().filter(|record| record.at <= to) {
            match (record.what.standing(), record.at < from) {
                (Some(subject), true) if record.what.clears() => {
                    standing.remove(&subject);
                }
                (Some(subject), true) => {
                    standing.insert(subject, Record { at: from, what: record.what.clone() });
                }
                (None, true) => match &record.what {
                    // The number in force then is that of the last decision.
                    What::Decision { pool, to, .. } => {
                        if let Some(Record { what: What::Pool(settings), .. }) = standing.get_mut(&Standing::Pool(pool.clone())) {
                            settings.replicas = *to;
                        }
                    }
                    what if what.subject().is_none_or(|subject| over.contains(&subject)) => {}
                    _ => kept.push(record.clone()),
                },
                (_, false) => kept.push(record.clone()),
            }
        }
        let mut records: Vec<Record> = standing.into_values().chain(kept).collect();
        records.push(Record { at: to, what: What::Checkpoint {} });
        Self { header: Header { started: from, ..self.header.clone() }, records }
    }
}

#[cfg(test)]
mod decoders;
#[cfg(test)]
mod tests;
