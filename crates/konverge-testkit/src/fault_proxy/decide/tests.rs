use http::Method;
use proptest::prelude::*;

use super::*;
use crate::fault_proxy::plan::EventKind;

fn request(method: &Method, path: &str) -> ApiRequest {
    ApiRequest::parse(method, &path.parse().unwrap())
}

fn state(rules: &str) -> PlanState {
    PlanState::new(Plan::parse(&format!("seed: 1\nrules:\n{rules}")).unwrap())
}

/// For each of so many equal moments the numbers of the rules that act.
fn turns(state: &mut PlanState, request: &ApiRequest, moments: usize) -> Vec<Vec<usize>> {
    let moment = Moment { request, phase: Phase::Before, event: None };
    (0..moments).map(|_| state.decide(moment).iter().map(|decision| decision.rule).collect()).collect()
}

#[test]
fn a_trigger_fits_what_it_names() {
    let create = request(&Method::POST, "/api/v1/namespaces/shop/configmaps");
    let status = request(&Method::PATCH, "/apis/apps/v1/namespaces/shop/deployments/web/status");
    let lease = request(&Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/shop/leases/leader");
    let list = request(&Method::GET, "/api/v1/configmaps?limit=1&continue=abc%3D");
    let all = [&create, &status, &lease, &list];
    for (when, fitting) in [
        ("{}", "+++ +"),
        ("{ verbs: [create, list] }", "+-- +"),
        ("{ mutating: true }", "+++ -"),
        ("{ mutating: false }", "--- +"),
        ("{ resources: [configmaps] }", "+-- +"),
        ("{ resources: ['*.apps'] }", "--- -"),
        ("{ resources: ['*.apps/status'] }", "-+- -"),
        ("{ mutating: true, except: [leases.coordination.k8s.io] }", "++- -"),
        ("{ namespace: sh* }", "+++ -"),
        ("{ name: we* }", "-+- -"),
        ("{ query: { continue: '*' } }", "--- +"),
        ("{ query: { continue: abc=, limit: '1' } }", "--- +"),
        ("{ query: { continue: abc } }", "--- -"),
        ("{ phase: after }", "--- -"),
        ("{ phase: body, verbs: [watch], events: [ADDED] }", "--- -"),
    ] {
        let trigger = state(&format!("- when: {when}\n  then: drop")).plan.rules[0].when().clone();
        let fits = all.map(|request| fits(&trigger, Moment { request, phase: Phase::Before, event: None }));
        let said: String = fits.map(|fits| if fits { '+' } else { '-' }).iter().collect();
        assert_eq!(said, fitting.replace(' ', ""), "{when}");
    }
}

#[test]
fn an_event_is_matched_by_its_object_and_not_by_the_watch() {
    let request = request(&Method::GET, "/api/v1/configmaps?watch=true");
    let event =
        Event { kind: EventKind::Deleted, namespace: "shop".into(), name: "colours".into(), ends_initial: false };
    for (when, fitting) in [
        ("verbs: [watch]", true),
        ("verbs: [watch], namespace: shop, name: col*", true),
        ("verbs: [watch], namespace: other", false),
        ("verbs: [watch], events: [ADDED, DELETED]", true),
        ("verbs: [watch], events: [ADDED]", false),
    ] {
        let trigger = state(&format!("- when: {{ phase: body, {when} }}\n  then: freeze")).plan.rules[0].when().clone();
        let moment = Moment { request: &request, phase: Phase::Body, event: Some(&event) };
        assert_eq!(fits(&trigger, moment), fitting, "{when}");
    }
}

#[test]
fn rules_take_turns_and_count_on_their_own() {
    let read = request(&Method::GET, "/api/v1/nodes/n");
    let none = Vec::<usize>::new;
    for (rules, acts) in [
        ("- { when: { nth: 2 }, then: drop }", vec![none(), vec![1], none(), none()]),
        ("- { when: { every: 2 }, then: drop }", vec![none(), vec![1], none(), vec![1]]),
        ("- { when: { times: 1 }, then: drop }", vec![vec![1], none(), none(), none()]),
        ("- { when: { every: 2, times: 1 }, then: drop }", vec![none(), vec![1], none(), none()]),
        ("- { then: { delay: 1s } }\n- { when: { nth: 2 }, then: drop }", vec![vec![1], vec![1, 2], vec![1], vec![1]]),
        ("- { when: { probability: 0 }, then: drop }", vec![none(), none(), none(), none()]),
        ("- { when: { probability: 1 }, then: drop }", vec![vec![1], vec![1], vec![1], vec![1]]),
    ] {
        assert_eq!(turns(&mut state(rules), &read, 4), acts, "{rules}");
    }
}

#[test]
fn a_release_ends_holds_and_freezes_and_nothing_else() {
    let mut state = state("- { then: freeze }\n- { then: drop }");
    let read = request(&Method::GET, "/api/v1/nodes/n");
    assert_eq!(turns(&mut state, &read, 1), [[1, 2]]);
    state.release();
    assert_eq!(turns(&mut state, &read, 1), [[2]]);
    assert_eq!(state.fired(), [1, 2]);
}

proptest! {
    #[test]
    fn jitter_is_a_delay_of_at_most_so_much(seed: u64) {
        let plan = Plan::parse(&format!("seed: {seed}\nrules: [{{ then: {{ jitter: 200ms }} }}]")).unwrap();
        let request = request(&Method::GET, "/api/v1/nodes/n");
        let moment = Moment { request: &request, phase: Phase::Before, event: None };
        let mut state = PlanState::new(plan);
        for _ in 0..20 {
            let decisions = state.decide(moment);
            let [Decision { action: Action::Delay(span), .. }] = decisions.as_slice() else { panic!("{decisions:?}") };
            prop_assert!(span.duration() < std::time::Duration::from_millis(200));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_decisions(seed: u64, chance in 0.0..=1.0, verbs in proptest::collection::vec(0..3_usize, 0..60)) {
        let text = format!(
            "seed: {seed}\nrules:\n- {{ when: {{ probability: {chance} }}, then: drop }}\n- {{ when: {{ verbs: [get], every: 2 }}, then: freeze }}"
        );
        let requests = [Method::GET, Method::PUT, Method::DELETE].map(|method| request(&method, "/api/v1/nodes/n"));
        let run = || {
            let mut state = PlanState::new(Plan::parse(&text).unwrap());
            let moment = |verb: &usize| Moment { request: &requests[*verb], phase: Phase::Before, event: None };
            verbs.iter().map(|verb| state.decide(moment(verb))).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn what_does_not_fit_a_rule_does_not_change_its_draws(seed: u64, noise in proptest::collection::vec(any::<bool>(), 40)) {
        let plan = Plan::parse(&format!("seed: {seed}\nrules:\n- {{ when: {{ verbs: [get], probability: 0.5 }}, then: drop }}")).unwrap();
        let (get, put) = (request(&Method::GET, "/api/v1/nodes/n"), request(&Method::PUT, "/api/v1/nodes/n"));
        let (mut calm, mut noisy) = (PlanState::new(plan.clone()), PlanState::new(plan));
        for disturbed in noise {
            if disturbed {
                turns(&mut noisy, &put, 1);
            }
            prop_assert_eq!(turns(&mut calm, &get, 1), turns(&mut noisy, &get, 1));
        }
    }

    #[test]
    fn draws_keep_near_their_probability(seed: u64, rule in 0..8_usize) {
        let below = (0..4000).filter(|nth| draw(seed, rule, *nth) < 0.25).count();
        prop_assert!((800..1200).contains(&below), "{} of 4000", below);
    }
}
