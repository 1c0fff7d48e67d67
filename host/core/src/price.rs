//! What nodes cost, as users wrote it down.

use std::collections::BTreeMap;

/// Most entries. All clouds together have some thousand instance types.
const ENTRIES: usize = 20_000;

/// Prices per hour by instance type, in whatever currency: policies compare them.
///
/// A key may end in `/spot` or `/on-demand`, for nodes of that capacity type alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices(BTreeMap<String, f64>);

/// Why a table of prices can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PriceError {
    /// A price is below zero or no number.
    #[error("the price of {instance_type:?} is {price}; a price is a number of 0 or more")]
    NotAPrice {
        /// Key of the entry.
        instance_type: String,
        /// The price that the entry gives.
        price: f64,
    },
    /// There are too many.
    #[error("it has {0} entries, and may have {ENTRIES}")]
    TooMany(usize),
}

impl Prices {
    /// From a table.
    ///
    /// # Errors
    ///
    /// When an entry is no price, or there are more than 20,000.
    pub fn new(table: BTreeMap<String, f64>) -> Result<Self, PriceError> {
        if table.len() > ENTRIES {
            return Err(PriceError::TooMany(table.len()));
        }
        match table.iter().find(|(_, price)| !price.is_finite() || **price < 0.0) {
            Some((instance_type, price)) => Err(PriceError::NotAPrice { instance_type: instance_type.clone(), price: *price }),
            None => Ok(Self(table)),
        }
    }

    /// Whether nothing has a price.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a node of this instance type and capacity type costs per hour; none where the table does not say.
    #[must_use]
    pub fn of(&self, instance_type: &str, capacity_type: Option<&str>) -> Option<f64> {
        let of_capacity = capacity_type.and_then(|capacity| self.0.get(&format!("{instance_type}/{capacity}")));
        of_capacity.or_else(|| self.0.get(instance_type)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, f64)]) -> BTreeMap<String, f64> {
        entries.iter().map(|(key, price)| ((*key).to_owned(), *price)).collect()
    }

    #[test]
    fn price_of_the_capacity_type_goes_before_that_of_the_instance_type() {
        let prices = Prices::new(table(&[("m5.large", 0.096), ("m5.large/spot", 0.035), ("free", 0.0)])).unwrap();
        for (instance_type, capacity_type, expected) in [
            ("m5.large", None, Some(0.096)),
            ("m5.large", Some("on-demand"), Some(0.096)),
            ("m5.large", Some("spot"), Some(0.035)),
            ("free", Some("spot"), Some(0.0)),
            ("m5.xlarge", Some("spot"), None),
        ] {
            assert_eq!(prices.of(instance_type, capacity_type), expected, "{instance_type} {capacity_type:?}");
        }
    }

    #[test]
    fn table_is_refused_when_an_entry_is_no_price() {
        for price in [-0.1, f64::NAN, f64::INFINITY] {
            let refused = Prices::new(table(&[("a", 1.0), ("b", price)])).unwrap_err();
            assert!(refused.to_string().contains("the price of \"b\" is"), "{refused}");
        }
        let many = (0..=ENTRIES).map(|n| (n.to_string(), 1.0)).collect();
        assert_eq!(Prices::new(many), Err(PriceError::TooMany(ENTRIES + 1)));
    }
}
