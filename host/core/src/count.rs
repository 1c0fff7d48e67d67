//! Numbers of things, as people are told them.

/// What a regular noun ends in after so many: nothing after one.
#[must_use]
pub fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// So many of something, such as `1 runner` and `0 runners`.
#[must_use]
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", plural(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noun_has_its_plural_after_every_number_but_one() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "job")), ["0 jobs", "1 job", "2 jobs"]);
    }
}
