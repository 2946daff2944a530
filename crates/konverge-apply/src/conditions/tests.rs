use super::*;

const REASON: Reason = Reason::new("Tested");

fn at(generation: i64, second: i64) -> Moment {
    Moment { generation: Some(generation), now: Timestamp::from_second(second).expect("a time") }
}

fn types(conditions: &Conditions) -> Vec<(&str, &str)> {
    conditions.iter().map(|condition| (condition.type_.as_str(), condition.status.as_str())).collect()
}

#[test]
fn the_time_changes_with_the_status_only() {
    let mut conditions = Conditions::default();
    let since = |conditions: &Conditions| {
        conditions.get("Synced").map(|condition| condition.last_transition_time.0.as_second())
    };
    conditions.set("Synced", ConditionStatus::False, &REASON, "one", at(1, 10));
    assert_eq!(since(&conditions), Some(10));
    conditions.set("Synced", ConditionStatus::False, &Reason::new("Other"), "two", at(2, 20));
    assert_eq!(since(&conditions), Some(10));
    let known = conditions.get("Synced").expect("it was set");
    assert_eq!((known.observed_generation, &*known.reason, &*known.message), (Some(2), "Other", "two"));
    conditions.set("Synced", ConditionStatus::True, &REASON, "three", at(2, 30));
    assert_eq!(since(&conditions), Some(30));
    assert!(conditions.is_true("Synced") && !conditions.is_true("Ready"));
    conditions.set("Other", ConditionStatus::Unknown, &REASON, "", at(2, 40));
    assert_eq!(types(&conditions), [("Synced", "True"), ("Other", "Unknown")]);
    conditions.remove("Synced");
    assert_eq!(types(&conditions), [("Other", "Unknown")]);
}

#[test]
fn exactly_one_state_is_told() {
    let mut conditions = Conditions::default();
    conditions.reconciling(&REASON, "", at(1, 1));
    assert_eq!(types(&conditions), [("Ready", "False"), ("Reconciling", "True")]);
    conditions.stalled(&REASON, "", at(1, 2));
    assert_eq!(types(&conditions), [("Ready", "False"), ("Stalled", "True")]);
    conditions.reconciling(&REASON, "", at(1, 3));
    conditions.ready(&REASON, "", at(1, 4));
    assert_eq!(types(&conditions), [("Ready", "True")]);
}

#[test]
fn what_is_written_comes_back_the_same() {
    let mut conditions = Conditions::default();
    let now = Timestamp::from_millisecond(1_700_000_000_987).expect("a time");
    conditions.ready(&REASON, &"ä".repeat(20_000), Moment { generation: None, now });
    let written = serde_json::to_value(&conditions).expect("JSON");
    assert_eq!(written[0]["lastTransitionTime"], "2023-11-14T22:13:20Z");
    let message = written[0]["message"].as_str().expect("text");
    assert!(message.len() <= MESSAGE_LIMIT && message.ends_with("ä…"), "{}", message.len());
    assert_eq!(serde_json::from_value::<Conditions>(written).expect("conditions"), conditions);
    assert_eq!(Conditions::from(Vec::from(conditions.clone())), conditions);
}

#[test]
fn the_schema_merges_by_type() {
    let schema = schemars::SchemaGenerator::default().into_root_schema_for::<Conditions>();
    assert_eq!(schema.get("x-kubernetes-list-type").and_then(|value| value.as_str()), Some("map"));
    assert_eq!(schema.get("x-kubernetes-list-map-keys"), Some(&serde_json::json!(["type"])));
}

#[test]
fn errors_give_reasons() {
    struct Odd(&'static str);
    impl konverge_core::error::Classify for Odd {
        fn class(&self) -> konverge_core::error::ErrorClass {
            konverge_core::error::ErrorClass::Transient
        }
        fn reason(&self) -> &'static str {
            self.0
        }
    }
    assert_eq!(Reason::of(&Odd("Refused")).as_str(), "Refused");
    assert_eq!(Reason::of(&Odd("no word")).as_str(), "Failed");
}
