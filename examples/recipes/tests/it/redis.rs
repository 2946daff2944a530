//! The life of a Redis, with a test in the place of the controller that runs pods.

use konverge::{
    k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim},
    kube::{
        Api, Client,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    serde_json::json,
};
use konverge_recipes::redis::{Redis, RedisSpec, operator};
use konverge_testkit::{ControlPlane, Options, RoleUse, eventually};

use crate::LIMIT;

struct World {
    client: Client,
    namespace: String,
}

impl World {
    fn redises(&self) -> Api<Redis> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn image(&self, set: &str) -> Option<String> {
        let set = self.sets().get_opt(set).await.unwrap()?;
        set.spec?.template.spec?.containers.first()?.image.clone()
    }

    /// Waits until a set has this version, and says that its pods run it.
    async fn roll_out(&self, set: &str, version: &str) {
        let image = format!("docker.io/library/redis:{version}");
        let found =
            eventually(LIMIT, || async { (self.image(set).await.as_ref() == Some(&image)).then_some(()) }).await;
        assert!(found.is_ok(), "{set} has {:?}", self.image(set).await);
        let now = self.sets().get(set).await.unwrap();
        let replicas = now.spec.as_ref().and_then(|spec| spec.replicas).unwrap();
        let status = json!({ "status": {
            "observedGeneration": now.metadata.generation, "replicas": replicas, "readyReplicas": replicas,
            "updatedReplicas": replicas, "currentReplicas": replicas, "availableReplicas": replicas,
            "currentRevision": version, "updateRevision": version,
        }});
        self.sets().patch_status(set, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Waits until the Redis has this status of this condition, and returns the message.
    async fn says(&self, condition: &str, status: &str) -> String {
        let found = eventually(LIMIT, || async {
            let redis = self.redises().get("cache").await.unwrap();
            let conditions =
                redis.status.filter(|status| status.observed_generation == redis.metadata.generation)?.conditions;
            let found = conditions.get(condition)?;
            (found.status == status).then(|| found.message.clone())
        });
        if let Ok(message) = found.await {
            return message;
        }
        panic!("not {condition}={status}: {:?}", self.redises().get("cache").await.unwrap().status)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_reaches_the_primary_after_the_replicas() {
    let plane = ControlPlane::start(Options::ours()).await.unwrap();
    let client = plane.admin_client().await.unwrap();
    let home = plane.namespace("operator").await.unwrap();
    let manifest = operator().generate(&home).unwrap().manifest();
    let installed = plane.install("redis-operator", &home, &manifest).await.unwrap();
    let arguments = ["--leader-election"];
    let mut running =
        installed.start("redis-operator", env!("CARGO_BIN_EXE_redis-operator"), &arguments).await.unwrap();
    let world = World { client, namespace: plane.namespace("user").await.unwrap() };

    let spec = RedisSpec { version: "7.4".to_owned(), replicas: 2 };
    world.redises().create(&PostParams::default(), &Redis::new("cache", spec)).await.unwrap();
    world.roll_out("cache-primary", "7.4").await;
    let message = world.says("Ready", "False").await;
    assert!(message.contains("cache-replica"), "{message}");
    world.roll_out("cache-replica", "7.4").await;
    world.says("Ready", "True").await;

    let upgrade = Patch::Merge(json!({ "spec": { "version": "8.0" } }));
    world.redises().patch("cache", &PatchParams::default(), &upgrade).await.unwrap();
    let message = world.says("Reconciling", "True").await;
    assert!(message.contains("cache-replica"), "{message}");
    assert_eq!(world.image("cache-primary").await.as_deref(), Some("docker.io/library/redis:7.4"));
    world.roll_out("cache-replica", "8.0").await;
    world.roll_out("cache-primary", "8.0").await;
    world.says("Ready", "True").await;

    // Its backups stay when it goes.
    world.redises().delete("cache", &DeleteParams::default()).await.unwrap();
    // Nothing collects garbage here, so the primary stays until the test has done that.
    let going = eventually(LIMIT, || async {
        let primary = world.sets().get("cache-primary").await.unwrap();
        primary.metadata.deletion_timestamp.is_some().then_some(())
    });
    going.await.unwrap();
    assert!(world.sets().get("cache-replica").await.unwrap().metadata.deletion_timestamp.is_none());
    let collected = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    world.sets().patch("cache-primary", &PatchParams::default(), &collected).await.unwrap();
    let gone = eventually(LIMIT, || async { world.redises().get_opt("cache").await.unwrap().is_none().then_some(()) });
    gone.await.unwrap();
    assert!(world.sets().get_opt("cache-primary").await.unwrap().is_none());
    let claims = Api::<PersistentVolumeClaim>::namespaced(world.client.clone(), &world.namespace);
    assert!(claims.get_opt("cache-backups").await.unwrap().is_some());

    running.terminate(LIMIT).await.unwrap();
    let rules = operator().grant(&home).rules();
    let log = plane.audit_log().unwrap();
    log.catch_up(&world.client).await.unwrap();
    let used = RoleUse::of(&installed.requests(&log).unwrap(), &rules);
    // Nothing failed and nothing was dropped here, so some of what the role allows was not needed.
    assert!(used.refused.is_empty(), "{used:?}");
}
