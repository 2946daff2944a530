use konverge_workload::{Keys, Usage};
use proptest::prelude::*;

use super::*;

fn data(fields: &[(&str, &[u8])]) -> BTreeMap<String, SecretValue> {
    fields.iter().map(|(key, value)| ((*key).to_owned(), SecretValue::new(value.to_vec()))).collect()
}

fn sources(secrets: Vec<(&str, Option<BTreeMap<String, SecretValue>>)>) -> Sources {
    secrets.into_iter().map(|(name, data)| (name.to_owned(), data)).collect()
}

fn choice(name: &str, keys: &[&str], prefix: &str) -> Choice {
    Choice {
        name: name.to_owned(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        prefix: prefix.to_owned(),
    }
}

/// Content as text, or why there is none.
fn shown(target: &Target) -> Result<Vec<String>, Lack> {
    match target {
        Target::Keep(lack) => Err(lack.clone()),
        Target::Content(made) => {
            let field = |(key, field): (&str, &konverge_vault::Field)| {
                format!("{key}={}", String::from_utf8_lossy(field.bytes()))
            };
            Ok(made.content.iter().map(field).collect())
        }
    }
}

#[test]
fn each_secret_of_a_workload_has_its_own_path_and_its_own_trouble() {
    let wanted = Wanted::Each(BTreeMap::from([
        ("db".to_owned(), Need::Required),
        ("gone".to_owned(), Need::Required),
        ("maybe".to_owned(), Need::Optional),
        ("void".to_owned(), Need::Required),
    ]));
    let sources = sources(vec![
        ("db", Some(data(&[("password", b"p"), ("user", b"u")]))),
        ("gone", None),
        ("maybe", None),
        ("void", Some(data(&[]))),
    ]);
    let made = desired(&wanted, &sources, BinaryPolicy::Base64);
    assert_eq!(shown(&made["db"]).unwrap(), ["password=p", "user=u"]);
    assert_eq!(shown(&made["gone"]), Err(Lack::Secret { name: "gone".to_owned(), optional: false }));
    assert_eq!(shown(&made["maybe"]), Err(Lack::Secret { name: "maybe".to_owned(), optional: true }));
    assert_eq!(shown(&made["void"]), Err(Lack::Empty));
}

#[test]
fn chosen_keys_are_merged_with_their_prefixes() {
    let wanted = Wanted::Chosen(vec![
        choice("db", &["user"], "db_"),
        choice("db", &["user"], ""),
        choice("api", &["user", "key"], ""),
    ]);
    let sources = sources(vec![
        ("db", Some(data(&[("user", b"d"), ("other", b"o")]))),
        ("api", Some(data(&[("user", b"a"), ("key", b"k")]))),
    ]);
    let made = desired(&wanted, &sources, BinaryPolicy::Base64);
    assert_eq!(shown(&made[""]).unwrap(), ["db_user=d", "key=k", "user=a"], "the later of two counts");
}

#[test]
fn a_part_is_not_taken_for_the_whole() {
    let sources = sources(vec![("db", Some(data(&[("user", b"d")]))), ("gone", None)]);
    for (choices, lack) in [
        (
            vec![choice("db", &["user", "pass"], "")],
            Lack::Key { secret: "db".to_owned(), key: "pass".to_owned(), available: vec!["user".to_owned()] },
        ),
        (
            vec![choice("db", &["user"], ""), choice("gone", &["a"], "")],
            Lack::Secret { name: "gone".to_owned(), optional: false },
        ),
        (vec![choice("db", &[], "")], Lack::Empty),
        (vec![], Lack::Empty),
    ] {
        assert_eq!(shown(&desired(&Wanted::Chosen(choices), &sources, BinaryPolicy::Base64)[""]), Err(lack));
    }
}

#[test]
fn w13_what_is_no_text_is_encoded_or_refused_and_never_changed_silently() {
    let wanted = Wanted::Whole("keys".to_owned());
    let sources = sources(vec![("keys", Some(data(&[("der", &[0xfe, 0xed, 0x00]), ("text", "é".as_bytes())])))]);
    let made = desired(&wanted, &sources, BinaryPolicy::Base64);
    assert_eq!(shown(&made[""]).unwrap(), ["der=/u0A", "text=é"]);
    assert!(matches!(&made[""], Target::Content(made) if made.encoded == ["der"]));
    let refused = desired(&wanted, &sources, BinaryPolicy::Refuse);
    assert_eq!(shown(&refused[""]), Err(Lack::Binary { key: "der".to_owned() }));
}

#[test]
fn a_workload_wants_what_its_pods_use_and_registries_only_when_asked() {
    let references = References {
        secrets: BTreeMap::from([("db".to_owned(), Usage { need: Need::Required, keys: Keys::All })]),
        image_pull_secrets: BTreeSet::from(["registry".to_owned()]),
        ..References::default()
    };
    let names = |pull| Wanted::of_workload(&Selection::All, &references, pull).names().len();
    assert_eq!((names(false), names(true)), (1, 2));
    let chosen = Wanted::of_workload(&Selection::Chosen(vec![choice("api", &["a"], "")]), &references, true);
    assert_eq!(chosen.names(), BTreeSet::from(["api"]));
    assert_eq!(chosen.targets(), BTreeSet::from([""]));
    assert_eq!(Wanted::of_secret(&Selection::All, "own").names(), BTreeSet::from(["own"]));
}

proptest! {
    /// Whatever the bytes, what is in Vault gives them back: as text, or decoded.
    #[test]
    fn every_value_survives(value in proptest::collection::vec(any::<u8>(), 0..64)) {
        let sources = sources(vec![("a", Some(data(&[("k", &value)])))]);
        let made = desired(&Wanted::Whole("a".to_owned()), &sources, BinaryPolicy::Base64);
        let Target::Content(made) = &made[""] else { return Err(TestCaseError::fail("nothing made")) };
        let written = made.content.get("k").unwrap().bytes();
        let back = if made.encoded.is_empty() { written.to_vec() } else { STANDARD.decode(written).unwrap() };
        prop_assert!(std::str::from_utf8(written).is_ok());
        prop_assert_eq!(back, value);
    }
}
