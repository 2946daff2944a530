//! Somebody who watches all workloads and counts how often the pod template of each changed. A Deployment's `ReplicaSets` say less: a
//! template that comes back has one already.

use std::{
    collections::HashMap,
    path::PathBuf,
    pin::pin,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::CronJob};
use konverge_testkit::{client_for, eventually};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;

use crate::stage::SOON;

/// By uid.
static SEEN: Mutex<Option<HashMap<String, Known>>> = Mutex::new(None);

struct Known {
    version: u64,
    template: Value,
    changes: usize,
}

/// Watches until the process ends, on a thread of its own, as several tests share the cluster.
pub(crate) fn start(kubeconfig: PathBuf) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client_for(&kubeconfig).await.unwrap();
            let watch = |kind: &ApiResource| {
                let api = Api::<DynamicObject>::all_with(client.clone(), kind);
                watcher(api, watcher::Config::default()).default_backoff().boxed()
            };
            let kinds = [ApiResource::erase::<Deployment>(&()), ApiResource::erase::<CronJob>(&())];
            let mut events = pin!(stream::select_all(kinds.iter().map(watch)));
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event {
                    note(&object);
                }
            }
        });
    });
}

fn note(object: &DynamicObject) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let template = template(object);
    let known = seen.get_or_insert_default().entry(object.uid().unwrap());
    let known = known.or_insert_with(|| Known { version: 0, template: template.clone(), changes: 0 });
    known.version = version(object);
    if known.template != template {
        known.changes += 1;
        known.template = template;
    }
}

/// How often its pod template has changed since it was made, up to what it is now at least.
pub(crate) async fn changes(object: &DynamicObject) -> usize {
    let (uid, version) = (object.uid().unwrap(), version(object));
    let counted = || {
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.as_ref().and_then(|seen| seen.get(&uid)).filter(|known| known.version >= version);
        std::future::ready(known.map(|known| known.changes))
    };
    eventually(SOON, counted).await.expect("the watch sees it, too")
}

/// The pod template of a workload.
pub(crate) fn template(object: &DynamicObject) -> Value {
    let spec = &object.data["spec"];
    let template = spec.pointer("/jobTemplate/spec/template").or_else(|| spec.get("template"));
    template.cloned().unwrap_or_default()
}

fn version(object: &DynamicObject) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}
