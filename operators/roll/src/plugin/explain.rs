//! The sources that a workload is rolled for, or the workloads that are rolled for a source, in words.

use konverge_apply::conditions::READY;
use konverge_kubectl::{Cluster, Fact, Failure, when};
use konverge_runtime::object::Scope;
use konverge_workload::{Keys, Need, Progress, Rollout, SecretProviderClass, Workload};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectMeta, SelectorExt},
};

use super::{
    health::named,
    look::{Look, classes, look},
};
use crate::{
    annotations::{Others, Rule, SourceSpec, WorkloadSpec},
    config::KINDS,
    hold::{BlockedBy, Candidate},
    messages::{self, because, second, template_elsewhere},
    object::{SourceKind, SourceName, WorkloadRef},
    plan::{LastRollout, Verdict, View, last_rollout},
    record::Record,
    trigger::{TriggerRef, WatchedTrigger},
    uses::{self, Use},
};

/// Facts about a workload.
pub(super) async fn of_workload(cluster: &Cluster, key: &WorkloadRef) -> Vec<Fact> {
    let look = match look(cluster, key).await {
        Ok(look) => look,
        Err(failure) => return vec![Fact::new("unknown", failure.to_string())],
    };
    let mut facts = Vec::new();
    facts.extend(look.unseen.iter().map(|text| Fact::new("unknown", text.clone())));
    if let Err(failure) = &look.operator {
        facts
            .push(Fact::new("unknown", format!("the settings of the operator, so its defaults count here: {failure}")));
    }
    let Some(view) = &look.view else {
        facts.push(Fact::new("rolled for", "nothing: no annotation and no trigger requests it"));
        return facts;
    };
    if let Some(other) = &view.observed().template_of {
        facts.push(Fact::new("rolled for", format!("nothing: {}", template_elsewhere(other))));
        return facts;
    }
    facts.extend(rolled_for(&look, view));
    facts.extend(look.triggers.iter().map(|(trigger, shown)| Fact::new("trigger", status_of(trigger, shown))));
    facts.push(Fact::new("last rolled", last(view, &look)));
    facts.push(Fact::new("now", now(view, &look)));
    if let Some(held) = held(view, &look) {
        facts.push(Fact::new(Fact::HELD_BACK, held));
    }
    facts.push(Fact::new("its pods", pods(view.snapshot.pods.rollout)));
    if let Ok(spec) = view.spec() {
        facts.push(Fact::new("at most", limits(spec, &look)));
    }
    facts
}

fn rolled_for(look: &Look, view: &View) -> Vec<Fact> {
    let mut facts: Vec<_> =
        view.uses().iter().map(|(source, used)| Fact::new("rolled for", request(source, used))).collect();
    if facts.is_empty() {
        facts.push(Fact::new("rolled for", "nothing"));
    }
    let others = look.referenced.iter().filter(|source| !view.uses().contains_key(*source));
    let others: Vec<_> = others.map(ToString::to_string).collect();
    if !others.is_empty() {
        facts.push(Fact::new("not for", format!("{}, which its pods use, too", others.join(", "))));
    }
    facts
}

/// Returns a trigger, and the message of its status.
fn status_of(trigger: &TriggerRef, shown: &WatchedTrigger) -> String {
    let said = match shown.status.conditions.get(READY) {
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "the operator has not seen it".to_owned(),
    };
    format!("{trigger}: {said}")
}

fn is_ready(shown: &WatchedTrigger) -> bool {
    shown.status.conditions.get(READY).is_some_and(|ready| ready.status == "True")
}

/// Returns a source, the keys that count, and the request.
fn request(source: &SourceName, used: &Use) -> String {
    let keys = match &used.keys {
        Keys::All => "all keys".to_owned(),
        Keys::Some(keys) => named(keys),
    };
    if !used.counts {
        return format!("{source}, which must change first: {} waits for it", used.rule);
    }
    let optional = if used.need == Need::Optional { ", optional" } else { "" };
    format!("{source}, {keys}{optional}: requested by {}", used.rule)
}

fn last(view: &View, look: &Look) -> String {
    match &view.plan.comparison.record {
        None if look.incomparable.is_some() => "not known: whether the record is its own cannot be checked".to_owned(),
        None => "never: it has no record of its own, so the current content becomes its baseline, and nothing restarts"
            .to_owned(),
        Some(Record { rolled: None, .. }) => "never since it opted in".to_owned(),
        Some(Record { rolled: Some(rolled), because, .. }) => {
            let because = because.as_deref().unwrap_or("the cause is not recorded");
            format!("{}: {because}", when(*rolled, look.now.wall()))
        }
    }
}

/// Returns whether its pods run with the current content.
fn now(view: &View, look: &Look) -> String {
    if let Err(invalid) = view.spec() {
        return messages::invalid(invalid).text;
    }
    if let Some(failure) = &look.incomparable {
        return format!("not compared with what is recorded: {failure}");
    }
    match view.plan.verdict() {
        None => "not compared with what is recorded".to_owned(),
        Some(Verdict::Nothing) => {
            let record = view.plan.comparison.record.as_ref();
            let last = last_rollout(record, view.snapshot.pods, look.now, look.config.pace.rollout_timeout);
            match (unfinished(last), look.triggers.iter().find(|(_, shown)| !is_ready(shown))) {
                (Some(unfinished), _) => unfinished.to_owned(),
                // The content of Vault is known from triggers, and not read here.
                (None, Some((trigger, _))) => format!(
                    "its pods are up to date as far as is known; {trigger} has no result yet, or waits: see above"
                ),
                (None, None) if look.missing.iter().any(|missing| missing.was_there) => {
                    "its pods run with earlier content, a part of which was removed".to_owned()
                }
                (None, None) => "its pods run with the current content".to_owned(),
            }
        }
        Some(Verdict::Note(_)) => {
            "the current content is still to be recorded as the baseline; nothing restarts".to_owned()
        }
        Some(Verdict::Roll { .. }) if view.snapshot.pods.rollout.empty => {
            "it has no pods: the change is still to be recorded, and new pods read the current content".to_owned()
        }
        Some(Verdict::Roll { changed, .. }) => format!("{}: a restart is due", reason(view, changed)),
    }
}

/// Returns what is known of a workload whose last rollout has not succeeded, although that was for the current content.
fn unfinished(last: LastRollout) -> Option<&'static str> {
    match last {
        LastRollout::Over => None,
        LastRollout::UnderWay(_) => {
            Some("its last restart was for the current content, and not all of its pods are available")
        }
        LastRollout::Failed(_) => {
            Some("its last restart, for the current content, has failed: its pods do not become available")
        }
    }
}

fn reason(view: &View, changed: &[String]) -> String {
    because(view.uses().iter().filter(|(name, _)| changed.contains(&name.to_string())))
}

/// Returns the reason for which it is not rolled, as far as that is known without the operator.
fn held(view: &View, look: &Look) -> Option<String> {
    let missing = || (!look.missing.is_empty()).then(|| messages::unsatisfied(&look.missing).text);
    let (Ok(spec), Some(Verdict::Roll { .. }), false) =
        (view.spec(), view.plan.verdict(), view.snapshot.pods.rollout.empty)
    else {
        return missing();
    };
    // Only the operator knows when a source changed, and since when the workload has been waiting.
    let candidate =
        Candidate { changed: None, pending: None, ..Candidate::of(view, spec, &look.config.pace, look.now) };
    Some(match candidate.blocked_by(look.now) {
        Some(BlockedBy::Annotation) => "until it is resumed; kubectl konverge resume removes the annotation".to_owned(),
        Some(BlockedBy::Paused) => "until its paused rollout is resumed: kubectl rollout resume".to_owned(),
        Some(BlockedBy::Interval(until)) => {
            format!("until {}: the minimum interval has not passed", second(until.wall()))
        }
        Some(BlockedBy::Debounce(_)) | None => missing().unwrap_or_else(|| {
            "by nothing on the object; the events show whether it waits for a wave, the budget or the debounce"
                .to_owned()
        }),
    })
}

fn pods(rollout: Rollout) -> String {
    if rollout.empty {
        return "none: changes are recorded, and new pods read them".to_owned();
    }
    let paused = if rollout.paused { "; its rollout is paused" } else { "" };
    let progress = match rollout.progress {
        Progress::Unknown => "no controller has looked at it yet",
        Progress::Running => "a rollout is under way",
        Progress::Unready => "all have the newest template, not all are available",
        Progress::Ready => "all have the newest template and are available",
        Progress::Failed => "its controller gave up the rollout",
    };
    format!("{progress}{paused}")
}

fn limits(spec: &WorkloadSpec, look: &Look) -> String {
    let (least, whose) = match spec.min_interval {
        Some(least) => (least, "its own annotation"),
        None => (look.config.pace.min_interval, "--min-interval"),
    };
    let wave = match spec.wave {
        0 => String::new(),
        wave => format!("; wave {wave}, after smaller waves that use the same source"),
    };
    format!("once in {least:#}, by {whose}{wave}")
}

/// Returns the workloads that a source with a spec has rolled.
pub(super) async fn of_source(cluster: &Cluster, kind: SourceKind, metadata: &ObjectMeta) -> Vec<Fact> {
    let (Some(name), Some(namespace)) = (&metadata.name, &metadata.namespace) else { return Vec::new() };
    let source = SourceName { kind, name: name.clone() };
    let annotations = metadata.annotations.clone().unwrap_or_default();
    let Ok(spec) = SourceSpec::read(&annotations, Others::default()) else { return Vec::new() };
    let mut users = Vec::new();
    let mut facts = Vec::new();
    let classes = classes(cluster, namespace).await.unwrap_or_else(|failure| {
        facts.push(Fact::new("unknown", failure.to_string()));
        Vec::new()
    });
    for kind in KINDS {
        let api: Api<Workload> = NamespaceResourceScope::api(cluster.client.clone(), &kind, Some(namespace));
        let found = match api.list(&ListParams::default()).await {
            Ok(found) => found,
            // The cluster does not know such.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => {
                let failure = Failure::of(&format!("list {} in namespace {namespace}", kind.plural()), &error);
                facts.push(Fact::new("unknown", failure.to_string()));
                continue;
            }
        };
        users.extend(found.items.into_iter().filter_map(|workload| {
            let shown = format!("{}/{}", kind.name().to_ascii_lowercase(), workload.name_any());
            is_rolled(workload, &classes, &source, &spec).map(|rule| format!("{shown} by {rule}"))
        }));
    }
    let rolls = if users.is_empty() { "no workload so far".to_owned() } else { users.join(", ") };
    facts.push(Fact::new("rolls", rolls));
    facts
}

/// Returns the rule by which a workload is rolled for a source.
fn is_rolled(
    workload: Workload,
    classes: &[SecretProviderClass],
    source: &SourceName,
    of_source: &SourceSpec,
) -> Option<Rule> {
    let metadata = workload.metadata;
    let (annotations, labels) = (metadata.annotations.unwrap_or_default(), metadata.labels.unwrap_or_default());
    let namespace = metadata.namespace.unwrap_or_default();
    let others = Others::ALL;
    let spec = WorkloadSpec::read(&annotations, &workload.template_annotations, &namespace, others).ok()?;
    let chosen = of_source.selector.as_ref().filter(|selector| selector.matches(&labels)).map(|_| source);
    let mut referenced = uses::referenced(&workload.references);
    let mounted = |class: &&SecretProviderClass| {
        class.metadata.name.as_ref().is_some_and(|name| workload.references.secret_provider_classes.contains(name))
    };
    let made = classes.iter().filter(mounted).flat_map(|class| &class.secrets);
    referenced.extend(made.map(|name| (SourceName::secret(name), uses::MADE)));
    let used = uses::uses(&spec, &referenced, chosen, |name| (name == source).then_some(of_source));
    used.get(source).map(|used| used.rule)
}
