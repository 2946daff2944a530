//! Faults that begin and end before a client notices them.

use std::time::Duration;

use super::{
    FaultProxy,
    plan::{Action, Phase, Plan, PlanError, Rule, Trigger},
};
use crate::{
    api_request::Verb,
    wait::{NotInTime, eventually},
};

/// The code of what a watch is told that is too old to be continued.
const GONE: u16 = 410;

impl FaultProxy {
    /// From now on watches of these kinds, named as in [`Trigger::resources`], tell nothing, until
    /// [`show_outcome`](Self::show_outcome). Takes the place of the plan.
    pub fn hide_changes(&self, resources: &[&str]) -> Result<(), PlanError> {
        let mut rules = Vec::new();
        for resource in resources {
            let watch = Trigger { verbs: vec![Verb::Watch], resources: vec![(*resource).into()], ..Trigger::default() };
            rules.push(Rule::new(watch.clone(), Action::ErrorEvent(GONE))?);
            rules.push(Rule::new(Trigger { phase: Phase::Body, ..watch }, Action::Hold)?);
        }
        self.set(Plan { seed: 0, rules })
    }

    /// Lets the client list anew what was hidden, so that it sees what has become of it all and nothing of what was between. Every kind
    /// has to be watched; of several watches of one kind, one may see what was between.
    pub async fn show_outcome(&self, limit: Duration) -> Result<(), NotInTime> {
        // Watches are opened again, and are too old.
        self.end_connections();
        eventually(limit, || {
            let is_told = self.fired().iter().step_by(2).all(|count| *count > 0);
            std::future::ready(is_told.then_some(()))
        })
        .await?;
        self.clear();
        Ok(())
    }
}
