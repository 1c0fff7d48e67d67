//! What runners cost.

use std::collections::BTreeMap;

/// The price of the pools that have none of their own.
const OTHERS: &str = "*";

/// Prices of an hour of a runner, in any one currency, by pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunnerPrices(BTreeMap<String, f64>);

/// A price that is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the price of {pool} is {price}: it has to be a number from 0")]
pub struct PriceError {
    pool: String,
    price: f64,
}

impl RunnerPrices {
    /// Of pools by `namespace/name`, and of all others by `*`.
    ///
    /// # Errors
    ///
    /// When a price is negative or no number.
    pub fn new(prices: BTreeMap<String, f64>) -> Result<Self, PriceError> {
        match prices.iter().find(|(_, price)| !(price.is_finite() && **price >= 0.0)) {
            Some((pool, price)) => Err(PriceError { pool: pool.clone(), price: *price }),
            None => Ok(Self(prices)),
        }
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of the given pools that have none.
    pub fn missing<'a>(&self, pools: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        pools.filter(|pool| self.of(pool).is_none()).collect()
    }

    /// An hour of a runner of this pool.
    #[must_use]
    pub fn of(&self, pool: &str) -> Option<f64> {
        self.0.get(pool).or_else(|| self.0.get(OTHERS)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(of: &[(&str, f64)]) -> Result<RunnerPrices, PriceError> {
        RunnerPrices::new(of.iter().map(|(pool, price)| ((*pool).to_owned(), *price)).collect())
    }

    #[test]
    fn price_is_the_pools_own_or_that_of_all_others() {
        let both = prices(&[("ci/web", 0.5), ("*", 0.25)]).unwrap();
        assert_eq!([both.of("ci/web"), both.of("ci/gpu")], [Some(0.5), Some(0.25)]);
        let one = prices(&[("ci/web", 0.5)]).unwrap();
        assert_eq!(one.missing(["ci/web", "ci/gpu"].into_iter()), ["ci/gpu"]);
        assert!(!one.is_empty() && RunnerPrices::default().is_empty());
    }

    #[test]
    fn price_that_is_none_is_refused() {
        for wrong in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(prices(&[("ci/web", wrong)]).unwrap_err().to_string().starts_with("the price of ci/web is "), "{wrong}");
        }
    }
}
