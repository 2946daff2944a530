//! Which faults befall a request. No IO and no clock: the same plan and the same moments give the same decisions.

use super::{
    frame::Event,
    plan::{Action, Phase, Plan, Rule, Trigger},
};
use crate::{api_request::ApiRequest, pattern::Pattern};

/// A plan and how far it has come.
#[derive(Debug, Default)]
pub(super) struct PlanState {
    plan: Plan,
    progress: Vec<Progress>,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    matched: u64,
    fired: u64,
    released: bool,
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) request: &'a ApiRequest,
    pub(super) phase: Phase,
    /// The watch event that is about to be told, if it is about one.
    pub(super) event: Option<&'a Event>,
}

/// The fault that one rule requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decision {
    /// The rule's number, from 1.
    pub(super) rule: usize,
    pub(super) action: Action,
}

impl PlanState {
    pub(super) fn new(plan: Plan) -> Self {
        let progress = vec![Progress::default(); plan.rules.len()];
        Self { plan, progress }
    }

    /// Counts the moment for each rule that it fits, and says which of them act, in their order. Rules count on their own: one that
    /// acts does not change what the others see.
    pub(super) fn decide(&mut self, moment: Moment<'_>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for (index, (rule, progress)) in self.plan.rules.iter().zip(&mut self.progress).enumerate() {
            if !fits(rule.when(), moment) {
                continue;
            }
            progress.matched += 1;
            if progress.acts(rule, self.plan.seed, index) {
                progress.fired += 1;
                let action = match rule.then() {
                    Action::Jitter(most) => {
                        let share = draw(self.plan.seed.rotate_left(32), index, progress.matched);
                        Action::Delay(most.duration().mul_f64(share).into())
                    }
                    action => action.clone(),
                };
                decisions.push(Decision { rule: index + 1, action });
            }
        }
        decisions
    }

    /// From now on no rule of this plan holds or freezes anything.
    pub(super) fn release(&mut self) {
        for (rule, progress) in self.plan.rules.iter().zip(&mut self.progress) {
            progress.released |= matches!(rule.then(), Action::Hold | Action::Freeze);
        }
    }

    /// How often each rule has acted.
    pub(super) fn fired(&self) -> Vec<u64> {
        self.progress.iter().map(|progress| progress.fired).collect()
    }
}

impl Progress {
    fn acts(&self, rule: &Rule, seed: u64, index: usize) -> bool {
        let when = rule.when();
        let used_up = when.times.is_some_and(|times| self.fired >= times.get());
        let its_turn = when.nth.is_none_or(|nth| self.matched == nth.get())
            && when.every.is_none_or(|every| self.matched.is_multiple_of(every.get()))
            && when.probability.is_none_or(|chance| draw(seed, index, self.matched) < f64::from(chance));
        its_turn && !used_up && !self.released
    }
}

impl Trigger {
    /// Whether it names such a request, whatever its phase, its events and its counts.
    pub fn names(&self, request: &ApiRequest) -> bool {
        let everywhere = Self { phase: Phase::Before, events: Vec::new(), ..self.clone() };
        fits(&everywhere, Moment { request, phase: Phase::Before, event: None })
    }
}

fn fits(when: &Trigger, moment: Moment<'_>) -> bool {
    let Moment { request, phase, event } = moment;
    let any = |patterns: &[Pattern], text: &str| patterns.iter().any(|pattern| pattern.matches(text));
    let resource = request.full_resource();
    let (namespace, name) = event.map_or((&request.namespace, &request.name), |event| (&event.namespace, &event.name));
    when.phase == phase
        && (when.verbs.is_empty() || when.verbs.contains(&request.verb))
        && when.mutating.is_none_or(|mutating| mutating == request.is_mutating())
        && (when.resources.is_empty() || any(&when.resources, &resource))
        && !any(&when.except, &resource)
        && when.namespace.as_ref().is_none_or(|pattern| pattern.matches(namespace))
        && when.name.as_ref().is_none_or(|pattern| pattern.matches(name))
        && when.query.iter().all(|(name, value)| request.parameter(name).is_some_and(|found| value.matches(found)))
        && (when.events.is_empty() || event.is_some_and(|event| when.events.contains(&event.kind)))
}

/// A number from 0 to 1, without 1, that depends on nothing but the arguments, so that neither time nor the order of other requests
/// changes what befalls the n-th request that fits a rule. The mixing is that of `SplitMix64`.
fn draw(seed: u64, rule: usize, nth: u64) -> f64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |mut value: u64| {
        value = value.wrapping_add(STEP);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    let bits = mix(mix(mix(seed) ^ rule as u64) ^ nth);
    // The upper half is enough, and fits a float without loss.
    f64::from(u32::try_from(bits >> 32).unwrap_or(u32::MAX)) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests;
