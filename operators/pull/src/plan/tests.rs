use proptest::prelude::*;

use super::*;

mod template;

const ENVIRONMENT: &str = "environment-1";

fn digest_key() -> DigestKey {
    DigestKey::new([1; 32])
}

fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, SecretValue> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), SecretValue::from(value.to_owned()))).collect()
}

fn contents(data: &[(&str, &str)], owned: &[&str]) -> Contents {
    Contents { data: values(data), owned: owned.iter().map(|&key| key.to_owned()).collect(), ..Contents::default() }
}

fn verified(version: i64, pairs: &[(&str, &str)]) -> Verified {
    let digest = digest_key().digest(pairs.iter().map(|&(key, value)| (key, value.as_bytes())));
    Verified { revisions: vec![Some(revision(ENVIRONMENT, version))], digest }
}

fn revision(identity: &str, number: i64) -> Revision {
    Revision { identity: identity.into(), number, fingerprint: Some(7) }
}

fn snapshot(version: i64, upstream: &[(&str, &str)], failed: &[&str]) -> Snapshot {
    Snapshot {
        revision: revision(ENVIRONMENT, version),
        succession: Succession::Unproven,
        tag: None,
        remark: None,
        values: values(upstream),
        failed: failed.iter().map(|&key| key.to_owned()).collect(),
    }
}

/// The outcome of a plan, in a form that a table can hold.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Nothing,
    Apply(Vec<(String, String)>),
    Keep,
    ConfirmEmpty,
    ReadFirst,
}

fn apply(pairs: &[(&str, &str)]) -> Outcome {
    Outcome::Apply(pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect())
}

fn decide(
    version: i64,
    upstream: &[(&str, &str)],
    failed: &[&str],
    observed: &Observed<'_>,
    confirmed: bool,
) -> (Outcome, Vec<Problem>) {
    decide_with(
        Memory { is_confirmed: confirmed, is_recorded: true, ..Memory::default() },
        version,
        upstream,
        failed,
        observed,
    )
}

/// What is remembered besides the Secret.
#[derive(Default)]
struct Memory {
    accepted: Option<Revision>,
    is_recorded: bool,
    is_confirmed: bool,
}

fn decide_with(
    memory: Memory,
    version: i64,
    upstream: &[(&str, &str)],
    failed: &[&str],
    observed: &Observed<'_>,
) -> (Outcome, Vec<Problem>) {
    let (upstream, selection) = (snapshot(version, upstream, failed), Selection::default());
    let Memory { accepted, is_recorded, is_confirmed } = memory;
    let part = Part { selection: &selection, is_optional: false, snapshot: Some(&upstream), accepted, given: None };
    let circumstances =
        Circumstances { recorded: is_recorded.then_some("record"), is_confirmed, ..Circumstances::default() };
    outcome(plan(&[part], observed, &digest_key(), circumstances, |_| Some("record".into())))
}

fn text(value: &SecretValue) -> String {
    String::from_utf8_lossy(value.expose()).into_owned()
}

fn outcome(plan: Plan<'_>) -> (Outcome, Vec<Problem>) {
    let outcome = match plan.action {
        Action::Nothing => Outcome::Nothing,
        Action::Apply(desired) => {
            Outcome::Apply(desired.into_iter().map(|(key, value)| (key.into_owned(), text(value.value()))).collect())
        }
        Action::Keep => Outcome::Keep,
        Action::ConfirmEmpty => Outcome::ConfirmEmpty,
        Action::ReadFirst => Outcome::ReadFirst,
    };
    (outcome, plan.problems.into_iter().map(|(_, problem)| problem).collect())
}

#[test]
fn content_of_another_writer_is_told_from_what_was_verified() {
    let verified = verified(190, &[("A", "190")]);
    for (contents, verified, expected) in [
        (contents(&[("A", "191")], &[]), None, true),
        (contents(&[("A", "190")], &["A"]), None, false),
        (contents(&[("A", "190"), ("FOREIGN", "x")], &["A"]), Some(&verified), true),
        (contents(&[("A", "191")], &["A"]), Some(&verified), false),
        (contents(&[("A", "190"), ("B", "2")], &["A", "B"]), Some(&verified), false),
    ] {
        assert_eq!(contents.is_as_verified(verified, &digest_key()), expected, "{:?} {verified:?}", contents.owned);
    }
}

#[test]
fn a_secret_that_was_read_is_made_to_hold_exactly_the_environment() {
    for (name, data, owned, upstream, expected) in [
        ("new", &[][..], &[][..], &[("A", "1")][..], apply(&[("A", "1")])),
        ("right", &[("A", "1")], &["A"], &[("A", "1")], Outcome::Nothing),
        ("value changed", &[("A", "1")], &["A"], &[("A", "2")], apply(&[("A", "2")])),
        ("key removed upstream", &[("A", "1"), ("B", "2")], &["A", "B"], &[("A", "1")], apply(&[("A", "1")])),
        ("key removed in the Secret", &[], &["A"], &[("A", "1")], apply(&[("A", "1")])),
        ("foreign key stays", &[("A", "1"), ("F", "x")], &["A"], &[("A", "1")], Outcome::Nothing),
        ("foreign key of the same name", &[("A", "1")], &[], &[("A", "1")], apply(&[("A", "1")])),
    ] {
        let contents = contents(data, owned);
        let (outcome, problems) = decide(3, upstream, &[], &Observed::Read(&contents, None), false);
        assert_eq!((outcome, problems), (expected, vec![]), "{name}");
    }
}

#[test]
fn a_secret_that_nobody_touched_is_compared_by_digest() {
    let before = verified(3, &[("A", "1")]);
    let observed = Observed::Unchanged(&before);
    assert_eq!(decide(4, &[("A", "1")], &[], &observed, false).0, Outcome::Nothing);
    assert_eq!(decide(4, &[("A", "2")], &[], &observed, false).0, apply(&[("A", "2")]));
}

#[test]
fn an_empty_environment_takes_nothing_away_before_it_is_confirmed() {
    let held = contents(&[("A", "1")], &["A"]);
    let foreign = contents(&[("F", "x")], &[]);
    let before = verified(3, &[("A", "1")]);
    for (name, version, observed, confirmed, expected) in [
        ("first look", 4, Observed::Read(&held, None), false, Outcome::ConfirmEmpty),
        ("second look", 4, Observed::Read(&held, None), true, apply(&[])),
        ("first look, known", 4, Observed::Unchanged(&before), false, Outcome::ConfirmEmpty),
        ("second look, known", 4, Observed::Unchanged(&before), true, apply(&[])),
        ("nothing of ours", 4, Observed::Read(&foreign, None), false, Outcome::Nothing),
        ("never filled", 0, Observed::Read(&held, None), true, Outcome::Keep),
    ] {
        assert_eq!(decide(version, &[], &[], &observed, confirmed).0, expected, "{name}");
    }
    assert_eq!(decide(0, &[], &[], &Observed::Read(&held, None), true).1, [Problem::NeverFilled]);
}

#[test]
fn an_older_version_and_a_replaced_environment_are_refused() {
    let applied = revision;
    let replaced = |id: &str| Some(Problem::Replaced { applied: id.into(), stated: ENVIRONMENT.into() });
    for (name, applied, serial, expected) in [
        ("nothing was applied", None, None, None),
        ("the same", Some(applied(ENVIRONMENT, 4)), None, None),
        ("an older version", Some(applied(ENVIRONMENT, 5)), None, Some(Problem::WentBack { applied: 5, stated: 4 })),
        ("a later environment without a manifest", Some(applied("environment-0", 1)), None, replaced("environment-0")),
        ("a later environment with a manifest", Some(applied("environment-0", 9)), Some(1), None),
        ("a former environment", Some(applied("environment-2", 1)), None, replaced("environment-2")),
        ("a former environment with a manifest", Some(applied("environment-2", 1)), Some(7), replaced("environment-2")),
    ] {
        let succession = serial.map_or(Succession::Unproven, Succession::Proven);
        let upstream = Snapshot { succession, ..snapshot(4, &[("A", "0")], &[]) };
        assert_eq!(rollback(&upstream, None, applied.as_ref()), expected, "{name}, by memory");
        if let Some(applied) = applied {
            assert_eq!(rollback(&upstream, Some(&applied), None), expected, "{name}, by this Secret");
            let before = Verified { revisions: vec![Some(applied)], ..verified(4, &[("A", "1")]) };
            let selection = Selection::default();
            let part = Part {
                selection: &selection,
                is_optional: false,
                snapshot: Some(&upstream),
                accepted: None,
                given: None,
            };
            let (observed, circumstances) = (Observed::Unchanged(&before), Circumstances::default());
            let plan = plan(&[part], &observed, &digest_key(), circumstances, |_| None);
            assert_eq!(matches!(plan.action, Action::Keep), expected.is_some(), "{name}");
        }
    }
    // This Secret has not followed an environment that another Secret has followed.
    let former = revision("environment-0", 9);
    let later = revision(ENVIRONMENT, 3);
    assert_eq!(rollback(&snapshot(4, &[], &[]), Some(&former), Some(&later)), None);
    // A secret that is created again in Vault begins at version 1, and the new secret may replace the former one.
    let upstream = Snapshot { succession: Succession::NotEarlier, ..snapshot(4, &[], &[]) };
    let went_back = Problem::WentBack { applied: 9, stated: 4 };
    assert_eq!(rollback(&upstream, None, Some(&revision(ENVIRONMENT, 9))), Some(went_back.clone()));
    // It has a later time. An older version has an earlier time and a smaller number.
    for (identity, number, expected) in
        [("environment-0", 9, None), ("environment-2", 3, None), ("environment-2", 9, Some(went_back))]
    {
        assert_eq!(rollback(&upstream, None, Some(&revision(identity, number))), expected, "{identity} {number}");
    }
}

#[test]
fn a_version_that_another_secret_has_held_counts_as_one_that_this_secret_has_held() {
    let (new, held) = (contents(&[], &[]), contents(&[("A", "5")], &["A"]));
    let before = verified(5, &[("A", "5")]);
    for (name, newest, stated, observed, expected) in [
        ("no Secret has held any", None, 4, Observed::Read(&new, None), Ok(apply(&[("A", "5")]))),
        ("an older one", Some(3), 4, Observed::Read(&new, None), Ok(apply(&[("A", "5")]))),
        ("the same", Some(4), 4, Observed::Read(&new, None), Ok(apply(&[("A", "5")]))),
        ("a newer one", Some(5), 4, Observed::Read(&new, None), Err(5)),
        ("a newer one, after a restart", Some(5), 4, Observed::Read(&held, None), Err(5)),
        ("a newer one, though nothing differs", Some(6), 5, Observed::Unchanged(&before), Err(6)),
        ("a newer one than this process has seen", Some(7), 6, Observed::Read(&held, Some(&before)), Err(7)),
        ("an older one than this process has seen", Some(3), 4, Observed::Read(&held, Some(&before)), Err(5)),
    ] {
        let accepted = newest.map(|version| revision(ENVIRONMENT, version));
        let memory = Memory { accepted, is_recorded: true, is_confirmed: false };
        let (outcome, problems) = decide_with(memory, stated, &[("A", "5")], &[], &observed);
        let expected = match expected {
            Ok(outcome) => (outcome, vec![]),
            Err(applied) => (Outcome::Keep, vec![Problem::WentBack { applied, stated }]),
        };
        assert_eq!((outcome, problems), expected, "{name}");
    }
}

#[test]
fn a_secret_without_its_record_is_written_although_nothing_differs() {
    let (held, empty) = (contents(&[("A", "1")], &["A"]), contents(&[], &[]));
    let locked = Contents { immutable: true, ..contents(&[("A", "1")], &["A"]) };
    let before = verified(3, &[("A", "1")]);
    for (name, upstream, observed, expected) in [
        ("read", &[("A", "1")][..], Observed::Read(&held, None), apply(&[("A", "1")])),
        ("known", &[("A", "1")], Observed::Unchanged(&before), apply(&[("A", "1")])),
        ("immutable, whose annotations are not", &[("A", "1")], Observed::Read(&locked, None), apply(&[("A", "1")])),
        ("without keys", &[], Observed::Read(&empty, None), apply(&[])),
        ("not confirmed to be empty", &[], Observed::Read(&held, None), Outcome::ConfirmEmpty),
    ] {
        let (outcome, problems) = decide_with(Memory::default(), 4, upstream, &[], &observed);
        assert_eq!((outcome, problems), (expected, vec![]), "{name}");
    }
}

#[test]
fn a_key_that_cannot_be_decrypted_keeps_the_value_we_put_there() {
    let before = verified(3, &[("A", "1"), ("B", "2")]);
    assert_eq!(decide(4, &[("A", "9")], &["B"], &Observed::Unchanged(&before), false).0, Outcome::ReadFirst);

    let held = contents(&[("A", "1"), ("B", "2"), ("F", "x")], &["A", "B"]);
    let (outcome, problems) = decide(4, &[("A", "9")], &["B", "F"], &Observed::Read(&held, Some(&before)), false);
    assert_eq!(outcome, apply(&[("A", "9"), ("B", "2")]));
    assert_eq!(problems, [Problem::Undecryptable(vec!["B".into(), "F".into()])]);

    let (outcome, _) = decide(4, &[], &["A", "B"], &Observed::Read(&held, Some(&before)), false);
    assert_eq!(outcome, Outcome::Nothing, "all damaged: all keep their values");
}

#[test]
fn keys_that_kubernetes_refuses_are_left_out_and_named() {
    let empty = contents(&[], &[]);
    let upstream = [("A", "1"), ("no space", "2"), ("..", "3")];
    let (outcome, problems) = decide(1, &upstream, &[], &Observed::Read(&empty, None), false);
    assert_eq!(outcome, apply(&[("A", "1")]));
    assert_eq!(problems, [Problem::InvalidKeys(vec!["..".into(), "no space".into()])]);
}

#[test]
fn too_much_data_and_immutable_secrets_are_left_alone() {
    let empty = contents(&[], &[]);
    let large = "x".repeat(SECRET_SIZE_LIMIT + 1);
    let (outcome, problems) = decide(1, &[("A", &large)], &[], &Observed::Read(&empty, None), false);
    assert_eq!((outcome, problems), (Outcome::Keep, vec![Problem::TooLarge { size: SECRET_SIZE_LIMIT + 1 }]));

    let locked = Contents { immutable: true, ..contents(&[("A", "1")], &["A"]) };
    assert_eq!(decide(2, &[("A", "1")], &[], &Observed::Read(&locked, None), false).0, Outcome::Nothing);
    let (outcome, problems) = decide(2, &[("A", "2")], &[], &Observed::Read(&locked, None), false);
    assert_eq!((outcome, problems), (Outcome::Keep, vec![Problem::Immutable]));
}

#[test]
fn which_keys_kubernetes_allows() {
    for (key, valid) in [
        ("A", true),
        ("a-b.c_9", true),
        (".hidden", true),
        ("", false),
        (".", false),
        ("..", false),
        ("..data", false),
        ("a b", false),
        ("a/b", false),
        ("ä", false),
    ] {
        assert_eq!(is_valid_key(key), valid, "{key:?}");
    }
    assert!(is_valid_key(&"k".repeat(253)));
    assert!(!is_valid_key(&"k".repeat(254)));
}

/// The values of a source, if it answers, and the keys that it gave before.
type Stored<'a> = (Option<&'a [(&'a str, &'a str)]>, &'a [&'a str]);

/// A decision about a Secret with two sources.
fn decide_two(
    stored: [Stored<'_>; 2],
    contents: &Contents,
    circumstances: Circumstances<'_>,
) -> (Outcome, Vec<Problem>) {
    let selection = Selection::default();
    let snapshots = stored.map(|(values, _)| values.map(|values| snapshot(4, values, &[])));
    let given = stored.map(|(_, given)| given.iter().map(|&key| key.to_owned()).collect::<BTreeSet<_>>());
    let parts = [0, 1].map(|number| Part {
        selection: &selection,
        is_optional: number == 1,
        snapshot: snapshots[number].as_ref(),
        accepted: None,
        given: Some(&given[number]),
    });
    outcome(plan(&parts, &Observed::Read(contents, None), &digest_key(), circumstances, |_| None))
}

#[test]
fn the_first_of_two_sources_precedes_and_one_that_is_away_keeps_its_keys() {
    let held = contents(&[("A", "1"), ("B", "2"), ("F", "x")], &["A", "B"]);
    let absent = Contents { is_absent: true, ..Contents::default() };
    let (one, other) = ([("A", "7")], [("A", "8"), ("B", "9")]);
    let strict = Circumstances { is_strict: true, ..Circumstances::default() };
    let any = Circumstances::default();
    for (name, first, second, contents, circumstances, expected) in [
        (
            "both answer",
            (Some(&one[..]), &["A"][..]),
            (Some(&other[..]), &["B"][..]),
            &held,
            any,
            apply(&[("A", "7"), ("B", "9")]),
        ),
        ("the first is away", (None, &["A"]), (Some(&other), &["B"]), &held, any, apply(&[("A", "1"), ("B", "9")])),
        ("the second is away", (Some(&one), &["A"]), (None, &["B"]), &held, any, apply(&[("A", "7"), ("B", "2")])),
        ("one is away, strictly", (None, &["A"]), (Some(&other), &["B"]), &held, strict, Outcome::Keep),
        ("the first was never there", (None, &[]), (Some(&other), &["B"]), &held, any, Outcome::Keep),
        ("the optional one was never there", (Some(&one), &["A"]), (None, &[]), &absent, any, apply(&[("A", "7")])),
        (
            "the Secret is gone, and a source is away",
            (None, &["A"]),
            (Some(&other), &["B"]),
            &absent,
            any,
            Outcome::Keep,
        ),
        ("the second is empty", (Some(&one), &["A"]), (Some(&[]), &["B"]), &held, any, Outcome::ConfirmEmpty),
    ] {
        assert_eq!(decide_two([first, second], contents, circumstances).0, expected, "{name}");
    }
}

#[test]
fn a_secret_of_a_type_has_its_keys_or_is_not_written() {
    let absent = Contents { is_absent: true, ..Contents::default() };
    for (secret_type, keys, expected) in [
        ("kubernetes.io/tls", &["tls.crt"][..], Some(Problem::LacksKeys(vec!["tls.key"]))),
        ("kubernetes.io/tls", &["tls.crt", "tls.key"], None),
        ("kubernetes.io/basic-auth", &["user"], Some(Problem::LacksKeys(vec!["username", "password"]))),
        ("kubernetes.io/basic-auth", &["password"], None),
        ("Opaque", &[], None),
    ] {
        let values: Vec<_> = keys.iter().map(|&key| (key, "x")).collect();
        let circumstances = Circumstances { secret_type: Some(secret_type), ..Circumstances::default() };
        let (outcome, problems) = decide_two([(Some(&values), &[]), (None, &[])], &absent, circumstances);
        assert_eq!(problems, Vec::from_iter(expected), "{secret_type} {keys:?}");
        assert_eq!(outcome == Outcome::Keep, !problems.is_empty());
    }
}

#[test]
fn a_selected_key_that_is_missing_keeps_its_value() {
    let held = contents(&[("A", "1"), ("B", "2")], &["A", "B"]);
    let (upstream, selection) = (snapshot(4, &[("A", "7"), ("C", "3")], &[]), Selection::of_list("A,B,D"));
    let part =
        Part { selection: &selection, is_optional: false, snapshot: Some(&upstream), accepted: None, given: None };
    let observed = Observed::Read(&held, None);
    let (outcome, problems) = outcome(plan(&[part], &observed, &digest_key(), Circumstances::default(), |_| None));
    assert_eq!(outcome, apply(&[("A", "7"), ("B", "2")]));
    assert_eq!(problems, [Problem::MissingKeys(vec!["B".into(), "D".into()])]);
}

fn pairs() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map("[AB ]{1,2}", "[xy]{0,2}", 0..4)
}

fn borrowed(map: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

proptest! {
    /// A plan that was applied leaves nothing to do: planning again does nothing.
    #[test]
    fn applying_a_plan_settles(upstream in pairs(), data in pairs(), version in 1..9_i64) {
        let before = contents(&borrowed(&data), &data.keys().map(String::as_str).collect::<Vec<_>>());
        let (outcome, _) = decide(version, &borrowed(&upstream), &[], &Observed::Read(&before, None), true);
        let applied = match outcome {
            Outcome::Apply(applied) => applied,
            Outcome::Nothing => return Ok(()),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let applied: Vec<(&str, &str)> = applied.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let after = contents(&applied, &applied.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        let again = decide(version, &borrowed(&upstream), &[], &Observed::Read(&after, None), true);
        prop_assert_eq!(again.0, Outcome::Nothing);
        let known = verified(version, &applied);
        let again = decide(version, &borrowed(&upstream), &[], &Observed::Unchanged(&known), true);
        prop_assert_eq!(again.0, Outcome::Nothing);
    }

    /// Without confirmation no plan leaves a Secret of ours without any key.
    #[test]
    fn nothing_is_blanked_unconfirmed(
        upstream in pairs(),
        data in pairs(),
        version in 0..9_i64,
        damaged in proptest::collection::btree_set("[AB]", 0..2),
    ) {
        let before = contents(&borrowed(&data), &data.keys().map(String::as_str).collect::<Vec<_>>());
        let damaged: Vec<&str> = damaged.iter().map(String::as_str).collect();
        let (outcome, _) = decide(version, &borrowed(&upstream), &damaged, &Observed::Read(&before, None), false);
        prop_assert!(data.is_empty() || outcome != apply(&[]));
    }
}
