use kube::core::SelectorExt;
use proptest::prelude::*;

use super::*;

const NONE: Others = Others { reloader: None, wave: false };
const EVERYBODY: Others = Others::ALL;

fn annotations(pairs: &[(&str, &str)]) -> Annotations {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn workload(pairs: &[(&str, &str)], others: Others) -> Result<WorkloadSpec, Invalid> {
    WorkloadSpec::read(&annotations(pairs), &Annotations::new(), "shop", others)
}

fn named(keys: Option<&[&str]>, rule: Rule) -> Named {
    Named { keys: keys.map(|keys| Keys::Some(keys.iter().map(|key| (*key).to_owned()).collect())), rule }
}

#[test]
fn our_words() {
    assert_eq!(workload(&[], EVERYBODY), Ok(WorkloadSpec::default()));
    let all = workload(&[(ON_CHANGE, "true")], NONE).unwrap();
    assert_eq!(all.all.len(), 2);
    assert!(workload(&[(ON_CHANGE, "false")], NONE).unwrap().never);
    let some = workload(&[(ON_CHANGE, "secret/db:a, secret/db:b,configmap/app,secret/x:k,secret/x")], NONE).unwrap();
    let expected = [
        (SourceName::secret("db"), named(Some(&["a", "b"]), ON_CHANGE)),
        (SourceName::secret("x"), named(None, ON_CHANGE)),
        (SourceName::config_map("app"), named(None, ON_CHANGE)),
    ];
    assert_eq!(some.named, BTreeMap::from(expected));
    let set = workload(&[(MIN_INTERVAL, "1h30m"), (WAVE, "-2"), (PAUSE, "true")], NONE).unwrap();
    assert_eq!((set.min_interval, set.wave, set.paused), (Some(SignedDuration::from_mins(90)), -2, true));
}

#[test]
fn zopps_word_is_for_secrets_and_says_nothing_unless_it_is_true() {
    let spec = workload(&[("zopp.dev/reload", "true")], NONE).unwrap();
    assert_eq!((spec.zopp, spec.all), (true, BTreeMap::from([(SourceKind::Secret, ZOPP_RELOAD)])));
    assert_eq!(workload(&[("zopp.dev/reload", "yes")], NONE), Ok(WorkloadSpec::default()));
}

#[test]
fn the_words_of_others_count_when_the_platform_says_so() {
    let reloader = [
        ("reloader.stakater.com/auto", "true"),
        ("secret.reloader.stakater.com/reload", "a, b"),
        ("configmap.reloader.stakater.com/reload", "c"),
        ("configmaps.exclude.reloader.stakater.com/reload", "d"),
        ("reloader.stakater.com/search", "true"),
        ("deployment.reloader.stakater.com/pause-period", "5m"),
    ];
    assert_eq!(workload(&reloader, NONE), Ok(WorkloadSpec::default()));
    let spec = workload(&reloader, EVERYBODY).unwrap();
    assert_eq!(spec.all.len(), 2);
    let names: Vec<_> = spec.named.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["Secret/a", "Secret/b", "ConfigMap/c"]);
    assert_eq!(spec.except, BTreeSet::from([SourceName::config_map("d")]));
    assert_eq!(spec.matching.len(), 2);
    assert_eq!(spec.min_interval, Some(SignedDuration::from_mins(5)));

    let only = |annotation| workload(&[(annotation, "true")], EVERYBODY).unwrap().all.into_keys().collect::<Vec<_>>();
    assert_eq!(only("secret.reloader.stakater.com/auto"), [SourceKind::Secret]);
    assert_eq!(only("configmap.reloader.stakater.com/auto"), [SourceKind::ConfigMap]);
    assert_eq!(only("wave.pusher.com/update-on-config-change").len(), 2);

    let pods = annotations(&[("reloader.stakater.com/auto", "true")]);
    assert_eq!(WorkloadSpec::read(&Annotations::new(), &pods, "shop", EVERYBODY).unwrap().all.len(), 2);
    let own = annotations(&[("reloader.stakater.com/auto", "false")]);
    assert!(WorkloadSpec::read(&own, &pods, "shop", EVERYBODY).unwrap().all.is_empty(), "the workload's word is first");

    let wave = [
        ("wave.pusher.com/update-on-config-change", "true"),
        ("wave.pusher.com/extra-secrets", "shop/a,b"),
        ("wave.pusher.com/extra-configmaps", "shop/c"),
    ];
    let names: Vec<_> = workload(&wave, EVERYBODY).unwrap().named.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["Secret/a", "Secret/b", "ConfigMap/c"]);
}

/// An annotation of ours, and the one of Reloader or wave that means the same.
#[test]
fn the_words_of_others_are_read_as_they_read_them() {
    let all = |annotation, word| workload(&[(annotation, word)], EVERYBODY).map(|spec| spec.all.len());
    for (words, expected) in [
        (["1", "t", "T", "TRUE", "true", "True"].as_slice(), 2),
        (&["0", "f", "F", "FALSE", "false", "False", "", "yes", "tRUE", " true"], 0),
    ] {
        for word in words {
            assert_eq!(all("reloader.stakater.com/auto", word), Ok(expected), "auto: {word:?}");
        }
    }
    for (word, expected) in [("true", true), ("True", false), ("1", false), ("yes", false), ("", false)] {
        let found = all("wave.pusher.com/update-on-config-change", word);
        assert_eq!(found, Ok(if expected { 2 } else { 0 }), "wave: {word:?}");
        let search = workload(&[("reloader.stakater.com/search", word)], EVERYBODY).unwrap();
        assert_eq!(search.requests_rollouts(), expected, "search: {word:?}");
        for annotation in ["reloader.stakater.com/match", "reloader.stakater.com/ignore"] {
            let source = SourceSpec::read(&annotations(&[(annotation, word)]), EVERYBODY).unwrap();
            assert_eq!(source.matches || source.ignored, expected, "{annotation}: {word:?}");
        }
    }

    let (reload, except) = ("secret.reloader.stakater.com/reload", "secrets.exclude.reloader.stakater.com/reload");
    let named = |pairs: &[(&str, &str)]| {
        let spec = workload(pairs, EVERYBODY).unwrap();
        spec.named.keys().map(|source| source.name.clone()).collect::<Vec<_>>().join(" ")
    };
    for (pairs, expected) in [
        ([(reload, "a,"), (except, "")], "a"),
        ([(reload, ", b ,,a"), (except, ",")], "a b"),
        ([(reload, "a,b"), (except, "b,")], "a"),
        ([(ON_CHANGE, "secret/b"), (except, "b")], "b"),
    ] {
        assert_eq!(named(&pairs), expected, "{pairs:?}");
    }
    let update = ("wave.pusher.com/update-on-config-change", "true");
    assert_eq!(named(&[update, ("wave.pusher.com/extra-secrets", "a,,shop/b,")]), "a b");
}

#[test]
fn reloaders_words_on_the_pods_count_for_a_kind_of_which_the_workload_says_nothing() {
    use SourceKind::{ConfigMap, Secret};
    let pods = annotations(&[
        ("reloader.stakater.com/auto", "true"),
        ("reloader.stakater.com/search", "true"),
        ("secrets.exclude.reloader.stakater.com/reload", "never"),
    ]);
    for (own, expected) in [
        ([].as_slice(), [Secret, ConfigMap].as_slice()),
        (&[("secret.reloader.stakater.com/reload", "a")], &[ConfigMap]),
        (&[("configmap.reloader.stakater.com/auto", "false")], &[Secret]),
        (&[("reloader.stakater.com/search", "no")], &[]),
        (&[("configmaps.exclude.reloader.stakater.com/reload", "a")], &[Secret, ConfigMap]),
    ] {
        let spec = WorkloadSpec::read(&annotations(own), &pods, "shop", EVERYBODY).unwrap();
        assert_eq!(spec.all.keys().copied().collect::<Vec<_>>(), expected, "auto beside {own:?}");
        assert_eq!(spec.matching.keys().copied().collect::<Vec<_>>(), expected, "search beside {own:?}");
        assert!(!spec.except.contains(&SourceName::secret("never")), "only the workload leaves out");
    }
}

#[test]
fn with_reloaders_auto_reload_all_a_workload_has_opted_in_unless_it_says_no() {
    use SourceKind::{ConfigMap, Secret};
    let all = Others { reloader: Some(Reloader { auto_reload_all: true, ..Reloader::DEFAULT }), wave: false };
    for (own, expected) in [
        ([].as_slice(), [Secret, ConfigMap].as_slice()),
        (&[("reloader.stakater.com/auto", "")], &[Secret, ConfigMap]),
        (&[("reloader.stakater.com/auto", "false")], &[]),
        (&[("secret.reloader.stakater.com/auto", "false")], &[ConfigMap]),
        (&[("secret.reloader.stakater.com/auto", "true")], &[Secret, ConfigMap]),
        (&[("secret.reloader.stakater.com/reload", "a")], &[Secret, ConfigMap]),
    ] {
        let spec = workload(own, all).unwrap();
        assert_eq!(spec.all.keys().copied().collect::<Vec<_>>(), expected, "{own:?}");
        assert!(workload(own, EVERYBODY).unwrap().all.len() < 2, "without the setting: {own:?}");
    }
    assert!(workload(&[(ON_CHANGE, "false")], all).unwrap().never);
}

#[test]
fn what_a_source_asks_for() {
    let source = |pairs: &[(&str, &str)], others| SourceSpec::read(&annotations(pairs), others);
    assert!(source(&[("example.com/x", "y")], EVERYBODY).unwrap().is_silent());
    assert!(source(&[(ROLL_USERS, "true")], NONE).unwrap().users);
    assert!(source(&[(IGNORE, "true")], NONE).unwrap().ignored);
    let selector = source(&[(ROLL_SELECTOR, "app=web, tier=front")], NONE).unwrap().selector.unwrap();
    assert!(selector.matches(&annotations(&[("app", "web"), ("tier", "front"), ("x", "y")])));
    assert!(!selector.matches(&annotations(&[("app", "web")])));
    let reloader = [("reloader.stakater.com/match", "true"), ("reloader.stakater.com/ignore", "true")];
    assert!(source(&reloader, NONE).unwrap().is_silent());
    let spec = source(&reloader, EVERYBODY).unwrap();
    assert!(spec.matches && spec.ignored);
}

#[test]
fn bad_input_is_named() {
    for (annotation, value, part) in [
        (ON_CHANGE, "", "names nothing"),
        (ON_CHANGE, "yes", "\"yes\" names nothing"),
        (ON_CHANGE, "pod/x", "\"pod\" is neither secret nor configmap"),
        (ON_CHANGE, "secret/../x", "\"../x\" is no name"),
        (ON_CHANGE, "secret/other/db", "\"other/db\" is no name"),
        (ON_CHANGE, "secret/db:a b", "\"a b\" is no key"),
        (ON_CHANGE, "secret/db,", "\"\" names nothing"),
        (MIN_INTERVAL, "soon", "span of time"),
        (MIN_INTERVAL, "-5m", "span of time"),
        (WAVE, "first", "whole number"),
        (PAUSE, "yes", "\"true\" or \"false\""),
        ("secret.reloader.stakater.com/reload", "db-.*", "patterns are not understood"),
        ("configmaps.exclude.reloader.stakater.com/reload", "a,App", "\"App\" is no name"),
    ] {
        let told = workload(&[(annotation, value)], EVERYBODY).unwrap_err().to_string();
        assert!(told.contains(annotation) && told.contains(part), "{annotation}={value}: {told}");
    }
    let foreign = [("wave.pusher.com/update-on-config-change", "true"), ("wave.pusher.com/extra-secrets", "other/a")];
    assert!(workload(&foreign, EVERYBODY).unwrap_err().to_string().contains("another namespace"));
    for (annotation, value, part) in [
        (ROLL_USERS, "all", "\"true\" or \"false\""),
        (ROLL_SELECTOR, "app", "app=web"),
        (ROLL_SELECTOR, "app!=web", "app=web"),
    ] {
        let told = SourceSpec::read(&annotations(&[(annotation, value)]), NONE).unwrap_err().to_string();
        assert!(told.contains(annotation) && told.contains(part), "{annotation}={value}: {told}");
    }
}

#[test]
fn an_error_shows_only_the_beginning() {
    let told = workload(&[(WAVE, &"x".repeat(100_000))], NONE).unwrap_err().to_string();
    assert!(told.len() < 300, "{}", told.len());
}

proptest! {
    /// Any text gives an answer, and never a source of another namespace or an invalid name.
    #[test]
    fn any_text_is_read_or_named(text in "[a-z/:,.=! *-]{0,24}") {
        for annotation in [ON_CHANGE, MIN_INTERVAL, WAVE, "secret.reloader.stakater.com/reload"] {
            match workload(&[(annotation, &text)], EVERYBODY) {
                Ok(spec) => prop_assert!(spec.named.keys().all(|source| !source.name.contains(['/', ':', ',', ' ']))),
                Err(error) => prop_assert_eq!(error.annotation, annotation),
            }
        }
    }
}
