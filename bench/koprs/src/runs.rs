//! A reconciler that does nothing.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_bench_protocol::{Job, MARK, Tell, WORKERS};
use koprs::{
    KubeGenericError,
    controller::{Action, Context, ControllerBuilder, Reconciler},
};
use kube::{Api, Client, ResourceExt};

struct Runs {
    tell: Tell,
    takes: Duration,
}

impl Reconciler<ConfigMap> for Runs {
    type Error = KubeGenericError;

    async fn reconcile(&self, object: Arc<ConfigMap>, _: Arc<Context>) -> Result<Action, Self::Error> {
        self.tell.run(&object.name_any(), object.annotations().get(MARK).map(String::as_str));
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        Ok(Action::await_change())
    }
}

pub(crate) async fn run(client: Client, job: &Job, tell: Tell) -> Result<(), KubeGenericError> {
    let api = Api::namespaced(client.clone(), &job.namespace);
    let reconciler = Runs { tell, takes: job.takes };
    ControllerBuilder::<ConfigMap>::new(api).concurrency(WORKERS).run(reconciler, Context::new(client)).await
}
