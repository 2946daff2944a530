use super::*;

#[test]
fn a_rollout_whose_answer_was_lost_is_told_once_when_it_is_shown() {
    let index = index();
    let shown = |version: u64, stamp: Option<&str>| {
        let mut object = workload("web", version, &json!({ ON_CHANGE: "true" }), &["db"]);
        // As it comes from the API server.
        object.template_annotations.extend(stamp.map(|stamp| (crate::annotations::STAMP.to_owned(), stamp.to_owned())));
        index.apply_workload(Shows::Event, WorkloadKind::Deployment, object, now());
    };
    let acknowledged = || index.take_acknowledged(&key("web"), "uid of web").map(|unacknowledged| unacknowledged.why);
    let lost = |version: &str, why: &str| {
        let (version, stamp, why) = (version.to_owned(), "stamp".to_owned(), why.to_owned());
        let unacknowledged = UnacknowledgedRollout { version, stamp, why, changed: Vec::new(), seen: None };
        index.set_unacknowledged(&key("web"), "uid of web", unacknowledged);
    };
    shown(1, None);
    lost("1", "lost");
    assert_eq!(acknowledged(), None, "it is not shown yet");
    shown(2, Some("stamp"));
    assert_eq!((acknowledged(), acknowledged()), (Some("lost".to_owned()), None), "once");

    // It was never done, and the next one is answered.
    shown(3, None);
    lost("3", "never done");
    shown(4, None);
    assert_eq!(acknowledged(), None);
    shown(5, Some("stamp"));
    assert_eq!(acknowledged(), None, "that one has been told of by who was answered");
    shown(6, None);
    lost("6", "done at the second attempt");
    index.wrote(&key("web"), "uid of web", "7", String::new(), Some(("stamp".to_owned(), now())));
    assert_eq!(acknowledged(), None, "as that was");
}
