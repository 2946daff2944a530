//! The parts of a pod template that name Secrets and `ConfigMaps`, and nothing else of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::references::{Keys, Need, References, Usage};

/// The driver that mounts what a `SecretProviderClass` describes.
const SECRETS_STORE: &str = "secrets-store.csi.k8s.io";

/// Drivers that mount with the Secret, in the namespace of the pod, that the attribute `secretName` names. With others that word may mean
/// anything.
const WITH_SECRET_NAME: [&str; 2] = ["file.csi.azure.com", "blob.csi.azure.com"];

/// A pod spec. Each list is optional, because clients send `null`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Pod {
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    ephemeral_containers: Option<Vec<Container>>,
    volumes: Option<Vec<Volume>>,
    image_pull_secrets: Option<Vec<Name>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    env: Option<Vec<Variable>>,
    env_from: Option<Vec<EnvironmentSource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    value_from: Option<ValueSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValueSource {
    secret_key_ref: Option<KeyReference>,
    config_map_key_ref: Option<KeyReference>,
}

#[derive(Deserialize)]
struct KeyReference {
    name: Option<String>,
    key: Option<String>,
    optional: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvironmentSource {
    secret_ref: Option<Reference>,
    config_map_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    secret: Option<SecretVolume>,
    config_map: Option<Reference>,
    projected: Option<Projected>,
    csi: Option<Csi>,
    azure_file: Option<AzureFile>,
    cephfs: Option<Mounted>,
    #[serde(rename = "flexVolume")]
    flex: Option<Mounted>,
    iscsi: Option<Mounted>,
    rbd: Option<Mounted>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<Mounted>,
    storageos: Option<Mounted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretVolume {
    secret_name: Option<String>,
    optional: Option<bool>,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Projected {
    sources: Option<Vec<ProjectedSource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProjectedSource {
    secret: Option<Reference>,
    config_map: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    driver: Option<String>,
    node_publish_secret_ref: Option<Reference>,
    volume_attributes: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureFile {
    secret_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mounted {
    secret_ref: Option<Name>,
}

#[derive(Deserialize)]
struct Name {
    name: Option<String>,
}

/// A reference to all keys, or in volumes to some of them.
#[derive(Deserialize)]
struct Reference {
    name: Option<String>,
    optional: Option<bool>,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    key: Option<String>,
}

/// The reference, and the field that names it.
type Used = (Option<String>, Usage);

impl KeyReference {
    fn used(self) -> Used {
        let keys = self.key.map_or(Keys::All, Keys::one);
        (self.name, usage(self.optional, keys))
    }
}

impl Reference {
    fn used(self) -> Used {
        // An empty list chooses nothing but is written where all is meant, and so the API server takes it.
        let items = self.items.filter(|items| !items.is_empty());
        let keys = items.map_or(Keys::All, |items| Keys::Some(items.into_iter().filter_map(|item| item.key).collect()));
        (self.name, usage(self.optional, keys))
    }
}

/// Pods cannot start without a key that they name and that is not optional.
fn usage(optional: Option<bool>, keys: Keys) -> Usage {
    if optional == Some(true) {
        return Usage { need: Need::Optional, keys, required: BTreeSet::new() };
    }
    let required = match &keys {
        Keys::Some(keys) => keys.clone(),
        Keys::All => BTreeSet::new(),
    };
    Usage { need: Need::Required, keys, required }
}

impl Pod {
    /// Returns all references of the pod.
    pub(crate) fn references(self) -> References {
        let mut found = References::default();
        let containers = [self.containers, self.init_containers, self.ephemeral_containers];
        for container in containers.into_iter().flatten().flatten() {
            for source in container.env.into_iter().flatten().filter_map(|variable| variable.value_from) {
                add(&mut found.secrets, source.secret_key_ref.map(KeyReference::used));
                add(&mut found.config_maps, source.config_map_key_ref.map(KeyReference::used));
            }
            for source in container.env_from.into_iter().flatten() {
                add(&mut found.secrets, source.secret_ref.map(Reference::used));
                add(&mut found.config_maps, source.config_map_ref.map(Reference::used));
            }
        }
        for volume in self.volumes.into_iter().flatten() {
            volume.add_to(&mut found);
        }
        let pulls = self.image_pull_secrets.into_iter().flatten().filter_map(|reference| reference.name);
        found.image_pull_secrets = pulls.filter(|name| !name.is_empty()).collect();
        found
    }
}

impl Volume {
    fn add_to(self, found: &mut References) {
        if let Some(SecretVolume { secret_name, optional, items }) = self.secret {
            add(&mut found.secrets, Some(Reference { name: secret_name, optional, items }.used()));
        }
        add(&mut found.config_maps, self.config_map.map(Reference::used));
        for source in self.projected.and_then(|projected| projected.sources).into_iter().flatten() {
            add(&mut found.secrets, source.secret.map(Reference::used));
            add(&mut found.config_maps, source.config_map.map(Reference::used));
        }
        if let Some(csi) = self.csi {
            add(&mut found.secrets, csi.node_publish_secret_ref.map(Reference::used));
            let mut attributes = csi.volume_attributes.unwrap_or_default();
            let mut attribute = |name| attributes.remove(name).filter(|value| !value.is_empty());
            match csi.driver.as_deref() {
                Some(SECRETS_STORE) => found.secret_provider_classes.extend(attribute("secretProviderClass")),
                Some(driver) if WITH_SECRET_NAME.contains(&driver) => {
                    found.storage_secrets.extend(attribute("secretName"));
                }
                _ => {}
            }
        }
        let older = [self.cephfs, self.flex, self.iscsi, self.rbd, self.scale_io, self.storageos];
        let named = older.into_iter().flatten().filter_map(|volume| volume.secret_ref?.name);
        let named = named.chain(self.azure_file.and_then(|volume| volume.secret_name));
        found.storage_secrets.extend(named.filter(|name| !name.is_empty()));
    }
}

fn add(all: &mut BTreeMap<String, Usage>, found: Option<Used>) {
    // A reference without a name uses nothing; the API server lets it pass where it is optional.
    let Some((Some(name), usage)) = found.filter(|(name, _)| name.as_ref().is_some_and(|name| !name.is_empty())) else {
        return;
    };
    match all.get_mut(&name) {
        Some(known) => known.add(usage),
        None => drop(all.insert(name, usage)),
    }
}
