//! Watches that outlive their API server.

use std::{collections::BTreeSet, future, pin::Pin, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use konverge_runtime::{
    Metrics,
    client::{self, ClientOptions},
    watch::{self, Event, WatchOptions},
};
use konverge_testkit::{ControlPlane, Options, eventually};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
    core::PartialObjectMeta,
};

use super::{control_plane, requests};

type Events = Pin<Box<dyn Stream<Item = Event<PartialObjectMeta<Secret>>> + Send>>;

/// A cache made of names, as a consumer keeps one.
struct Names {
    events: Events,
    known: BTreeSet<String>,
    listing: Option<BTreeSet<String>>,
}

impl Names {
    fn new(events: impl Stream<Item = Event<PartialObjectMeta<Secret>>> + Send + 'static) -> Self {
        Self { events: Box::pin(events), known: BTreeSet::new(), listing: None }
    }

    /// Follows the events until the names are these.
    async fn become_these(&mut self, wanted: &[&str]) {
        let wanted: BTreeSet<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let followed = tokio::time::timeout(Duration::from_secs(60), async {
            while self.known != wanted || self.listing.is_some() {
                self.follow().await;
            }
        });
        assert!(followed.await.is_ok(), "wanted {wanted:?}, got {:?}", self.known);
    }

    /// Follows the events until the client has sent another request: the watch has ended, and another has begun.
    async fn outlive_a_watch(&mut self, metrics: &Metrics) {
        let before = requests(metrics);
        let begun = eventually(Duration::from_secs(60), || future::ready((requests(metrics) > before).then_some(())));
        let follow = async {
            loop {
                self.follow().await;
            }
        };
        tokio::select! {
            begun = begun => begun.unwrap(),
            () = follow => {}
        }
    }

    /// Takes the next event.
    async fn follow(&mut self) {
        match self.events.next().await.unwrap() {
            Event::Init => self.listing = Some(BTreeSet::new()),
            Event::InitApply(object) => {
                self.listing.as_mut().unwrap().insert(object.name_any());
            }
            Event::InitDone => self.known = self.listing.take().unwrap(),
            Event::Apply(object) => {
                self.known.insert(object.name_any());
            }
            Event::Delete(object) => {
                self.known.remove(&object.name_any());
            }
        }
    }
}

fn secret(name: &str, label: &str) -> Secret {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("app".to_owned(), label.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Secret { metadata, string_data: Some([("password".to_owned(), "hunter2".to_owned())].into()), ..Secret::default() }
}

/// The client that programs use.
async fn client_of(control_plane: &ControlPlane, metrics: &Metrics) -> Client {
    let options =
        ClientOptions::default().with(|options| options.kubeconfig = Some(control_plane.kubeconfig().to_owned()));
    client::build(&options, metrics.client()).await.unwrap()
}

#[tokio::test]
async fn namespace_and_labels_choose() {
    let control_plane = control_plane().await;
    let client = client_of(control_plane, &Metrics::new("test", "0")).await;
    let (here, elsewhere) =
        (control_plane.namespace("watch").await.unwrap(), control_plane.namespace("watch").await.unwrap());
    // A label of this test's own, since the cluster may be one that has Secrets.
    let shop = here.as_str();
    let create = async |namespace: &str, name: &str, label: &str| {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        api.create(&PostParams::default(), &secret(name, label)).await.unwrap();
    };
    create(&here, "a", shop).await;
    create(&here, "other", "blog").await;
    create(&elsewhere, "b", shop).await;
    let options = WatchOptions::default().with(|options| {
        options.namespace = Some(here.clone());
        options.label_selector = Some(format!("app={shop}"));
    });
    let (events, health) = watch::events::<PartialObjectMeta<Secret>>(client.clone(), &(), &options);
    let mut names = Names::new(events);
    names.become_these(&["a"]).await;
    assert!(health.is_synced());
    create(&here, "c", shop).await;
    names.become_these(&["a", "c"]).await;
    Api::<Secret>::namespaced(client.clone(), &here).delete("a", &DeleteParams::default()).await.unwrap();
    names.become_these(&["c"]).await;

    let whole_cluster = WatchOptions::default().with(|options| options.label_selector = Some(format!("app={shop}")));
    let (events, _) = watch::events::<PartialObjectMeta<Secret>>(client.clone(), &(), &whole_cluster);
    Names::new(events).become_these(&["b", "c"]).await;
}

#[tokio::test]
async fn row_05_it_starts_without_and_outlives_an_api_server() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("watch").await.unwrap();
    let metrics = Metrics::new("test", "0");
    let client = client_of(&control_plane, &metrics).await;
    let api: Api<Secret> = Api::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    for name in ["stays", "goes"] {
        api.create(&PostParams::default(), &secret(name, "shop")).await.unwrap();
    }
    control_plane.kill_api_server().unwrap();

    let options = WatchOptions::default().with(|options| {
        options.namespace = Some(namespace);
        options.timeout = Duration::from_secs(5);
        options.backoff = konverge_core::backoff::Backoff {
            base: Duration::from_millis(50),
            factor: 2.0,
            cap: Duration::from_millis(500),
        };
    });
    let (events, health) = watch::events::<PartialObjectMeta<Secret>>(client, &(), &options);
    let mut names = Names::new(events);
    let fails = eventually(Duration::from_secs(60), async || health.failing_for());
    tokio::select! {
        () = names.become_these(&["stays", "goes"]) => panic!("there is no API server"),
        failing = fails => assert!(failing.is_ok(), "the first request fails"),
    }
    assert!(!health.is_synced());

    control_plane.start_api_server().await.unwrap().unwrap();
    names.become_these(&["stays", "goes"]).await;

    control_plane.kill_api_server().unwrap();
    control_plane.start_api_server().await.unwrap().unwrap();
    api.delete("goes", &DeleteParams::default()).await.unwrap();
    names.become_these(&["stays"]).await;
    // Changes after the end of a watch are still seen.
    for round in 0..2 {
        let name = format!("new-{round}");
        api.create(&PostParams::default(), &secret(&name, "shop")).await.unwrap();
        names.become_these(&["stays", &name]).await;
        names.outlive_a_watch(&metrics).await;
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        names.become_these(&["stays"]).await;
    }
}
