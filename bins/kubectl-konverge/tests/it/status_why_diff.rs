//! `status`, `why` and `diff`: a good object, a refused one, a paused one, and one without a request.

use std::{fs, process::Stdio, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use konverge_testkit::fault_proxy::{FaultProxy, Plan};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};

use crate::stage::{Stage, VALUES, World, ran};

/// Reads what a watch prints, until an object has this state.
async fn printed(lines: &mut Lines<BufReader<tokio::process::ChildStdout>>, object: &str, state: &str) {
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let words: Vec<_> = line.split_whitespace().collect();
            if words.first() == Some(&object) && words.get(2) == Some(&state) {
                return;
            }
        }
        panic!("the watch ended");
    };
    tokio::time::timeout(Duration::from_mins(1), found).await.unwrap_or_else(|_| panic!("{object} is not {state}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_each_object_and_again_when_its_state_changes() {
    let world = Stage::shared().await.world().await;
    let _operator = world.operator(&[]).await;
    people(&world).await;
    let mut command = world.plugin();
    command.args(["-n", &world.namespace, "status", "secrets", "-w"]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    printed(&mut lines, "secret/db", "Synced").await;
    world.run("pause secret/db").await.ends(0);
    printed(&mut lines, "secret/db", "Paused").await;
    world.run("resume secret/db").await.ends(0);
    printed(&mut lines, "secret/db", "Synced").await;
    watch.kill().await.unwrap();
}

/// One object of each sort, each settled.
async fn people(world: &World<'_>) {
    let [db, other] = [world.path("db"), "secret/data/elsewhere/x".to_owned()];
    world.secret("db", &[("password", VALUES[0]), ("user", "shop")], json!({ "vault-sync.io/path": db })).await;
    world.secret("far", &[("password", VALUES[0])], json!({ "vault-sync.io/path": other })).await;
    world.secret("silent", &[("password", VALUES[0])], json!({})).await;
    let paused = json!({ "vault-sync.io/path": world.path("idle"), "vault-sync.io/pause": "true" });
    world.secret("idle", &[("password", VALUES[0])], paused).await;
    world.deployment("web", "db", &world.path("web")).await;
    for (object, state) in [
        ("secret/db", "Synced"),
        ("secret/far", "PathNotAllowed"),
        ("secret/idle", "Paused"),
        ("deployment/web", "Synced"),
    ] {
        world.until(object, state).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_why_tell_how_each_object_stands() {
    let world = Stage::shared().await.world().await;
    let _operator = world.operator(&[]).await;
    people(&world).await;

    let all = world.run("status").await.ends(1);
    let rows: Vec<Vec<&str>> = all.out.lines().skip(1).map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(
        rows,
        [
            ["deployment/web", "push", "Synced"],
            ["secret/db", "push", "Synced"],
            ["secret/far", "push", "PathNotAllowed"],
            ["secret/idle", "push", "Paused"],
        ]
    );
    world.run("status deploy").await.ends(0).says(&["deployment/web", &world.path("web/db")]);
    world.run("status secret/silent").await.ends(0).says(&["No object in namespace"]);
    world.run("status -A").await.ends(1).says(&["NAMESPACE", &world.namespace]);
    let names = world.run("status -o name").await.ends(1);
    assert_eq!(names.out, "deployment/web\nsecret/db\nsecret/far\nsecret/idle\n");
    let wide = world.run("status secret/far -o wide").await.ends(1);
    wide.says(&["--allow-path '"]);
    world.run("why secret/far -o name").await.ends(2).says(&["-o wide and -o name are of status"]);
    let shown = world.run("status secret/far -o json").await.ends(1).json();
    let object = &shown["objects"][0];
    assert_eq!(
        (&object["kind"], &object["grade"], &object["job"]),
        (&json!("Secret"), &json!("wrong"), &json!("push"))
    );
    assert!(object["message"].as_str().unwrap().contains("may not write"), "{object}");

    let good = world.run("why secret/db").await.ends(0);
    let (path, rule) = (world.path("db"), "yes, by *=secret/data/{namespace}/*");
    good.says(&[
        "state Synced since",
        "all its keys, at",
        &path,
        "version 1",
        rule,
        "paused no",
        "Normal Synced: in sync",
        "nothing to do",
    ]);
    let web = world.run("why deploy web").await.ends(0);
    web.says(&["each Secret that its pods use, beneath", ": db", &world.path("web/db")]);
    let refused = world.run("why secret/far").await.ends(1);
    refused.says(&[
        "PathNotAllowed since",
        "no: none of the rules of",
        "Warning PathNotAllowed: as above",
        "next fix the cause",
    ]);
    let paused = world.run("why secret/idle").await.ends(1);
    paused.says(&["Paused since", "yes, by vault-sync.io/pause", "kubectl konverge resume secret/idle"]);
    let silent = world.run("why secret/silent").await.ends(0);
    silent.says(&["It has not opted in", "kubectl annotate secret silent vault-sync.io/path=", "zopp.dev/sync=true"]);
    let page = world.run("why secret/db -o json").await.ends(0).json();
    assert_eq!(page["jobs"][0]["events"][0]["reason"], "Synced", "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_pull_tells_is_what_the_secret_shows() {
    let world = Stage::shared().await.world().await;
    let bound = json!({ "zopp.dev/sync": "true", "zopp.dev/workspace": "acme", "zopp.dev/project": "shop", "zopp.dev/environment": "prod" });
    world.secret("bound", &[], bound).await;
    world.secret("half", &[], json!({ "zopp.dev/sync": "true" })).await;
    world
        .run("status")
        .await
        .ends(1)
        .says(&["secret/bound pull Pending zopp://acme/shop/prod", "secret/half pull InvalidAnnotation"]);
    world.run("why secret/half").await.ends(1).says(&["annotation missing or empty: zopp.dev/workspace"]);
    world.run("why secret/bound").await.ends(1).says(&["its keys none yet"]);
    world.run("diff secret/bound").await.ends(2).says(&["only the operator has the keys"]);
    world.run("sync secret/bound").await.ends(0).says(&["a sync is requested"]);
    world.run("pause secret/bound").await.ends(0).says(&["secret/bound is paused for pull"]);
    world.run("why secret/bound").await.ends(1).says(&["Paused", "pull.konverge.dev/pause is true"]);
    world.run("sync secret/bound").await.ends(2).says(&["is paused"]);
    world.run("resume secret/bound").await.ends(0).says(&["secret/bound is resumed for pull"]);
    world.run("why secret/bound").await.ends(1).says(&["Pending"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_compares_with_vault_and_shows_names_alone() {
    let world = Stage::shared().await.world().await;
    let operator = world.operator(&[]).await;
    people(&world).await;
    let path = world.path("db");
    world.run("diff secret/db").await.ends(0).says(&["is in sync", "password same", "user same"]);
    world.run("diff deployment/web").await.ends(0).says(&[&world.path("web/db"), "is in sync"]);
    world.run("diff secret/idle").await.ends(1).says(&["would be created", "+ password added"]);

    // Nobody puts right what is done from here on.
    drop(operator);
    world.deployment("web", "db", &world.path("away")).await;
    let moved = world.run("diff deployment/web").await.ends(1);
    moved.says(&[
        &format!("{} would be created", world.path("away/db")),
        &format!("{} would be cleared: it is no longer requested", world.path("web/db")),
        "- password removed",
    ]);
    world.write(&path, &[("password", VALUES[2]), ("old", VALUES[2])]).await;
    let changed = world.run("diff secret/db").await.ends(1);
    changed.says(&[&format!("{path} would be changed"), "- old removed", "~ password changed", "+ user added"]);
    let shown = world.run("diff secret/db -o json").await.ends(1).json();
    assert_eq!(shown["paths"][0]["keys"], json!({ "old": "removed", "password": "changed", "user": "added" }));

    let mine = json!({ "vault-sync.io/path": path });
    world.secret("thief", &[("a", "b")], mine).await;
    world.run("diff secret/thief").await.ends(1).says(&["would stay as it is", "is kept for", "Secret/db"]);
    let lacking = json!({ "vault-sync.io/path": world.path("lack"), "vault-sync.io/secrets": "[{\"name\":\"none\",\"keys\":[\"a\"]}]" });
    world.secret("lack", &[("a", "b")], lacking).await;
    world.run("diff secret/lack").await.ends(1).says(&["would stay as it is", "secret \"none\" not found"]);
    world.run("diff secret/silent").await.ends(2).says(&["has not opted in"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_uses_the_access_of_vaults_own_program() {
    let world = Stage::shared().await.world().await;
    world.secret("db", &[("password", VALUES[0])], json!({ "vault-sync.io/path": world.path("db") })).await;
    let diff = async |change: &dyn for<'a> Fn(&'a mut tokio::process::Command) -> &'a mut tokio::process::Command| {
        let mut command = world.plugin();
        command.args(["-n", &world.namespace, "diff", "secret/db"]);
        change(&mut command);
        ran(&mut command).await
    };
    diff(&|command| command.env_remove("VAULT_ADDR")).await.ends(2).says(&["set VAULT_ADDR"]);
    diff(&|command| command.env_remove("VAULT_TOKEN")).await.ends(2).says(&["neither VAULT_TOKEN nor ~/.vault-token"]);
    fs::write(world.home.path().join(".vault-token"), world.stage.server.root_token()).unwrap();
    diff(&|command| command.env_remove("VAULT_TOKEN")).await.ends(1).says(&["would be created", "+ password added"]);
    diff(&|command| command.env("VAULT_TOKEN", "nobody's")).await.ends(2).says(&["cannot compare with Vault"]);
    diff(&|command| command.env("VAULT_ADDR", "http://127.0.0.1:1")).await.ends(2).says(&["cannot compare with Vault"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_takes_a_cluster_that_it_cannot_tell_for_no_other() {
    let world = Stage::shared().await.world().await;
    let namespace = &world.namespace;
    let operator = world.operator(&[]).await;
    world.secret("db", &[("password", VALUES[0])], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.until("secret/db", "Synced").await;
    drop(operator);
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{ name: person, namespace: {namespace} }}\nrules:\n\
         - {{ apiGroups: [\"\"], resources: [secrets], verbs: [get, list] }}\n\
         - {{ apiGroups: [apps], resources: [deployments], verbs: [get, list] }}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{ name: person, namespace: {namespace} }}\n\
         roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: person }}\n\
         subjects: [{{ kind: ServiceAccount, name: person, namespace: {namespace} }}]\n",
    );
    world.stage.plane.apply(&role).await.unwrap();
    let person = world.stage.plane.service_account_kubeconfig(namespace, "person").await.unwrap();
    let diff = async || {
        let mut command = world.plugin();
        command.env("KUBECONFIG", &person).args(["-n", namespace, "diff", "secret/db"]);
        ran(&mut command).await
    };
    diff().await.ends(2).says(&[
        "cannot tell whose a path is: you may not get namespace kube-system",
        "have the operator started with --instance",
    ]);

    // An operator for just this namespace that may not tell either, and works as one of those that cannot.
    let labels = json!({ "app.kubernetes.io/name": "vault-sync-operator" });
    let container =
        json!({ "name": "manager", "image": "example.com/operator", "args": [format!("--namespace={namespace}")] });
    let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "own", "namespace": namespace, "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "template": pod },
    });
    world.stage.plane.apply(&deployment.to_string()).await.unwrap();
    let theirs = world.run("diff secret/db").await.ends(1);
    theirs.says(&["would stay as it is", "is kept for", "Secret/db"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_never_answered_ends_and_says_so() {
    let stage = Stage::shared().await;
    let world = stage.world().await;
    world.secret("db", &[("password", VALUES[0])], json!({ "vault-sync.io/path": world.path("db") })).await;
    let proxy = FaultProxy::start(stage.plane.run_directory(), stage.plane.kubeconfig()).await.unwrap();
    // Not the first one, by which the object itself is looked for, but that of what is to be compared.
    let plan = format!(
        "rules: [{{ when: {{ verbs: [get], resources: [secrets], namespace: {}, nth: 2 }}, then: {{ delay: 10m }} }}]",
        world.namespace
    );
    proxy.set(Plan::parse(&plan).unwrap()).unwrap();
    let mut command = world.plugin();
    command.env("KUBECONFIG", proxy.kubeconfig()).args(["-n", &world.namespace, "diff", "secret/db"]);
    let ran = ran(&mut command).await.ends(2);
    assert_eq!(proxy.fired(), [1]);
    ran.says(&["no answer within 30s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_chosen_by_their_labels_and_shown_as_yaml() {
    let world = Stage::shared().await.world().await;
    let secrets = Api::<Secret>::namespaced(world.client.clone(), &world.namespace);
    for (name, team) in [("db", "one"), ("app", "two")] {
        world.secret(name, &[("a", "b")], json!({ "vault-sync.io/path": world.path(name) })).await;
        let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": team } } }));
        secrets.patch(name, &PatchParams::default(), &labels).await.unwrap();
    }
    let ran = world.run("status -l team=one").await.ends(1);
    assert!(ran.out.contains("secret/db") && !ran.out.contains("secret/app"), "{ran:?}");
    world.run("status secrets -l team=three").await.ends(0).says(&["No object in namespace"]);
    world.run("status -l ===").await.ends(2);
    world.run("status secret/db -l team=one").await.ends(2).says(&["leave out -l, or the name"]);
    world.run("status secret/db -o yaml").await.ends(1).says(&["objects:", "job: push", "name: db"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_can_be_impersonated() {
    let world = Stage::shared().await.world().await;
    world.secret("db", &[("a", "b")], json!({ "vault-sync.io/path": world.path("db") })).await;
    world.run("status secrets --as nobody").await.ends(2).says(&["you may not list secrets", "nobody"]);
    world.run("status secrets --as nobody --as-group system:masters").await.ends(1).says(&["secret/db"]);
    world.run("status --as-group system:masters").await.ends(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_name_the_verbs() {
    let world = Stage::shared().await.world().await;
    let ran = world.run("completions bash").await.ends(0);
    assert!(["kubectl-konverge", "doctor", "--selector"].iter().all(|part| ran.out.contains(part)), "{}", ran.out);
}
