use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::api::ObjectMeta;

use super::{
    entry::{ENTRIES, KEY, spell},
    *,
};
use crate::object::Kind;

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
