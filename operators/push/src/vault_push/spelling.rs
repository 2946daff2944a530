//! Converts a `VaultPush` into the spec that annotations make, too.

use std::{collections::BTreeMap, sync::Arc};

use konverge_runtime::watch::Guarded;
use konverge_vault::{KvVersion, SecretPath};
use kube::{Resource, ResourceExt, core::DynamicObject};

use super::{SecretsSpec, VaultPush, VaultPushSpec};
use crate::{
    annotations::{FINALIZER, PAUSE, SYNC_NOW, duration},
    bindings::{ParsedSpec, Push, Shown},
    composition::{Composition, KeyChoice, SECRET, Secrets},
    desired::Wanted,
    object::ObjectRef,
    record::Record,
    spec::{Engine, Invalid, PushSpec, Selection},
    template::Template,
};

/// The object as a watch shows it.
pub(crate) fn shown(key: &ObjectRef, object: &Guarded<VaultPush>) -> Option<Shown> {
    let metadata = object.meta().clone();
    let uid = metadata.uid?;
    let status = object.0.as_ref().ok().and_then(|object| object.status.clone());
    let spec = match &object.0 {
        Ok(object) => push(key, &object.spec, object.annotations()).map_or_else(
            |invalid| ParsedSpec::Invalid(Arc::new(invalid), object.spec.deletion_policy),
            ParsedSpec::Push,
        ),
        Err(undecodable) => ParsedSpec::Invalid(Arc::new(Invalid::Spec { cause: undecodable.error.clone() }), None),
    };
    Some(Shown {
        key: key.clone(),
        version: metadata.resource_version.unwrap_or_default(),
        spec,
        deleting: metadata.deletion_timestamp.map(|time| time.0),
        finalizer: metadata.finalizers.iter().flatten().any(|known| known == FINALIZER),
        generation: metadata.generation,
        record: status.map(Record::from).filter(|record| record.uid == uid).map(|record| record.text()),
        uid,
    })
}

/// The request of an object that could not be decoded.
pub(crate) fn understood(key: &ObjectRef, object: &DynamicObject) -> Result<Arc<Push>, Invalid> {
    let object: VaultPush = object.clone().try_parse().map_err(|error| wrong(error.to_string()))?;
    push(key, &object.spec, object.annotations())
}

/// To pause it and to have it compared now, annotations do as elsewhere: its spec may be in the hands of a program.
fn push(key: &ObjectRef, spec: &VaultPushSpec, annotations: &BTreeMap<String, String>) -> Result<Arc<Push>, Invalid> {
    let in_engine = spec.path.replace("{namespace}", &key.namespace).replace("{name}", &key.name);
    let path = format!("{}/{in_engine}", spec.mount);
    let secrets = secrets(&spec.secrets)?;
    let templates = spec.templates.iter().flatten();
    let composition = Composition {
        apart: path.contains(SECRET),
        keys: spec
            .keys
            .iter()
            .flatten()
            .map(|key| KeyChoice { secret: key.secret.clone(), from: key.from.clone(), to: key.to.clone() })
            .collect(),
        prefix: spec.key_prefix.clone().unwrap_or_default(),
        templates: templates
            .map(|(key, text)| {
                let parsed = text.parse::<Template>().map_err(|error| error.to_string());
                let fits =
                    parsed.and_then(|template| named(&template, &secrets, path.contains(SECRET)).map(|()| template));
                fits.map(|template| (key.clone(), template))
                    .map_err(|cause| Invalid::Template { key: key.clone(), cause })
            })
            .collect::<Result<BTreeMap<_, _>, _>>()?,
        secrets,
    };
    let every = spec.interval.as_deref().map(interval).transpose()?.flatten();
    let asked = PushSpec {
        path,
        selection: Selection::All { image_pull_secrets: false },
        every,
        always: false,
        deletion: spec.deletion_policy,
        existing: spec.existing,
        binary: spec.binary,
        update: spec.update_policy,
        engine: engine(&spec.mount, spec.engine_version)?,
        paused: spec.suspend || annotations.get(PAUSE).is_some_and(|value| value == "true"),
        sync_now: annotations.get(SYNC_NOW).filter(|token| !token.is_empty()).cloned(),
        notes: Vec::new(),
    };
    Ok(Arc::new(Push { spec: asked, wanted: Wanted::Composed(composition) }))
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

fn interval(text: &str) -> Result<Option<std::time::Duration>, Invalid> {
    let span = duration::parse(text).map_err(|error| wrong(format!("interval: {error}")))?;
    let shortest = crate::annotations::SHORTEST_INTERVAL;
    span.duration()
        .filter(|span| *span >= shortest)
        .map(Some)
        .ok_or_else(|| wrong(format!("interval is below {} s", shortest.as_secs())))
}

fn engine(mount: &str, version: Option<u8>) -> Result<Engine, Invalid> {
    SecretPath::parse(&format!("{mount}/x")).map_err(|error| wrong(format!("mount: {error}")))?;
    let version = version.map(|version| if version == 1 { KvVersion::One } else { KvVersion::Two });
    Ok(Engine::Beneath { mount: mount.to_owned(), version })
}

#[cfg(test)]
mod tests;
