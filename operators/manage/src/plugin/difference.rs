//! The plan of the next run for an object, by the same functions that the operator uses. Nothing is written.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Service;
use konverge::{
    Error, RECORD, interest_of,
    kube::{
        Api, ResourceExt,
        api::ListParams,
        core::{DynamicObject, NamespaceResourceScope, Resource},
    },
    prelude::ObjectKey,
    remote::{
        Binding, Entry, Failure as RemoteFailure, Interest, Ledger, ObjectEvent, Origin, Remote, Remotes, Step, Subject,
    },
};
use konverge_core::error::in_one_line;
use konverge_kubectl::{Change, Cluster, Difference, Failure, Kind, PlannedChange};
use serde::de::DeserializeOwned;

use super::{named, server};
use crate::{
    account::Account,
    annotations::ACCOUNT,
    api::{
        v1::{OZGroup, OZPolicy, OZResource, OZRoutingPeer, OZSetupKey},
        v1alpha1::{Group, NetworkResource, NetworkRouter, SetupKey},
    },
    collections::Collections,
    config::Config,
    control::{
        GroupObject, Referenced, Wanted, group_binding, names_policies, network_resource_bindings,
        network_resource_items, peer_plan, plan_of_oz_setup_key, plan_of_setup_key, policy_plan, resource_plan,
        router_plan,
    },
    reasons,
    remote::{DesiredSetupKey, Groups, Networks, Policies, Records, Resources, Routers, SetupKeys},
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
        self.check_lease()
    }

    fn check_lease(&self) -> Result<(), RemoteFailure> {
        Err(RemoteFailure::permanent(reasons::DRY_RUN, "a preview writes nothing"))
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    fn publish(&self, _: ObjectEvent) {}
}

/// Returns the next change of each item that the object stands for.
pub(super) async fn differences(
    cluster: &Cluster,
    kind: &Kind,
    object: &DynamicObject,
) -> Result<Vec<Difference>, Failure> {
    let of_kind = kind.resource.kind.as_str();
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
        "OZPolicy" => view.policy(object).await,
        "OZResource" => view.resource(object).await,
        "SetupKey" => view.setup_key(object).await,
        "OZSetupKey" => view.oz_setup_key(object).await,
        "NetworkResource" => view.network_resource(object).await,
        "OZRoutingPeer" => view.routing_peer(object).await,
        "NetworkRouter" => view.network_router(object).await,
        // Of the kinds of the job, only these have items.
        other => Err(Failure::Failed(format!("a {other} has no item in openZro"))),
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
    /// All collections of the account.
    fn begun(&self) -> Collections {
        let (collections, account) = (Collections::default(), || self.account.clone());
        collections.groups.begin(Groups::new(account()), self.config.remote());
        collections.policies.begin(Policies::new(account()), self.config.remote());
        collections.setup_keys.begin(SetupKeys::new(account()), self.config.remote());
        collections.networks.begin(Networks::new(account()), self.config.remote());
        collections.routers.begin(Routers::new(account()), self.config.remote());
        collections.resources.begin(Resources::new(account()), self.config.remote());
        collections.records.begin(Records::new(account()), self.config.remote());
        collections
    }

    /// The same objects, as the controllers have them.
    async fn shared<K>(&self) -> Result<Vec<Arc<K>>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
    {
        Ok(self.all::<K>().await?.into_iter().map(Arc::new).collect())
    }

    /// The object of this kind and name, if it exists.
    async fn one<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let found = Api::<K>::namespaced(self.cluster.client.clone(), namespace).get_opt(name).await;
        found.map_err(|error| Failure::of(&format!("get {} {namespace}/{name}", K::plural(&())), &error))
    }

    /// The next step for each item.
    async fn steps<R: Remote>(
        &self,
        remotes: &Remotes<R>,
        items: impl IntoIterator<Item = (Binding, Option<R::Desired>)>,
    ) -> Result<Vec<Difference>, Failure> {
        let mut found = Vec::new();
        for (binding, desired) in items {
            let step = remotes.preview(&self.reader, &binding, desired.as_ref()).await;
            found.push(difference::<R>(&binding, &step.map_err(|failure| failed(&failure))?));
        }
        Ok(found)
    }

    /// All objects of a kind, in all namespaces.
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
            let claim = Interest::default().claims(&group_binding(&object, &[], &self.config.settings()));
            groups.interest(&subject, Some(interest_of(&object, claim)));
        }
        Ok(())
    }

    async fn group<K: GroupObject>(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let object: K = decoded(object)?;
        let groups = self.begun().groups;
        self.claim::<OZGroup>(&groups).await?;
        self.claim::<Group>(&groups).await?;
        let routers = if K::IS_SHARED { Vec::new() } else { self.shared::<NetworkRouter>().await? };
        let binding = group_binding(&object, &routers, &self.config.settings());
        let desired = object.meta().deletion_timestamp.is_none().then(|| binding.name.clone());
        self.steps(&groups, [(binding, desired)]).await
    }

    async fn policy(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let policy: OZPolicy = decoded(object)?;
        let Collections { groups, policies, .. } = self.begun();
        let (resources, objects) = (self.shared::<OZResource>().await?, self.shared::<OZGroup>().await?);
        let recorded = policies.parts(&self.reader);
        let planned = policy_plan(&policy, &resources, &objects, &groups, recorded, &self.config.settings()).await;
        self.steps(&policies, planned.map_err(|error| waits(&error))?).await
    }

    async fn resource(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let (resource, collections): (OZResource, _) = (decoded(object)?, self.begun());
        let mut referenced = Referenced::default();
        if resource.metadata.deletion_timestamp.is_none() {
            referenced.peers = self.shared().await?;
            referenced.groups = self.shared().await?;
            // A person without the permission to list policies still sees the plan of a resource that names none.
            if names_policies(&resource) {
                referenced.policies = self.shared().await?;
            }
        }
        let planned = resource_plan(&resource, &referenced, &collections, &self.config.settings()).await;
        self.steps(&collections.resources, [planned.map_err(|error| waits(&error))?]).await
    }

    async fn setup_key(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let (key, collections): (SetupKey, _) = (decoded(object)?, self.begun());
        let (local, routers) = (self.shared::<Group>().await?, self.shared::<NetworkRouter>().await?);
        let (recorded, settings) = (collections.setup_keys.parts(&self.reader), self.config.settings());
        let planned = plan_of_setup_key(&key, (&local, &routers), &collections, &recorded, &settings).await;
        self.keys(&collections, planned.map_err(|error| waits(&error))?).await
    }

    async fn oz_setup_key(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let (key, collections): (OZSetupKey, _) = (decoded(object)?, self.begun());
        let (local, recorded) = (self.shared::<OZGroup>().await?, collections.setup_keys.parts(&self.reader));
        let planned = plan_of_oz_setup_key(&key, &local, &collections, &recorded, &self.config.settings()).await;
        self.keys(&collections, planned.map_err(|error| waits(&error))?).await
    }

    /// A key that is there and that nobody can use is replaced, which its differences do not show.
    async fn keys(
        &self,
        collections: &Collections,
        items: Vec<(Binding, Option<DesiredSetupKey>)>,
    ) -> Result<Vec<Difference>, Failure> {
        let mut found = Vec::new();
        for (binding, desired) in items {
            let step = collections.setup_keys.preview(&self.reader, &binding, desired.as_ref()).await;
            let step = step.map_err(|failure| failed(&failure))?;
            let mut shown = difference::<SetupKeys>(&binding, &step);
            if let (Step::InSync(item, _) | Step::Update(item, _), Some(desired)) = (&step, &desired)
                && let Some(why) = item.why_replaced(desired)
            {
                shown.planned = PlannedChange::Changed;
                shown.note = Some(format!("would replace the setup key {} ({}): {why}", binding.name, item.id()));
            }
            found.push(shown);
        }
        Ok(found)
    }

    async fn network_resource(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let (resource, collections): (NetworkResource, _) = (decoded(object)?, self.begun());
        let (settings, namespace) = (self.config.settings(), resource.namespace().unwrap_or_default());
        let wanted = if resource.metadata.deletion_timestamp.is_some() {
            None
        } else {
            let service = self.one::<Service>(&namespace, &resource.spec.service_ref.name).await?;
            let (local, routers) = (self.shared::<Group>().await?, self.shared::<NetworkRouter>().await?);
            let find =
                |key: &ObjectKey| local.iter().find(|group| ObjectKey::of(&***group).as_ref() == Some(key)).cloned();
            let items = network_resource_items(&resource, service.as_ref(), find, &routers, &collections, &settings);
            Some(items.await.map_err(|error| waits(&error))?)
        };
        let name = wanted.as_ref().map(|wanted| wanted.record.full_name()).unwrap_or_default();
        let (of_resource, of_record) = network_resource_bindings(&resource, name, &settings);
        let (resource, record) = wanted.map(|Wanted { resource, record }| (resource, record)).unzip();
        let mut found = self.steps(&collections.resources, [(of_resource, resource)]).await?;
        found.extend(self.steps(&collections.records, [(of_record, record)]).await?);
        Ok(found)
    }

    async fn routing_peer(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let (peer, collections): (OZRoutingPeer, _) = (decoded(object)?, self.begun());
        let (peers, local) = (self.shared::<OZRoutingPeer>().await?, self.shared::<OZGroup>().await?);
        let of_keys = collections.setup_keys.parts(&self.reader);
        let recorded = (of_keys.as_slice(), collections.resources.parts(&self.reader));
        let planned = peer_plan(&peer, &peers, &local, &collections, recorded, &self.config.settings()).await;
        let planned = planned.map_err(|error| waits(&error))?;
        let mut found = self.steps(&collections.networks, planned.network).await?;
        found.extend(self.keys(&collections, planned.keys).await?);
        found.extend(self.steps(&collections.routers, [planned.router]).await?);
        found.extend(self.steps(&collections.resources, planned.routes).await?);
        Ok(found)
    }

    async fn network_router(&self, object: &DynamicObject) -> Result<Vec<Difference>, Failure> {
        let (router, collections): (NetworkRouter, _) = (decoded(object)?, self.begun());
        let (network, router) = router_plan(&router, &self.shared::<Group>().await?, &self.config.settings());
        let mut found = self.steps(&collections.networks, [network]).await?;
        found.extend(self.steps(&collections.routers, [router]).await?);
        Ok(found)
    }
}

fn waits(error: &Error) -> Failure {
    Failure::Failed(in_one_line(error))
}

/// A step of the plan in the words of the plugin.
fn difference<R: Remote>(binding: &Binding, step: &Step<R::Item>) -> Difference {
    let mut keys = std::collections::BTreeMap::new();
    let mut name = binding.name.clone();
    let planned = match step {
        Step::InSync(..) => PlannedChange::Same,
        Step::Record(Entry { origin: Origin::Adopted, .. }) => PlannedChange::Noted,
        Step::Record(_) | Step::Create => PlannedChange::Created,
        Step::Update(_, differing) => {
            keys.extend(differing.iter().map(|field| ((*field).to_owned(), Change::Changed)));
            PlannedChange::Changed
        }
        Step::Delete(item) => {
            R::name(item).clone_into(&mut name);
            PlannedChange::Cleared
        }
        // The others wait, read again, or refuse.
        _ => PlannedChange::Left,
    };
    let note = (planned != PlannedChange::Same).then(|| step.describe::<R>(binding));
    Difference { path: format!("{} {name}", R::NOUN), planned, note, keys }
}
