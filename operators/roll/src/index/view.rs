//! A workload as a run needs to know it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use konverge_workload::{Need, Rollout, TemplateOf};
use litemap::LiteMap;

use super::{
    Index, Inner, Known, former,
    sources::{Doubt, Source},
    waiting::{Looked, Moved},
};
use crate::{
    decision::{self, Now, Standing, Verdict},
    declarations::{Invalid, WorkloadAsks},
    digest::Digester,
    messages::Message,
    object::{SourceName, SourceRef, WorkloadRef},
    record::{Entry, Record},
    trigger::TriggerKind,
    uses::Use,
    wait::{self, Back},
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
    pub uses: LiteMap<SourceName, Use>,
    /// Its record, if it is its own.
    pub record: Option<Record>,
    /// The stamp on its pod template.
    pub stamp: Option<String>,
    /// Whose pod template it runs pods of, if that is not its own.
    pub template_of: Option<TemplateOf>,
    /// How its pods stand, or those that somebody else runs of its template.
    pub rollout: Rollout,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What is to be done about it; nothing while a source of its has not been read.
    pub verdict: Option<Verdict>,
    /// Since when it has been waiting to be rolled.
    pub pending: Option<Timestamp>,
    /// When what it may be rolled for changed last, as far as that was seen.
    pub changed: Option<Timestamp>,
    /// What may not be read of what it uses.
    pub refused: Vec<Message>,
    /// What has changed and rolls nothing yet, and why.
    pub back: BTreeMap<SourceName, Back>,
    /// When it is to be looked at again though nothing happens.
    pub again: Option<Timestamp>,
    /// What is to be read again before anything can be decided: another has written the record, and may have seen what came after our reading.
    pub doubted: Vec<SourceRef>,
    /// Whether it was not known until now what is to be done.
    pub is_decided_now: bool,
    /// Whether its record stands on it, and was not taken away.
    pub is_noted: bool,
    /// Until when its record is not written down again, because somebody takes it away again and again.
    pub fought: Option<Timestamp>,
}

/// What is to be done about a workload.
#[derive(Default)]
pub(super) struct Judged {
    /// Nothing while a source of its has not been read.
    pub(super) verdict: Option<Verdict>,
    /// What has changed and rolls nothing yet, and why.
    pub(super) back: BTreeMap<SourceName, Back>,
    /// When to look again though nothing happens.
    pub(super) again: Option<Timestamp>,
}

impl Index {
    /// What is known of a workload; nothing if it takes no part.
    pub fn view(&self, key: &WorkloadRef, digester: &Digester, now: Timestamp) -> Option<View> {
        let mut inner = self.lock();
        let known = inner.workloads.get(key)?;
        if known.uses.is_empty() && known.asks.is_ok() && !known.asks_in_vain() {
            return None;
        }
        let runner = inner.runner(key, known);
        let Judged { verdict, back, again } = inner.judge(key, known, digester, now);
        let (record, is_noted) = known.own_record(digester);
        let mut view = View {
            uid: known.uid.clone(),
            version: known.version.clone(),
            asks: known.asks.clone(),
            uses: known.uses.clone(),
            record,
            is_noted,
            stamp: known.stamp.clone(),
            template_of: known.template_of.clone(),
            rollout: runner.rollout,
            deleting: known.deleting,
            verdict,
            pending: known.pending.map(|(since, _)| since),
            changed: None,
            refused: Vec::new(),
            back,
            again,
            doubted: Vec::new(),
            is_decided_now: false,
            fought: known.fought(now),
        };
        let doubted = known.doubted;
        inner.doubt(key, doubted, &mut view, now);
        for name in view.uses.keys() {
            let Some(source) = inner.sources.get(&name.of(&key.namespace)) else { continue };
            if !view.back.contains_key(name) {
                view.changed = view.changed.max(source.changed);
            }
            view.refused.extend(source.refused.clone());
        }
        Some(view)
    }
}

/// Whether content is another than is recorded, and none that is older.
fn differs(before: &Entry, now: &Entry) -> bool {
    before.selection == now.selection && before.content != now.content && !now.is_before(before)
}

impl Inner {
    /// What another has rolled a workload for is not rolled back for the sake of what we have read before.
    fn doubt(&mut self, key: &WorkloadRef, doubted: bool, view: &mut View, now: Timestamp) {
        let changed = match view.verdict.as_ref().filter(|_| doubted) {
            Some(Verdict::Roll { changed, .. }) => changed.as_slice(),
            _ => &[],
        };
        // An answer of Vault tells by itself whether it is older.
        let in_cluster = view.uses.keys().filter(|name| !name.kind.is_in_vault());
        let again = in_cluster.filter(|name| changed.contains(&name.to_string())).map(|name| name.of(&key.namespace));
        view.doubted = again.collect();
        for source in &view.doubted {
            self.sources.entry(source.clone()).and_modify(Source::doubt);
            self.users_stirred(source);
        }
        if !view.doubted.is_empty() {
            view.verdict = None;
        }
        let Some(known) = self.workloads.get_mut(key) else { return };
        known.doubted &= view.verdict.is_none() && view.doubted.is_empty();
        let undecided = view.verdict.is_none().then(|| known.undecided.unwrap_or(now));
        view.is_decided_now = undecided.is_none() && known.undecided.is_some();
        if std::mem::replace(&mut known.undecided, undecided) != undecided {
            self.stirred(key);
        }
    }
}

impl Known {
    fn awaits(&self, secret: &SourceName) -> bool {
        self.uses.get(secret).is_some_and(|used| used.awaited.is_some())
    }

    pub(super) fn wave(&self) -> i32 {
        self.asks.as_ref().map_or(0, |asks| asks.wave)
    }
}

impl Inner {
    pub(super) fn judge(&self, key: &WorkloadRef, known: &Known, digester: &Digester, now_it_is: Timestamp) -> Judged {
        let (record, is_noted) = known.own_record(digester);
        let is_stamped = known.stamp.as_deref().is_some_and(|stamp| digester.is_stamp_of(&known.uid, stamp));
        let standing = Standing { record: record.as_ref(), is_noted, is_stamped };
        let recorded = record.iter().flat_map(|record| &record.content);
        let kept = |entry: &Entry| Now { entry: entry.clone(), need: Need::Required, is_news: false, counts: true };
        let looked = Looked { known, namespace: &key.namespace, record: record.as_ref(), digester, now: now_it_is };
        let mut moved = Moved::default();
        let mut now = BTreeMap::new();
        for (name, used) in known.uses.iter().filter(|(_, used)| used.counts) {
            let source = self.sources.get(&name.of(&key.namespace));
            let read = source.filter(|source| source.doubt == Doubt::None).and_then(|source| source.read.as_ref());
            let text = name.to_string();
            let own = record.as_ref().and_then(|record| record.content.get(&text));
            let other = known.of_other_mode(name, record.as_ref()).filter(|_| own.is_none());
            match (read, own) {
                (Some(read), own) => {
                    let entry = Entry {
                        version: read.in_vault.clone(),
                        ..digester.entry(&known.uid, name, &used.keys, read.content.as_ref())
                    };
                    // By what counted when it was recorded.
                    let has_changed = match (own, &other) {
                        (Some(before), _) if before.selection == entry.selection => false,
                        (Some(before), _) => known.differs_as_chosen_before(name, before, read, digester),
                        (None, Some((_, before))) => former::is_other_version(before, read),
                        (None, None) => name.kind.is_in_vault() && self.is_news(key, known, name),
                    };
                    let before = own.map(|entry| (text.clone(), entry)).or(other);
                    let new = Now { entry, need: used.need, is_news: has_changed, counts: true };
                    let open = source.and_then(|source| source.breaker.open_until(now_it_is));
                    if let Some(until) = open.filter(|_| decision::is_change(standing, &text, &new)) {
                        // As if nobody had told of a change.
                        now.extend(before.map(|(noted, before)| (noted, kept(before))));
                        moved.back.insert(name.clone(), Back::RanAway(until));
                        continue;
                    }
                    match before.filter(|_| name.kind.is_in_vault()) {
                        Some((noted, before)) if has_changed || differs(before, &new.entry) => {
                            if let Some(back) = self.back(key, looked, name) {
                                // As if nobody had told of a change.
                                now.insert(noted, kept(before));
                                moved.back.insert(name.clone(), back);
                                continue;
                            }
                            moved.rolled.insert(name.clone());
                        }
                        Some(_) => {}
                        None => drop(moved.noted.insert(name.clone())),
                    }
                    now.insert(text, new);
                }
                // It is read at any moment, unless that is refused.
                (None, _) if !name.kind.is_in_vault() && source.is_none_or(|source| source.refused.is_none()) => {
                    return Judged::default();
                }
                // Vault may be away, and a Secret forbidden, for long, and nothing else waits for it.
                (None, Some(entry)) => drop(now.insert(text, kept(entry))),
                (None, None) if other.is_some() => now.extend(other.map(|(text, entry)| (text, kept(entry)))),
                (None, None) => {}
            }
        }
        if self.triggers_seen.len() < TriggerKind::ALL.len() {
            let for_others = |text: &String| SourceName::is_in_vault(text) || wait::secret_of(text).is_some();
            for (text, entry) in recorded.filter(|(text, _)| for_others(text)) {
                now.entry(text.clone()).or_insert_with(|| kept(entry));
            }
        }
        if now.is_empty() {
            return Judged::default();
        }
        let (awaited, again) = self.of_awaited(key, looked, &moved);
        now.retain(|text, _| wait::secret_of(text).is_none_or(|secret| !known.awaits(&secret)));
        now.extend(awaited);
        let mut verdict = decision::decide(standing, &now);
        if let Verdict::Roll { changed, .. } = &mut verdict {
            // Known to its readers by its own name.
            for text in changed {
                if let Some(secret) = wait::secret_of(text) {
                    *text = secret.to_string();
                }
            }
        }
        Judged { verdict: Some(verdict), back: moved.back, again }
    }
}
