use std::{path::Path, process::Command, time::Duration};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret},
    rbac::v1::ClusterRole,
};
use konverge_testkit::{
    Assets, Binary, Cluster, ControlPlane, ManifestError, Options, RUN_LABEL, client_for, create_for_run, eventually,
    take_away_run,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..ConfigMap::default() }
}

#[tokio::test]
async fn it_serves_and_keeps_its_data_over_a_kill_of_the_api_server() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("keeps").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    control_plane.kill_api_server().unwrap();
    assert!(maps.get("kept").await.is_err(), "a killed API server answers");

    control_plane.start_api_server().await.unwrap().unwrap();
    assert!(maps.get("kept").await.is_ok());
}

#[tokio::test]
async fn a_restored_snapshot_undoes_changes_and_gives_versions_out_again() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("restores").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("before")).await.unwrap();
    let snapshot = control_plane.snapshot().await.unwrap().unwrap();
    maps.delete("before", &DeleteParams::default()).await.unwrap();
    // More changes than the API server makes by itself when it starts.
    for number in 0..100 {
        maps.create(&PostParams::default(), &config_map(&format!("after-{number}"))).await.unwrap();
    }
    let after = maps.list(&ListParams::default()).await.unwrap().metadata;

    for _ in 0..2 {
        control_plane.restore(&snapshot).await.unwrap().unwrap();
        let found = maps.list(&ListParams::default()).await.unwrap();
        let names: Vec<_> = found.items.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["before"]);
        let version = |text: &str| text.parse::<u64>().unwrap();
        assert!(version(&found.metadata.resource_version.unwrap()) < version(after.resource_version.as_ref().unwrap()));
    }
    assert_eq!(control_plane.ended(), []);
}

#[tokio::test]
async fn what_somebody_killed_is_named_and_started_again_with_its_data() {
    let mut control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    assert_eq!(control_plane.ended(), []);
    let namespace = control_plane.namespace("keeps").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(control_plane.admin_client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    let folder = control_plane.run_directory().path().to_owned();
    for name in ["etcd", "kube-apiserver"] {
        assert!(
            Command::new("pkill")
                .args(["-9", "-f"])
                .arg(format!("{name} .*{}", folder.display()))
                .status()
                .unwrap()
                .success()
        );
    }
    let both = eventually(SOON, || std::future::ready((control_plane.ended().len() == 2).then_some(())));
    both.await.unwrap();
    assert_eq!(control_plane.ended()[0].0, "etcd");
    control_plane.start_ended().await.unwrap();
    assert_eq!(control_plane.ended(), []);
    assert!(maps.get("kept").await.is_ok());

    control_plane.kill_api_server().unwrap();
    assert_eq!(control_plane.ended(), [], "who was asked to end is left alone");
}

#[tokio::test]
async fn a_service_account_may_do_nothing_before_it_is_granted() {
    let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
    let namespace = control_plane.namespace("rbac").await.unwrap();
    let kubeconfig = control_plane.service_account_kubeconfig(&namespace, "nobody").await.unwrap();
    let secrets = Api::<Secret>::namespaced(client_for(&kubeconfig).await.unwrap(), &namespace);
    let Err(kube::Error::Api(status)) = secrets.list(&ListParams::default()).await else { panic!("it was let in") };
    assert_eq!(status.code, 403);

    let user = format!("system:serviceaccount:{namespace}:nobody");
    let audit_log = control_plane.audit_log().unwrap();
    audit_log.catch_up(&control_plane.admin_client().await.unwrap()).await.unwrap();
    let denied = audit_log.entries_of(&user).unwrap().pop().unwrap();
    assert_eq!((denied.verb.as_str(), denied.response_status.code), ("list", 403));
    assert!(!denied.is_mutating());
    assert!(audit_log.from_now().unwrap().entries_of(&user).unwrap().is_empty());
}

#[tokio::test]
async fn a_named_cluster_is_used_and_not_owned() {
    let ours = ControlPlane::start(Options::ours()).await.unwrap();
    let named = |path: &Path| Options::default().with(|options| options.cluster = Cluster::Named(path.to_owned()));
    let mut named_plane = ControlPlane::start(named(ours.kubeconfig())).await.unwrap();
    let error = named_plane.kill_api_server().unwrap_err().to_string();
    assert!(error.contains("killing the API server") && error.contains("Options::ours()"), "{error}");
    assert!(named_plane.audit_log().is_err());
    assert!(named_plane.apply("").await.is_err(), "it would take over what is there");

    let Err(error) = ControlPlane::start(named(Path::new("/nowhere/kubeconfig"))).await else { panic!("it started") };
    assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
}

fn named<K: kube::Resource + Default>(name: &str, run: Option<&str>) -> K {
    let mut object = K::default();
    object.meta_mut().name = Some(name.to_owned());
    object.meta_mut().labels = run.map(|run| [(RUN_LABEL.to_owned(), run.to_owned())].into());
    object
}

#[tokio::test]
async fn what_a_run_made_is_taken_away_and_nothing_else() {
    let options = Options::ours().with(|options| options.controller_manager = true);
    let control_plane = ControlPlane::start(options).await.unwrap();
    let client = control_plane.admin_client().await.unwrap();
    let (roles, namespaces) = (Api::<ClusterRole>::all(client.clone()), Api::<Namespace>::all(client));
    let parameters = PostParams::default();
    for (name, run) in [("theirs", None), ("other", Some("another-run")), ("left", Some("this-run"))] {
        roles.create(&parameters, &named(name, run)).await.unwrap();
        namespaces.create(&parameters, &named(name, run)).await.unwrap();
    }
    // An object that exists already is not taken over.
    let Err(kube::Error::Api(status)) = create_for_run(roles.clone(), named("theirs", None)).await else {
        panic!("it was made again")
    };
    assert_eq!(status.code, 409);
    assert!(roles.get("theirs").await.unwrap().metadata.labels.is_none());

    let gone = take_away_run(control_plane.kubeconfig(), "this-run").await.unwrap();
    assert_eq!(gone, ["Namespace left", "ClusterRole left"]);
    let left = || async { namespaces.get_opt("left").await.unwrap().is_none().then_some(()) };
    eventually(SOON, left).await.unwrap();
    for name in ["theirs", "other"] {
        assert!(roles.get_opt(name).await.unwrap().is_some(), "{name}");
        assert!(namespaces.get(name).await.unwrap().metadata.deletion_timestamp.is_none(), "{name}");
    }
}

#[tokio::test]
async fn pods_that_break_the_strictest_standard_are_told_with_the_field() {
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let manifest = |is_root_refused: bool| {
        let container = json!({
            "name": "one", "image": "one",
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        });
        let security = json!({ "runAsNonRoot": is_root_refused, "seccompProfile": { "type": "RuntimeDefault" } });
        let pod = json!({ "serviceAccountName": "absent", "securityContext": security, "containers": [container] });
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "one" }, "spec": { "template": { "spec": pod } } });
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: one}}\n---\n{job}")
    };
    control_plane.would_run_restricted(&manifest(true)).await.unwrap();
    let refused = control_plane.would_run_restricted(&manifest(false)).await.unwrap_err();
    let ManifestError::NotRestricted { object, source } = &refused else { panic!("{refused}") };
    assert!(object == "Job one" && source.to_string().contains("runAsNonRoot"), "{refused}: {source}");
    let nothing = control_plane.would_run_restricted("apiVersion: v1\nkind: Service\nmetadata: {name: one}\n").await;
    assert!(matches!(nothing, Err(ManifestError::NoPods)), "{nothing:?}");
}

#[tokio::test]
async fn the_controller_manager_collects_garbage() {
    let options = Options::ours().with(|options| options.controller_manager = true);
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

/// Set in the process that the next test starts.
const IN_A_PROCESS_OF_ITS_OWN: &str = "KONVERGE_TEST_WITH_GIVEN_PROGRAMS";

/// A control plane starts with the two programs in the folder that `KUBEBUILDER_ASSETS` names, where none can be built.
#[tokio::test]
async fn etcd_and_an_api_server_in_a_folder_that_the_user_names_are_enough() {
    if std::env::var_os(IN_A_PROCESS_OF_ITS_OWN).is_some() {
        let control_plane = ControlPlane::start(Options::ours()).await.unwrap();
        let client = control_plane.admin_client().await.unwrap();
        let namespace = control_plane.namespace("given").await.unwrap();
        Api::<Namespace>::all(client).get(&namespace).await.unwrap();
        return;
    }
    let needed = [Binary::Etcd, Binary::ApiServer];
    let known = Assets::find(&needed).unwrap();
    let (given, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for binary in needed {
        std::os::unix::fs::symlink(known.path(binary), given.path().join(binary.name())).unwrap();
    }
    // Where the cache should be is a file.
    let no_cache = other.path().join("file");
    std::fs::write(&no_cache, "").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "control_plane::etcd_and_an_api_server_in_a_folder_that_the_user_names_are_enough"]);
    command.env(IN_A_PROCESS_OF_ITS_OWN, "").env("KUBEBUILDER_ASSETS", given.path());
    command.env("KONVERGE_CACHE", &no_cache).env("PATH", "/usr/bin:/bin");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
