//! Secrets whose keys a template makes of those of two sources, the second of which is optional.

use super::*;
use crate::template::Output;

fn template(text: &str) -> SecretTemplate {
    let outputs = [("URL".to_owned(), Output::Text(text.parse().unwrap()))].into();
    SecretTemplate { outputs, keeps_source_keys: false }
}

fn held() -> Contents {
    contents(&[("URL", "1@old"), ("F", "x")], &["URL"])
}

fn absent() -> Contents {
    Contents { is_absent: true, ..Contents::default() }
}

#[test]
fn a_made_key_follows_its_sources_or_stays() {
    let template = template("${A}@${B}");
    let circumstances = Circumstances { template: Some(&template), ..Circumstances::default() };
    let lacking = |key: &str| Problem::Unmade { key: "URL".into(), cause: Unmade::Lacking(key.into()) };
    let (one, other) = ([("A", "7")], [("A", "8"), ("B", "9")]);
    let (gave_one, gave_other) = (&["A"][..], &["B"][..]);
    for (name, first, second, contents, expected, problems) in [
        (
            "both answer",
            (Some(&one[..]), gave_one),
            (Some(&other[..]), gave_other),
            held(),
            apply(&[("URL", "7@9")]),
            None,
        ),
        (
            "the Secret is new",
            (Some(&one), gave_one),
            (Some(&other), gave_other),
            absent(),
            apply(&[("URL", "7@9")]),
            None,
        ),
        // The second source has a key of this name, too, which does not count.
        ("the first is away", (None, gave_one), (Some(&other), gave_other), held(), Outcome::Nothing, None),
        ("the second is away", (Some(&one), gave_one), (None, gave_other), held(), Outcome::Nothing, None),
        (
            "the Secret is gone and a source away",
            (Some(&one), gave_one),
            (None, gave_other),
            absent(),
            Outcome::Keep,
            None,
        ),
        ("a key is lacking", (Some(&one), gave_one), (None, &[]), held(), Outcome::Nothing, Some(lacking("B"))),
        (
            "a key is lacking from the beginning",
            (Some(&one), &[]),
            (None, &[]),
            absent(),
            Outcome::Keep,
            Some(lacking("B")),
        ),
        (
            "a source ends",
            (Some(&one), gave_one),
            (Some(&[]), gave_other),
            held(),
            Outcome::ConfirmEmpty,
            Some(lacking("B")),
        ),
    ] {
        let (outcome, found) = decide_two([first, second], &contents, circumstances);
        assert_eq!(outcome, expected, "{name}");
        assert_eq!(found, Vec::from_iter(problems), "{name}");
    }
}

#[test]
fn the_secret_is_read_where_it_may_hold_what_cannot_be_made() {
    let template = template("${A}");
    let (selection, verified) = (Selection::default(), verified(4, &[("URL", "1")]));
    for (given, values, expected) in [
        ("A", None, Outcome::ReadFirst),
        ("A", Some(("B", "1")), Outcome::ReadFirst),
        ("A", Some(("A", "1")), Outcome::Nothing),
        ("A", Some(("A", "2")), apply(&[("URL", "2")])),
    ] {
        let snapshot = values.map(|values| snapshot(4, &[values], &[]));
        let given = [given.to_owned()].into();
        let part = Part {
            selection: &selection,
            is_optional: false,
            snapshot: snapshot.as_ref(),
            accepted: None,
            given: Some(&given),
        };
        let circumstances = Circumstances { template: Some(&template), ..Circumstances::default() };
        let observed = Observed::Unchanged(&verified);
        let plan = plan(&[part], &observed, &digest_key(), circumstances, |_| None);
        assert_eq!(outcome(plan).0, expected, "{values:?}");
    }
}
