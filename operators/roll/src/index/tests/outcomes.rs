use super::*;

const UID: &str = "uid of web";

/// Shows a version of the workload with this stamp.
fn show_stamped(index: &Index, version: u64, stamp: &str) {
    let mut object = workload("web", version, &json!({ ON_CHANGE: "true" }), &["db"]);
    object.template_annotations.insert(crate::annotations::STAMP.to_owned(), stamp.to_owned());
    drop(index.apply_workload(Shows::Event, WorkloadKind::Deployment, object, now()));
}

fn roll(index: &Index, version: &str, stamp: &str) {
    index.wrote(&key("web"), UID, version, String::new(), Some((stamp.to_owned(), now())));
}

fn is_awaited(index: &Index) -> bool {
    index.view(&key("web"), &digester(), now()).unwrap().snapshot.pods.awaited
}

#[test]
fn the_outcome_of_a_rollout_of_this_process_is_counted_once() {
    let index = index();
    show_stamped(&index, 1, "before");
    assert!(!is_awaited(&index), "an earlier process began it");
    roll(&index, "2", "stamp");
    assert!(is_awaited(&index));
    show_stamped(&index, 3, "stamp");
    assert!(is_awaited(&index), "its pods change");
    assert!(index.take_awaited(&key("web"), UID) && !index.take_awaited(&key("web"), UID), "once");
    assert!(!is_awaited(&index));
}

#[test]
fn the_outcome_is_counted_also_if_the_watch_is_ahead_of_the_answer() {
    let index = index();
    show_stamped(&index, 1, "before");
    show_stamped(&index, 3, "stamp");
    roll(&index, "2", "stamp");
    assert!(is_awaited(&index));
}

#[test]
fn the_outcome_of_a_template_of_another_client_is_not_counted() {
    let index = index();
    show_stamped(&index, 1, "before");
    roll(&index, "2", "stamp");
    show_stamped(&index, 3, "before");
    assert!(!is_awaited(&index), "the rollout was undone");
    show_stamped(&index, 5, "another");
    roll(&index, "4", "stamp");
    assert!(!is_awaited(&index), "another one came after it");
}
