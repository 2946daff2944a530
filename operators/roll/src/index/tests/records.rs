use super::*;

#[test]
fn what_we_wrote_is_not_undone_by_an_older_event() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    show(&index, "web", &all, &["db"]);
    learn(&index, "db", "1", "x");
    let view = index.view(&key("web"), &digester(), now()).unwrap();
    let Some(Verdict::Note(content)) = view.plan.verdict().cloned() else {
        panic!("{:?}", view.plan.verdict().cloned())
    };
    let record = Record::of_content(digester().tag(view.uid()), content, None);
    index.wrote(&key("web"), view.uid(), "3", record.text(), None);
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned(), Some(Verdict::Nothing));
    index.apply_workload(Shows::Event, WorkloadKind::Deployment, workload("web", 2, &all, &["db"]), now());
    assert_eq!(index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned(), Some(Verdict::Nothing));
    // Somebody took it away.
    index.apply_workload(Shows::Event, WorkloadKind::Deployment, workload("web", 4, &all, &["db"]), now());
    let taken = index.view(&key("web"), &digester(), now()).unwrap();
    assert!(matches!(taken.plan.verdict().cloned(), Some(Verdict::Note(_))));
}

#[test]
fn what_another_has_rolled_for_is_read_again_before_it_is_rolled_back() {
    let index = index();
    let recorded = |version, value| {
        let annotations = json!({ ON_CHANGE: "true", RECORD: record_of(value) });
        index.apply_workload(
            Shows::Event,
            WorkloadKind::Deployment,
            workload("web", version, &annotations, &["db"]),
            now(),
        );
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        (view.plan.verdict().cloned(), view.plan.doubted)
    };
    let verdict = || index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned();
    recorded(1, "x");
    learn(&index, "db", "1", "x");
    assert_eq!(verdict(), Some(Verdict::Nothing));
    assert_eq!(recorded(2, "y"), (None, vec![secret("db")]), "we have not seen what that is for");
    assert_eq!(answered(&index, "db", "1", "x"), (vec![], false), "a read that began before");
    assert_eq!(verdict(), None);
    assert_eq!(learn(&index, "db", "2", "y").0, ["web"]);
    assert_eq!(verdict(), Some(Verdict::Nothing));

    // The content that exists counts, and our own record is not taken for that of another leader.
    assert_eq!(recorded(3, "x"), (None, vec![secret("db")]));
    assert_eq!(learn(&index, "db", "2", "y").0, ["web"]);
    assert!(matches!(verdict(), Some(Verdict::Roll { .. })));
    index.writing(&key("web"), "uid of web", &record_of("y"));
    assert_eq!(recorded(4, "y").0, Some(Verdict::Nothing));
    learn(&index, "db", "5", "z");
    assert!(matches!(verdict(), Some(Verdict::Roll { .. })), "without another read");
}

#[test]
fn what_a_list_or_an_answer_shows_is_so_also_if_it_is_older() {
    let index = index();
    let all = json!({ ON_CHANGE: "true" });
    let shown = |shows, version, secret| {
        let workload = workload("web", version, &all, &[secret]);
        index.apply_workload(shows, WorkloadKind::Deployment, workload, now());
        index.view(&key("web"), &digester(), now()).unwrap().observed().version.clone()
    };
    assert_eq!(shown(Shows::List, 1000, "db"), "1000");
    assert_eq!(shown(Shows::Event, 500, "db"), "1000", "it comes late");
    assert_eq!(shown(Shows::Answer("900"), 500, "db"), "1000", "an event was quicker than the answer");
    // The storage was restored from a backup.
    assert_eq!(shown(Shows::Answer("1000"), 500, "api"), "500");
    assert_eq!(
        index.view(&key("web"), &digester(), now()).unwrap().uses().keys().cloned().collect::<Vec<_>>(),
        [SourceName::secret("api")]
    );
    assert_eq!(shown(Shows::Event, 501, "db"), "501", "it goes on from there");
    assert_eq!(shown(Shows::List, 400, "db"), "400");
}

#[test]
fn a_change_that_waits_is_not_settled_by_another_choice_of_keys() {
    let verdict = |index: &Index| index.view(&key("web"), &digester(), now()).unwrap().plan.verdict().cloned().unwrap();
    let is_roll = |index: &Index| matches!(verdict(index), Verdict::Roll { changed, .. } if changed == ["Secret/db"]);
    let spec = |index: &Index, version, what: &str, record: &str| {
        let annotations = json!({ ON_CHANGE: what, RECORD: record });
        index.apply_workload(
            Shows::Event,
            WorkloadKind::Deployment,
            workload("web", version, &annotations, &["db"]),
            now(),
        );
    };
    for (before, after) in
        [("secret/db:k", "secret/db:k,secret/db:l"), ("true", "secret/db:k"), ("secret/db:l", "true")]
    {
        let index = index();
        spec(&index, 1, before, "");
        learn_pair(&index, "1", "x");
        let Verdict::Note(content) = verdict(&index) else { panic!("{before}") };
        let record = Record::of_content(digester().tag("uid of web"), content, None).text();
        spec(&index, 2, before, &record);
        learn_pair(&index, "1", "x");
        spec(&index, 3, after, &record);
        assert!(matches!(verdict(&index), Verdict::Note(_)), "nothing has changed: {before} {after}");
        learn_pair(&index, "2", "y");
        assert!(is_roll(&index), "{before} {after}");
        learn_pair(&index, "3", "x");
        assert!(matches!(verdict(&index), Verdict::Note(_)), "it is what it was: {before} {after}");
        learn_pair(&index, "4", "y");
        // And over others that nobody noted.
        spec(&index, 4, "secret/db:other", &record);
        spec(&index, 5, after, &record);
        assert!(is_roll(&index), "{before} {after}");

        // After a restart only what is chosen most often is known.
        let anew = crate::index::tests::index();
        spec(&anew, 5, after, &record);
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
