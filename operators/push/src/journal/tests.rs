use jiff::Timestamp;
use k8s_openapi::ByteString;
use konverge_vault::{KvVersion, Mount, SecretPath};
use kube::api::ObjectMeta;

use super::{
    entry::{ENTRIES, KEY, spell},
    *,
};
use crate::{object::Kind, record::Written};

fn object(name: &str) -> ObjectRef {
    ObjectRef { kind: Kind::Secret, namespace: "shop".to_owned(), name: name.to_owned() }
}

fn intention(name: &str, uid: &str) -> Intention {
    let digest_key = Arc::new(DigestKey::new([1; 32]));
    let entry = Entry::new(&object(name), &Record::new(uid, Timestamp::UNIX_EPOCH), [], &digest_key);
    Intention::new(entry, digest_key)
}

#[test]
fn a_batch_goes_with_the_last_of_its_objects() {
    let mut state = State::default();
    state.note("one", object("a"), intention("a", "1"));
    state.note("one", object("b"), intention("b", "2"));
    // Noted again by another process, for an object that came after under its name.
    state.note("two", object("b"), intention("b", "3"));
    assert_eq!(state.resolve(&object("b")), ["two"]);
    assert_eq!(state.resolve(&object("b")), [""; 0], "it was resolved already");
    assert_eq!(state.resolve(&object("a")), ["one"]);
    assert!(state.left.is_empty() && state.noted.is_empty());
}

#[test]
fn what_was_begun_for_one_before_goes_when_it_left_nothing() {
    let with = |uid: &str, path: &str| {
        let location = Mount::new("secret", KvVersion::Two).location(&SecretPath::parse(path).unwrap()).unwrap();
        let mut record = Record::new(uid, Timestamp::UNIX_EPOCH);
        record.paths.insert(path.to_owned(), Written::intended(&location));
        record
    };
    let mut state = State::default();
    let digest_key = Arc::new(DigestKey::new([1; 32]));
    for (batch, uid, path) in
        [("one", "1", "secret/data/p"), ("two", "2", "secret/data/q"), ("three", "3", "secret/data/r")]
    {
        let entry = Entry::new(&object("a"), &with(uid, path), [], &digest_key);
        state.note(batch, object("a"), Intention::new(entry, Arc::clone(&digest_key)));
    }
    let mut now = with("3", "secret/data/q");
    now.paths.extend(with("3", "secret/data/r").paths);
    assert_eq!(
        state.resolve_others(&object("a"), &now),
        ["one"],
        "it has the path of the second, and is the third itself"
    );
    assert_eq!(state.resolve(&object("a")), ["two", "three"]);
    assert!(state.resolve_others(&object("a"), &now).is_empty() && state.noted.is_empty());
}

#[test]
fn a_batch_of_another_process_is_taken_over_whole() {
    let batch = |entries: ByteString| Secret {
        metadata: ObjectMeta { name: Some("one".to_owned()), ..ObjectMeta::default() },
        data: Some([(KEY.to_owned(), ByteString(vec![1; 32])), (ENTRIES.to_owned(), entries)].into()),
        ..Secret::default()
    };
    let mut state = State::default();
    let objects = state.take(batch(spell([&intention("a", "1"), &intention("b", "2")])));
    assert_eq!(objects, [object("a"), object("b")]);
    assert_eq!(state.resolve(&object("a")), [""; 0]);
    assert_eq!(state.resolve(&object("b")), ["one"]);
    assert_eq!(state.take(batch(ByteString(b"something else".to_vec()))), []);
    assert!(state.left.is_empty(), "it is left to whoever wrote it");
}
