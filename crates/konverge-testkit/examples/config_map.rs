//! Starts a control plane, makes a config map, reads it back, and shows in the audit log that it was asked for.

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{ControlPlane, Options};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let namespace = control_plane.namespace("example").await?;
    let maps = Api::<ConfigMap>::namespaced(control_plane.admin_client().await?, &namespace);

    let metadata = ObjectMeta { name: Some("colours".to_owned()), ..ObjectMeta::default() };
    let data = Some([("sky".to_owned(), "blue".to_owned())].into());
    maps.create(&PostParams::default(), &ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
    println!("the sky is {:?}", maps.get("colours").await?.data.unwrap_or_default().get("sky"));

    for entry in control_plane.audit_log()?.entries()? {
        if entry.object_ref.resource == "configmaps" && entry.object_ref.namespace == namespace {
            println!(
                "{} {} {} by {}",
                entry.verb, entry.object_ref.resource, entry.object_ref.name, entry.user.username
            );
        }
    }
    Ok(())
}
