//! Checks that the files in deploy/ are up to date and that the API server accepts them.

use std::path::Path;

use konverge_testkit::{ControlPlane, Options};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn generated_files_are_up_to_date() {
    // If this fails, run `cargo run -- generate --into deploy`.
    konverge_template::operator().generate("default").unwrap().check(&folder().join("deploy")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_all_manifests() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let namespace = plane.namespace("deploy").await.unwrap();
    for file in ["deploy/crds.yaml", "deploy/role.yaml", "deploy/deployment.yaml", "examples/object.yaml"] {
        let manifest = std::fs::read_to_string(folder().join(file)).unwrap();
        let manifest = manifest.replace("namespace: default", &format!("namespace: {namespace}"));
        plane.apply(&manifest).await.unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}
