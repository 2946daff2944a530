//! Annotations as people write them, and what comes of it.

use proptest::prelude::*;

use super::*;
use crate::spec::{BinaryPolicy, Choice, ExistingPolicy};

fn read(pairs: &[(&str, &str)]) -> Option<Result<PushSpec, Invalid>> {
    parse_spec(&pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Reads one annotation beside a path.
fn with(annotation: &str, value: &str) -> Result<PushSpec, Invalid> {
    read(&[(PATH, "secret/data/app"), (annotation, value)]).unwrap()
}

#[test]
fn a_path_makes_an_object_ours() {
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[(PATH, "")]), None);
    assert_eq!(read(&[(SECRETS, "[]"), (RECONCILE, "5m")]), None);
    let expected = PushSpec {
        path: " /secret/../x".to_owned(),
        selection: Selection::All { image_pull_secrets: false },
        every: None,
        always: false,
        deletion: None,
        grace: None,
        existing: None,
        binary: None,
        engine: Engine::Unstated,
        paused: false,
        sync_now: None,
        update: UpdatePolicy::Replace,
        notes: vec![],
    };
    assert_eq!(read(&[(PATH, " /secret/../x")]), Some(Ok(expected)), "verbatim");
}

#[test]
fn what_is_to_become_of_it_is_heard_whatever_else_it_says() {
    for (pairs, expected) in [
        (&[][..], None),
        (&[(PRESERVE, "true")], Some(DeletionPolicy::Keep)),
        (&[(PRESERVE, "True")], None),
        (&[(DELETION_POLICY, "destroy")], Some(DeletionPolicy::Destroy)),
        (&[(DELETION_POLICY, "destroy"), (PRESERVE, "true")], Some(DeletionPolicy::Keep)),
        (&[(DELETION_POLICY, "destory")], None),
        (&[(PATH, "secret/data/a"), (SECRETS, "{"), (PRESERVE, "true")], Some(DeletionPolicy::Keep)),
    ] {
        let annotations = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!(deletion_policy(&annotations), expected, "{pairs:?}");
    }
}

#[test]
fn intervals() {
    for (text, seconds, note) in [
        ("", None, ""),
        ("off", None, ""),
        ("5m", Some(300), ""),
        ("1h30m", Some(5_400), ""),
        ("30s", Some(30), ""),
        ("29.9s", Some(30), "counts as 30s"),
        ("0", Some(30), "counts as 30s"),
        ("-1h", Some(30), "counts as 30s"),
        ("Off", None, "counts as off"),
        ("5", None, "the unit is missing"),
        ("1d", None, "counts as off"),
    ] {
        let spec = with(RECONCILE, text).unwrap();
        assert_eq!(spec.every, seconds.map(Duration::from_secs), "{text}");
        assert_eq!(spec.notes.len(), usize::from(!note.is_empty()), "{text}: {:?}", spec.notes);
        assert!(spec.notes.iter().all(|told| told.contains(note) && told.contains(RECONCILE)), "{:?}", spec.notes);
    }
}

#[test]
fn only_the_exact_word_has_an_effect() {
    for (text, effect, notes) in
        [("", false, 0), ("true", true, 0), ("false", false, 0), ("True", false, 1), ("1", false, 1), ("yes", false, 1)]
    {
        let preserve = with(PRESERVE, text).unwrap();
        assert_eq!((preserve.deletion == Some(DeletionPolicy::Keep), preserve.notes.len()), (effect, notes), "{text}");
        let pause = with(PAUSE, text).unwrap();
        assert_eq!((pause.paused, pause.notes.len()), (effect, notes), "{text}");
        let images = with(IMAGE_PULL_SECRETS, text).unwrap();
        let expected = Selection::All { image_pull_secrets: effect };
        assert_eq!((images.selection, images.notes.len()), (expected, notes), "{text}");
    }
    for (text, always, notes) in
        [("disabled", true, 0), ("enabled", false, 0), ("", false, 0), ("5m", false, 1), ("Disabled", false, 1)]
    {
        let spec = with(ROTATION_CHECK, text).unwrap();
        assert_eq!((spec.always, spec.notes.len()), (always, notes), "{text}");
    }
    assert_eq!(with(SYNC_NOW, "").unwrap().sync_now, None);
    assert_eq!(with(SYNC_NOW, "2026").unwrap().sync_now.as_deref(), Some("2026"));
}

#[test]
fn policies() {
    use DeletionPolicy::{Destroy, Keep, Metadata, Soft};
    for (text, policy) in [("soft", Soft), ("destroy", Destroy), ("metadata", Metadata), ("keep", Keep)] {
        assert_eq!(with(DELETION_POLICY, text).unwrap().deletion, Some(policy));
        assert_eq!(policy.to_string(), text);
        assert_eq!(serde_json::to_value(policy).unwrap(), text);
    }
    assert_eq!(with(EXISTING, "refuse").unwrap().existing, Some(ExistingPolicy::Refuse));
    assert_eq!(with(EXISTING, "adopt").unwrap().existing, Some(ExistingPolicy::Adopt));
    assert_eq!(with(BINARY, "base64").unwrap().binary, Some(BinaryPolicy::Base64));
    assert_eq!(with(BINARY, "refuse").unwrap().binary, Some(BinaryPolicy::Refuse));
    assert_eq!(BinaryPolicy::Base64.to_string(), "base64");
    assert_eq!(serde_json::to_value(BinaryPolicy::Base64).unwrap(), "base64");
    for annotation in [DELETION_POLICY, EXISTING, BINARY] {
        let error = with(annotation, "Nonsense").unwrap_err();
        assert_eq!(error.reason(), "InvalidAnnotation");
        let text = error.to_string();
        assert!(text.contains(annotation) && text.contains("Nonsense") && text.contains("one of "), "{text}");
    }
}

#[test]
fn what_is_to_be_preserved_is_kept_whatever_else_is_said() {
    for (policy, preserve, expected, notes) in [
        ("destroy", "true", Some(DeletionPolicy::Keep), 1),
        ("keep", "true", Some(DeletionPolicy::Keep), 0),
        ("destroy", "false", Some(DeletionPolicy::Destroy), 0),
        ("destroy", "TRUE", Some(DeletionPolicy::Destroy), 1),
    ] {
        let spec = read(&[(PATH, "a/b"), (DELETION_POLICY, policy), (PRESERVE, preserve)]).unwrap().unwrap();
        assert_eq!((spec.deletion, spec.notes.len()), (expected, notes), "{policy} {preserve}");
    }
}

#[test]
fn engines() {
    for (text, expected) in [
        ("secret:2", Some(Mount::new("secret", KvVersion::Two))),
        ("clusters/one/kv:1", Some(Mount::new("clusters/one/kv", KvVersion::One))),
        ("with:colon:2", Some(Mount::new("with:colon", KvVersion::Two))),
        ("secret", None),
        ("secret:3", None),
        (":2", None),
        ("/secret:2", None),
        ("a/../sys:1", None),
        ("sys:1", None),
    ] {
        assert_eq!(with(KV, text).ok().and_then(|spec| spec.engine.claimed("clusters/x/")), expected, "{text}");
    }
    assert!(with(KV, "secret").unwrap_err().to_string().contains("secret:2"));
}

#[test]
fn the_json_of_choices() {
    let spec = with(SECRETS, r#"[{"name":"db","keys":["password"],"prefix":"db_"}]"#).unwrap();
    let choice = Choice { name: "db".to_owned(), keys: vec!["password".to_owned()], prefix: "db_".to_owned() };
    assert_eq!((spec.selection, spec.notes.len()), (Selection::Chosen(vec![choice]), 0));
    assert_eq!(with(SECRETS, "").unwrap().selection, Selection::All { image_pull_secrets: false });
    let none = with(SECRETS, "null").unwrap();
    assert_eq!((none.selection, none.notes.len()), (Selection::Chosen(vec![]), 1));
    assert!(none.notes[0].contains(SECRETS), "{:?}", none.notes);
    let error = with(SECRETS, "{").unwrap_err();
    assert_eq!(error.reason(), "InvalidSecretsAnnotation");
    let text = error.to_string();
    assert!(text.contains("failed to parse secrets annotation") && text.contains(SECRETS), "{text}");
}

proptest! {
    /// Annotations of any content have an answer. No interval is short, and texts of any length make short notes and errors.
    #[test]
    fn nothing_makes_it_stumble(values in proptest::collection::vec("([a-z0-9\\[\\]{}\":.-]{0,12}|x{300})", 10)) {
        let keys = [SECRETS, PRESERVE, RECONCILE, ROTATION_CHECK, DELETION_POLICY, EXISTING, BINARY, KV, PAUSE, SYNC_NOW];
        let mut pairs = vec![(PATH, "a/b")];
        pairs.extend(keys.into_iter().zip(values.iter().map(String::as_str)));
        match read(&pairs).unwrap() {
            Ok(spec) => {
                prop_assert!(spec.every.is_none_or(|every| every >= SHORTEST_INTERVAL));
                prop_assert!(spec.notes.iter().all(|note| note.len() < 250), "{:?}", spec.notes);
            }
            Err(error) => prop_assert!(error.to_string().len() < 300, "{error}"),
        }
    }
}

#[test]
fn the_grace_period_of_an_object_needs_no_path() {
    for (value, expected) in
        [("0s", Some(0)), ("10m", Some(600)), ("", None), ("5", None), ("-1s", None), ("now", None)]
    {
        let annotations = BTreeMap::from([(DELETION_GRACE.to_owned(), value.to_owned())]);
        assert_eq!(deletion_grace(&annotations), expected.map(Duration::from_secs), "{value:?}");
        let spec = read(&[(PATH, "secret/data/x"), (DELETION_GRACE, value)]).unwrap().unwrap();
        assert_eq!(spec.grace, expected.map(Duration::from_secs), "{value:?}");
        assert_eq!(spec.notes.len(), usize::from(expected.is_none() && !value.is_empty()), "{value:?}");
    }
}
