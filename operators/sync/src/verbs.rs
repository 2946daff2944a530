//! The verbs themselves.

use std::collections::{BTreeMap, BTreeSet};

use konverge_core::SecretValue;
use konverge_zopp_cli::{
    commands::{
        k8s::{ClusterArguments, DiffK8s, Kubernetes, PROGRAM, SyncK8s},
        secret::snapshot,
    },
    context::Context,
    escape::visible,
    failure::Failure,
    output::{Answer, Document, Outcome, Plain, plain},
    wiped::Wiped,
};
use konverge_zopp_client::{EnvironmentName, Snapshot};
use serde::Serialize;

use crate::{
    changes::{ChangeKind, Changes, compare, foreign, impossible, in_sync},
    target::{SYNCED_AT, Stored, Target},
};

/// `--exit-code`, if there is a difference: neither 1, which is a failure, nor 2, which is a usage error.
const DIFFERENT: u8 = 3;

/// The verbs that need a cluster.
pub struct ClusterVerbs;

/// `sync k8s`, `diff k8s`
#[derive(Serialize)]
struct Report {
    namespace: String,
    secret: String,
    in_sync: bool,
    written: bool,
    new: Vec<String>,
    changed: Vec<String>,
    unchanged: Vec<String>,
    removed: Vec<String>,
}

/// The answer of `diff k8s`, which is an exit code as well.
struct Difference {
    plain: Plain<Report>,
    exit_code: u8,
}

impl Answer for Difference {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        self.plain.text(text)
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        self.plain.object(document)
    }

    fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

/// An environment and the Secret, as both were read.
struct Pair {
    target: Target,
    name: EnvironmentName,
    principal_id: String,
    snapshot: Snapshot,
    stored: Option<Stored>,
    owned: BTreeSet<String>,
    changes: Changes,
}

impl Pair {
    async fn read(
        context: &Context,
        environment: EnvironmentName,
        cluster: &ClusterArguments,
    ) -> Result<Self, Failure> {
        let target = Target::new(cluster, context.timeout()).await?;
        let client = context.client()?;
        let snapshot = snapshot(&client, &environment).await?;
        let stored = target.read().await?;
        let owned = stored.as_ref().map(Stored::owned).unwrap_or_default();
        let desired = snapshot.values.iter().map(|(key, value)| (key.as_str(), value.expose())).collect();
        let changes = compare(&desired, &stored.as_ref().map(Stored::values).unwrap_or_default(), &owned);
        let principal_id = client.identity().principal_id().to_owned();
        Ok(Self { target, name: environment, principal_id, snapshot, stored, owned, changes })
    }

    fn report(&self, cluster: &ClusterArguments, written: bool) -> Report {
        let of = |wanted: ChangeKind| {
            let keys = self.changes.iter().filter(|(_, kind)| **kind == wanted);
            keys.map(|(key, _)| key.clone()).collect()
        };
        Report {
            namespace: cluster.namespace.clone(),
            secret: cluster.secret.clone(),
            in_sync: self.is_in_sync(),
            written,
            new: of(ChangeKind::New),
            changed: of(ChangeKind::Changed),
            unchanged: of(ChangeKind::Unchanged),
            removed: of(ChangeKind::Removed),
        }
    }

    /// A Secret that does not exist is in sync with nothing, not even with an empty environment.
    fn is_in_sync(&self) -> bool {
        self.stored.is_some() && in_sync(&self.changes)
    }

    /// Refuses to take what belongs to somebody else.
    fn refuse_foreign(&self) -> Result<(), Failure> {
        let cannot = || Failure::new(format!("Secret {} is not written", self.target.path()));
        if self.stored.as_ref().is_some_and(|stored| !stored.is_managed()) {
            return Err(cannot()
                .because("it has no label app.kubernetes.io/managed-by=zopp, so somebody else made it")
                .next("Use --force to add the keys of the environment to it; its other keys stay."));
        }
        let foreign = foreign(&self.changes, &self.owned);
        if foreign.is_empty() {
            return Ok(());
        }
        Err(cannot()
            .because(format!("somebody else set '{}' to another value", foreign.join("', '")))
            .next("Use --force to take these keys over."))
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let EnvironmentName { workspace, project, environment } = &self.name;
        [
            ("zopp.dev/workspace", workspace.clone()),
            ("zopp.dev/project", project.clone()),
            ("zopp.dev/environment", environment.clone()),
            ("zopp.dev/synced-by", self.principal_id.clone()),
            (SYNCED_AT, jiff::Timestamp::now().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Writes unless there is nothing to write. Returns whether it wrote.
    async fn write(&mut self) -> Result<bool, Failure> {
        let annotations = self.annotations();
        let stored = match self.stored.take() {
            Some(stored) if stored.is_managed() => {
                if in_sync(&self.changes) && stored.has_annotations(&annotations) {
                    self.stored = Some(stored);
                    return Ok(false);
                }
                stored
            }
            Some(stored) => self.target.label(&stored).await?,
            None => self.target.create().await?,
        };
        let values: BTreeMap<&str, &SecretValue> =
            self.snapshot.values.iter().map(|(key, value)| (key.as_str(), value)).collect();
        self.target.apply(&stored, &annotations, &values).await?;
        self.stored = Some(stored);
        Ok(true)
    }
}

impl Kubernetes for ClusterVerbs {
    const PROGRAM: &'static str = PROGRAM;

    async fn sync(&self, context: &Context, arguments: SyncK8s) -> Outcome {
        let SyncK8s { environment, cluster, force, dry_run } = arguments;
        let mut pair = Pair::read(context, environment.resolve()?, &cluster).await?;
        let impossible = impossible(pair.snapshot.values.keys().map(String::as_str));
        if !impossible.is_empty() {
            return Err(Failure::new(format!("Secret {} is not written", pair.target.path()))
                .because(format!("Kubernetes allows no key '{}'", impossible.join("', '")))
                .next("A key has 1 to 253 of the characters -._a-zA-Z0-9."));
        }
        if dry_run {
            let text =
                format!("Dry run: nothing is written to Secret {}\n{}", pair.target.path(), lines(&pair.changes, true));
            return Ok(plain(pair.report(&cluster, false), text.trim_end()));
        }
        if !force {
            pair.refuse_foreign()?;
        }
        let written = pair.write().await?;
        let (count, path) = (pair.snapshot.values.len(), pair.target.path());
        let text = if written {
            format!("Synced {count} secrets to Secret {path}")
        } else {
            format!("Secret {path} is in sync, nothing is written")
        };
        Ok(plain(pair.report(&cluster, written), text))
    }

    async fn diff(&self, context: &Context, arguments: DiffK8s) -> Outcome {
        let DiffK8s { environment, cluster, exit_code } = arguments;
        let pair = Pair::read(context, environment.resolve()?, &cluster).await?;
        let report = pair.report(&cluster, false);
        let text = if report.in_sync {
            format!("Secret {} is in sync", pair.target.path())
        } else {
            let missing = if pair.stored.is_none() { " (it does not exist)" } else { "" };
            format!("Secret {}{missing}:\n{}", pair.target.path(), lines(&pair.changes, false))
        };
        let exit_code = if exit_code && !report.in_sync { DIFFERENT } else { 0 };
        let plain = Plain { object: report, text: text.trim_end().to_owned() };
        Ok(Box::new(Difference { plain, exit_code }))
    }
}

/// A line for each key, in the words of the original.
fn lines(changes: &Changes, dry_run: bool) -> String {
    let line = |(key, kind): (&String, &ChangeKind)| {
        let (sign, word) = match (kind, dry_run) {
            (ChangeKind::Unchanged, false) => return None,
            (ChangeKind::Unchanged, true) => ("=", " unchanged"),
            (ChangeKind::Changed, true) => ("~", " changed"),
            (ChangeKind::Changed, false) => ("~", " (value differs)"),
            (ChangeKind::New, true) => ("+", " new"),
            (ChangeKind::Removed, true) => ("-", " would be removed"),
            (ChangeKind::New, false) => ("+", ""),
            (ChangeKind::Removed, false) => ("-", ""),
        };
        Some(format!("{sign} {}{word}\n", visible(key)))
    };
    changes.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_the_originals() {
        let kinds = [
            ("A", ChangeKind::New),
            ("B", ChangeKind::Changed),
            ("C", ChangeKind::Unchanged),
            ("D", ChangeKind::Removed),
        ];
        let changes: Changes = kinds.map(|(key, kind)| (key.to_owned(), kind)).into();
        assert_eq!(lines(&changes, true), "+ A new\n~ B changed\n= C unchanged\n- D would be removed\n");
        assert_eq!(lines(&changes, false), "+ A\n~ B (value differs)\n- D\n");
    }
}
