use std::{path::Path, process::Command, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_testkit::{ControlPlane, Options, client_for, eventually};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};

const SOON: Duration = Duration::from_secs(30);

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..ConfigMap::default() }
}

#[tokio::test]
async fn it_serves_and_keeps_its_data_over_a_kill_of_the_api_server() {
    let mut control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let namespace = control_plane.namespace("keeps").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    control_plane.kill_api_server().unwrap();
    assert!(maps.get("kept").await.is_err(), "a killed API server answers");

    control_plane.start_api_server().await.unwrap().unwrap();
    assert!(maps.get("kept").await.is_ok());
}

#[tokio::test]
async fn a_service_account_may_do_nothing_before_it_is_granted() {
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let namespace = control_plane.namespace("rbac").await.unwrap();
    let kubeconfig = control_plane.service_account_kubeconfig(&namespace, "nobody").await.unwrap();
    let secrets = Api::<Secret>::namespaced(client_for(&kubeconfig).await.unwrap(), &namespace);
    let Err(kube::Error::Api(status)) = secrets.list(&ListParams::default()).await else { panic!("it was let in") };
    assert_eq!(status.code, 403);

    let user = format!("system:serviceaccount:{namespace}:nobody");
    let audit_log = control_plane.audit_log().unwrap();
    let denied = eventually(SOON, || async { audit_log.entries_of(&user).unwrap().pop() }).await.unwrap();
    assert_eq!((denied.verb.as_str(), denied.response_status.code), ("list", 403));
    assert!(!denied.is_mutating());
    assert!(audit_log.from_now().unwrap().entries_of(&user).unwrap().is_empty());
}

#[tokio::test]
async fn a_named_cluster_is_used_and_not_owned() {
    let ours = ControlPlane::start(Options::default()).await.unwrap();
    let options = Options { kubeconfig: Some(ours.kubeconfig().to_owned()), ..Options::default() };
    let mut named = ControlPlane::start(options).await.unwrap();
    let namespace = named.namespace("named").await.unwrap();
    let error = named.kill_api_server().unwrap_err().to_string();
    assert!(error.contains("killing the API server"), "{error}");
    assert!(named.audit_log().is_err());
    named.delete_namespace(&namespace).await.unwrap();

    let options = Options { kubeconfig: Some("/nowhere/kubeconfig".into()), ..Options::default() };
    let Err(error) = ControlPlane::start(options).await else { panic!("it started") };
    assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
}

#[tokio::test]
async fn the_controller_manager_collects_garbage() {
    let options = Options { controller_manager: true, ..Options::default() };
    let control_plane = ControlPlane::start(options).await.unwrap();
    let namespace = control_plane.namespace("garbage").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    let owner = maps.create(&PostParams::default(), &config_map("owner")).await.unwrap();
    let mut child = config_map("child");
    child.metadata.owner_references = Some(vec![kube::Resource::owner_ref(&owner, &()).unwrap()]);
    maps.create(&PostParams::default(), &child).await.unwrap();
    maps.delete("owner", &kube::api::DeleteParams::default()).await.unwrap();
    let gone = || async { maps.get_opt("child").await.unwrap().is_none().then_some(()) };
    eventually(SOON, gone).await.unwrap();
}

/// Runs the program with an environment of its own and returns what it said when it failed.
fn complaint(configure: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge-control-plane"));
    command.arg("setup").env_remove("KUBEBUILDER_ASSETS");
    configure(&mut command);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_is_missing_is_said_with_the_next_step() {
    let empty = tempfile::tempdir().unwrap();
    let said = complaint(|command| {
        command.env("KUBEBUILDER_ASSETS", empty.path());
    });
    assert!(said.contains("there is no etcd in it") && said.contains("unset the variable"), "{said}");

    let said = complaint(|command| {
        command.env("PATH", empty.path());
    });
    assert!(said.contains("no `go` on the PATH") && said.contains("install Go"), "{said}");

    // A file where the cache should be, so that not even root can write there.
    let file = empty.path().join("file");
    std::fs::write(&file, "").unwrap();
    let said = complaint(|command| {
        command.env("KONVERGE_CACHE", Path::new(&file));
    });
    assert!(said.contains("cannot write") && said.contains("KONVERGE_CACHE"), "{said}");
}
