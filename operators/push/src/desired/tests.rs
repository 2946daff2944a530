use base64::{Engine, engine::general_purpose::STANDARD};
use konverge_workload::{Keys, Usage};
use proptest::prelude::*;

use super::*;
use crate::{
    composition::{KeyChoice, Secrets},
    content::LARGEST,
};

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

/// A Secret `big` with a key of these bytes, and how the wanted content ends.
fn large(wanted: &Wanted, value: &[u8]) -> Result<Vec<usize>, Lack> {
    let sources = sources(vec![("big", Some(data(&[("k", value)])))]);
    match desired_at("", wanted, &sources, BinaryPolicy::Base64) {
        Target::Keep(lack) => Err(lack),
        Target::Content(made) => Ok(made.content.iter().map(|(_, field)| field.bytes().len()).collect()),
    }
}

#[test]
fn what_is_taken_many_times_over_is_not_made() {
    let half = LARGEST / 2;
    let composed = |keys: usize, template: Option<&str>| {
        let key = |number: usize| KeyChoice { secret: None, from: "k".to_owned(), to: Some(format!("{number:05}")) };
        Wanted::Composed(Composition {
            secrets: Secrets::Named(BTreeSet::from(["big".to_owned()])),
            apart: false,
            keys: (0..keys).map(key).collect(),
            prefix: String::new(),
            templates: template.map(|text| ("t".to_owned(), text.parse().unwrap())).into_iter().collect(),
        })
    };
    let list = |times: usize| Wanted::Chosen((0..times).map(|time| choice("big", &["k"], &time.to_string())).collect());
    let (text, no_text) = (vec![b'x'; half - 6], vec![0xff; half - 6]);
    for (wanted, value, made) in [
        (composed(2, None), &text, Some(vec![half - 6; 2])),
        (composed(3, None), &text, None),
        (composed(100, None), &text, None),
        (composed(1, None), &no_text, Some(vec![(half - 6).div_ceil(3) * 4])),
        (composed(2, None), &no_text, None),
        (composed(0, Some("${k}${k}")), &text, Some(vec![LARGEST - 12])),
        (composed(0, Some("${k}${k}twelve bytes")), &text, None),
        (composed(0, Some(&"${k}".repeat(4_096))), &text, None),
        (composed(0, Some("${k}${k}")), &no_text, None),
        (composed(2, Some("${k}")), &text, None),
        (list(2), &text, Some(vec![half - 6; 2])),
        (list(1_000), &text, None),
    ] {
        match large(&wanted, value) {
            Err(Lack::Large { size }) => assert!(made.is_none() && size > LARGEST, "{size}"),
            found => assert_eq!(found.ok(), made),
        }
    }
}

#[test]
fn of_two_values_with_one_key_only_the_later_takes_room() {
    let value = vec![b'x'; LARGEST - 10];
    let key = KeyChoice { secret: None, from: "k".to_owned(), to: Some("same".to_owned()) };
    let wanted = Wanted::Composed(Composition {
        secrets: Secrets::Named(BTreeSet::from(["big".to_owned()])),
        apart: false,
        keys: vec![key.clone(), key],
        prefix: String::new(),
        templates: BTreeMap::from([("same".to_owned(), "${k}!".parse().unwrap())]),
    });
    assert_eq!(large(&wanted, &value), Ok(vec![LARGEST - 9]));
}

#[test]
fn a_workload_wants_what_its_pods_use_and_registries_only_when_asked() {
    let references = References {
        secrets: BTreeMap::from([(
            "db".to_owned(),
            Usage { need: Need::Required, keys: Keys::All, required: BTreeSet::new() },
        )]),
        image_pull_secrets: BTreeSet::from(["registry".to_owned()]),
        ..References::default()
    };
    let all = |image_pull_secrets| Selection::All { image_pull_secrets };
    let names = |pull| Wanted::of_workload(&all(pull), &references).names().len();
    assert_eq!((names(false), names(true)), (1, 2));
    let chosen = Wanted::of_workload(&Selection::Chosen(vec![choice("api", &["a"], "")]), &references);
    assert_eq!(chosen.names(), BTreeSet::from(["api"]));
    assert_eq!(chosen.targets(), BTreeSet::from([""]));
    assert_eq!(Wanted::of_secret(&all(false), "own").names(), BTreeSet::from(["own"]));
}

proptest! {
    /// Bytes of any kind come back from Vault: as text, or decoded.
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
