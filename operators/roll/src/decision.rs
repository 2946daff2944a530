//! Whether the content that a workload uses is what its pods run with. Pure: no client, no clock.

use std::collections::BTreeMap;

use konverge_workload::Need;

use crate::record::{Content, Entry, Record};

/// A source that a workload uses, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// Its content.
    pub entry: Entry,
    /// Whether the pods can do without.
    pub need: Need,
    /// Whether its content is known to differ from that of the pods, although the record has nothing comparable. Another operator has recorded so, or the
    /// content differs in the keys that counted when it was recorded.
    pub is_news: bool,
    /// Whether that it differs is a reason to roll.
    pub counts: bool,
}

/// The annotations of a workload.
#[derive(Debug, Clone, Copy)]
pub struct RecordedState<'a> {
    /// Its record, if it is its own and made with our key.
    pub record: Option<&'a Record>,
    /// Whether that one stands there, and was not taken away.
    pub is_noted: bool,
    /// Whether the stamp on its pod template is its own and made with our key.
    pub is_stamped: bool,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the pods run with what there is, and the record says so.
    Nothing,
    /// The record is to say this; the pods run with it, or nothing else is known of them. Never a reason to roll.
    Note(BTreeMap<String, Entry>),
    /// The pods run with something else.
    Roll {
        /// Which sources differ.
        changed: Vec<String>,
        /// The content that the pods run with afterwards.
        content: BTreeMap<String, Entry>,
    },
}

/// Compares the content that exists with the record of the workload.
///
/// - First sight of a source is recorded and rolls nothing, because the pods that exist have read it. It rolls if another operator has recorded before
///   that they run with something else, unless a stamp says that the workload was rolled since.
///
/// - The same holds for another selection of keys, unless the source is known to have changed by the recorded selection: a change that waits to be
///   rolled is not settled by a new selection.
///
/// - A source that is gone changes nothing: pods that are restarted for it would not start. Its entry stays, so that it rolls
///   nothing if it comes back with the same content.
///
/// - An older version than the recorded one changes nothing either: it comes from a server that lags behind.
///
/// - An optional source that is created rolls. Without a required one, no pod has started yet.
///
/// - Only the record says which content the pods run with, and no stamp. A user who sets the template back, by `kubectl rollout undo` or from a repository,
///   has restarted the pods by that, and they have read the current content. A stamp that came with a manifest may be of any age.
pub fn decide(standing: RecordedState<'_>, now: &BTreeMap<String, Now>) -> Verdict {
    let nothing = BTreeMap::new();
    let known = standing.record.map_or(&nothing, |record| &record.content);
    let mut content = BTreeMap::new();
    let mut changed = Vec::new();
    for (source, now) in now {
        let before = known.get(source).filter(|before| before.selection == now.entry.selection);
        let (entry, differs) = match (before.map(|before| &before.content), &now.entry.content) {
            (Some(Content::Digest(_)), Content::Absent) => (before.unwrap_or(&now.entry), false),
            (Some(Content::Digest(_)), _) if before.is_some_and(|before| now.entry.is_before(before)) => {
                (before.unwrap_or(&now.entry), false)
            }
            (Some(Content::Digest(before)), Content::Digest(now_it_is)) => (&now.entry, before != now_it_is),
            (Some(Content::Absent), Content::Digest(_)) => (&now.entry, now.need == Need::Optional),
            (None, Content::Digest(_)) => {
                let is_told = standing.record.is_none() && standing.is_stamped;
                (&now.entry, now.is_news && !is_told)
            }
            (Some(Content::Absent) | None, Content::Absent) => (&now.entry, false),
        };
        content.insert(source.clone(), entry.clone());
        if differs && now.counts {
            changed.push(source.clone());
        }
    }
    match standing.record {
        _ if !changed.is_empty() => Verdict::Roll { changed, content },
        Some(record) if record.content == content && standing.is_noted => Verdict::Nothing,
        Some(_) | None => Verdict::Note(content),
    }
}

/// Whether what there is of one source is a reason to roll by itself.
pub fn is_change(standing: RecordedState<'_>, source: &str, now: &Now) -> bool {
    let alone = BTreeMap::from([(source.to_owned(), now.clone())]);
    matches!(decide(standing, &alone), Verdict::Roll { .. })
}

#[cfg(test)]
mod tests;
