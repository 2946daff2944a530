//! A Redis with replicas. An upgrade reaches the replicas first, and the primary once all replicas run the new version.

use konverge::{
    k8s_openapi::api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Service},
    },
    kube::core::object::HasSpec,
    prelude::*,
    serde_json::{Value, from_value, json},
};

/// A Redis that is to run.
#[konverge::resource(
    group = "example.io",
    version = "v1alpha1",
    kind = "Redis",
    namespaced,
    status = "Status",
    plural = "redises"
)]
pub struct RedisSpec {
    /// The version of the image, such as `7.4`.
    pub version: String,
    /// The number of replicas beside the primary.
    pub replicas: u32,
}

struct Reconciler;

impl Reconcile<Redis> for Reconciler {
    type Error = Error;

    async fn apply(&self, redis: Arc<Redis>, context: Context<Redis>) -> Result<Action, Error> {
        let name = redis.name_any();
        let (primary, replica, backups) =
            (format!("{name}-primary"), format!("{name}-replica"), format!("{name}-backups"));
        let of_primary = format!("--replicaof {primary} 6379");
        let children = context
            .children()
            // Deleting the Redis leaves its backups.
            .with_options(claim(&backups)?, |backups| backups.retain().tolerate_unready())
            .with(service(&primary)?)
            .with(stateful_set(&replica, &redis.spec().version, redis.spec().replicas, &of_primary)?);
        // A new database begins with its primary, an upgrade ends with it.
        let is_new = context.owned::<StatefulSet>()?.iter().all(|child| child.name_any() != primary);
        let set = stateful_set(&primary, &redis.spec().version, 1, "")?;
        let children = if is_new {
            children.with(set)
        } else {
            children.with_options(set, |primary| primary.after::<StatefulSet>(&replica))
        };
        children.apply().await?;
        Ok(Action::Done)
    }
}

fn stateful_set(name: &str, version: &str, replicas: u32, arguments: &str) -> Result<StatefulSet, Error> {
    let labels = json!({ "app.kubernetes.io/name": name });
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let container =
        json!({ "name": "redis", "image": format!("docker.io/library/redis:{version}"), "args": arguments });
    child(json!({
        "metadata": { "name": name },
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    }))
}

fn service(name: &str) -> Result<Service, Error> {
    let port = json!({ "name": "redis", "port": 6379 });
    child(
        json!({ "metadata": { "name": name }, "spec": { "selector": { "app.kubernetes.io/name": name }, "ports": [port] } }),
    )
}

fn claim(name: &str) -> Result<PersistentVolumeClaim, Error> {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    child(json!({ "metadata": { "name": name }, "spec": spec }))
}

fn child<C: konverge::Child>(object: Value) -> Result<C, Error> {
    Ok(from_value(object)?)
}

/// The operator.
pub fn operator() -> Operator {
    let controller = Controller::new(Reconciler)
        .owns::<PersistentVolumeClaim>()
        .owns::<Service>()
        .owns::<StatefulSet>()
        .finalizer("redis.example.io/children");
    Operator::new("redis-operator", env!("CARGO_PKG_VERSION")).controller(controller)
}
