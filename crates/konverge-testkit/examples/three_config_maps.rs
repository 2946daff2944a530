//! An operator of a few lines, small enough to try every crash on it: for the config map `wish` it keeps three copies.
//!
//! `three_config_maps <kubeconfig> <namespace> [careless]`. It polls its namespace instead of watching it. The careless one makes
//! a fourth copy whose name the server chooses, and writes that name down only after the copy is made. A crash between the two
//! leaves a copy that nobody knows of.

use std::{collections::BTreeMap, env, path::Path, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::client_for;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

const COPIES: [&str; 3] = ["one", "two", "three"];

/// Where the careless operator writes down the name of its fourth copy.
const FOURTH: &str = "example.org/fourth";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [kubeconfig, namespace, rest @ ..] = arguments.as_slice() else {
        return Err("usage: three_config_maps <kubeconfig> <namespace> [careless]".into());
    };
    let careless = rest.iter().any(|argument| argument == "careless");
    let maps = Api::<ConfigMap>::namespaced(client_for(Path::new(kubeconfig)).await?, namespace);
    loop {
        if let Err(error) = reconcile(&maps, careless).await {
            eprintln!("will try again: {error}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn reconcile(maps: &Api<ConfigMap>, careless: bool) -> kube::Result<()> {
    let Some(wish) = maps.get_opt("wish").await? else { return remove(maps).await };
    for name in COPIES {
        let data = maps.get_opt(name).await?.and_then(|copy| copy.data);
        if data != wish.data {
            let copy =
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": wish.data });
            maps.patch(name, &PatchParams::apply("three-config-maps").force(), &Patch::Apply(copy)).await?;
        }
    }
    if careless && !wish.annotations().contains_key(FOURTH) {
        let mut fourth = ConfigMap { data: wish.data, ..ConfigMap::default() };
        fourth.metadata.generate_name = Some("fourth-".to_owned());
        let made = maps.create(&PostParams::default(), &fourth).await?;
        let annotations = BTreeMap::from([(FOURTH, made.name_any())]);
        let known = json!({ "metadata": { "annotations": annotations } });
        maps.patch("wish", &PatchParams::default(), &Patch::Merge(known)).await?;
    }
    Ok(())
}

async fn remove(maps: &Api<ConfigMap>) -> kube::Result<()> {
    for name in COPIES {
        if maps.get_opt(name).await?.is_some() {
            maps.delete(name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}
