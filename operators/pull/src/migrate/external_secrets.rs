//! The migration from External Secrets, for its provider of Vault.

mod store;

use konverge_kubectl::{Kind, Listed, Migrated, Migration};
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};

use self::store::Store;
use super::parts::{Texts, kind, manifest, spec, template, unread};

/// The group of the kinds of External Secrets.
const GROUP: &str = "external-secrets.io";

/// Moves users of External Secrets.
pub struct ExternalSecrets;

impl Migration for ExternalSecrets {
    fn name(&self) -> &'static str {
        "external-secrets"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/external-secrets.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        let of_version = |version| {
            let kinds = [("SecretStore", true), ("ClusterSecretStore", false), ("ExternalSecret", true)];
            kinds.map(|(name, is_namespaced)| kind(GROUP, version, name, is_namespaced))
        };
        ["v1", "v1beta1"].into_iter().flat_map(of_version).collect()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject, listed: &Listed) -> Option<Migrated> {
        Some(match &*kind.resource.kind {
            "ExternalSecret" => match spec(object) {
                Ok(spec) => of_external_secret(object, spec, listed),
                Err(cause) => unread(cause),
            },
            of_store => store::migrated(of_store, object),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExternalSecret {
    #[serde(default)]
    secret_store_ref: StoreRef,
    #[serde(default)]
    target: Target,
    #[serde(default)]
    data: Vec<Data>,
    #[serde(default)]
    data_from: Vec<DataFrom>,
    #[serde(default)]
    refresh_policy: Option<String>,
}

#[derive(Deserialize, Default, Clone, PartialEq)]
#[serde(default)]
struct StoreRef {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Target {
    name: Option<String>,
    creation_policy: Option<String>,
    deletion_policy: Option<String>,
    immutable: bool,
    template: Option<Template>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Template {
    r#type: Option<String>,
    metadata: Metadata,
    data: Texts,
    #[serde(rename = "templateFrom")]
    others: Vec<Value>,
    merge_policy: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    labels: Texts,
    annotations: Texts,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    secret_key: String,
    remote_ref: RemoteRef,
    #[serde(default)]
    source_ref: SourceRef,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DataFrom {
    extract: Option<RemoteRef>,
    #[serde(default)]
    rewrite: Vec<Value>,
    #[serde(default)]
    source_ref: SourceRef,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RemoteRef {
    key: String,
    property: Option<String>,
    version: Option<String>,
    conversion_strategy: Option<String>,
    decoding_strategy: Option<String>,
    metadata_policy: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SourceRef {
    store_ref: Option<StoreRef>,
    generator_ref: Option<Value>,
}

/// A `SecretPull` that is being made of an `ExternalSecret`.
struct Conversion<'a> {
    namespace: String,
    /// The store of the entries that name none.
    store: StoreRef,
    listed: &'a Listed,
    sources: Vec<Source>,
    template: Texts,
    keeps_source_keys: bool,
    lost: Vec<String>,
}

#[derive(PartialEq)]
struct Source {
    store: StoreRef,
    from: String,
    /// From the key in Vault to the key of the Secret. `None` is all keys under their own names.
    keys: Option<Texts>,
}

fn of_external_secret(object: &DynamicObject, spec: ExternalSecret, listed: &Listed) -> Migrated {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let ExternalSecret { secret_store_ref, target, data, data_from, refresh_policy } = spec;
    let mut conversion = Conversion {
        namespace: namespace.clone(),
        store: secret_store_ref,
        listed,
        sources: Vec::new(),
        template: Texts::new(),
        keeps_source_keys: false,
        lost: Vec::new(),
    };
    for data in &data {
        conversion.add_data(data);
    }
    // There, the last of several entries counts for a key, and here the first of several sources.
    for data_from in data_from.iter().rev() {
        conversion.add_all(data_from);
    }
    if let Some(policy) = refresh_policy.filter(|policy| policy != "Periodic") {
        conversion.lose(format!("refreshPolicy: {policy}. The Secret follows Vault; spec.suspend: true stops that"));
    }
    let target = conversion.target(target);
    let Conversion { sources, template, keeps_source_keys, mut lost, .. } = conversion;
    if sources.is_empty() {
        lost.push("pull reads nothing of what it names".to_owned());
        return Migrated { lost, ..Migrated::default() };
    }
    let places: Vec<_> = sources.iter().map(|source| source.from.clone()).collect();
    let secret = target["name"].as_str().unwrap_or(&name);
    let becomes = vec![format!("a SecretPull makes the Secret {secret} of {}", places.join(", "))];
    let template = if template.is_empty() {
        Value::Null
    } else {
        json!({ "data": template, "keepSourceKeys": keeps_source_keys })
    };
    let sources: Vec<_> = sources.iter().map(Source::spec).collect();
    let spec = json!({ "target": target, "sources": sources, "template": template });
    Migrated { becomes, lost, manifests: vec![manifest("SecretPull", Some(&namespace), &name, spec)] }
}

impl Source {
    fn spec(&self) -> Value {
        let is_of_cluster = self.store.kind.as_deref() == Some("ClusterSecretStore");
        let kind = is_of_cluster.then_some("ClusterSecretSource");
        let keys = self.keys.iter().flatten();
        let names: Vec<_> = keys.clone().map(|(key, _)| key).collect();
        let renamed: Texts =
            keys.filter(|(key, name)| key != name).map(|(key, name)| (key.clone(), name.clone())).collect();
        json!({
            "source": { "kind": kind, "name": self.store.name },
            "from": self.from, "keys": names, "rename": { "table": renamed },
        })
    }
}

impl Conversion<'_> {
    fn lose(&mut self, what: String) {
        self.lost.push(what);
    }

    /// Returns the store and the reference of an entry, or `None` if pull cannot read it.
    fn place(&mut self, what: &str, remote: &RemoteRef, source: &SourceRef) -> Option<(StoreRef, String)> {
        if source.generator_ref.is_some() {
            self.lose(format!("{what} is generated. pull has no generators"));
            return None;
        }
        for (name, value, default) in [
            ("conversionStrategy", &remote.conversion_strategy, "Default"),
            ("decodingStrategy", &remote.decoding_strategy, "None"),
            ("metadataPolicy", &remote.metadata_policy, "None"),
        ] {
            if let Some(value) = value.as_deref().filter(|value| *value != default) {
                self.lose(format!("{what} has {name}: {value}. pull takes values as they are"));
            }
        }
        let store = source.store_ref.clone().unwrap_or_else(|| self.store.clone());
        let kind = store.kind.as_deref().unwrap_or("SecretStore");
        let found = self.listed.find(kind, &self.namespace, &store.name);
        let read = found.map_or_else(|| Err("it was not found".to_owned()), Store::read);
        match read {
            Ok(read) => Some((store, read.reference(&remote.key, remote.version.as_deref()))),
            Err(cause) => {
                self.lose(format!("{what} is in {kind} {}: {cause}", store.name));
                None
            }
        }
    }

    fn add_data(&mut self, data: &Data) {
        let what = format!("data {}", data.secret_key);
        let Some(property) = data.remote_ref.property.clone() else {
            return self.lose(format!("{what} is a whole secret as JSON. Make it by a file of spec.template"));
        };
        if property.contains('.') {
            return self.lose(format!("{what} is a part of a value ({property}). pull takes whole values"));
        }
        let Some((store, from)) = self.place(&what, &data.remote_ref, &data.source_ref) else { return };
        match self.sources.iter_mut().find(|source| (&source.store, &source.from) == (&store, &from)) {
            None => {
                let keys = Some([(property, data.secret_key.clone())].into());
                self.sources.push(Source { store, from, keys });
            }
            Some(Source { keys: Some(keys), .. }) if !keys.contains_key(&property) => {
                keys.insert(property, data.secret_key.clone());
            }
            // One value under two names.
            Some(Source { keys, .. }) => {
                let name = keys.as_ref().and_then(|keys| keys.get(&property)).unwrap_or(&property).clone();
                self.template.insert(data.secret_key.clone(), format!("${{{name}}}"));
                self.keeps_source_keys = true;
            }
        }
    }

    fn add_all(&mut self, data_from: &DataFrom) {
        let Some(extract) = &data_from.extract else {
            return self
                .lose("dataFrom looks for secrets by name or tag, or generates them. Name each path".to_owned());
        };
        let what = format!("dataFrom {}", extract.key);
        if !data_from.rewrite.is_empty() {
            self.lose(format!("{what} has a rewrite. Write rename with strip, prefix or a table"));
        }
        if let Some(property) = &extract.property {
            self.lose(format!("{what} takes the parts of one value ({property}). pull takes whole values"));
            return;
        }
        let Some((store, from)) = self.place(&what, extract, &data_from.source_ref) else { return };
        let Some(source) = self.sources.iter_mut().find(|source| (&source.store, &source.from) == (&store, &from))
        else {
            return self.sources.push(Source { store, from, keys: None });
        };
        // The same secret once by its keys, and once as a whole.
        for (key, name) in source.keys.take().into_iter().flatten().filter(|(key, name)| key != name) {
            self.template.insert(name, format!("${{{key}}}"));
            self.keeps_source_keys = true;
        }
    }

    fn target(&mut self, target: Target) -> Value {
        let Target { name, creation_policy, deletion_policy, immutable, template: of_target } = target;
        if immutable {
            self.lose("target.immutable. The Secret follows Vault".to_owned());
        }
        if let Some(policy) = deletion_policy.filter(|policy| policy != "Retain") {
            self.lose(format!("target.deletionPolicy: {policy}. Content that is gone from Vault stays in the Secret"));
        }
        let deletion_policy = match creation_policy.as_deref() {
            None | Some("Owner") => None,
            Some("Orphan" | "Merge") => Some("Retain"),
            Some(policy) => {
                self.lose(format!("target.creationPolicy: {policy}"));
                None
            }
        };
        let Template { r#type, metadata, data, others, merge_policy } = of_target.unwrap_or_default();
        if !others.is_empty() {
            self.lose("target.template.templateFrom. Write the texts in spec.template.data".to_owned());
        }
        if merge_policy.as_deref() == Some("Merge") {
            self.keeps_source_keys = true;
        } else if !data.is_empty() {
            self.keeps_source_keys = false;
        }
        for (key, text) in data {
            match template(&text, ".") {
                Ok(text) => drop(self.template.insert(key, text)),
                Err(cause) => self.lose(format!("target.template.data {key}: {cause}")),
            }
        }
        json!({
            "name": name, "type": r#type, "labels": metadata.labels, "annotations": metadata.annotations,
            "deletionPolicy": deletion_policy, "adopt": true,
        })
    }
}

#[cfg(test)]
mod tests;
