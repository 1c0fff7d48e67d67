//! Who takes a decision, and how it is asked.

use std::sync::Arc;

use pacer_core::reads::Reads;

use crate::decision::PerDecision;
use crate::limits::Limits;
use crate::load::NO_SETTINGS;
use crate::policy::Policy;

/// Who is asked first.
#[derive(Clone, Debug, Default)]
pub enum Chosen {
    /// The policy in this program, as a component.
    #[default]
    Shipped,
    /// The same as it is linked, so that no WebAssembly runs at all: for whoever distrusts the sandbox today.
    Native,
    /// A policy of the user.
    Policy(Arc<Policy>),
}

/// How one decision is taken.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Who is asked first.
    pub chosen: Chosen,
    /// JSON given to every call.
    pub settings: Arc<str>,
    /// What a call may use.
    pub limits: Limits,
}

impl Default for Assignment {
    fn default() -> Self {
        Self { chosen: Chosen::Shipped, settings: Arc::from(NO_SETTINGS), limits: Limits::default() }
    }
}

impl Assignment {
    /// `name@sha256:0123456789ab` of a user's policy, `shipped` or `native` otherwise.
    #[must_use]
    pub fn policy(&self) -> String {
        match &self.chosen {
            Chosen::Shipped => "shipped".to_owned(),
            Chosen::Native => "native".to_owned(),
            Chosen::Policy(policy) => policy.to_string(),
        }
    }

    /// Further facts that it reads; the shipped policy reads none.
    pub(crate) fn reads(&self) -> Option<&Reads> {
        match &self.chosen {
            Chosen::Shipped | Chosen::Native => None,
            Chosen::Policy(policy) => Some(&policy.description().reads),
        }
    }
}

/// How all decisions are taken. The default is the shipped policy without settings.
pub type PolicySet = PerDecision<Assignment>;
