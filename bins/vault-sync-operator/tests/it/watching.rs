//! Watches that fail or fall silent, and an API server that wants to be asked less (F04, F06, F11): each change is one version in Vault.

use std::{future::ready, path::Path, time::Duration};

use futures::{StreamExt, stream};
use konverge_testkit::{
    Process, eventually,
    fault_proxy::{FaultProxy, Plan},
    http_get,
};

use tokio::time::sleep;

use crate::stage::{SOON, Stage, View, until};

/// More than a page of Secrets that nobody asks for.
const FOREIGN: usize = 110;

/// A Secret with a path of its own that a Deployment uses, too, in a namespace whose operator asks through a proxy.
struct Scene {
    view: View,
    proxy: FaultProxy,
    operator: Process,
    /// So often the Secret was changed.
    rounds: u64,
}

impl Scene {
    async fn set(name: &str) -> Self {
        let stage = Stage::shared().await;
        Self::set_with(stage, name, stage.kubeconfig(), &[]).await
    }

    async fn set_with(stage: &Stage, name: &str, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let namespace = stage.plane.namespace(name).await.unwrap();
        let view = stage.view(&namespace).await;
        let proxy = FaultProxy::start(stage.plane.run_directory(), kubeconfig).await.unwrap();
        let (spec, health, _) = stage.operator(proxy.kubeconfig(), &namespace, stage.server.address());
        let mut operator = Process::start(stage.plane.run_directory(), spec.args(arguments)).unwrap();
        let is_ready = || async { http_get(&health, "/readyz").await.is_ok_and(|(code, _)| code == 200) };
        operator.ready("become ready", SOON, is_ready).await.unwrap();
        view.deployment("app", "db", &view.path("app")).await.unwrap();
        let mut scene = Self { view, proxy, operator, rounds: 0 };
        scene.change().await;
        scene.arrives().await;
        scene
    }

    /// Changes the Secret once more.
    async fn change(&mut self) {
        self.rounds += 1;
        let value = self.rounds.to_string();
        self.view.secret("db", &[("n", &value)], Some(&self.view.path("db"))).await.unwrap();
    }

    /// Both paths hold the last change, and both objects say so.
    async fn arrives(&self) {
        for (kind, name, path) in self.objects() {
            until(&format!("{name} is in sync with change {}; {:?}", self.rounds, self.proxy.fired()), async || {
                let holds = self.view.holds(&path, "n", &self.rounds.to_string()).await?;
                Ok(holds && self.view.is_synced(kind, name, &[&path]).await?)
            })
            .await;
        }
    }

    /// The same, and each change has made one version.
    async fn has_arrived(&self, what: &str) {
        self.arrives().await;
        for (_, _, path) in self.objects() {
            assert_eq!(self.view.versions(&path).await.unwrap(), (self.rounds, true), "{what}: {path}");
        }
    }

    fn objects(&self) -> [(&'static str, &'static str, String); 2] {
        [("Secret", "db", self.view.path("db")), ("Deployment", "app", self.view.path("app/db"))]
    }

    fn befalls(&self, rules: &str) {
        self.proxy.set(Plan::parse(&format!("seed: 11\nrules:\n{rules}")).unwrap()).unwrap();
    }

    /// Until the rules have acted so often.
    async fn fired(&self, times: &[u64]) {
        let is_so = || ready(self.proxy.fired().iter().zip(times).all(|(fired, times)| fired >= times).then_some(()));
        assert!(eventually(SOON, is_so).await.is_ok(), "{:?} instead of {times:?}", self.proxy.fired());
    }

    /// How often the Secrets were listed since the mark.
    fn lists(&self, mark: usize) -> usize {
        let asked = self.proxy.requests_since(mark);
        let begins = |path: &&str| !path.contains("continue=") && !path.contains("watch=");
        let lists = asked.entries().iter().filter(|entry| entry.request.verb == konverge_testkit::Verb::List);
        lists.filter(|entry| entry.request.resource == "secrets").map(|entry| &*entry.uri).filter(begins).count()
    }

    /// The invariants after every bad day.
    fn end(mut self) {
        assert!(self.operator.status().is_none(), "the operator has ended:\n{}", self.operator.logged());
        assert!(
            !self.proxy.journal().iter().any(|entry| entry.request.name.starts_with("foreign")),
            "it was even read"
        );
    }
}

/// For how often a watch fails there may be one list, and one more as connections end.
#[tokio::test(flavor = "multi_thread")]
async fn f04_whatever_befalls_a_watch_the_next_change_is_one_version() {
    let mut scene = Scene::set("watches").await;
    for (rule, most_lists) in [
        ("- { when: { verbs: [watch], resources: [secrets], times: 2 }, then: { status: { code: 410 } } }", 3),
        ("- { when: { verbs: [watch], resources: [secrets], times: 2 }, then: { error_event: 410 } }", 3),
        ("- { when: { phase: body, verbs: [watch], resources: [secrets], times: 2 }, then: { error_event: 410 } }", 3),
        ("- { when: { phase: body, verbs: [watch], times: 2 }, then: truncate }", 1),
        ("- { when: { verbs: [watch], times: 8 }, then: { status: { code: 500 } } }", 1),
        ("- { when: { phase: body, verbs: [watch] }, then: duplicate }", 1),
    ] {
        scene.befalls(rule);
        scene.proxy.end_connections();
        let begun = scene.proxy.mark();
        scene.change().await;
        scene.fired(&[1]).await;
        scene.has_arrived(rule).await;
        let lists = scene.lists(begun);
        assert!(lists <= most_lists, "{rule}: {lists} lists");
        scene.proxy.clear();
    }
    scene.end();
}

/// Lists fail, from the beginning or at a continuation that has expired. The content of Vault stays, and each failure may cost one more list.
#[tokio::test(flavor = "multi_thread")]
async fn f04_lists_that_fail_begin_anew_and_take_nothing_away() {
    let mut scene = Scene::set("lists").await;
    let view = &scene.view;
    let foreign = stream::iter(0..FOREIGN).for_each_concurrent(16, async |number| {
        view.secret(&format!("foreign-{number}"), &[("n", "theirs")], None).await.unwrap();
    });
    foreign.await;
    for (rule, times) in [
        ("- { when: { verbs: [list], resources: [secrets], times: 3 }, then: { status: { code: 500 } } }", 3),
        ("- { when: { verbs: [list], resources: [secrets], times: 3 }, then: { status: { code: 410 } } }", 3),
        (
            "- { when: { verbs: [list], resources: [secrets], query: { continue: '*' }, times: 2 }, then: { status: { code: 410 } } }",
            2,
        ),
    ] {
        scene.befalls(&format!(
            "{rule}\n- {{ when: {{ verbs: [watch], resources: [secrets], times: 1 }}, then: {{ error_event: 410 }} }}"
        ));
        scene.proxy.end_connections();
        let begun = scene.proxy.mark();
        scene.change().await;
        scene.fired(&[times, 1]).await;
        scene.has_arrived(rule).await;
        let (lists, most) = (scene.lists(begun), usize::try_from(times).unwrap() + 2);
        assert!(lists <= most, "{rule}: {lists} lists");
        scene.proxy.clear();
    }
    scene.end();
}

/// How soon it is noticed is a matter of the library, and shown with pull.
#[tokio::test(flavor = "multi_thread")]
async fn f06_while_one_watch_says_nothing_the_others_are_heard_and_what_it_missed_comes_after() {
    let mut scene = Scene::set("frozen").await;
    scene.befalls("- { when: { phase: body, verbs: [watch], resources: [secrets], times: 1 }, then: freeze }");
    scene.change().await;
    scene.fired(&[1]).await;
    scene.change().await;
    // Heard by the watch of Deployments, and of Secrets what there is counts.
    let late = scene.view.path("late");
    scene.view.deployment("late", "db", &late).await.unwrap();
    let path = format!("{late}/db");
    until("what is heard is done", async || scene.view.holds(&path, "n", "3").await).await;
    assert!(scene.view.holds(&scene.view.path("db"), "n", "1").await.unwrap(), "nobody told of it");
    scene.proxy.release();
    scene.arrives().await;
    for (path, versions) in [(path, 1), (scene.view.path("db"), 2), (scene.view.path("app/db"), 2)] {
        assert_eq!(scene.view.versions(&path).await.unwrap(), (versions, true), "{path}");
    }
    scene.end();
}

/// The time for which it is refused, and the number of requests that this may be. A list and a watch of each of eight kinds come as connections
/// end, then one a second, and a few for the objects.
const FOR: Duration = Duration::from_secs(4);
const AT_MOST: usize = 64;

/// No faster than it is told, whatever is refused; and what was to be done is done once.
#[tokio::test(flavor = "multi_thread")]
async fn f11_it_slows_down_when_told_to_and_writes_each_change_once() {
    let mut scene = Scene::set("throttled").await;
    for (what, rule) in [
        ("writes", "- { when: { mutating: true }, then: { status: { code: 429, retry_after: 1 } } }"),
        ("everything", "- { when: {}, then: { status: { code: 429, retry_after: 1 } } }"),
    ] {
        scene.befalls(rule);
        scene.proxy.end_connections();
        let begun = scene.proxy.mark();
        scene.change().await;
        scene.fired(&[1]).await;
        // Real time, because the test limits the rate of requests.
        sleep(FOR).await;
        let asked = scene.proxy.mark() - begun;
        println!("{what}: {asked} requests");
        assert!(asked <= AT_MOST, "{what}: {asked} requests in {FOR:?}");
        scene.proxy.clear();
        scene.has_arrived(what).await;
    }
    scene.end();
}

/// Less than the holder's patience changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f11_a_leader_whose_lease_is_refused_for_a_moment_goes_on() {
    let stage = Stage::shared().await;
    let (_, kubeconfig) = stage.another(|manifest| manifest).await;
    let mut scene = Scene::set_with(stage, "lease", &kubeconfig, &["-leader-elect"]).await;
    scene.befalls(
        "- { when: { resources: [leases.coordination.k8s.io], times: 2 }, then: { status: { code: 429, retry_after: 1 } } }",
    );
    scene.fired(&[1]).await;
    scene.change().await;
    scene.has_arrived("refused").await;
    let is_renewed = || {
        let asked = scene.proxy.requests_since(0);
        let mut since = asked.entries().iter().rev().take_while(|entry| entry.faults.is_empty());
        let renewed = since.any(|entry| entry.request.resource == "leases" && entry.client_code == Some(200));
        ready((renewed && scene.proxy.fired() == [2]).then_some(()))
    };
    assert!(eventually(SOON, is_renewed).await.is_ok(), "{:?}", scene.proxy.fired());
    scene.change().await;
    scene.has_arrived("renewed").await;
    scene.end();
}
