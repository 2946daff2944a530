//! Releases of an operator that own other kinds than the release before.

use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount, ServicePort, ServiceSpec};
use konverge::{Operator, prelude::*};
use konverge_testkit::eventually;
use kube::{Api, api::PostParams};

use crate::stage::{LIMIT, Place, Probe, Running, control_plane, run_as};

const PROGRAM: &str = "konverge-releases";

/// Each probe has a `ConfigMap`, and in some releases other children.
#[derive(Clone, Copy)]
struct Release {
    has_service: bool,
    has_account: bool,
}

fn service(name: String) -> Service {
    let port = ServicePort { port: 80, ..ServicePort::default() };
    let spec = ServiceSpec { cluster_ip: Some("None".to_owned()), ports: Some(vec![port]), ..ServiceSpec::default() };
    let mut service = Service { spec: Some(spec), ..Service::default() };
    service.metadata.name = Some(name);
    service
}

impl Reconcile<Probe> for Release {
    type Error = Error;

    async fn apply(&self, probe: Arc<Probe>, context: Context<Probe>) -> Result<Action, Error> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(probe.name_any());
        let mut children = context.children().with(map);
        if self.has_service {
            children = children.with(service(probe.name_any()));
        }
        if self.has_account {
            let mut account = ServiceAccount::default();
            account.metadata.name = Some(probe.name_any());
            children = children.with(account);
        }
        children.apply().await?;
        Ok(Action::Done)
    }
}

/// Installs a release with the role that it generates, and runs it.
async fn run(place: &Place, operator: fn() -> Operator) -> Running {
    run_with_role_of(place, operator, operator).await
}

/// Runs a release with the role that another one generates.
async fn run_with_role_of(place: &Place, operator: fn() -> Operator, installed: fn() -> Operator) -> Running {
    let manifest = installed().generate(&place.namespace).unwrap().manifest();
    let account = control_plane().await.install(PROGRAM, &place.namespace, &manifest).await.unwrap();
    let arguments = ["--namespace", &place.namespace, "--lease-namespace", &place.namespace];
    run_as(account.kubeconfig(), operator(), &arguments).await
}

fn first() -> Operator {
    let controller = Controller::new(Release { has_service: true, has_account: false });
    Operator::new(PROGRAM, "1").controller(controller.owns::<ConfigMap>().owns::<Service>())
}

fn second() -> Operator {
    let controller = Controller::new(Release { has_service: false, has_account: true });
    Operator::new(PROGRAM, "2").controller(controller.owns::<ConfigMap>().owns::<ServiceAccount>())
}

fn third() -> Operator {
    let controller = Controller::new(Release { has_service: false, has_account: true });
    let controller = controller.owns::<ConfigMap>().owns::<ServiceAccount>().formerly_owned("services");
    Operator::new(PROGRAM, "3").controller(controller)
}

/// Waits until the kinds that the controller owns and owned are recorded so.
async fn records(place: &Place, expected: &str) {
    let secrets: Api<Secret> = place.api();
    let recorded = eventually(LIMIT, || async {
        let secret = secrets.get_opt(&format!("{PROGRAM}-owner-key")).await.unwrap()?;
        let recorded = secret.annotations().get("owned-kinds.konverge.dev/probes").cloned();
        (recorded.as_deref() == Some(expected)).then_some(())
    });
    recorded.await.unwrap_or_else(|_| panic!("{expected} is not recorded"));
}

async fn is_gone(services: &Api<Service>, name: &str) {
    let gone = eventually(LIMIT, || async { services.get_opt(name).await.unwrap().is_none().then_some(()) });
    gone.await.unwrap_or_else(|_| panic!("{name} is still there"));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_of_a_kind_that_a_release_drops_are_deleted_and_no_others() {
    let place = Place::new().await;
    let services: Api<Service> = place.api();
    let running = run(&place, first).await;
    let owner = place.create_probe("one", "ok").await;
    place.says("one", |conditions| conditions.is_true("Ready")).await;
    records(&place, "configmaps,services").await;
    let own = services.get("one").await.unwrap();
    running.end().await.unwrap();
    // Others have made these: one has nothing to do with the owner, and one claims to be its child.
    services.create(&PostParams::default(), &service("foreign".to_owned())).await.unwrap();
    let mut forged = service("forged".to_owned());
    forged.metadata.labels = own.metadata.labels.clone();
    forged.metadata.annotations = own.metadata.annotations.clone();
    forged.metadata.owner_references = Some(vec![owner.controller_owner_ref(&()).unwrap()]);
    services.create(&PostParams::default(), &forged).await.unwrap();

    // The role of this release does not allow to look for Services.
    let running = run(&place, second).await;
    records(&place, "configmaps,serviceaccounts,services").await;
    place.says("one", |conditions| conditions.is_true("Ready")).await;
    assert_eq!(services.get("one").await.unwrap().metadata.uid, own.metadata.uid);
    running.end().await.unwrap();

    let running = run(&place, third).await;
    is_gone(&services, "one").await;
    for name in ["foreign", "forged"] {
        assert!(services.get(name).await.unwrap().metadata.deletion_timestamp.is_none(), "{name}");
    }
    assert!(place.api::<ConfigMap>().get_opt("one").await.unwrap().is_some());
    assert!(place.api::<ServiceAccount>().get_opt("one").await.unwrap().is_some());
    // Once no child is left, not even one that only claims to be one, the kind is forgotten.
    services.delete("forged", &kube::api::DeleteParams::default()).await.unwrap();
    records(&place, "configmaps,serviceaccounts").await;
    running.end().await.unwrap();

    // After a way back, the record alone names the dropped kind: the code of this release does not, and its role allows to look.
    let running = run(&place, first).await;
    records(&place, "configmaps,serviceaccounts,services").await;
    eventually(LIMIT, || async { services.get_opt("one").await.unwrap() }).await.unwrap();
    running.end().await.unwrap();
    let _running = run_with_role_of(&place, second, third).await;
    is_gone(&services, "one").await;
    records(&place, "configmaps,serviceaccounts").await;
    assert!(services.get_opt("foreign").await.unwrap().is_some());
}
