//! A workload as a run needs to know it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use konverge_workload::{Need, Rollout};

use super::{Index, Inner, Known};
use crate::{
    decision::{self, Now, Standing, Verdict},
    declarations::{Invalid, WorkloadAsks},
    digest::Digester,
    messages::Message,
    object::{SourceName, WorkloadRef},
    record::{Entry, Record},
    uses::Use,
    waves::Peer,
};

/// What is known of a workload that takes part.
#[derive(Debug)]
pub struct View {
    /// Its uid.
    pub uid: String,
    /// The version that all of this is of.
    pub version: String,
    /// What it asks for.
    pub asks: Result<Arc<WorkloadAsks>, Arc<Invalid>>,
    /// What it is rolled for.
    pub uses: BTreeMap<SourceName, Use>,
    /// Its record, if it is its own.
    pub record: Option<Record>,
    /// The stamp on its pod template.
    pub stamp: Option<String>,
    /// How its pods stand.
    pub rollout: Rollout,
    /// Since when it has been seen under way.
    pub running: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What is to be done about it; nothing while a source of its has not been read.
    pub verdict: Option<Verdict>,
    /// When what it uses changed last, as far as that was seen.
    pub changed: Option<Timestamp>,
    /// Until when a source of its is not followed, and which.
    pub breaker: Option<(Timestamp, SourceName)>,
    /// What may not be read of what it uses.
    pub refused: Vec<Message>,
}

impl Index {
    /// What is known of a workload; nothing if it takes no part.
    pub fn view(&self, key: &WorkloadRef, digester: &Digester, now: Timestamp) -> Option<View> {
        let mut inner = self.lock();
        let known = inner.workloads.get(key)?;
        if known.uses.is_empty() && known.asks.is_ok() {
            return None;
        }
        let mut view = View {
            uid: known.uid.clone(),
            version: known.version.clone(),
            asks: known.asks.clone(),
            uses: known.uses.clone(),
            record: known.record(digester),
            stamp: known.stamp.clone(),
            rollout: known.rollout,
            running: known.running,
            deleting: known.deleting,
            verdict: inner.verdict(key, known, digester),
            changed: None,
            breaker: None,
            refused: Vec::new(),
        };
        for name in view.uses.keys() {
            let Some(source) = inner.sources.get_mut(&name.of(&key.namespace)) else { continue };
            view.changed = view.changed.max(source.changed);
            let open = source.breaker.open_until(now).map(|until| (until, name.clone()));
            view.breaker = view.breaker.take().max(open);
            view.refused.extend(source.refused.clone());
        }
        Some(view)
    }

    /// Those of earlier waves that use one of these sources. `longest` is how long one may take to become ready.
    pub fn peers(
        &self,
        key: &WorkloadRef,
        wave: i32,
        sources: &[SourceName],
        digester: &Digester,
        (now, longest): (Timestamp, SignedDuration),
    ) -> Vec<Peer<WorkloadRef>> {
        let inner = self.lock();
        let users = sources.iter().filter_map(|name| inner.users.get(&name.of(&key.namespace))).flatten();
        let mut peers: BTreeMap<&WorkloadRef, Peer<WorkloadRef>> = BTreeMap::new();
        // What is in Vault may have users everywhere, but nobody has a say in the order of another namespace.
        for user in users.filter(|user| *user != key && user.namespace == key.namespace) {
            let Some(known) = inner.workloads.get(user).filter(|known| known.wave() < wave && !known.deleting) else {
                continue;
            };
            peers.entry(user).or_insert_with(|| {
                let rolled = known.record(digester).and_then(|record| record.rolled);
                Peer {
                    key: user.clone(),
                    wave: known.wave(),
                    in_step: !matches!(inner.verdict(user, known, digester), None | Some(Verdict::Roll { .. })),
                    progress: known.rollout.progress,
                    overdue: rolled.is_some_and(|rolled| now.duration_since(rolled) > longest),
                }
            });
        }
        peers.into_values().collect()
    }
}

impl Known {
    fn wave(&self) -> i32 {
        self.asks.as_ref().map_or(0, |asks| asks.wave)
    }

    pub(super) fn record(&self, digester: &Digester) -> Option<Record> {
        Record::read(self.record.as_deref()?, &digester.tag(&self.uid))
    }
}

impl Inner {
    pub(super) fn verdict(&self, key: &WorkloadRef, known: &Known, digester: &Digester) -> Option<Verdict> {
        let (record, tag) = (known.record(digester), digester.tag(&known.uid));
        let standing = Standing { record: record.as_ref(), stamp: known.stamp.as_deref(), tag: &tag };
        let recorded = record.iter().flat_map(|record| &record.content);
        let kept = |entry: &Entry| Now { entry: entry.clone(), need: Need::Required, is_news: false };
        let mut now = BTreeMap::new();
        for (name, used) in &known.uses {
            let source = self.sources.get(&name.of(&key.namespace)).filter(|source| !source.unsure);
            let read = source.and_then(|source| source.read.as_ref());
            let text = name.to_string();
            match (read, record.as_ref().and_then(|record| record.content.get(&text))) {
                (Some(read), _) => {
                    let entry = Entry {
                        version: read.in_vault.clone(),
                        ..digester.entry(&known.uid, name, &used.keys, read.content.as_ref())
                    };
                    let is_news = name.kind.is_in_vault() && self.is_news(key, known, name);
                    now.insert(text, Now { entry, need: used.need, is_news });
                }
                (None, _) if !name.kind.is_in_vault() => return None,
                // Vault may be away for long, and nothing else waits for it.
                (None, Some(entry)) => drop(now.insert(text, kept(entry))),
                // What the pods run with can only be told by all of it.
                (None, None) if record.is_none() && standing.is_stamped() => return None,
                (None, None) => {}
            }
        }
        if !self.triggers_seen {
            for (text, entry) in recorded.filter(|(text, _)| SourceName::is_in_vault(text)) {
                now.entry(text.clone()).or_insert_with(|| kept(entry));
            }
        }
        if now.is_empty() {
            return None;
        }
        Some(decision::decide(standing, &now, |content| digester.stamp(&known.uid, content)))
    }
}
