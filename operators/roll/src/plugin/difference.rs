//! Which sources are not what pods run with, by their names and digests.

use std::collections::BTreeMap;

use konverge_kubectl::{Cluster, Difference, Failure, PlannedChange};
use konverge_workload::Keys;

use super::{
    health::{named, short},
    look::{Look, look},
};
use crate::{
    messages,
    object::{SourceName, WorkloadRef},
    plan::{Verdict, View},
    record::{Content, Entry},
    uses::Use,
};

/// Each source that a workload is rolled for.
pub(super) async fn differences(cluster: &Cluster, key: &WorkloadRef) -> Result<Vec<Difference>, Failure> {
    let look = look(cluster, key).await?;
    let Some(view) = &look.view else { return Ok(Vec::new()) };
    if let Err(invalid) = view.spec() {
        return Err(Failure::Failed(messages::invalid(invalid).text));
    }
    if let Some(failure) = look.incomparable {
        return Err(Failure::Failed(format!(
            "the record holds digests; comparing them needs their key and the content: {failure}"
        )));
    }
    Ok(view.uses().iter().map(|(source, used)| difference(&look, view, source, used)).collect())
}

fn difference(look: &Look, view: &View, source: &SourceName, used: &Use) -> Difference {
    let name = source.to_string();
    let recorded = view.plan.comparison.record.as_ref().and_then(|record| record.content.get(&name));
    let now = match view.plan.verdict() {
        Some(Verdict::Note(content) | Verdict::Roll { content, .. }) => content.get(&name),
        // Then they are the same.
        Some(Verdict::Nothing) => recorded,
        None => None,
    };
    let is_changed = matches!(view.plan.verdict(), Some(Verdict::Roll { changed, .. }) if changed.contains(&name));
    let keys = match &used.keys {
        Keys::All => "all its keys count".to_owned(),
        Keys::Some(keys) => format!("only its {} {}", named(keys), if keys.len() == 1 { "counts" } else { "count" }),
    };
    let (planned, note) = match (recorded, now) {
        _ if is_changed && view.snapshot.pods.rollout.empty => {
            (PlannedChange::Noted, "it has no pods that a restart would concern".to_owned())
        }
        _ if is_changed => (PlannedChange::Differs, format!("recorded {}, now {}", shown(recorded), shown(now))),
        (None, now) => (PlannedChange::Noted, format!("it is seen for the first time, now {}", shown(now))),
        (Some(recorded), Some(now)) if recorded.selection != now.selection => {
            (PlannedChange::Noted, "other keys of it count now".to_owned())
        }
        (Some(recorded), Some(now)) if recorded.content != now.content => {
            (PlannedChange::Noted, format!("now {}", shown(Some(now))))
        }
        _ => (PlannedChange::Same, shown(recorded)),
    };
    let gone = look.gone.contains(source) && matches!(planned, PlannedChange::Same);
    let (planned, note) = if gone && matches!(recorded.map(|entry| &entry.content), Some(Content::Digest(_))) {
        (PlannedChange::Left, "it is gone, and nothing restarts for that".to_owned())
    } else {
        (planned, note)
    };
    Difference { path: name, planned, note: Some(format!("{note}; {keys}")), keys: BTreeMap::new() }
}

fn shown(entry: Option<&Entry>) -> String {
    match entry.map(|entry| &entry.content) {
        None => "nothing".to_owned(),
        Some(Content::Absent) => "not there".to_owned(),
        Some(Content::Digest(digest)) => format!("digest {}", short(digest)),
    }
}
