mod classes;
mod lent;
mod taken;
mod triggers;
mod waiting;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::{
    decision::Verdict,
    declarations::{IGNORE, ON_CHANGE, ROLL_SELECTOR, ROLL_USERS},
    digest::Digester,
    object::SourceKind,
    wait::Back,
    waves::Turn,
};

const BREAKER: breaker::Settings =
    breaker::Settings { changes: 3, within: SignedDuration::from_secs(60), quiet: SignedDuration::from_secs(60) };

fn index() -> Index {
    Index::new(Others::default(), breaker::Settings { changes: 0, ..BREAKER })
}

/// One for which three changes within a minute are too many.
fn wary() -> Index {
    Index::new(Others::default(), BREAKER)
}

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

fn digester() -> Digester {
    Digester::new([7; 32])
}

fn key(name: &str) -> WorkloadRef {
    WorkloadRef { namespace: "shop".to_owned(), kind: WorkloadKind::Deployment, name: name.to_owned() }
}

fn secret(name: &str) -> SourceRef {
    SourceName::secret(name).of("shop")
}

/// A Deployment whose pods use these Secrets.
fn workload(name: &str, version: u64, annotations: &Value, secrets: &[&str]) -> Workload {
    let sources: Vec<_> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
    let object = json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
            "labels": { "app": name }, "annotations": annotations,
        },
        "spec": { "template": { "spec": { "containers": [{ "envFrom": sources }] } } },
    });
    serde_json::from_value(object).unwrap()
}

fn show(index: &Index, name: &str, annotations: &Value, secrets: &[&str]) -> (Vec<String>, Vec<String>) {
    shown(index.show(WorkloadKind::Deployment, workload(name, 1, annotations, secrets), now()).1)
}

fn show_secret(index: &Index, name: &str, version: &str, annotations: &Value) -> (Vec<String>, Vec<String>) {
    let metadata = json!({
        "namespace": "shop", "name": name, "uid": "s", "resourceVersion": version, "annotations": annotations,
    });
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
    shown(index.show_source(SourceKind::Secret, metadata).1)
}

fn shown(work: Work) -> (Vec<String>, Vec<String>) {
    let workloads = work.workloads.into_iter().map(|key| key.name).collect();
    (workloads, work.sources.into_iter().map(|source| source.name.name).collect())
}

fn learn(index: &Index, name: &str, version: &str, value: &str) -> (Vec<String>, bool) {
    index.reading(&secret(name));
    answered(index, name, version, value)
}

/// The answer to a read that began before.
fn answered(index: &Index, name: &str, version: &str, value: &str) -> (Vec<String>, bool) {
    let content = digester().of_content([("k", value.as_bytes())]);
    let learned = index.learn(&secret(name), Some(version.to_owned()), Some(content), now());
    (learned.users.into_iter().map(|key| key.name).collect(), learned.ran_away.is_some())
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn who_takes_no_part_leaves_no_trace() {
    let index = index();
    assert_eq!(show(&index, "web", &json!({}), &["db"]), (vec![], vec![]));
    assert_eq!(show_secret(&index, "db", "1", &json!({ "example.com/x": "y" })), (vec![], vec![]));
    assert!(index.view(&key("web"), &digester(), now()).is_none());
    let inner = index.lock();
    assert!(inner.sources.is_empty() && inner.users.is_empty());
}

#[test]
fn a_workload_is_read_for_once_and_woken_by_other_content_alone() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    assert_eq!(show(&index, "web", &all, &["db"]), (strings(&["web"]), strings(&["db"])));
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().verdict, None, "not read yet");
    assert_eq!(show(&index, "web", &all, &["db"]).1, ["db"], "asked for until it was read");
    assert_eq!(learn(&index, "db", "5", "x"), (strings(&["web"]), false));
    assert_eq!(show(&index, "web", &all, &["db"]).1, [""; 0]);
    assert_eq!(show(&index, "cart", &all, &["db"]), (strings(&["cart"]), strings(&["db"])), "it came after the read");
    assert_eq!(index.view(&key("cart"), &digester(), now()).unwrap().verdict, None, "what was read may be outdated");
    assert_eq!(answered(&index, "db", "5", "x"), (vec![], false), "it may have come after that, too");
    assert_eq!(learn(&index, "db", "5", "x"), (strings(&["cart", "web"]), false));
    assert_eq!(show(&index, "cart", &all, &["db"]).1, [""; 0]);
    assert_eq!(show_secret(&index, "db", "5", &json!({})), (vec![], vec![]), "in that version");
    assert_eq!(show_secret(&index, "db", "6", &json!({})), (vec![], strings(&["db"])));
    assert_eq!(learn(&index, "db", "6", "x"), (vec![], false), "only its metadata changed");
    assert_eq!(learn(&index, "db", "7", "y"), (strings(&["cart", "web"]), false));
    assert!(matches!(index.view(&key("web"), &digester(), now()).unwrap().verdict, Some(Verdict::Note(_))));
}

#[test]
fn a_source_asks_for_its_users_and_for_labels_whichever_comes_first() {
    for first in [true, false] {
        let index = index();
        let asks = json!({ ROLL_USERS: "true", ROLL_SELECTOR: "app=chosen" });
        if first {
            show_secret(&index, "db", "1", &asks);
        }
        show(&index, "web", &json!({}), &["db"]);
        show(&index, "chosen", &json!({}), &[]);
        show(&index, "left-alone", &json!({ ON_CHANGE: "false" }), &["db"]);
        show(&index, "other", &json!({}), &["api"]);
        if !first {
            assert_eq!(show_secret(&index, "db", "1", &asks), (strings(&["chosen", "web"]), strings(&["db"])));
        }
        assert_eq!(index.counts(), (2, 1));
        // It asks no more.
        show_secret(&index, "db", "2", &json!({}));
        assert_eq!(index.counts(), (0, 0));
        assert!(index.lock().sources.is_empty(), "and is forgotten");
    }
}

#[test]
fn what_is_gone_is_forgotten_and_another_of_its_name_is_another() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    let mut other = workload("web", 2, &all, &["db"]);
    other.metadata.uid = Some("other".to_owned());
    index.show(WorkloadKind::Deployment, other, now());
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().uid, "other");
    let (gone, _) = index.retain(WorkloadKind::Deployment, &HashSet::new());
    assert_eq!(gone, [key("web")]);
    let inner = index.lock();
    assert!(inner.workloads.is_empty() && inner.sources.is_empty() && inner.users.is_empty() && inner.named.is_empty());
}

#[test]
fn what_we_wrote_is_not_undone_by_an_older_event() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    let view = index.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content)) = view.verdict else { panic!("{:?}", view.verdict) };
    let record = Record { tag: digester().tag(&view.uid), content, rolled: None, because: None };
    index.wrote(&key("web"), &view.uid, "3", record.text(), None);
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().verdict, Some(Verdict::Nothing));
    index.show(WorkloadKind::Deployment, workload("web", 2, &all, &["db"]), now());
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().verdict, Some(Verdict::Nothing));
    // Somebody took it away.
    index.show(WorkloadKind::Deployment, workload("web", 4, &all, &["db"]), now());
    let taken = index.view(&key("web"), &digester(), now()).unwrap();
    assert!(matches!(taken.verdict, Some(Verdict::Note(_))));
}

#[test]
fn what_changes_while_it_is_read_for_the_first_time_is_read_again() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    index.reading(&secret("db"));
    assert_eq!(show_secret(&index, "db", "2", &json!({})).1, ["db"], "the answer on its way is that of version 1");
    answered(&index, "db", "1", "x");
    assert_eq!(show_secret(&index, "db", "1", &json!({})).1, [""; 0]);
}

/// The text of a record that says that the pods run with this value of `db`.
fn record_of(value: &str) -> String {
    let elsewhere = index();
    show(&elsewhere, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    learn(&elsewhere, "db", "1", value);
    let view = elsewhere.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content)) = view.verdict else { panic!("{:?}", view.verdict) };
    Record { tag: digester().tag(&view.uid), content, rolled: None, because: None }.text()
}

#[test]
fn what_another_has_rolled_for_is_read_again_before_it_is_rolled_back() {
    let index = index();
    let recorded = |version, value| {
        let annotations = json!({ ON_CHANGE: "true", RECORD: record_of(value) });
        index.show(WorkloadKind::Deployment, workload("web", version, &annotations, &["db"]), now());
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        (view.verdict, view.doubted)
    };
    let verdict = || index.view(&key("web"), &digester(), now()).unwrap().verdict;
    recorded(1, "x");
    learn(&index, "db", "1", "x");
    assert_eq!(verdict(), Some(Verdict::Nothing));
    assert_eq!(recorded(2, "y"), (None, vec![secret("db")]), "we have not seen what that is for");
    assert_eq!(answered(&index, "db", "1", "x"), (vec![], false), "a read that began before");
    assert_eq!(verdict(), None);
    assert_eq!(learn(&index, "db", "2", "y").0, ["web"]);
    assert_eq!(verdict(), Some(Verdict::Nothing));

    // It is what is there after all that counts, and the record of ours is none of another's.
    assert_eq!(recorded(3, "x"), (None, vec![secret("db")]));
    assert_eq!(learn(&index, "db", "2", "y").0, ["web"]);
    assert!(matches!(verdict(), Some(Verdict::Roll { .. })));
    index.writing(&key("web"), "uid of web", &record_of("y"));
    assert_eq!(recorded(4, "y").0, Some(Verdict::Nothing));
    learn(&index, "db", "5", "z");
    assert!(matches!(verdict(), Some(Verdict::Roll { .. })), "without another read");
}

#[test]
fn a_deleted_source_changes_nothing_until_it_is_back() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    learn(&index, "db", "1", "x");
    let view = index.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content)) = view.verdict else { panic!("{:?}", view.verdict) };
    let record = Record { tag: digester().tag(&view.uid), content, rolled: None, because: None };
    index.wrote(&key("web"), &view.uid, "2", record.text(), None);
    let verdict = || index.view(&key("web"), &digester(), now()).unwrap().verdict.unwrap();
    index.forget_source(&secret("db"), now());
    assert_eq!(verdict(), Verdict::Nothing);
    assert_eq!(show_secret(&index, "db", "9", &json!({})).1, ["db"]);
    learn(&index, "db", "9", "x");
    assert_eq!(verdict(), Verdict::Nothing);
    learn(&index, "db", "10", "y");
    assert!(matches!(verdict(), Verdict::Roll { .. }));
}

#[test]
fn a_source_that_runs_away_says_so_once() {
    let index = wary();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    let told: Vec<_> = (0..6).map(|turn| learn(&index, "db", &turn.to_string(), &turn.to_string()).1).collect();
    assert_eq!(told, [false, false, false, true, false, false]);
}

/// A Deployment that uses `good` and `bad`, and with what of both its pods run.
fn with_two_sources(record: bool) -> Index {
    let index = wary();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["bad", "good"]);
    learn(&index, "good", "1", "x");
    if record {
        learn(&index, "bad", "1", "0");
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        let Some(Verdict::Note(content)) = view.verdict else { panic!("{:?}", view.verdict) };
        let record = Record { tag: digester().tag(&view.uid), content, rolled: None, because: None };
        index.wrote(&key("web"), &view.uid, "2", record.text(), None);
    }
    index
}

fn changed(view: &View) -> Vec<String> {
    match &view.verdict {
        Some(Verdict::Roll { changed, .. }) => changed.clone(),
        Some(Verdict::Nothing | Verdict::Note(_)) => Vec::new(),
        None => panic!("it is not known what to do"),
    }
}

#[test]
fn a_source_that_runs_away_keeps_no_other_back() {
    let index = with_two_sources(true);
    let view = |now| index.view(&key("web"), &digester(), now).unwrap();
    for turn in 1..=3 {
        assert_eq!(view(now()).back, BTreeMap::new(), "{turn}");
        learn(&index, "bad", &turn.to_string(), &turn.to_string());
    }
    let until = Timestamp::from_second(1060).unwrap();
    let back = BTreeMap::from([(SourceName::secret("bad"), Back::RanAway(until))]);
    assert_eq!((changed(&view(now())), &view(now()).back), (vec![], &back));
    assert_eq!(view(now()).changed, None, "nor does it put others off by its own time");
    learn(&index, "good", "2", "y");
    assert_eq!((changed(&view(now())), &view(now()).back), (strings(&["Secret/good"]), &back));
    // What it is rolled with says nothing of a change of the other.
    let Some(Verdict::Roll { content, .. }) = view(now()).verdict else { panic!() };
    let record = Record { tag: digester().tag("uid of web"), content, rolled: None, because: None };
    index.wrote(&key("web"), "uid of web", "3", record.text(), None);
    assert_eq!((changed(&view(now())), &view(now()).back), (vec![], &back));
    assert_eq!(changed(&view(until)), ["Secret/bad"], "it is quiet");
    learn(&index, "bad", "9", "0");
    assert_eq!((changed(&view(now())), view(now()).back), (vec![], BTreeMap::new()), "it came back to what it was");
}

#[test]
fn a_source_that_may_not_be_read_keeps_no_other_back() {
    for is_recorded in [true, false] {
        let index = with_two_sources(is_recorded);
        let view = || index.view(&key("web"), &digester(), now()).unwrap();
        assert_eq!(view().verdict.is_some(), is_recorded, "it is being read");
        let why = Message::refused(&SourceName::secret("bad"), &std::io::Error::other("no"));
        index.refuse(&secret("bad"), why.clone());
        // Somebody else begins to use it, so that what was read of it is in doubt.
        show(&index, "other", &json!({ ON_CHANGE: "true" }), &["bad"]);
        if !is_recorded {
            let Some(Verdict::Note(content)) = view().verdict else { panic!("{:?}", view().verdict) };
            assert_eq!(content.keys().collect::<Vec<_>>(), ["Secret/good"]);
            let record = Record { tag: digester().tag("uid of web"), content, rolled: None, because: None };
            index.wrote(&key("web"), "uid of web", "3", record.text(), None);
        }
        assert_eq!(changed(&view()), [""; 0]);
        learn(&index, "good", "2", "y");
        assert_eq!((changed(&view()), view().refused), (strings(&["Secret/good"]), vec![why]));
        learn(&index, "bad", "2", "1");
        let expected: &[&str] = if is_recorded { &["Secret/bad", "Secret/good"] } else { &["Secret/good"] };
        assert_eq!(changed(&view()), expected, "what is seen for the first time rolls nothing");
    }
}

#[test]
fn who_uses_what_may_not_be_read_is_told_once_and_again_when_it_is_read() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    let why = |text: &'static str| Message::refused(&SourceName::secret("db"), &std::io::Error::other(text));
    let refuse = |text| index.refuse(&secret("db"), why(text)).into_iter().map(|key| key.name).collect::<Vec<_>>();
    let refused = |name| index.view(&key(name), &digester(), now()).unwrap().refused;
    assert_eq!((refuse("no"), refuse("no")), (strings(&["web"]), vec![]));
    assert_eq!(refuse("never"), ["web"]);
    show(&index, "cart", &all, &["db"]);
    assert_eq!((refused("web"), refused("cart")), (vec![why("never")], vec![why("never")]));
    assert_eq!(learn(&index, "db", "1", "x").0, ["cart", "web"], "as it was, but it is known to be");
    assert_eq!(refused("web"), []);
    assert_eq!(learn(&index, "db", "2", "x").0, [""; 0]);
    assert!(index.refuse(&secret("nobody's"), why("no")).is_empty());
}

#[test]
fn bad_annotations_are_told_once_and_end_nothing_else() {
    let index = index();
    let bad = json!({ ROLL_USERS: "perhaps" });
    let metadata = |version: &str| {
        let metadata = json!({
            "namespace": "shop", "name": "db", "uid": "s", "resourceVersion": version, "annotations": bad,
        });
        serde_json::from_value::<ObjectMeta>(metadata).unwrap()
    };
    assert!(index.show_source(SourceKind::Secret, metadata("1")).1.invalid.is_some());
    assert!(index.show_source(SourceKind::Secret, metadata("2")).1.invalid.is_none());
    assert_eq!(show(&index, "web", &json!({ ON_CHANGE: "maybe" }), &["db"]), (strings(&["web"]), vec![]));
    assert!(index.view(&key("web"), &digester(), now()).unwrap().asks.is_err());
    let all = json!({ ON_CHANGE: "true" });
    let read = |secrets: &[&str]| (strings(&["cart"]), strings(secrets));
    assert_eq!(show(&index, "cart", &all, &["db", "good"]), read(&["good"]), "it may ask to be let alone");
    assert_eq!(show_secret(&index, "db", "3", &json!({ IGNORE: "True" })), (vec![], vec![]));
    let everybody = (strings(&["cart", "web"]), strings(&["db", "good"]));
    assert_eq!(show_secret(&index, "db", "4", &json!({})), everybody, "it asks for nothing");
}

#[test]
fn what_was_read_while_a_list_was_on_its_way_is_not_taken_for_gone() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    // The page with it came while nobody used it.
    let there = index.sources_there(SourceKind::Secret);
    assert_eq!(show_secret(&index, "db", "1", &json!({})), (vec![], vec![]));
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    assert_eq!(there.len(), 0);
    assert_eq!(index.retain_sources(there), Work::default());
    let is_noted = |name| matches!(index.view(&key(name), &digester(), now()).unwrap().verdict, Some(Verdict::Note(_)));
    assert!(is_noted("web"));
    assert_eq!(show_secret(&index, "db", "2", &json!({})).1, ["db"], "it is followed");

    // One that was used, used by nobody while its page passed, and used again.
    let there = index.sources_there(SourceKind::Secret);
    assert_eq!(there.iter().collect::<Vec<_>>(), [&secret("db")]);
    let work = index.retain_sources(there);
    assert_eq!(work.sources.into_iter().collect::<Vec<_>>(), [secret("db")], "it is read again, and not forgotten");
    assert!(is_noted("web"));
    index.learn(&secret("db"), None, None, now());
    assert!(is_noted("web"), "as missing");
}

#[test]
fn what_a_list_does_not_show_asks_for_nothing() {
    let index = index();
    show(&index, "web", &json!({}), &["db"]);
    show_secret(&index, "db", "1", &json!({ ROLL_USERS: "true" }));
    learn(&index, "db", "1", "x");
    assert_eq!(index.counts(), (1, 1));
    let work = index.retain_sources(index.sources_there(SourceKind::Secret));
    assert_eq!((index.counts(), work.sources.len()), ((0, 0), 0));
    assert!(index.lock().sources.is_empty());
}

#[test]
fn one_that_was_rolled_is_under_way_before_a_watch_shows_it() {
    let index = index();
    let shown = |version: u64, progress: &str| {
        let record = index.lock().workloads.get(&key("web")).and_then(|known| known.record.clone()).unwrap_or_default();
        let annotations = json!({ ON_CHANGE: "true", RECORD: record });
        let mut object = json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": version.to_string(), "generation": 2,
                "annotations": annotations,
            },
            "spec": { "template": { "spec": { "containers": [{ "envFrom": [{ "secretRef": { "name": "db" } }] }] } } },
        });
        let seen = if progress == "ready" { 2 } else { 1 };
        object["status"] =
            json!({ "observedGeneration": seen, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1 });
        index.show(WorkloadKind::Deployment, serde_json::from_value(object).unwrap(), now());
    };
    shown(1, "ready");
    learn(&index, "db", "1", "x");
    let standing = || {
        let longest = SignedDuration::from_mins(10);
        let peers = index.lock().peers(&key("other"), 1, &[SourceName::secret("db")], &digester(), (now(), longest));
        (peers[0].in_step, peers[0].progress, index.view(&key("web"), &digester(), now()).unwrap().running)
    };
    let write = |version: &str, stamped: bool| {
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        let Some(Verdict::Note(content) | Verdict::Roll { content, .. }) = view.verdict else {
            panic!("{:?}", view.verdict)
        };
        let record = Record { tag: digester().tag(&view.uid), content, rolled: stamped.then(now), because: None };
        index.wrote(&key("web"), &view.uid, version, record.text(), stamped.then(|| ("stamp".to_owned(), now())));
    };
    write("2", false);
    assert_eq!(standing(), (true, Progress::Ready, None), "only noted");
    learn(&index, "db", "2", "y");
    assert_eq!(standing(), (false, Progress::Ready, None));
    write("3", true);
    assert_eq!(standing(), (true, Progress::Running, Some(now())));
    shown(3, "ready");
    assert_eq!(standing(), (true, Progress::Ready, None), "as one whose next run has it");
    learn(&index, "db", "3", "z");
    // The watch was quicker than the answer.
    shown(4, "ready");
    write("4", true);
    assert_eq!(standing(), (true, Progress::Ready, None), "what is shown is so");
}

#[test]
fn what_a_list_or_an_answer_shows_is_so_also_if_it_is_older() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    let shown = |shows, version, secret| {
        let workload = workload("web", version, &all, &[secret]);
        index.show_by(shows, WorkloadKind::Deployment, workload, now());
        index.view(&key("web"), &digester(), now()).unwrap().version
    };
    assert_eq!(shown(Shows::List, 1000, "db"), "1000");
    assert_eq!(shown(Shows::Event, 500, "db"), "1000", "it comes late");
    assert_eq!(shown(Shows::Answer("900"), 500, "db"), "1000", "an event was quicker than the answer");
    // The storage was restored from a backup.
    assert_eq!(shown(Shows::Answer("1000"), 500, "api"), "500");
    assert_eq!(
        index.view(&key("web"), &digester(), now()).unwrap().uses.keys().cloned().collect::<Vec<_>>(),
        [SourceName::secret("api")]
    );
    assert_eq!(shown(Shows::Event, 501, "db"), "501", "it goes on from there");
    assert_eq!(shown(Shows::List, 400, "db"), "400");
}

#[test]
fn one_that_takes_no_part_any_more_is_looked_at_once_more() {
    let index = index();
    let woken = |version, annotations: &Value| {
        let (_, work) = index.show(WorkloadKind::Deployment, workload("web", version, annotations, &["db"]), now());
        shown(work).0
    };
    assert_eq!(woken(1, &json!({ ON_CHANGE: "true" })), ["web"]);
    assert_eq!(woken(2, &json!({})), ["web"], "it may have to leave a place");
    assert_eq!(woken(3, &json!({})), [""; 0]);
}

#[test]
fn one_that_left_waits_no_more() {
    let index = index();
    show(&index, "web", &json!({ ON_CHANGE: "true" }), &["db"]);
    index.pending(&key("web"), "uid of web", Some((now(), None)));
    assert_eq!(index.waiting(), (Some(now()), 1));
    index.show(WorkloadKind::Deployment, workload("web", 2, &json!({}), &["db"]), now());
    index.leave(&key("web"));
    assert_eq!(index.waiting(), (None, 0));
}

#[test]
fn a_change_that_waits_is_not_settled_by_another_choice_of_keys() {
    let verdict = |index: &Index| index.view(&key("web"), &digester(), now()).unwrap().verdict.unwrap();
    let is_roll = |index: &Index| matches!(verdict(index), Verdict::Roll { changed, .. } if changed == ["Secret/db"]);
    let asks = |index: &Index, version, what: &str, record: &str| {
        let annotations = json!({ ON_CHANGE: what, RECORD: record });
        index.show(WorkloadKind::Deployment, workload("web", version, &annotations, &["db"]), now());
    };
    for (before, after) in
        [("secret/db:k", "secret/db:k,secret/db:l"), ("true", "secret/db:k"), ("secret/db:l", "true")]
    {
        let index = index();
        asks(&index, 1, before, "");
        learn_pair(&index, "1", "x");
        let Verdict::Note(content) = verdict(&index) else { panic!("{before}") };
        let record = Record { tag: digester().tag("uid of web"), content, rolled: None, because: None }.text();
        asks(&index, 2, before, &record);
        learn_pair(&index, "1", "x");
        asks(&index, 3, after, &record);
        assert!(matches!(verdict(&index), Verdict::Note(_)), "nothing has changed: {before} {after}");
        learn_pair(&index, "2", "y");
        assert!(is_roll(&index), "{before} {after}");
        learn_pair(&index, "3", "x");
        assert!(matches!(verdict(&index), Verdict::Note(_)), "it is what it was: {before} {after}");
        learn_pair(&index, "4", "y");
        // And over others that nobody noted.
        asks(&index, 4, "secret/db:other", &record);
        asks(&index, 5, after, &record);
        assert!(is_roll(&index), "{before} {after}");

        // After a restart only what is chosen most often is known.
        let anew = crate::index::tests::index();
        asks(&anew, 5, after, &record);
        learn_pair(&anew, "4", "y");
        assert_eq!(is_roll(&anew), before == "true", "{before} {after}");
    }
}

/// Both keys of `db` have this value.
fn learn_pair(index: &Index, version: &str, value: &str) {
    index.reading(&secret("db"));
    let content = digester().of_content([("k", value.as_bytes()), ("l", value.as_bytes())]);
    index.learn(&secret("db"), Some(version.to_owned()), Some(content), now());
}

#[test]
fn who_waits_for_its_turn_is_woken_by_whom_it_waits_for_when_that_stands_otherwise() {
    let index = index();
    let shown_as = |name: &str, version: u64, wave: &str, more: &str| {
        let annotations = json!({ ON_CHANGE: "true", "roll.konverge.dev/wave": wave, "example.com/more": more });
        let work = index.show(WorkloadKind::Deployment, workload(name, version, &annotations, &["db"]), now()).1;
        let mut others = shown(work).0;
        others.retain(|other| other != name);
        others
    };
    for (name, wave) in [("first", "0"), ("other", "0"), ("late", "1"), ("later", "1")] {
        shown_as(name, 1, wave, "");
    }
    let turn = |name: &str| {
        let longest = SignedDuration::from_mins(10);
        index.turn(&key(name), 1, &[SourceName::secret("db")], &digester(), (now(), longest))
    };
    for name in ["late", "later"] {
        assert_eq!(turn(name), Turn::After(key("other")), "nothing was read yet");
    }
    assert_eq!(shown_as("first", 2, "0", "x"), [""; 0], "nobody waits for it");
    assert_eq!(shown_as("other", 2, "0", "x"), [""; 0], "it stands as it did");
    assert_eq!(shown_as("other", 3, "2", ""), ["late", "later"], "it is of a later wave by now");
    assert_eq!(turn("late"), Turn::After(key("first")));
    index.needs_no_turn(&key("later"));
    assert_eq!(shown(index.forget(&key("first"))).0, ["late"]);
    assert_eq!(turn("late"), Turn::Now);
    assert_eq!(shown(index.forget(&key("other"))).0, [""; 0]);
}

#[test]
fn a_wave_that_hangs_is_told_after_its_time_whatever_it_hangs_on() {
    let longest = SignedDuration::from_mins(10);
    let at = |minutes: i64| now() + SignedDuration::from_mins(minutes);
    let shown = |index: &Index, version: u64, available: u64, record: &str, minutes| {
        let annotations = json!({ ON_CHANGE: "true", RECORD: record });
        let object = json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "uid of web", "resourceVersion": version.to_string(), "generation": 1,
                "annotations": annotations,
            },
            "spec": { "template": { "spec": { "containers": [{ "envFrom": [{ "secretRef": { "name": "db" } }] }] } } },
            "status": { "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available },
        });
        index.show(WorkloadKind::Deployment, serde_json::from_value(object).unwrap(), at(minutes));
        index.view(&key("web"), &digester(), at(minutes)).unwrap()
    };
    let turn = |index: &Index, minutes| {
        index.turn(&key("late"), 1, &[SourceName::secret("db")], &digester(), (at(minutes), longest))
    };
    let (after, halted) = (|| Turn::After(key("web")), || Turn::Halted(key("web")));

    // It was never rolled by us, and its pods are not there.
    let index = index();
    shown(&index, 1, 0, &record_of("x"), 0);
    learn(&index, "db", "1", "x");
    assert_eq!(turn(&index, 9), after());
    shown(&index, 2, 1, &record_of("x"), 9);
    assert_eq!(turn(&index, 11), Turn::Now, "they came");
    shown(&index, 3, 0, &record_of("x"), 12);
    assert_eq!((turn(&index, 21), turn(&index, 23)), (after(), halted()));

    // It was rolled long ago, and its pods went by themselves.
    let mut rolled = Record::of_any(&record_of("x")).unwrap();
    rolled.rolled = Some(at(0));
    shown(&index, 4, 1, &rolled.text(), 24);
    shown(&index, 5, 0, &rolled.text(), 25);
    assert_eq!((turn(&index, 26), turn(&index, 34), turn(&index, 36)), (after(), after(), halted()));

    // Its patch is refused.
    shown(&index, 6, 1, &record_of("x"), 30);
    learn(&index, "db", "2", "y");
    assert_eq!(turn(&index, 50), after(), "it may be held back by the budget");
    let refused = || vec![Message::ran_away()];
    index.say(&key("web"), "uid of web", refused(), at(50));
    index.say(&key("web"), "uid of web", refused(), at(55));
    shown(&index, 7, 1, &record_of("x"), 56);
    assert_eq!((turn(&index, 59), turn(&index, 61)), (after(), halted()));
    index.say(&key("web"), "uid of web", Vec::new(), at(62));
    assert_eq!(turn(&index, 63), after());

    // It cannot be read.
    let index = crate::index::tests::index();
    assert_eq!(shown(&index, 1, 1, "", 0).verdict, None);
    index.view(&key("web"), &digester(), at(5));
    assert_eq!((turn(&index, 9), turn(&index, 11)), (after(), halted()));
}
