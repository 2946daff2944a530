//! A real API server that calls a server of the test.

use std::{net::SocketAddr, sync::Arc};

use http::Request;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::Secret,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use konverge_admission::{
    Certificates, Limits, Location, Webhooks,
    certificates::{Lifetimes, Permissions, SelfMade, Target},
};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api, Client, Config, Resource,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{Running, SOON, things::Group};

const ACCOUNT: &str = "operator";

/// One for all tests of this binary; it ends with the process.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    CONTROL_PLANE.get_or_init(|| async { ControlPlane::start(Options::ours()).await.unwrap() }).await
}

/// A namespace, and an operator that may do there what its certificates need, and no more.
pub(crate) struct Stage {
    pub(crate) admin: Client,
    pub(crate) operator: Client,
    pub(crate) namespace: String,
    pub(crate) port: u16,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let control_plane = control_plane().await;
        let namespace = control_plane.namespace("admission").await.unwrap();
        let kubeconfig = control_plane.service_account_kubeconfig(&namespace, ACCOUNT).await.unwrap();
        let admin = control_plane.admin_client().await.unwrap();
        let operator = konverge_testkit::client_for(&kubeconfig).await.unwrap();
        // The configurations name the port before the server has it.
        let port = konverge_testkit::free_port().unwrap();
        Self { admin, operator, namespace, port }
    }

    pub(crate) fn location(&self) -> Location {
        Location::Url(format!("https://127.0.0.1:{}", self.port))
    }

    /// Options for these targets, with short pauses.
    pub(crate) fn self_made(&self, targets: impl IntoIterator<Item = Target>) -> SelfMade {
        let lifetimes =
            Lifetimes::default().with(|lifetimes| lifetimes.look_every = std::time::Duration::from_millis(500));
        let options = SelfMade::new(&self.namespace, "hooks").also_for("127.0.0.1").lifetimes(lifetimes);
        targets.into_iter().fold(options, SelfMade::inject)
    }

    /// Targets that are kept as the webhooks declare them.
    pub(crate) fn applied(&self, webhooks: &Webhooks) -> Vec<Target> {
        let (name, location) = (&self.namespace, self.location());
        let validating = webhooks.validating_configuration(name, &location);
        let mutating = webhooks.mutating_configuration(name, &location);
        let validating = validating.map(|configuration| Target::ApplyValidating(Box::new(configuration)));
        let mutating = mutating.map(|configuration| Target::ApplyMutating(Box::new(configuration)));
        validating.into_iter().chain(mutating).collect()
    }

    /// A client of the operator through a port behind which nothing is yet, and where the API server really is.
    pub(crate) async fn detour(&self) -> (Client, u16, SocketAddr) {
        let kubeconfig = control_plane().await.service_account_kubeconfig(&self.namespace, ACCOUNT).await.unwrap();
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let real = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
        let port = konverge_testkit::free_port().unwrap();
        config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
        (Client::try_from(config).unwrap(), port, real)
    }

    /// Lets the operator do what these options need.
    pub(crate) async fn grant(&self, Permissions { role, cluster_role, .. }: Permissions) {
        let namespace = &self.namespace;
        let subjects = json!([{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }]);
        let names = json!({ "metadata": { "name": namespace } });
        let with = |kind: &str, more: Value| {
            let mut object = names.clone();
            object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
            object["kind"] = kind.into();
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object
        };
        let reference =
            |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": namespace });
        let here = |kind| json!({ "roleRef": reference(kind), "subjects": subjects });
        self.apply(&Api::<Role>::namespaced(self.admin.clone(), namespace), &with("Role", json!({ "rules": role })))
            .await;
        self.apply(&Api::<RoleBinding>::namespaced(self.admin.clone(), namespace), &with("RoleBinding", here("Role")))
            .await;
        let rules = json!({ "rules": cluster_role });
        self.apply(&Api::<ClusterRole>::all(self.admin.clone()), &with("ClusterRole", rules)).await;
        let everywhere = with("ClusterRoleBinding", here("ClusterRole"));
        self.apply(&Api::<ClusterRoleBinding>::all(self.admin.clone()), &everywhere).await;
    }

    async fn apply<K: Clone + std::fmt::Debug + DeserializeOwned>(&self, api: &Api<K>, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
    }

    /// Makes a definition, and waits until its objects can be made.
    pub(crate) async fn define<G: Group>(&self, definition: CustomResourceDefinition) {
        let api = Api::<CustomResourceDefinition>::all(self.admin.clone());
        api.create(&kube::api::PostParams::default(), &definition).await.unwrap();
        let name = format!("things.{}", G::NAME);
        let established = await_condition(api, &name, is_crd_established());
        tokio::time::timeout(SOON, established).await.unwrap().unwrap();
    }

    /// A running server with these certificates, once it is ready.
    pub(crate) async fn serve(&self, webhooks: Webhooks, options: SelfMade) -> Running {
        self.grant(options.permissions()).await;
        let certificates = Certificates::self_made(self.operator.clone(), options);
        let running = self.bind(webhooks, certificates).await;
        eventually(SOON, async || (running.ready)().ok()).await.unwrap_or_else(|_| panic!("{:?}", (running.ready)()));
        running
    }

    /// A running server.
    pub(crate) async fn bind(&self, webhooks: Webhooks, certificates: Certificates) -> Running {
        let address = (std::net::Ipv4Addr::LOCALHOST, self.port).into();
        Running::start_at(address, webhooks, certificates, Limits::default()).await
    }

    pub(crate) async fn secret(&self) -> Option<Secret> {
        let api = Api::<Secret>::namespaced(self.admin.clone(), &self.namespace);
        api.get_opt("hooks-webhook-certificates").await.unwrap()
    }

    /// The authorities and the certificate of the Secret.
    pub(crate) async fn stored(&self) -> (String, String) {
        let data = self.secret().await.unwrap().data.unwrap();
        let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
        (text("ca.crt"), text("tls.crt"))
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// Creates an object for show, and gives the status of the answer and its warnings.
    pub(crate) async fn try_create<K>(&self, object: &K) -> (u16, Vec<String>)
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + Serialize,
    {
        let url = format!("{}?dryRun=All", K::url_path(&(), Some(&self.namespace)));
        let body = serde_json::to_vec(object).unwrap();
        let request = Request::post(url).header("content-type", "application/json").body(body.into()).unwrap();
        let response = self.admin.send(request).await.unwrap();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
        (response.status().as_u16(), warnings)
    }
}

/// A clock that the test sets.
#[derive(Clone)]
pub(crate) struct Clock(Arc<std::sync::atomic::AtomicI64>);

impl Clock {
    /// So many days ago.
    pub(crate) fn days_ago(days: i64) -> Self {
        let this = Self(Arc::default());
        this.set_days_ago(days);
        this
    }

    pub(crate) fn set_days_ago(&self, days: i64) {
        self.0.store(days * 24 * 3600, std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Timestamp {
        let behind = self.0.load(std::sync::atomic::Ordering::SeqCst);
        Timestamp::from_second(Timestamp::now().as_second() - behind).unwrap()
    }
}
