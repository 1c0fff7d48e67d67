//! Where a job comes from.

use std::sync::Arc;

use crate::policy::Attributes;

/// Longest branch, in characters. GitHub takes longer ones; each of these texts is kept for every job.
const BRANCH: usize = 96;

/// Longest login of an actor, in characters: GitHub's are at most 39, beside those of Apps.
const ACTOR: usize = 48;

/// Longest name of an event, in characters.
const EVENT: usize = 32;

/// Longest name of an environment, in characters.
const ENVIRONMENT: usize = 64;

/// What started the run of a job, as far as GitHub said. A text that is empty was not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// GitHub's id of the workflow run.
    pub run: Option<u64>,
    /// Branch of the run.
    pub branch: Arc<str>,
    /// Event that started the run, such as `push`. Only listings tell it.
    pub event: Arc<str>,
    /// Login of whoever started the run.
    pub actor: Arc<str>,
    /// Environment that the job deploys to. Only webhooks tell it.
    pub environment: Arc<str>,
}

impl Origin {
    /// The same in texts of bounded length.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let cut = |text: &Arc<str>, most: usize| match text.char_indices().nth(most) {
            Some((end, _)) => text.get(..end).map(Arc::from).unwrap_or_default(),
            None => text.clone(),
        };
        Self {
            run: self.run,
            branch: cut(&self.branch, BRANCH),
            event: cut(&self.event, EVENT),
            actor: cut(&self.actor, ACTOR),
            environment: cut(&self.environment, ENVIRONMENT),
        }
    }

    /// This, and where it says nothing, the other.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let text = |one: &Arc<str>, other: &Arc<str>| if one.is_empty() { other.clone() } else { one.clone() };
        Self {
            run: self.run.or(other.run),
            branch: text(&self.branch, &other.branch),
            event: text(&self.event, &other.event),
            actor: text(&self.actor, &other.actor),
            environment: text(&self.environment, &other.environment),
        }
    }

    /// The attributes of a job that comes from here.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let texts =
            [("branch", &self.branch), ("event", &self.event), ("actor", &self.actor), ("environment", &self.environment)];
        let texts = texts.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key, value.to_string()));
        let run = self.run.map(|run| ("run", run.to_string()));
        texts.chain(run).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(origin: &Origin) -> String {
        let told = origin.attributes();
        told.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_was_told_becomes_attributes_and_nothing_else() {
        let webhook = Origin { run: Some(9), branch: "main".into(), environment: "live".into(), ..Origin::default() };
        let listing =
            Origin { run: Some(9), branch: "other".into(), event: "push".into(), actor: "octocat".into(), ..Origin::default() };
        assert_eq!(told(&Origin::default()), "");
        assert_eq!(told(&webhook), "branch=main environment=live run=9");
        assert_eq!(told(&webhook.or(&listing)), "branch=main event=push actor=octocat environment=live run=9");
        assert_eq!(told(&listing.or(&webhook)), "branch=other event=push actor=octocat environment=live run=9");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let long: Arc<str> = "\u{e4}".repeat(300).into();
        let origin = Origin { run: None, branch: long.clone(), event: long.clone(), actor: long.clone(), environment: long };
        let cut = origin.bounded();
        let lengths = [&cut.branch, &cut.event, &cut.actor, &cut.environment].map(|text| text.chars().count());
        assert_eq!(lengths, [BRANCH, EVENT, ACTOR, ENVIRONMENT]);
        assert_eq!(cut.bounded(), cut);
    }
}
