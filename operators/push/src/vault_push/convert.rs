//! Converts a `VaultPush` into the spec that annotations make, too.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use konverge_runtime::watch::{Guarded, Undecodable};
use konverge_text::{Template, TemplateError};
use konverge_vault::{KvVersion, SecretPath};
use kube::core::{DynamicObject, ObjectMeta};

use super::{SecretsSpec, VaultPush, VaultPushSpec};
use crate::{
    annotations::{PAUSE, SHORTEST_INTERVAL, SYNC_NOW, deletion_grace, duration},
    bindings::{ParsedSpec, Push, WatchedObject},
    composition::{Composition, KeyChoice, SECRET, Secrets},
    desired::Wanted,
    object::ObjectRef,
    record::Record,
    spec::{Engine, Invalid, PushSpec, Selection},
};

/// The object as a watch shows it, decoded or not.
pub(crate) fn watched_object(key: &ObjectRef, Guarded(object): Guarded<VaultPush>) -> Option<WatchedObject> {
    let VaultPush { metadata, spec, status } = match object {
        Ok(object) => object,
        Err(Undecodable { metadata, error, .. }) => {
            return WatchedObject::of(key, metadata, ParsedSpec::Invalid(Arc::new(wrong(error)), None), None);
        }
    };
    let spec = match push(key, &spec, &metadata) {
        Ok(push) => ParsedSpec::Push(push),
        Err(invalid) => ParsedSpec::Invalid(Arc::new(invalid), spec.deletion_policy),
    };
    let record = status.map(Record::from).filter(|record| metadata.uid.as_ref() == Some(&record.uid));
    WatchedObject::of(key, metadata, spec, record.map(|record| record.text()))
}

/// The request of an object that could not be decoded.
pub(crate) fn parse(key: &ObjectRef, object: &DynamicObject) -> Result<Arc<Push>, Invalid> {
    let object: VaultPush = object.clone().try_parse().map_err(|error| wrong(error.to_string()))?;
    push(key, &object.spec, &object.metadata)
}

/// To pause it and to have it compared now, annotations do as elsewhere: its spec may be in the hands of a program.
fn push(key: &ObjectRef, spec: &VaultPushSpec, metadata: &ObjectMeta) -> Result<Arc<Push>, Invalid> {
    let annotation = |name: &str| metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
    let in_engine = spec.path.replace("{namespace}", &key.namespace).replace("{name}", &key.name);
    let path = format!("{}/{in_engine}", spec.mount);
    let secrets = secrets(&spec.secrets)?;
    let apart = path.contains(SECRET);
    let template = |(key, text): (&String, &String)| -> Result<_, Invalid> {
        let invalid = |cause| Invalid::Template { key: key.clone(), cause };
        let template: Template = text.parse().map_err(|error: TemplateError| invalid(error.to_string()))?;
        named(&template, &secrets, apart).map_err(invalid)?;
        Ok((key.clone(), template))
    };
    let templates = spec.templates.iter().flatten().map(template).collect::<Result<BTreeMap<_, _>, _>>()?;
    let composition = Composition {
        apart,
        keys: spec
            .keys
            .iter()
            .flatten()
            .map(|key| KeyChoice { secret: key.secret.clone(), from: key.from.clone(), to: key.to.clone() })
            .collect(),
        prefix: spec.key_prefix.clone().unwrap_or_default(),
        templates,
        secrets,
    };
    let every = spec.interval.as_deref().map(interval).transpose()?;
    let spec = PushSpec {
        path,
        selection: Selection::All { image_pull_secrets: false },
        every,
        always: false,
        deletion: spec.deletion_policy,
        grace: metadata.annotations.as_ref().and_then(deletion_grace),
        existing: spec.existing,
        binary: spec.binary,
        update: spec.update_policy,
        engine: engine(&spec.mount, spec.engine_version)?,
        paused: spec.suspend || annotation(PAUSE).is_some_and(|value| value == "true"),
        sync_now: annotation(SYNC_NOW).filter(|token| !token.is_empty()).cloned(),
        notes: Vec::new(),
    };
    Ok(Arc::new(Push { spec, wanted: Wanted::Composed(composition) }))
}

fn wrong(cause: impl Into<String>) -> Invalid {
    Invalid::Spec { cause: cause.into() }
}

fn secrets(spec: &SecretsSpec) -> Result<Secrets, Invalid> {
    match (&spec.names, &spec.selector) {
        (Some(names), None) => Ok(Secrets::Named(names.iter().cloned().collect())),
        (None, Some(selector)) => {
            let selector = selector.read().map_err(wrong)?;
            Ok(Secrets::Selected(selector.ok_or_else(|| wrong("the selector is empty"))?))
        }
        _ => Err(wrong("there must be either names or a selector")),
    }
}

/// Each placeholder has to lead to one value: to a Secret that is named, or to the only one of its path.
fn named(template: &Template, secrets: &Secrets, apart: bool) -> Result<(), String> {
    for placeholder in template.placeholders() {
        match (&placeholder.secret, secrets) {
            (Some(secret), Secrets::Named(names)) if names.contains(secret) => {}
            (Some(secret), _) => return Err(format!("{secret} is not one of secrets.names")),
            (None, Secrets::Named(names)) if !apart && names.len() > 1 => {
                let key = &placeholder.key;
                return Err(format!(
                    "several Secrets share the path; write ${{secret/{key}}} to say whose {key} it is"
                ));
            }
            (None, _) => {}
        }
    }
    Ok(())
}

fn interval(text: &str) -> Result<Duration, Invalid> {
    let span = duration::parse(text).map_err(|error| wrong(format!("interval: {error}")))?;
    let span = Duration::try_from(span).ok().filter(|span| *span >= SHORTEST_INTERVAL);
    span.ok_or_else(|| wrong(format!("interval is below {} s", SHORTEST_INTERVAL.as_secs())))
}

fn engine(mount: &str, version: Option<u8>) -> Result<Engine, Invalid> {
    SecretPath::parse(&format!("{mount}/x")).map_err(|error| wrong(format!("mount: {error}")))?;
    let version = version.map(|version| if version == 1 { KvVersion::One } else { KvVersion::Two });
    Ok(Engine::Beneath { mount: mount.to_owned(), version })
}

#[cfg(test)]
mod tests;
