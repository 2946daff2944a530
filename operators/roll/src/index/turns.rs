//! Whose turn it is of those that use the same, kept in lines for all that wait.

use jiff::{SignedDuration, Timestamp};

use super::{Index, Inner, view::Judged};
use crate::{
    decision::Verdict,
    digest::Digester,
    object::{SourceName, SourceRef, WorkloadRef},
    wait::Back,
    waves::{Line, Peer, Turn},
};

/// The shortest time.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

impl Index {
    /// Whether it is its turn, of those that use one of these sources; who has to wait is woken by whom it waits for. `longest` is how long one
    /// may take to become ready.
    pub fn turn(
        &self,
        key: &WorkloadRef,
        wave: i32,
        sources: &[SourceName],
        digester: &Digester,
        (now, longest): (Timestamp, SignedDuration),
    ) -> Turn<WorkloadRef> {
        let mut inner = self.lock();
        let turns = sources.iter().map(|source| {
            let line = (key.namespace.as_str(), source, wave);
            let turn = inner.turn_in_line(line, digester, (now, longest));
            #[cfg(test)]
            inner.is_so(&turn, line, digester, (now, longest));
            turn
        });
        let turn = turns.fold(Turn::Now, Turn::and);
        match turn.after() {
            Some(after) => drop(inner.waiting.set(key, [(after.clone(), ())])),
            None => drop(inner.waiting.remove(key)),
        }
        turn
    }
}

impl Inner {
    fn turn_in_line(
        &mut self,
        (namespace, source, wave): (&str, &SourceName, i32),
        digester: &Digester,
        (now, longest): (Timestamp, SignedDuration),
    ) -> Turn<WorkloadRef> {
        let known = self.lines.get_mut(namespace).and_then(|lines| lines.remove(&(source.clone(), wave)));
        let mut line = known.unwrap_or_else(|| self.new_line(namespace, source));
        let turn = line.turn(now, |user| self.peer(user, (source, wave), digester, (now, longest)));
        self.lines.entry(namespace.to_owned()).or_default().insert((source.clone(), wave), line);
        turn
    }

    /// What is in Vault may have users everywhere, but nobody has a say in the order of another namespace.
    fn new_line(&self, namespace: &str, source: &SourceName) -> Line<WorkloadRef> {
        let users = self.users.referrers(&source.of(namespace));
        Line::of(users.filter(|user| user.namespace == namespace).cloned())
    }

    /// Whatever a test does, a line that was kept tells what a new one does.
    #[cfg(test)]
    fn is_so(
        &self,
        turn: &Turn<WorkloadRef>,
        (namespace, source, wave): (&str, &SourceName, i32),
        digester: &Digester,
        (now, longest): (Timestamp, SignedDuration),
    ) {
        let mut line = self.new_line(namespace, source);
        let new = line.turn(now, |user| self.peer(user, (source, wave), digester, (now, longest)));
        assert_eq!(*turn, new, "of wave {wave}, for {source}");
    }

    /// How one stands that uses a source and is of an earlier wave.
    pub(super) fn peer(
        &self,
        user: &WorkloadRef,
        (source, wave): (&SourceName, i32),
        digester: &Digester,
        (now, longest): (Timestamp, SignedDuration),
    ) -> Option<Peer> {
        let known = self.workloads.get(user)?;
        if known.wave() >= wave || known.deleting || !known.uses.contains_key(source) {
            return None;
        }
        let Judged { verdict, back, again } = self.judge(user, known, digester, now);
        let waits = back.values().any(Back::is_waited_for);
        let in_step = !waits && !matches!(verdict, None | Some(Verdict::Roll { .. }));
        let runner = self.runner(user, known);
        // What is held back for a while, as by a pause or the budget, is told of there and is no trouble.
        let since = if in_step {
            let rolled = known.record(digester).and_then(|record| record.rolled);
            // Pods that went long after a rollout have their own time to come back.
            rolled.max(runner.unready)
        } else {
            [known.undecided, known.troubled].into_iter().flatten().min()
        };
        let overdue = since.is_some_and(|since| now.duration_since(since) > longest);
        let end = since.and_then(|since| since.checked_add(longest + MOMENT).ok()).filter(|_| !overdue);
        let until = back.values().filter_map(Back::until).chain(again).chain(end).filter(|until| *until > now).min();
        Some(Peer { in_step, progress: runner.rollout.progress, overdue, until })
    }

    /// Something is otherwise about a workload by which it may stand in another's way, or not any more.
    pub(super) fn stirred(&mut self, key: &WorkloadRef) {
        let Some(lines) = self.lines.get_mut(&key.namespace) else { return };
        lines.retain(|_, line| line.stir(key));
        if lines.is_empty() {
            self.lines.remove(&key.namespace);
        }
    }

    /// The same about a source, and so about all who use it.
    pub(super) fn users_stirred(&mut self, source: &SourceRef) {
        if self.lines.is_empty() {
            return;
        }
        for user in self.users_of(source) {
            self.stirred(&user);
        }
    }
}
