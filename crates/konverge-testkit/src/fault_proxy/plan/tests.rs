use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn any_name_survives_the_file(name in ".{0,12}", value in "[0-9a-z*:#{}!&, '\"-]{0,12}") {
        let query = BTreeMap::from([(name.clone(), Pattern::from(value))]);
        let when = Trigger { name: Some(name.as_str().into()), query, ..Trigger::default() };
        let plan = Plan { seed: 1, rules: vec![Rule::new(when, Action::Kill(name)).unwrap()] };
        let text = serde_saphyr::to_string(&plan).unwrap();
        prop_assert_eq!(Plan::parse(&text).unwrap(), plan, "{}", text);
    }
}

#[test]
fn a_plan_survives_its_file() {
    let text = "
seed: 9
rules:
- when: { mutating: true, except: [leases.coordination.k8s.io], nth: 2 }
  then: { kill: operator }
- when: { phase: after, namespace: shop-*, name: colours, every: 3, times: 4 }
  then: { status: { code: 503, retry_after: 2 } }
- when: { phase: body, verbs: [watch], events: [ADDED, BOOKMARK], probability: 0.25 }
  then: suppress
- then: { delay: 1m 30s }
- when: { verbs: [watch] }
  then: { error_event: 410 }
- when: { verbs: [list] }
  then: empty
";
    let plan = Plan::parse(text).unwrap();
    assert_eq!((plan.seed, plan.rules.len()), (9, 6));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.yaml");
    plan.write(&path).unwrap();
    assert_eq!(Plan::read(&path).unwrap(), plan);
}

#[test]
fn what_is_no_plan_is_told_with_its_place() {
    for (text, place, why) in [
        ("seed: blue", "line 1", ""),
        ("seed: 1\nrules:\n- when: { verb: [get] }\n  then: drop", "line 3", "verb"),
        ("rules:\n- when: { verbs: [read] }\n  then: drop", "line 2", "read"),
        ("rules:\n- when: {}\n  then: explode", "line 3", "explode"),
        ("rules:\n- when: { nth: 0 }\n  then: drop", "line 2", ""),
        ("rules:\n- when: { probability: 1.5 }\n  then: drop", "line 2", "1.5 is not between 0 and 1"),
        ("rules:\n- then: { delay: soon }", "line 2", "soon"),
        ("rules:\n- then: { delay: -5s }", "line 2", "negative"),
        ("rules:\n- then: { status: { code: 200 } }", "line 2", "200 is no error"),
        ("rules:\n- then: drop\n- when: { nth: 1, every: 2 }\n  then: drop", "line 3", "only one of nth"),
        ("rules:\n- when: { events: [ADDED] }\n  then: drop", "line 2", "events need phase: body"),
        (
            "rules:\n- when: { phase: after, verbs: [watch] }\n  then: hold",
            "line 2",
            "hold cannot happen in phase after",
        ),
        ("rules:\n- when: { phase: body }\n  then: hold", "line 2", "hold needs verbs: [watch]"),
        ("rules:\n- when: { verbs: [get] }\n  then: empty", "line 2", "empty needs verbs: [list]"),
        ("rules:\n- when: {}", "line 2", "then"),
    ] {
        let said = Plan::parse(text).unwrap_err().to_string();
        assert!(said.contains(place) && said.contains(why), "{text}\nsaid: {said}");
    }
    let said = Plan::read(Path::new("/nowhere/plan.yaml")).unwrap_err().to_string();
    assert!(said.contains("/nowhere/plan.yaml"), "{said}");
}
