use super::*;

fn class(secrets: &[&str]) -> konverge_workload::SecretProviderClass {
    let objects: Vec<_> = secrets.iter().map(|name| json!({ "secretName": name })).collect();
    let metadata = json!({ "namespace": "shop", "name": "vault" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "secretObjects": objects } })).unwrap()
}

/// A Deployment whose pods mount a class, and name nothing.
fn mounting(name: &str, annotations: &Value) -> Workload {
    let mut object = workload(name, 1, annotations, &[]);
    object.references.secret_provider_classes.insert("vault".to_owned());
    object
}

fn used(index: &Index, name: &str) -> Vec<String> {
    let view = index.view(&key(name), &digester(), now());
    view.iter().flat_map(|view| view.uses().keys()).map(ToString::to_string).collect()
}

#[test]
fn what_the_driver_makes_counts_for_who_mounts_it_whichever_is_seen_first() {
    let show_class = |index: &Index, secrets: &[&str]| index.apply_class(class(secrets)).1;
    let show_web = |index: &Index| {
        drop(index.apply_workload(
            Shows::Event,
            WorkloadKind::Deployment,
            mounting("web", &json!({ ON_CHANGE: "true" })),
            now(),
        ));
    };
    for class_first in [true, false] {
        let index = index();
        show(&index, "other", &json!({ ON_CHANGE: "true" }), &[]);
        if class_first {
            show_class(&index, &["db"]);
            show_web(&index);
        } else {
            show_web(&index);
            let work = show_class(&index, &["db"]);
            assert_eq!(shown(work), (strings(&["web"]), strings(&["db"])), "it is looked at and read");
        }
        assert_eq!(used(&index, "web"), ["Secret/db"], "{class_first}");
        assert_eq!(used(&index, "other"), [""; 0], "it mounts nothing");
        assert_eq!(show_class(&index, &["db"]), Work::default(), "nothing new");

        show_class(&index, &["db", "api"]);
        assert_eq!(used(&index, "web"), ["Secret/api", "Secret/db"]);
        index.retain_classes(&HashSet::from([("shop".to_owned(), "vault".to_owned())]));
        assert_eq!(used(&index, "web").len(), 2, "it is in the list");
        index.retain_classes(&HashSet::new());
        assert_eq!(used(&index, "web"), [""; 0], "the class is gone");
    }
}

#[test]
fn what_the_driver_makes_may_ask_for_its_users_and_leaves_no_trace_when_it_goes() {
    let index = index();
    drop(index.apply_workload(Shows::Event, WorkloadKind::Deployment, mounting("web", &json!({})), now()));
    drop(index.apply_class(class(&["db"])));
    show_secret(&index, "db", "1", &json!({ ROLL_USERS: "true" }));
    assert_eq!(used(&index, "web"), ["Secret/db"]);
    index.forget_class(&("shop".to_owned(), "vault".to_owned()));
    assert_eq!(used(&index, "web"), [""; 0]);
    index.forget(&key("web"));
    let inner = index.lock();
    assert!(inner.sources.used_count() == 0 && !inner.sources.has_named() && inner.classes.is_empty());
}

#[test]
fn each_secret_is_waited_for_that_no_mounted_class_makes() {
    let index = index();
    let mut web = workload("web", 1, &json!({ ON_CHANGE: "true" }), &["db", "other"]);
    web.references.secret_provider_classes.insert("vault".to_owned());
    drop(index.apply_workload(Shows::Event, WorkloadKind::Deployment, web, now()));
    for name in ["db", "other"] {
        index.reading(&secret(name));
        index.learn(&secret(name), None, None, now());
    }
    let waited_for = || {
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        let unsatisfied = view.plan.comparison.unsatisfied.iter();
        unsatisfied.map(|missing| missing.source.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(waited_for(), [""; 0], "the class is not known, so it may make either");
    drop(index.apply_class(class(&[])));
    assert_eq!(waited_for(), ["Secret/db", "Secret/other"]);
    drop(index.apply_class(class(&["db"])));
    assert_eq!(waited_for(), ["Secret/other"]);
    drop(index.forget_class(&("shop".to_owned(), "vault".to_owned())));
    assert_eq!(waited_for(), [""; 0]);
}
