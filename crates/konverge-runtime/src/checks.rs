//! Named checks: whether the process is alive, and whether it is ready.
//!
//! Liveness fails only when a restart would help. Readiness fails while the process does not do its work, such as before its
//! caches are filled and while it shuts down. Being a standby is not a reason to be unready.

use std::{
    fmt::Write,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a process. Clones are handles to the same ones.
#[derive(Clone, Default)]
pub struct Checks {
    liveness: CheckList,
    readiness: CheckList,
    warnings: CheckList,
    parts: Arc<RwLock<Vec<(String, Checks)>>>,
}

#[derive(Clone, Default)]
struct CheckList(Arc<RwLock<Vec<(String, Check)>>>);

/// The result of a check, beside its name.
type State = (String, Result<(), String>);

/// Which question checks answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whether a restart would help.
    Live,
    /// Whether the work is done.
    Ready,
}

/// The results of a list of checks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Whether all checks passed.
    pub passed: bool,
    /// One line per check, in the words of Kubernetes components.
    pub text: String,
}

/// A check that is a switch. Off at first.
#[derive(Clone, Default)]
pub struct Flag(Arc<AtomicBool>);

impl Flag {
    /// Makes the check pass or fail from now on.
    pub fn set(&self, passes: bool) {
        self.0.store(passes, Ordering::Release);
    }

    /// Whether it passes.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A check with the outcome of the last probe of something outside, which a task makes now and then.
#[derive(Clone)]
pub struct Probe(Arc<Mutex<Result<(), String>>>);

impl Probe {
    /// Takes the outcome of a probe. Returns that of the probe before.
    pub fn replace(&self, outcome: Result<(), String>) -> Result<(), String> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), outcome)
    }

    fn last(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Checks {
    /// Adds a check that fails when only a restart helps. It says why; it must not wait.
    pub fn liveness(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.liveness.add(name.into(), Arc::new(check));
    }

    /// Adds a check that fails while the work is not done. It says why; it must not wait.
    pub fn readiness(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.readiness.add(name.into(), Arc::new(check));
    }

    /// Adds a check that is shown with those of readiness and does not fail them: something that needs a person, while the work is done.
    pub fn warning(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.warnings.add(name.into(), Arc::new(check));
    }

    /// Adds a readiness check that fails with `unless` until the flag is set.
    pub fn readiness_flag(&self, name: impl Into<String>, unless: &'static str) -> Flag {
        let flag = Flag::default();
        let seen = flag.clone();
        self.readiness(name, move || if seen.get() { Ok(()) } else { Err(unless.to_owned()) });
        flag
    }

    /// Adds a readiness check with the outcome of the last probe. It fails with `before` until the first one.
    pub fn readiness_probe(&self, name: impl Into<String>, before: impl Into<String>) -> Probe {
        let probe = Probe(Arc::new(Mutex::new(Err(before.into()))));
        let seen = probe.clone();
        self.readiness(name, move || seen.last());
        probe
    }

    /// Counts the checks of a part, also those that it is given later, among these, as `part/check`.
    pub fn include(&self, part: impl Into<String>, checks: &Self) {
        self.parts.write().unwrap_or_else(PoisonError::into_inner).push((part.into(), checks.clone()));
    }

    /// Each check with its kind, and whether it passes.
    pub(crate) fn states(&self) -> Vec<(String, &'static str, bool)> {
        let kinds = [("liveness", self.live_states()), ("readiness", self.ready_states()), ("warning", self.warned())];
        let states = kinds
            .into_iter()
            .flat_map(|(kind, states)| states.into_iter().map(move |(name, state)| (name, kind, state.is_ok())));
        states.collect()
    }

    fn live_states(&self) -> Vec<State> {
        self.with_parts(|checks| &checks.liveness)
    }

    fn ready_states(&self) -> Vec<State> {
        self.with_parts(|checks| &checks.readiness)
    }

    fn warned(&self) -> Vec<State> {
        self.with_parts(|checks| &checks.warnings)
    }

    fn with_parts(&self, list: fn(&Self) -> &CheckList) -> Vec<State> {
        let mut states = list(self).states();
        for (part, checks) in self.parts.read().unwrap_or_else(PoisonError::into_inner).iter() {
            let of_part = checks.with_parts(list).into_iter();
            states.extend(of_part.map(|(name, state)| (format!("{part}/{name}"), state)));
        }
        states
    }

    /// Whether a restart would help.
    pub fn live(&self) -> Report {
        self.report(Kind::Live, &[])
    }

    /// Whether the work is done.
    pub fn ready(&self) -> Report {
        self.report(Kind::Ready, &[])
    }

    /// Returns the results of all checks except the excluded ones.
    pub(crate) fn report(&self, kind: Kind, excluded: &[&str]) -> Report {
        let (states, endpoint) = match kind {
            Kind::Live => (self.live_states(), "healthz"),
            Kind::Ready => (self.ready_states(), "readyz"),
        };
        let mut unknown = excluded.to_vec();
        let (mut passed, mut text) = (true, String::new());
        for (name, state) in states {
            // Writing to a string cannot fail.
            let _ = match state {
                _ if excluded.contains(&name.as_str()) => writeln!(text, "[+]{name} excluded: ok"),
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => {
                    passed = false;
                    writeln!(text, "[-]{name} failed: {why}")
                }
            };
            unknown.retain(|excluded| *excluded != name);
        }
        for name in unknown {
            let _ = writeln!(text, "warn: there is no check {name:?} to exclude");
        }
        let _ = writeln!(text, "{endpoint} check {}", if passed { "passed" } else { "failed" });
        for (name, state) in if kind == Kind::Ready { self.warned() } else { Vec::new() } {
            if let Err(why) = state {
                let _ = writeln!(text, "[!]{name}: {why}");
            }
        }
        Report { passed, text }
    }

    /// Returns the results of the checks with this name, or of the part with this name, if there are any. A warning fails here, where it is asked for by
    /// its name, but not one among all of its part.
    #[cfg(feature = "serve")]
    pub(crate) fn report_of(&self, kind: Kind, name: &str) -> Option<Report> {
        let states = match kind {
            Kind::Live => self.live_states(),
            Kind::Ready => {
                let named = self.warned().into_iter().filter(|(warning, _)| warning == name);
                self.ready_states().into_iter().chain(named).collect()
            }
        };
        let part = format!("{name}/");
        let (mut known, mut passed, mut text) = (false, true, String::new());
        for (name, state) in states.into_iter().filter(|(other, _)| other == name || other.starts_with(&part)) {
            known = true;
            // Writing to a string cannot fail.
            let _ = match state {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => {
                    passed = false;
                    writeln!(text, "[-]{name} failed: {why}")
                }
            };
        }
        known.then_some(Report { passed, text })
    }
}

impl CheckList {
    fn add(&self, name: String, check: Check) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push((name, check));
    }

    fn states(&self) -> Vec<State> {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        checks.iter().map(|(name, check)| (name.clone(), check())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_shown_and_fails_nothing() {
        let checks = Checks::default();
        checks.warning("certificate", || Err("expires tomorrow".to_owned()));
        let report = checks.ready();
        assert!(report.passed);
        assert_eq!(report.text, "readyz check passed\n[!]certificate: expires tomorrow\n");
        assert_eq!(checks.states(), [("certificate".to_owned(), "warning", false)]);
    }

    #[test]
    fn one_failing_check_fails_the_report_and_says_why() {
        let checks = Checks::default();
        assert!(checks.live().passed);
        let flag = checks.readiness_flag("cache", "the first list is not complete");
        checks.readiness("always", || Ok(()));
        assert_eq!(
            checks.ready(),
            Report {
                passed: false,
                text: "[-]cache failed: the first list is not complete\n[+]always ok\nreadyz check failed\n".to_owned()
            }
        );
        flag.set(true);
        assert!(checks.ready().passed);
        assert!(checks.live().passed);
    }

    #[test]
    fn a_probe_fails_until_its_first_good_outcome_and_tells_what_was_before() {
        let checks = Checks::default();
        let probe = checks.readiness_probe("vault", "not asked yet");
        for (outcome, before, text) in [
            (
                Err("sealed".to_owned()),
                Err("not asked yet".to_owned()),
                "[-]vault failed: sealed\nreadyz check failed\n",
            ),
            (Ok(()), Err("sealed".to_owned()), "[+]vault ok\nreadyz check passed\n"),
            (Err("away".to_owned()), Ok(()), "[-]vault failed: away\nreadyz check failed\n"),
        ] {
            assert_eq!(probe.replace(outcome), before);
            assert_eq!(checks.ready().text, text);
        }
    }

    #[test]
    fn some_are_left_out_and_one_answers_for_itself() {
        let checks = Checks::default();
        checks.readiness("cache", || Err("not filled".to_owned()));
        checks.readiness("always", || Ok(()));
        checks.warning("certificate", || Err("expires".to_owned()));
        checks.liveness("worker", || Err("stuck".to_owned()));
        let text = |report: Report| (report.passed, report.text);
        let line = "[+]cache excluded: ok\n[+]always ok\nreadyz check passed\n[!]certificate: expires\n";
        assert_eq!(text(checks.report(Kind::Ready, &["cache"])), (true, line.to_owned()));
        let (passed, said) = text(checks.report(Kind::Ready, &["worker"]));
        assert!(!passed && said.contains("warn: there is no check \"worker\" to exclude\n"), "{said}");
        for (kind, name, expected) in [
            (Kind::Ready, "always", Some((true, "[+]always ok\n"))),
            (Kind::Ready, "cache", Some((false, "[-]cache failed: not filled\n"))),
            (Kind::Ready, "certificate", Some((false, "[-]certificate failed: expires\n"))),
            (Kind::Ready, "worker", None),
            (Kind::Live, "worker", Some((false, "[-]worker failed: stuck\n"))),
            (Kind::Live, "always", None),
        ] {
            let said = checks.report_of(kind, name).map(text);
            assert_eq!(said, expected.map(|(passed, said)| (passed, said.to_owned())), "{name}");
        }
    }

    #[test]
    fn checks_of_parts_count_under_the_names_of_the_parts() {
        let (all, pull, push) = (Checks::default(), Checks::default(), Checks::default());
        all.readiness("own", || Ok(()));
        all.include("pull", &pull);
        all.include("push", &push);
        pull.liveness("worker", || Err("stuck".to_owned()));
        pull.readiness("watch", || Ok(()));
        // Told after it was included.
        let vault = push.readiness_flag("vault", "away");
        push.warning("certificate", || Err("expires".to_owned()));
        let text = |report: Report| (report.passed, report.text);
        let said = "[+]own ok\n[+]pull/watch ok\n[-]push/vault failed: away\nreadyz check failed\n[!]push/certificate: expires\n";
        assert_eq!(text(all.ready()), (false, said.to_owned()));
        assert_eq!(text(all.live()), (false, "[-]pull/worker failed: stuck\nhealthz check failed\n".to_owned()));
        for (name, expected) in [
            ("pull", Some((true, "[+]pull/watch ok\n"))),
            ("push", Some((false, "[-]push/vault failed: away\n"))),
            ("push/vault", Some((false, "[-]push/vault failed: away\n"))),
            ("push/certificate", Some((false, "[-]push/certificate failed: expires\n"))),
            ("pus", None),
            ("vault", None),
        ] {
            let said = all.report_of(Kind::Ready, name).map(text);
            assert_eq!(said, expected.map(|(passed, said)| (passed, said.to_owned())), "{name}");
        }
        assert!(all.report(Kind::Ready, &["push/vault"]).passed);
        vault.set(true);
        assert!(all.ready().passed && !all.live().passed);
        assert_eq!(all.states().len(), 5);
    }
}
