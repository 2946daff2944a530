//! Controllers of kinds that are not the author's own: by their metadata only, and known at run time only.

use konverge::prelude::*;
use kube::api::{ApiResource, PostParams};
use serde_json::json;

use crate::stage::{Place, Runs, operator};

const WANTED: &str = "test.konverge.dev/wanted";

struct Noting(Runs);

impl Reconcile<PartialObjectMeta<Secret>> for Noting {
    type Error = Error;

    async fn apply(
        &self,
        _: Arc<PartialObjectMeta<Secret>>,
        context: Context<PartialObjectMeta<Secret>>,
    ) -> Result<Action, Error> {
        self.0.note(&context);
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_annotated_objects_are_worked_on_and_their_annotation_can_come_later() {
    let (place, runs) = (Place::new().await, Runs::default());
    let controller =
        Controller::watching(Noting(runs.clone())).only(|secret| secret.annotations().contains_key(WANTED));
    let running = place.run(operator(controller), &[]).await;
    for name in ["plain", "wanted"] {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        place.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }
    place.merge::<Secret>("wanted", json!({"metadata": {"annotations": {WANTED: "yes"}}})).await;
    runs.reach("wanted", 1).await;
    assert_eq!(runs.counts().into_iter().collect::<Vec<_>>(), [("wanted".to_owned(), 1)]);
    running.end().await.unwrap();
}

/// Copies what a config map has into a label of its own, whatever the type of the object.
struct Labelling(Runs);

impl Reconcile<DynamicObject> for Labelling {
    type Error = Error;

    async fn apply(&self, object: Arc<DynamicObject>, context: Context<DynamicObject>) -> Result<Action, Error> {
        let value = object.data.pointer("/data/value").and_then(|value| value.as_str()).unwrap_or("none");
        context.label("test.konverge.dev/value", value).await?;
        self.0.note(&context);
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_known_at_run_time_only_is_worked_on_like_any_other() {
    let (place, runs) = (Place::new().await, Runs::default());
    let kind = ApiResource::erase::<ConfigMap>(&());
    let running = place.run(operator(Controller::dynamic(kind, Labelling(runs.clone()))), &[]).await;
    place.create_config_map("loose", &[("value", "seven")]).await;
    runs.reach("loose", 1).await;
    assert_eq!(place.api::<ConfigMap>().get("loose").await.unwrap().labels()["test.konverge.dev/value"], "seven");
    place.merge::<ConfigMap>("loose", json!({"data": {"value": "eight"}})).await;
    // Its own label did not wake it; the change did.
    assert_eq!(runs.reach("loose", 2).await.len(), 2);
    assert_eq!(place.api::<ConfigMap>().get("loose").await.unwrap().labels()["test.konverge.dev/value"], "eight");
    running.end().await.unwrap();
}
