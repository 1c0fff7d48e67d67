//! Conditions under which a comparison counts as failed: `wait.p95 > +10%`.

use std::fmt;
use std::str::FromStr;

use crate::comparison::{Contender, METRICS, Metric};

/// A condition on the total of a contender, beside the first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    metric: Metric,
    above: bool,
    against: Against,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    /// In the figure's own unit.
    Value(f64),
    /// More than the first contender's, in the figure's own unit.
    Difference(f64),
    /// More than the first contender's, in per cent of it.
    Percent(f64),
}

/// A condition that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no condition: write for instance 'wait.p95 > +10%', 'runner-minutes > +50' or 'wait.max > 300', with one of {}",
    known()
)]
pub struct ConditionError {
    text: String,
}

fn known() -> String {
    METRICS.map(Metric::name).join(", ")
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let error = || ConditionError { text: text.to_owned() };
        let above = text.contains('>');
        let (metric, limit) = text.split_once(['>', '<']).ok_or_else(error)?;
        let metric = METRICS.into_iter().find(|known| known.name() == metric.trim()).ok_or_else(error)?;
        let limit = limit.trim();
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(error);
        let against = match limit.strip_suffix('%') {
            Some(percent) => Against::Percent(number(percent)?),
            None if limit.starts_with(['+', '-']) => Against::Difference(number(limit)?),
            None => Against::Value(number(limit)?),
        };
        Ok(Self { metric, above, against, text: text.trim().to_owned() })
    }
}

impl Condition {
    /// Whether nothing can be said of it without prices.
    #[must_use]
    pub fn needs_prices(&self) -> bool {
        self.metric == Metric::Cost
    }

    /// The figure, where nothing is known of it, so that the condition can't be judged: the trace has no nodes, say. Of costs all is known where there
    /// are prices, even of runners that cost nothing.
    #[must_use]
    pub fn unknown_figure(&self, contenders: &[Contender]) -> Option<&'static str> {
        let is_known = self.metric == Metric::Cost || self.metric.is_known(contenders);
        (!is_known).then(|| self.metric.name())
    }

    /// Says how a contender meets the condition beside the first one; none where it does not.
    #[must_use]
    pub fn met(&self, contender: &Contender, first: &Contender) -> Option<String> {
        let (value, base) = (contender.spread(None, self.metric).mean, first.spread(None, self.metric).mean);
        let limit = match self.against {
            Against::Value(limit) => limit,
            Against::Difference(more) => base + more,
            Against::Percent(percent) => base + base.abs() * percent / 100.0,
        };
        let met = if self.above { value > limit } else { value < limit };
        met.then(|| {
            let (name, metric) = (&contender.name, self.metric.name());
            format!("{self}: {metric} of {name} is {value:.2}, that of {} is {base:.2}", first.name)
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
