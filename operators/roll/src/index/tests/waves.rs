use konverge_workload::{Keys, Progress};
use proptest::prelude::*;

use super::{
    triggers::{asking, learn_vault, source, trigger},
    *,
};
use crate::{
    definition::{Baseline, Status},
    trigger::{Before, WaitFor},
    vault::SecretState,
};

#[test]
fn one_that_was_rolled_is_under_way_before_a_watch_shows_it() {
    let index = index();
    let shown = |version: u64, progress: &str| {
        let record =
            index.lock().workloads.get(&key("web")).and_then(|known| known.record.shown.clone()).unwrap_or_default();
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
        index.apply_workload(Shows::Event, WorkloadKind::Deployment, serde_json::from_value(object).unwrap(), now());
    };
    shown(1, "ready");
    learn(&index, "db", "1", "x");
    let progress = || {
        let rollout_timeout = SignedDuration::from_mins(10);
        let at = QueueRef { namespace: "shop", source: &SourceName::secret("db"), wave: 1 };
        let snapshot = index.lock().peer(&key("web"), at).unwrap();
        let peer = plan::peer(&snapshot, &digester(), now(), rollout_timeout);
        (peer.in_sync, peer.progress)
    };
    let write = |version: &str, stamped: bool| {
        let view = index.view(&key("web"), &digester(), now()).unwrap();
        let Some(Verdict::Note(content) | Verdict::Roll { content, .. }) = view.plan.verdict().cloned() else {
            panic!("{:?}", view.plan.verdict().cloned())
        };
        let record = Record {
            tag: digester().tag(view.uid()),
            content,
            rolled: stamped.then(|| now().wall()),
            because: None,
            also: Vec::new(),
            failed: None,
        };
        index.wrote(&key("web"), view.uid(), version, record.text(), stamped.then(|| ("stamp".to_owned(), now())));
    };
    write("2", false);
    assert_eq!(progress(), (true, Progress::Ready), "only noted");
    learn(&index, "db", "2", "y");
    assert_eq!(progress(), (false, Progress::Ready));
    write("3", true);
    assert_eq!(progress(), (true, Progress::Running));
    shown(3, "ready");
    assert_eq!(progress(), (true, Progress::Ready), "as one whose next run has it");
    learn(&index, "db", "3", "z");
    // The watch was quicker than the answer.
    shown(4, "ready");
    write("4", true);
    assert_eq!(progress(), (true, Progress::Ready), "what is shown is so");
}

#[test]
fn who_waits_for_its_turn_is_woken_by_whom_it_waits_for_when_that_stands_otherwise() {
    let index = index();
    let shown_as = |name: &str, version: u64, wave: &str, more: &str| {
        let annotations = json!({ ON_CHANGE: "true", "roll.konverge.dev/wave": wave, "example.com/more": more });
        let work = index
            .apply_workload(
                Shows::Event,
                WorkloadKind::Deployment,
                workload(name, version, &annotations, &["db"]),
                now(),
            )
            .1;
        let mut others = shown(work).0;
        others.retain(|other| other != name);
        others
    };
    for (name, wave) in [("first", "0"), ("other", "0"), ("late", "1"), ("later", "1")] {
        shown_as(name, 1, wave, "");
    }
    let turn = |name: &str| {
        let rollout_timeout = SignedDuration::from_mins(10);
        index.wave_gate(&key(name), 1, &[SourceName::secret("db")], &digester(), (now(), rollout_timeout))
    };
    for name in ["late", "later"] {
        assert_eq!(turn(name), WaveGate::After(key("other")), "nothing was read yet");
    }
    assert_eq!(shown_as("first", 2, "0", "x"), [""; 0], "nobody waits for it");
    assert_eq!(shown_as("other", 2, "0", "x"), [""; 0], "it stands as it did");
    assert_eq!(shown_as("other", 3, "2", ""), ["late", "later"], "it is of a later wave by now");
    assert_eq!(turn("late"), WaveGate::After(key("first")));
    index.waits_for_nothing(&key("later"));
    assert_eq!(shown(index.forget(&key("first"))).0, ["late"]);
    assert_eq!(turn("late"), WaveGate::Now);
    assert_eq!(shown(index.forget(&key("other"))).0, [""; 0]);
}

#[test]
fn a_wave_that_hangs_is_told_after_its_time_whatever_it_hangs_on() {
    let rollout_timeout = SignedDuration::from_mins(10);
    let at = |minutes: i64| now().later(SignedDuration::from_mins(minutes));
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
        index.apply_workload(
            Shows::Event,
            WorkloadKind::Deployment,
            serde_json::from_value(object).unwrap(),
            at(minutes),
        );
        index.view(&key("web"), &digester(), at(minutes)).unwrap()
    };
    let turn = |index: &Index, minutes| {
        index.wave_gate(&key("late"), 1, &[SourceName::secret("db")], &digester(), (at(minutes), rollout_timeout))
    };
    let (after, halted) = (|| WaveGate::After(key("web")), || WaveGate::Halted(key("web")));

    // It was never rolled by us, and its pods are not there.
    let index = index();
    shown(&index, 1, 0, &record_of("x"), 0);
    learn(&index, "db", "1", "x");
    assert_eq!(turn(&index, 9), after());
    shown(&index, 2, 1, &record_of("x"), 9);
    assert_eq!(turn(&index, 11), WaveGate::Now, "they came");
    shown(&index, 3, 0, &record_of("x"), 12);
    assert_eq!((turn(&index, 21), turn(&index, 23)), (after(), halted()));

    // It was rolled long ago, and its pods went by themselves.
    let mut rolled = Record::of_any(&record_of("x")).unwrap();
    rolled.rolled = Some(at(0).wall());
    shown(&index, 4, 1, &rolled.text(), 24);
    shown(&index, 5, 0, &rolled.text(), 25);
    assert_eq!((turn(&index, 26), turn(&index, 34), turn(&index, 36)), (after(), after(), halted()));

    // Its patch is refused.
    shown(&index, 6, 1, &record_of("x"), 30);
    learn(&index, "db", "2", "y");
    assert_eq!(turn(&index, 50), after(), "it may be held back by the budget");
    let refused = || vec![messages::ran_away(&SourceName::secret("db"))];
    index.report(&key("web"), "uid of web", refused(), at(50));
    index.report(&key("web"), "uid of web", refused(), at(55));
    shown(&index, 7, 1, &record_of("x"), 56);
    assert_eq!((turn(&index, 59), turn(&index, 61)), (after(), halted()));
    index.report(&key("web"), "uid of web", Vec::new(), at(62));
    assert_eq!(turn(&index, 63), after());

    // It cannot be read.
    let index = crate::index::tests::index();
    assert_eq!(shown(&index, 1, 1, "", 0).plan.verdict().cloned(), None);
    index.view(&key("web"), &digester(), at(5));
    assert_eq!((turn(&index, 9), turn(&index, 11)), (after(), halted()));
}

/// That a workload runs with this version, as an object notes it.
fn noted(name: &str, version: u64) -> Status {
    let baseline = Baseline {
        workload: key(name).to_string(),
        uid: format!("uid of {name}"),
        source: source().to_string(),
        version,
        created: format!("2026-01-0{version}T00:00:00Z"),
    };
    Status { baseline: vec![baseline], ..Status::default() }
}

#[test]
fn what_an_object_notes_counts_for_who_waits() {
    let index = index();
    show(&index, "web", &json!({}), &[]);
    let mut spec = asking(1, 60);
    Arc::make_mut(spec.spec.as_mut().unwrap()).before = Before::Other;
    index.apply_trigger(Shows::Event, trigger("shop"), spec);
    learn_vault(&index, 1);
    let turn = || index.wave_gate(&key("late"), 1, &[source()], &digester(), (now(), SignedDuration::from_mins(10)));
    assert_eq!(turn(), WaveGate::After(key("web")), "it is to be rolled");
    index.update_trigger(&trigger("shop"), "t", |shown| shown.status = Arc::new(noted("web", 1)));
    assert_eq!(turn(), WaveGate::Now, "it runs with that");
}

/// A random event of a workload or of a source that it uses.
fn happens(index: &Index, what: usize, name: &str, number: u64, at: Time) {
    let lot = usize::try_from(number % 8).unwrap();
    let known = |of: &dyn Fn(&WorkloadState) -> Option<String>| {
        index.lock().workloads.get(&key(name)).and_then(|known| of(known))
    };
    let version =
        || known(&|known| Some(known.observed.version.clone())).and_then(|text| text.parse().ok()).unwrap_or(0_u64) + 1;
    let secret_name = ["db", "api"][lot % 2];
    match what {
        0 => {
            let record = known(&|known| known.record.shown.clone()).filter(|_| lot != 7);
            let wave = (lot % 3).to_string();
            let annotations =
                json!({ ON_CHANGE: "true", "roll.konverge.dev/wave": wave, RECORD: record.unwrap_or_default() });
            let mut object = workload(name, version(), &annotations, &["db", "api"][..=usize::from(lot < 6)]);
            object.rollout.progress = [Progress::Ready, Progress::Running, Progress::Unready, Progress::Failed]
                [usize::try_from(number / 8 % 4).unwrap()];
            index.apply_workload(Shows::Event, WorkloadKind::Deployment, object, at);
        }
        1 => {
            index.reading(&secret(secret_name));
            let content = digester().of_content([("k", ["x", "y", "z"][lot % 3].as_bytes())]);
            index.learn(&secret(secret_name), Some(number.to_string()), Some(content), at);
        }
        2 => {
            let why = messages::refused(&SourceName::secret(secret_name), &std::io::Error::other(number.to_string()));
            index.refuse(&secret(secret_name), why);
        }
        3 => drop(index.report(
            &key(name),
            &format!("uid of {name}"),
            if lot < 4 { vec![messages::ran_away(&SourceName::secret("db"))] } else { vec![] },
            at,
        )),
        4 => {
            let Some(view) = index.view(&key(name), &digester(), at) else { return };
            let Some(Verdict::Note(content) | Verdict::Roll { content, .. }) = view.plan.verdict().cloned() else {
                return;
            };
            let is_rolled = lot < 4;
            let record = Record {
                tag: digester().tag(view.uid()),
                content,
                rolled: is_rolled.then_some(at.wall()),
                because: None,
                also: Vec::new(),
                failed: None,
            };
            let stamp = is_rolled.then(|| (number.to_string(), at));
            index.wrote(&key(name), view.uid(), &version().to_string(), record.text(), stamp);
        }
        5 if lot == 0 => drop(index.forget(&key(name))),
        5 => drop(index.forget_source(&secret(secret_name), at)),
        6 if lot == 0 => drop(index.forget_trigger(&trigger("shop"))),
        6 => {
            let mut shown = asking(number, 60);
            let spec = Arc::make_mut(shown.spec.as_mut().unwrap());
            spec.suspended = lot < 2;
            spec.targets.insert(key(name));
            spec.before = if lot % 2 == 0 { Before::Other } else { Before::Adopted };
            let wait_for = WaitFor {
                secret: SourceName::secret("db"),
                keys: Keys::All,
                timeout: SignedDuration::from_mins(3),
                holds: lot % 4 == 3,
            };
            spec.wait_for = (lot > 5).then_some(wait_for);
            drop(index.apply_trigger(Shows::Event, trigger("shop"), shown));
        }
        7 if lot == 0 => drop(index.learn_vault(&source().of("shop"), SecretState::Missing, None, at)),
        7 => drop(learn_vault(index, number % 5 + 1)),
        8 => drop(show_secret(
            index,
            secret_name,
            &number.to_string(),
            &json!({ IGNORE: if lot < 4 { "true" } else { "false" } }),
        )),
        9 => {
            let status = if lot < 6 { noted(name, number % 5 + 1) } else { Status::default() };
            index.update_trigger(&trigger("shop"), "t", |shown| shown.status = Arc::new(status));
        }
        _ => drop(index.retain_triggers(crate::trigger::TriggerKind::ALL[lot % 2], &HashSet::from([trigger("shop")]))),
    }
}

proptest! {
    /// After any events in any order, the gate says what a look at all workloads says. In tests, `turn` itself asserts that.
    #[test]
    fn a_line_that_is_kept_tells_what_is_so(
        steps in proptest::collection::vec((0..11_usize, 0..4_usize, any::<u64>(), 0..7_i64), 1..80),
    ) {
        let index = wary();
        let mut at = now();
        for (what, name, number, minutes) in steps {
            at = at.later(SignedDuration::from_mins(minutes / 4));
            happens(&index, what, ["a", "b", "c", "web"][name], number, at);
            let sources = [SourceName::secret("db"), SourceName::secret("api"), source()];
            for wave in 0..3 {
                index.wave_gate(&key("late"), wave, &sources, &digester(), (at, SignedDuration::from_mins(2)));
            }
        }
    }
}
