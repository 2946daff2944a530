//! The plan of the next run for an object, by the same functions that the operator uses. Nothing is written.

use std::{sync::Arc, time::Duration};

use konverge::{
    RECORD, interest_of,
    kube::{
        Api, ResourceExt,
        api::ListParams,
        core::{DynamicObject, Resource},
    },
    remote::{
        Binding, Entry, Failure as RemoteFailure, Interest, Ledger, News, Origin, Remote, Remotes, Step, Subject,
    },
};
use konverge_core::error::in_one_line;
use konverge_kubectl::{Change, Cluster, Difference, Failure, Fate, Kind};
use serde::de::DeserializeOwned;

use super::{named, server};
use crate::{
    account::Account,
    annotations::ACCOUNT,
    api::{
        v1::{OZGroup, OZPolicy, OZResource},
        v1alpha1::Group,
    },
    config::Config,
    control::{GroupObject, group_binding, policy_plan},
    remote::{Groups, Policies},
};

/// A person's view of an object: its record is read, and nothing is ever written.
struct Reader {
    subject: Subject,
    uid: String,
    cluster: String,
    record: Option<String>,
    is_held: bool,
}

impl Ledger for Reader {
    fn subject(&self) -> Subject {
        self.subject.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }

    fn deleting_for(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self) -> Option<String> {
        self.record.clone()
    }

    fn is_held(&self) -> bool {
        self.is_held
    }

    async fn write(&self, _: &str, _: bool) -> Result<(), RemoteFailure> {
        Err(self.check_lease().err().unwrap_or_else(|| RemoteFailure::permanent("DryRun", "a preview writes nothing")))
    }

    fn check_lease(&self) -> Result<(), RemoteFailure> {
        Err(RemoteFailure::permanent("DryRun", "a preview writes nothing"))
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    fn tell(&self, _: News) {}
}

/// Returns the next change of each item that the object stands for.
pub(super) async fn differences(
    cluster: &Cluster,
    kind: &Kind,
    object: &DynamicObject,
) -> Result<Vec<Difference>, Failure> {
    let of_kind = kind.resource.kind.as_str();
    if !["OZGroup", "Group", "OZPolicy"].contains(&of_kind) {
        return Err(Failure::Failed(format!(
            "the plan of {} needs the objects around it, which only the operator has; kubectl konverge why shows how it stands, and \
             an operator with --dry-run logs what it would do",
            named(object)
        )));
    }
    let annotated = object.annotations().get(ACCOUNT).cloned().filter(|_| of_kind == "OZPolicy");
    let (account, config) = server::own(cluster, annotated.or_else(|| object.namespace()).as_deref()).await?;
    let name = server::cluster_name(cluster, &config).await?;
    let reader = Reader {
        subject: subject(object),
        uid: object.uid().unwrap_or_default(),
        cluster: name,
        record: object.annotations().get(RECORD).cloned(),
        is_held: object.finalizers().iter().any(|finalizer| finalizer.contains("openzro.io/")),
    };
    let view = View { cluster, account, config, reader };
    match of_kind {
        "OZGroup" => view.group::<OZGroup>(object).await,
        "Group" => view.group::<Group>(object).await,
        _ => view.policy(object).await,
    }
}

fn subject(object: &DynamicObject) -> Subject {
    let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
    Subject { kind, namespace: object.namespace(), name: object.name_any() }
}

fn decoded<K: DeserializeOwned>(object: &DynamicObject) -> Result<K, Failure> {
    let value = serde_json::to_value(object).and_then(serde_json::from_value);
    value.map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", named(object))))
}

fn failed(failure: &RemoteFailure) -> Failure {
    Failure::Failed(failure.to_string())
}

struct View<'a> {
    cluster: &'a Cluster,
    account: Account,
    config: Config,
    reader: Reader,
}

impl View<'_> {
    fn begun<R: Remote>(&self, make: fn(Account) -> R) -> Remotes<R> {
        let remotes = Remotes::default();
        remotes.begin(make(self.account.clone()), self.config.remote());
        remotes
    }

    /// All objects of a kind that has namespaces.
    async fn all<K>(&self) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let found = Api::<K>::all(self.cluster.client.clone()).list(&ListParams::default()).await;
        let act = format!("list {}", K::plural(&()));
        found.map(|found| found.items).map_err(|error| Failure::of(&act, &error))
    }

    /// Tells which groups the objects of a kind claim, so that the older of two keeps its group here, too.
    async fn claim<K: GroupObject>(&self, groups: &Remotes<Groups>) -> Result<(), Failure> {
        for object in self.all::<K>().await? {
            let subject =
                Subject { kind: K::kind(&()).into_owned(), namespace: object.namespace(), name: object.name_any() };
            let claim = Interest::default().claims(&group_binding(&object, &self.config.settings()));
            groups.interest(&subject, Some(interest_of(&object, claim)));
        }
        Ok(())
    }

    async fn group<K: GroupObject>(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let object: K = decoded(object)?;
        let groups = self.begun(Groups::new);
        self.claim::<OZGroup>(&groups).await?;
        self.claim::<Group>(&groups).await?;
        let binding = group_binding(&object, &self.config.settings());
        let desired = object.meta().deletion_timestamp.is_none().then_some(&binding.name);
        let step = groups.preview(&self.reader, &binding, desired).await.map_err(|failure| failed(&failure))?;
        Ok(vec![difference::<Groups>(&binding, &step)])
    }

    async fn policy(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let policy: OZPolicy = decoded(object)?;
        let (groups, policies) = (self.begun(Groups::new), self.begun(Policies::new));
        let resources: Vec<_> = self.all::<OZResource>().await?.into_iter().map(Arc::new).collect();
        let objects: Vec<_> = self.all::<OZGroup>().await?.into_iter().map(Arc::new).collect();
        let recorded = policies.parts(&self.reader);
        let planned = policy_plan(&policy, &resources, &objects, &groups, recorded, &self.config.settings()).await;
        let planned = planned.map_err(|error| Failure::Failed(in_one_line(&error)))?;
        let mut found = Vec::new();
        for (binding, desired) in planned {
            let step = policies.preview(&self.reader, &binding, desired.as_ref()).await;
            found.push(difference::<Policies>(&binding, &step.map_err(|failure| failed(&failure))?));
        }
        Ok(found)
    }
}

/// A step of the plan in the words of the plugin.
fn difference<R: Remote>(binding: &Binding, step: &Step<R::Item>) -> Difference {
    let mut keys = std::collections::BTreeMap::new();
    let mut name = binding.name.clone();
    let fate = match step {
        Step::InSync(..) => Fate::Same,
        Step::Record(Entry { origin: Origin::Adopted, .. }) => Fate::Noted,
        Step::Record(_) | Step::Create => Fate::Created,
        Step::Update(_, differing) => {
            keys.extend(differing.iter().map(|field| ((*field).to_owned(), Change::Changed)));
            Fate::Changed
        }
        Step::Delete(item) => {
            R::name(item).clone_into(&mut name);
            Fate::Cleared
        }
        // The others wait, read again, or refuse.
        _ => Fate::Left,
    };
    let note = (fate != Fate::Same).then(|| step.describe::<R>(binding));
    Difference { path: format!("{} {name}", R::NOUN), fate, note, keys }
}
