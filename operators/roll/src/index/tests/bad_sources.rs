use super::*;

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
        let Some(Verdict::Note(content)) = view.plan.verdict().cloned() else {
            panic!("{:?}", view.plan.verdict().cloned())
        };
        let record = Record::of_content(digester().tag(view.uid()), content, None);
        index.wrote(&key("web"), view.uid(), "2", record.text(), None);
    }
    index
}

fn changed(view: &View) -> Vec<String> {
    match view.plan.verdict() {
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
        assert_eq!(view(now()).plan.comparison.deferral, BTreeMap::new(), "{turn}");
        learn(&index, "bad", &turn.to_string(), &turn.to_string());
    }
    let until = Time::at(1060);
    let deferral = BTreeMap::from([(SourceName::secret("bad"), Deferral::RanAway(until))]);
    assert_eq!((changed(&view(now())), &view(now()).plan.comparison.deferral), (vec![], &deferral));
    assert_eq!(view(now()).plan.changed, None, "nor does it put others off by its own time");
    learn(&index, "good", "2", "y");
    assert_eq!((changed(&view(now())), &view(now()).plan.comparison.deferral), (strings(&["Secret/good"]), &deferral));
    // Its new record says nothing of a change of the other source.
    let Some(Verdict::Roll { content, .. }) = view(now()).plan.verdict().cloned() else { panic!() };
    let record = Record::of_content(digester().tag("uid of web"), content, None);
    index.wrote(&key("web"), "uid of web", "3", record.text(), None);
    assert_eq!((changed(&view(now())), &view(now()).plan.comparison.deferral), (vec![], &deferral));
    assert_eq!(changed(&view(until)), ["Secret/bad"], "it is quiet");
    learn(&index, "bad", "9", "0");
    assert_eq!(
        (changed(&view(now())), view(now()).plan.comparison.deferral),
        (vec![], BTreeMap::new()),
        "it came back to what it was"
    );
}

#[test]
fn a_source_that_may_not_be_read_keeps_no_other_back() {
    for is_recorded in [true, false] {
        let index = with_two_sources(is_recorded);
        let view = || index.view(&key("web"), &digester(), now()).unwrap();
        assert_eq!(view().plan.verdict().is_some(), is_recorded, "it is being read");
        let why = messages::refused(&SourceName::secret("bad"), &std::io::Error::other("no"));
        index.refuse(&secret("bad"), why.clone());
        // Somebody else begins to use it, so that what was read of it is in doubt.
        show(&index, "other", &json!({ ON_CHANGE: "true" }), &["bad"]);
        if !is_recorded {
            let Some(Verdict::Note(content)) = view().plan.verdict().cloned() else {
                panic!("{:?}", view().plan.verdict().cloned())
            };
            assert_eq!(content.keys().collect::<Vec<_>>(), ["Secret/good"]);
            let record = Record::of_content(digester().tag("uid of web"), content, None);
            index.wrote(&key("web"), "uid of web", "3", record.text(), None);
        }
        assert_eq!(changed(&view()), [""; 0]);
        learn(&index, "good", "2", "y");
        assert_eq!((changed(&view()), view().plan.refused), (strings(&["Secret/good"]), vec![why]));
        learn(&index, "bad", "2", "1");
        let expected: &[&str] = if is_recorded { &["Secret/bad", "Secret/good"] } else { &["Secret/good"] };
        assert_eq!(changed(&view()), expected, "what is seen for the first time rolls nothing");
    }
}
