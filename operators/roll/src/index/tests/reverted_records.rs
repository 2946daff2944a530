use jiff::Timestamp;
use konverge_workload::Keys;

use super::*;

/// The Deployment `web` as a watch shows it in this version, with this record.
fn show_with(index: &Index, version: u64, record: Option<&str>, shows: Shows<'_>) {
    let mut annotations = json!({ ON_CHANGE: "true" });
    if let Some(record) = record {
        annotations[RECORD] = record.into();
    }
    drop(index.apply_workload(shows, WorkloadKind::Deployment, workload("web", version, &annotations, &["db"]), now()));
}

/// A record of this content of the Secret.
fn record_of(value: &str, rolled: Option<i64>) -> String {
    let content = digester().of_content([("k", value.as_bytes())]);
    let entry = digester().entry("uid of web", &SourceName::secret("db"), &Keys::All, Some(&content));
    Record {
        tag: digester().tag("uid of web"),
        content: [("Secret/db".to_owned(), entry)].into(),
        rolled: rolled.map(|second| Timestamp::from_second(second).unwrap()),
        because: None,
        also: Vec::new(),
        failed: None,
    }
    .text()
}

fn word(index: &Index) -> &'static str {
    match index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned() {
        None => "unknown",
        Some(Verdict::Nothing) => "nothing",
        Some(Verdict::Note(_)) => "note",
        Some(Verdict::Roll { .. }) => "roll",
    }
}

/// A Deployment that runs with `y`, for which it was rolled, and which is what there is.
fn rolled() -> Index {
    let index = index();
    show_with(&index, 2, Some(&record_of("y", Some(500))), Shows::Event);
    learn(&index, "db", "1", "y");
    assert_eq!(word(&index), "nothing");
    index
}

#[test]
fn a_record_that_is_taken_away_or_set_back_rolls_nothing_and_is_written_again() {
    for (what, shown) in [
        ("taken away", None),
        ("no record", Some("x".to_owned())),
        ("that of a manifest", Some(record_of("x", Some(400)))),
        ("that of an older manifest", Some(record_of("x", None))),
    ] {
        let index = rolled();
        show_with(&index, 3, shown.as_deref(), Shows::Event);
        assert_eq!(word(&index), "note", "{what}");
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        assert_eq!(
            view.plan.comparison.record.unwrap().rolled.map(Timestamp::as_second),
            Some(500),
            "{what}: the least interval holds"
        );
        index.wrote(&key("web"), "uid of web", "4", record_of("y", Some(500)), None);
        assert_eq!(word(&index), "nothing", "{what}");
        show_with(&index, 5, shown.as_deref(), Shows::Event);
        learn(&index, "db", "2", "z");
        // The writer of the old record may have seen newer content, so the source is read again.
        assert!(["unknown", "roll"].contains(&word(&index)), "{what}");
        learn(&index, "db", "2", "z");
        assert_eq!(word(&index), "roll", "{what}, and a change");
    }
}

#[test]
fn what_another_has_rolled_or_a_backup_has_brought_counts() {
    let index = rolled();
    show_with(&index, 3, Some(&record_of("z", Some(600))), Shows::Event);
    learn(&index, "db", "2", "z");
    assert_eq!(word(&index), "nothing", "another has rolled it");
    let index = rolled();
    show_with(&index, 1, Some(&record_of("x", Some(400))), Shows::List);
    index.view(&key("web"), &digester(), now()).unwrap();
    learn(&index, "db", "1", "x");
    assert_eq!(word(&index), "nothing", "all of it was restored");
}

#[test]
fn who_takes_it_again_and_again_is_contradicted_later_and_later() {
    let index = rolled();
    let view = || index.view(&key("web"), &digester(), now()).unwrap();
    for (turn, expected) in (1..).zip([None, None, None, Some(1), Some(2), Some(4)]) {
        show_with(&index, 2 * turn + 1, None, Shows::Event);
        let pause = view().plan.contested_until.map(|until| until.since(now()).as_secs());
        assert_eq!(pause, expected, "{turn}");
        assert!(!view().plan.comparison.is_noted);
        index.wrote(&key("web"), "uid of web", &(2 * turn + 2).to_string(), record_of("y", Some(500)), None);
        assert!(view().plan.comparison.is_noted);
    }
}
