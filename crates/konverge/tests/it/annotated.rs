//! A controller of a built-in kind that looks at metadata only, and leaves what is not annotated alone.

use konverge::prelude::*;
use kube::api::PostParams;
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
