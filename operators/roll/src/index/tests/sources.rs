use super::*;

#[test]
fn what_changes_while_it_is_read_for_the_first_time_is_read_again() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    index.reading(&secret("db"));
    assert_eq!(show_secret(&index, "db", "2", &json!({})).1, ["db"], "the answer on its way is that of version 1");
    answered(&index, "db", "1", "x");
    assert_eq!(show_secret(&index, "db", "1", &json!({})).1, [""; 0]);
}

#[test]
fn a_deleted_source_changes_nothing_until_it_is_back() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    learn(&index, "db", "1", "x");
    let view = index.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content)) = view.plan.verdict().cloned() else {
        panic!("{:?}", view.plan.verdict().cloned())
    };
    let record = Record::of_content(digester().tag(view.uid()), content, None);
    index.wrote(&key("web"), view.uid(), "2", record.text(), None);
    let verdict = || index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned().unwrap();
    index.forget_source(&secret("db"), now());
    assert_eq!(verdict(), Verdict::Nothing);
    assert_eq!(show_secret(&index, "db", "9", &json!({})).1, ["db"]);
    learn(&index, "db", "9", "x");
    assert_eq!(verdict(), Verdict::Nothing);
    learn(&index, "db", "10", "y");
    assert!(matches!(verdict(), Verdict::Roll { .. }));
}

#[test]
fn who_uses_what_may_not_be_read_is_told_once_and_again_when_it_is_read() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    let why = |text: &'static str| messages::refused(&SourceName::secret("db"), &std::io::Error::other(text));
    let refuse = |text| index.refuse(&secret("db"), why(text)).into_iter().map(|key| key.name).collect::<Vec<_>>();
    let refused = |name| index.view(&key(name), &digester(), now()).unwrap().plan.refused;
    assert_eq!((refuse("no"), refuse("no")), (strings(&["web"]), vec![]));
    assert_eq!(refuse("never"), ["web"]);
    show(&index, "cart", &all, &["db"]);
    assert_eq!((refused("web"), refused("cart")), (vec![why("never")], vec![why("never")]));
    assert_eq!(learn(&index, "db", "1", "x").0, ["cart", "web"], "as it was, but it is known to be");
    assert_eq!(refused("web"), []);
    assert_eq!(learn(&index, "db", "2", "x").0, [""; 0]);
    assert!(index.refuse(&secret("nobody's"), why("no")).is_empty());
}

#[test]
fn bad_annotations_are_told_once_and_end_nothing_else() {
    let index = index();
    let bad = json!({ ROLL_USERS: "perhaps" });
    let metadata = |version: &str| {
        let metadata = json!({
            "namespace": "shop", "name": "db", "uid": "s", "resourceVersion": version, "annotations": bad,
        });
        serde_json::from_value::<ObjectMeta>(metadata).unwrap()
    };
    assert!(index.apply_source(SourceKind::Secret, metadata("1")).1.invalid.is_some());
    assert!(index.apply_source(SourceKind::Secret, metadata("2")).1.invalid.is_none());
    assert_eq!(show(&index, "web", &json!({ ON_CHANGE: "maybe" }), &["db"]), (strings(&["web"]), vec![]));
    assert!(index.view(&key("web"), &digester(), now()).unwrap().spec().is_err());
    let all = json!({ ON_CHANGE: "true" });
    let read = |secrets: &[&str]| (strings(&["cart"]), strings(secrets));
    assert_eq!(show(&index, "cart", &all, &["db", "good"]), read(&["good"]), "it may ask to be let alone");
    assert_eq!(show_secret(&index, "db", "3", &json!({ IGNORE: "True" })), (vec![], vec![]));
    let everybody = (strings(&["cart", "web"]), strings(&["db", "good"]));
    assert_eq!(show_secret(&index, "db", "4", &json!({})), everybody, "it asks for nothing");
}

#[test]
fn what_was_read_while_a_list_was_on_its_way_is_not_taken_for_gone() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    // The page with it came while nobody used it.
    let there = index.sources_there(SourceKind::Secret);
    assert_eq!(show_secret(&index, "db", "1", &json!({})), (vec![], vec![]));
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    assert_eq!(there.len(), 0);
    assert_eq!(index.retain_sources(there), Work::default());
    let is_noted = |name| {
        matches!(index.view(&key(name), &digester(), now()).unwrap().plan.verdict().cloned(), Some(Verdict::Note(_)))
    };
    assert!(is_noted("web"));
    assert_eq!(show_secret(&index, "db", "2", &json!({})).1, ["db"], "it is followed");

    // A source that was used, was unused while its page of the list passed, and is used again.
    let there = index.sources_there(SourceKind::Secret);
    assert_eq!(there.iter().collect::<Vec<_>>(), [&secret("db")]);
    let work = index.retain_sources(there);
    assert_eq!(work.sources.into_iter().collect::<Vec<_>>(), [secret("db")], "it is read again, and not forgotten");
    assert!(is_noted("web"));
    index.learn(&secret("db"), None, None, now());
    assert!(is_noted("web"), "as missing");
}

#[test]
fn what_a_list_does_not_show_asks_for_nothing() {
    let index = index();
    show(&index, "web", &json!({}), &["db"]);
    show_secret(&index, "db", "1", &json!({ ROLL_USERS: "true" }));
    learn(&index, "db", "1", "x");
    assert_eq!(index.counts(), (1, 1));
    let work = index.retain_sources(index.sources_there(SourceKind::Secret));
    assert_eq!((index.counts(), work.sources.len()), ((0, 0), 0));
    assert!(index.lock().sources.is_empty());
}
