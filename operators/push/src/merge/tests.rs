//! Keys of ours, of others and of nobody, and what becomes of each.

use konverge_vault::{Secret, VersionState};

use super::*;

fn owner(name: &str, uid: &str, instance: &str) -> Owner {
    let owned = str::to_owned;
    Owner { prefix: owned("vault-sync.io"), name: owned(name), uid: owned(uid), instance: owned(instance) }
}

fn us() -> Owner {
    owner("shop/VaultPush/us", "1", "here")
}

fn them() -> Owner {
    owner("shop/VaultPush/them", "2", "here")
}

fn content(fields: &[(&str, &str)]) -> Content {
    fields.iter().map(|(key, value)| ((*key).to_owned(), SecretValue::from((*value).to_owned()))).collect()
}

fn noted(marks: &[(&str, Owner)]) -> BTreeMap<String, String> {
    marks.iter().map(|(key, owner)| (name(owner, key), mark(owner))).collect()
}

fn found(fields: &[(&str, &str)], custom_metadata: BTreeMap<String, String>) -> Found {
    let version = VersionState {
        number: 3,
        created: "then".to_owned(),
        deletion: None,
        destroyed: false,
        age: None,
        custom_metadata,
    };
    Found::Live(Secret { content: content(fields), version: Some(version) })
}

fn recorded(keys: &[&str], pending: &[&str]) -> Written {
    let set = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect::<BTreeSet<_>>();
    Written { written: !keys.is_empty(), keys: Some(set(keys)), pending: set(pending), ..Written::default() }
}

fn shown(content: Option<&Content>) -> Option<Vec<String>> {
    let field = |(key, field): (&str, &Field)| format!("{key}={}", String::from_utf8_lossy(field.bytes()));
    content.map(|content| content.iter().map(field).collect())
}

/// The keys that are written, that get a mark or lose it (`-`), and that are taken over.
type Outcome = Result<(Option<Vec<String>>, Vec<String>, Vec<String>), Refusal>;

fn outcome(own: &[(&str, &str)], found: Found, recorded: &Written, existing: ExistingPolicy) -> Outcome {
    let merge = merge(&content(own), found, &us(), recorded, existing)?;
    let key = |(name, mark): (&String, &Option<String>)| {
        let key = name.rsplit('/').next().unwrap_or_default();
        if mark.is_some() { key.to_owned() } else { format!("-{key}") }
    };
    Ok((shown(merge.content.as_ref()), merge.marks.iter().map(key).collect(), merge.adopted))
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn p5_our_keys_are_written_among_those_of_others() {
    use ExistingPolicy::{Adopt, Refuse};
    let new = recorded(&[], &["a"]);
    let ours = recorded(&["a"], &[]);
    let both = recorded(&["a", "b"], &[]);
    let none = BTreeMap::new;
    let marked = || noted(&[("a", us())]);
    for (case, own, found, recorded, existing, written, marks, adopted) in [
        ("nothing there", &[("a", "1")][..], Found::Absent, &new, Refuse, Some(&["a=1"][..]), &["a"][..], &[][..]),
        ("theirs there", &[("a", "1")], found(&[("x", "y")], none()), &new, Refuse, Some(&["a=1", "x=y"]), &["a"], &[]),
        ("in sync", &[("a", "1")], found(&[("a", "1"), ("x", "y")], marked()), &ours, Refuse, None, &[], &[]),
        ("a write without its mark", &[("a", "1")], found(&[("a", "1")], none()), &new, Refuse, None, &["a"], &[]),
        (
            "changed",
            &[("a", "2")],
            found(&[("a", "1"), ("x", "y")], marked()),
            &ours,
            Refuse,
            Some(&["a=2", "x=y"]),
            &[],
            &[],
        ),
        (
            "changed, marks are not allowed",
            &[("a", "2")],
            found(&[("a", "1")], none()),
            &ours,
            Refuse,
            Some(&["a=2"]),
            &["a"],
            &[],
        ),
        (
            "one dropped",
            &[("b", "1")],
            found(&[("a", "1"), ("b", "1"), ("x", "y")], marked()),
            &both,
            Refuse,
            Some(&["b=1", "x=y"]),
            &["-a", "b"],
            &[],
        ),
        (
            "nobody's, taken over",
            &[("a", "1")],
            found(&[("a", "0")], none()),
            &new,
            Adopt,
            Some(&["a=1"]),
            &["a"],
            &["a"],
        ),
        (
            "deleted by somebody",
            &[("a", "1")],
            Found::Deleted(version(noted(&[("a", us())]))),
            &ours,
            Refuse,
            Some(&["a=1"]),
            &[],
            &[],
        ),
    ] {
        let expected = (written.map(strings), strings(marks), strings(adopted));
        assert_eq!(outcome(own, found, recorded, existing), Ok(expected), "{case}");
    }
}

fn version(custom_metadata: BTreeMap<String, String>) -> VersionState {
    VersionState { number: 3, created: "then".to_owned(), deletion: None, destroyed: false, age: None, custom_metadata }
}

#[test]
fn what_others_keep_is_refused() {
    let new = recorded(&[], &["a"]);
    let whole = |owner: &Owner| -> BTreeMap<String, String> {
        owner.mark().unwrap().into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    };
    let elsewhere = owner("shop/VaultPush/us", "1", "there");
    let foreign = |owner: &str| Refusal::ForeignKey { key: "a".to_owned(), owner: owner.to_owned() };
    for (case, found, expected) in [
        ("all of it", found(&[], whole(&them())), Refusal::Foreign("shop/VaultPush/them".to_owned())),
        ("a key", found(&[("a", "0")], noted(&[("a", them())])), foreign("shop/VaultPush/them")),
        (
            "a key of another installation",
            found(&[("a", "0")], noted(&[("a", elsewhere)])),
            foreign("shop/VaultPush/us of the installation there"),
        ),
        ("nobody's", found(&[("a", "0")], BTreeMap::new()), Refusal::ExistingKey("a".to_owned())),
    ] {
        assert_eq!(outcome(&[("a", "1")], found, &new, ExistingPolicy::Refuse), Err(expected), "{case}");
    }
    assert_eq!(other_keeper(&noted(&[("a", us()), ("b", them())]), &us()).as_deref(), Some("shop/VaultPush/them"));
    assert_eq!(other_keeper(&noted(&[("a", us())]), &us()), None);
}

#[test]
fn the_owners_of_a_path_are_read_from_their_marks() {
    let mut notes: BTreeMap<String, String> =
        us().mark().unwrap().into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    assert_eq!(owners(&notes, "vault-sync.io"), [(us(), None)]);
    for (key, mark) in [("a", "shop/VaultPush/x 1 one"), ("b", "shop/VaultPush/x 1 one"), ("c", "torn")] {
        notes.insert(format!("vault-sync.io/key/{key}"), mark.to_owned());
    }
    let keys = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    let other = Owner { instance: "one".to_owned(), ..owner("shop/VaultPush/x", "1", "one") };
    assert_eq!(owners(&notes, "vault-sync.io"), [(us(), None), (other, keys(&["a", "b"]))]);
    assert_eq!(owners(&notes, "other.io"), []);
}

#[test]
fn a_path_that_was_all_ours_becomes_one_of_many() {
    let whole = Written { written: true, ..Written::default() };
    let notes = us().mark().unwrap().into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let found = found(&[("a", "1"), ("old", "1")], notes);
    let (written, marks, _) = outcome(&[("a", "1")], found, &whole, ExistingPolicy::Refuse).unwrap();
    assert_eq!(written, Some(strings(&["a=1"])));
    assert_eq!(marks, ["-instance", "a", "-owner", "-uid"]);
}

#[test]
fn p11_what_goes_are_our_keys_and_no_other() {
    let fields = &[("a", "1"), ("b", "1"), ("x", "y")];
    let heir = owner("shop/VaultPush/us", "9", "here");
    for (case, notes, recorded, made, is_orphan, expected) in [
        (
            "marked",
            noted(&[("a", us()), ("b", them())]),
            recorded(&["a", "b"], &[]),
            None,
            false,
            Some(&["b=1", "x=y"][..]),
        ),
        ("marked, the record is lost", noted(&[("a", us())]), recorded(&[], &[]), None, false, Some(&["b=1", "x=y"])),
        ("written, marks are not allowed", noted(&[]), recorded(&["a", "b"], &[]), None, false, Some(&["x=y"])),
        (
            "begun, and what we would have made",
            noted(&[]),
            recorded(&[], &["a"]),
            Some(content(&[("a", "1")])),
            false,
            Some(&["b=1", "x=y"]),
        ),
        ("begun, and somebody else's", noted(&[]), recorded(&[], &["a"]), Some(content(&[("a", "2")])), false, None),
        ("begun, and nobody can tell", noted(&[]), recorded(&[], &["a"]), None, false, None),
        (
            "made anew under its name",
            noted(&[("a", heir.clone())]),
            recorded(&["a"], &[]),
            None,
            false,
            Some(&["b=1", "x=y"]),
        ),
        ("an orphan whose heir has it", noted(&[("a", heir)]), recorded(&["a"], &[]), None, true, None),
    ] {
        let removal = remove_keys(found(fields, notes), &us(), &recorded, made.as_ref(), is_orphan, &BTreeMap::new());
        assert_eq!(shown(removal.content.as_ref()), expected.map(strings), "{case}");
    }
    let removed = |heirs| {
        remove_keys(found(&[("a", "1")], noted(&[("a", us())])), &us(), &recorded(&["a"], &[]), None, false, heirs)
    };
    let alone = removed(&BTreeMap::new());
    assert!(alone.content.is_some_and(|content| content.is_empty()) && alone.marks.len() == 1);
}
