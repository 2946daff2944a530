//! Fields of a status that the definition in the cluster does not declare.
//!
//! While an upgrade is under way, a program may be newer than the definition of its kind. The API server then refuses the whole status for
//! one field that it does not know. The writer leaves such a field out for a while, so that the rest is written.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{error::ApplyError, object::Target};

/// How long a field is left out before it is sent again: the definition may have been upgraded since.
const LEFT_OUT_FOR: Duration = Duration::from_secs(600);

/// A place in an object. An item of a list, or a value of a map, is any of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    Member(String),
    Any,
}

/// The fields that definitions do not declare, by kind.
#[derive(Default)]
pub(crate) struct Undeclared(Mutex<State>);

#[derive(Default)]
struct State {
    kinds: HashMap<String, (Instant, HashSet<Path>)>,
    reported: HashSet<(String, Path)>,
}

impl Undeclared {
    /// Removes the fields from a body that are known not to be declared.
    pub(crate) fn strip(&self, target: &Target, body: &mut Value) {
        let mut state = self.lock();
        let kind = kind(target);
        if state.kinds.get(&kind).is_some_and(|(since, _)| since.elapsed() > LEFT_OUT_FOR) {
            state.kinds.remove(&kind);
        }
        for path in state.kinds.get(&kind).iter().flat_map(|(_, paths)| paths) {
            remove(body, &path.0);
        }
    }

    /// Removes the fields that a refusal calls undeclared, and remembers them. Returns whether there were any, so that sending the body
    /// again makes sense.
    pub(crate) fn learn(&self, target: &Target, refusal: &ApplyError, body: &mut Value) -> bool {
        let ApplyError::Refused { code: 400 | 500, message, .. } = refusal else { return false };
        let mut state = self.lock();
        let kind = kind(target);
        let mut has_learnt = false;
        for path in undeclared(message).into_iter().filter(|path| remove(body, &path.0)) {
            has_learnt = true;
            if state.reported.insert((kind.clone(), path.clone())) {
                tracing::warn!(
                    kind,
                    field = path.to_string(),
                    "the definition in the cluster does not declare this field of the status, so it is left out; upgrade the definition"
                );
            }
            state.kinds.entry(kind.clone()).or_insert_with(|| (Instant::now(), HashSet::new())).1.insert(path);
        }
        has_learnt
    }

    /// Forgets all fields, for definitions may have changed.
    pub(crate) fn forget(&self) {
        self.lock().kinds.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kind(target: &Target) -> String {
    format!("{} {}", target.api_version, target.object.kind)
}

impl std::fmt::Display for Path {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            Step::Member(name) => write!(out, ".{name}"),
            Step::Any => out.write_str("[]"),
        })
    }
}

/// The fields within `status` that a message of the API server calls undeclared: in the words of server-side apply, and in those of strict
/// validation.
fn undeclared(message: &str) -> Vec<Path> {
    const NOT_DECLARED: &str = ": field not declared in schema";
    const UNKNOWN: &str = "unknown field \"";
    let applied = message.match_indices(NOT_DECLARED).filter_map(|(end, _)| {
        let before = &message[..end];
        before.rfind(".status.").map(|begin| &before[begin..])
    });
    let strict = message.match_indices(UNKNOWN).filter_map(|(begin, _)| {
        let rest = &message[begin + UNKNOWN.len()..];
        rest.split('"').next().filter(|path| path.starts_with("status."))
    });
    applied.chain(strict).map(|path| Path(steps(path))).collect()
}

/// The steps of a path such as `.status.conditions[type="Ready"].odd` or `status.items[0].odd`.
fn steps(path: &str) -> Vec<Step> {
    let (mut steps, mut name, mut is_quoted, mut is_item) = (Vec::new(), String::new(), false, false);
    let end_name = |name: &mut String, steps: &mut Vec<Step>| {
        if !name.is_empty() {
            steps.push(Step::Member(std::mem::take(name)));
        }
    };
    for character in path.chars() {
        match character {
            '"' if is_item => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '[' => {
                end_name(&mut name, &mut steps);
                is_item = true;
            }
            ']' => {
                steps.push(Step::Any);
                is_item = false;
            }
            _ if is_item => {}
            '.' => end_name(&mut name, &mut steps),
            other => name.push(other),
        }
    }
    end_name(&mut name, &mut steps);
    steps
}

/// Removes what is at the end of the path. Returns whether there was something.
fn remove(value: &mut Value, path: &[Step]) -> bool {
    match (path, value) {
        ([Step::Member(name)], Value::Object(members)) => members.remove(name).is_some(),
        ([Step::Member(name), rest @ ..], Value::Object(members)) => {
            members.get_mut(name).is_some_and(|member| remove(member, rest))
        }
        // The list is known by the field that it must not have, so it stays.
        ([Step::Any, rest @ ..], Value::Array(items)) if !rest.is_empty() => {
            // Each item is visited: `any` would stop at the first.
            items.iter_mut().filter_map(|item| remove(item, rest).then_some(())).count() > 0
        }
        ([Step::Any, rest @ ..], Value::Object(members)) if !rest.is_empty() => {
            members.values_mut().filter_map(|member| remove(member, rest).then_some(())).count() > 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn shown(message: &str) -> Vec<String> {
        undeclared(message).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_are_found_in_the_words_of_the_api_server() {
        let prefix = "failed to create typed patch object (shop/s; example.io/v1, Kind=Sample): ";
        let table: [(&str, &[&str]); 7] = [
            (".status.phase: field not declared in schema", &[".status.phase"]),
            (r#".status.conditions[type="A.b]"].odd: field not declared in schema"#, &[".status.conditions[].odd"]),
            (
                "errors:\n  .status.a: field not declared in schema\n  .status.b.c: field not declared in schema",
                &[".status.a", ".status.b.c"],
            ),
            (
                r#"strict decoding error: unknown field "status.a", unknown field "status.b[0].c""#,
                &[".status.a", ".status.b[].c"],
            ),
            (".status.ready: expected boolean, got &{text}", &[]),
            (".spec.foo: field not declared in schema", &[]),
            (r#"unknown field "spec.foo""#, &[]),
        ];
        for (message, expected) in table {
            assert_eq!(shown(&format!("{prefix}{message}")), expected, "{message}");
        }
    }

    fn refused(code: u16, message: &str) -> ApplyError {
        let object = Target::named::<ConfigMap>(&(), Some("shop"), "app".to_owned()).object;
        ApplyError::Refused {
            object: Box::new(object),
            code,
            status_reason: String::new(),
            message: message.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn what_was_learnt_is_left_out_until_it_is_forgotten() {
        let (known, target) = (Undeclared::default(), Target::named::<ConfigMap>(&(), Some("shop"), "app".to_owned()));
        let whole = json!({"status": {"ready": true, "phase": "x", "items": [{"a": 1, "odd": 2}, {"a": 3}]}});
        let mut body = whole.clone();
        assert!(known.learn(&target, &refused(500, ".status.phase: field not declared in schema"), &mut body));
        assert!(known.learn(&target, &refused(400, r#"unknown field "status.items[0].odd""#), &mut body));
        let expected = json!({"status": {"ready": true, "items": [{"a": 1}, {"a": 3}]}});
        assert_eq!(body, expected);
        let mut next = whole.clone();
        known.strip(&target, &mut next);
        assert_eq!(next, expected);
        // Another kind has another definition.
        let mut other = target.clone();
        other.api_version = "v2".to_owned();
        let mut next = whole.clone();
        known.strip(&other, &mut next);
        assert_eq!(next, whole);
        known.forget();
        known.strip(&target, &mut next);
        assert_eq!(next, whole);
    }

    #[test]
    fn a_field_is_reported_once_also_after_it_was_forgotten() {
        let log = konverge_testkit::CapturedLog::start();
        let (known, target) = (Undeclared::default(), Target::named::<ConfigMap>(&(), Some("shop"), "app".to_owned()));
        let refusal = refused(500, ".status.phase: field not declared in schema");
        for _ in 0..3 {
            assert!(known.learn(&target, &refusal, &mut json!({"status": {"phase": "x"}})));
            known.forget();
        }
        let text = log.text();
        assert_eq!(text.matches("upgrade the definition").count(), 1, "{text}");
        assert!(text.contains("v1 ConfigMap") && text.contains(".status.phase"), "{text}");
    }

    #[test]
    fn a_refusal_that_repeating_does_not_mend_is_not_repeated() {
        let (known, target) = (Undeclared::default(), Target::named::<ConfigMap>(&(), Some("shop"), "app".to_owned()));
        let message = ".status.phase: field not declared in schema";
        for (refusal, mut body) in [
            (refused(500, message), json!({"status": {"ready": true}})),
            (refused(500, "etcd is away"), json!({"status": {"phase": true}})),
            (refused(422, message), json!({"status": {"phase": true}})),
        ] {
            let before = body.clone();
            assert!(!known.learn(&target, &refusal, &mut body));
            assert_eq!(body, before);
        }
    }
}
