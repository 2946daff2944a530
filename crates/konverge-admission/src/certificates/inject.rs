//! Bringing the authorities to those who call the server: only `caBundle` is touched, and only when it is another.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use json_patch::Patch as Operations;
use k8s_openapi::{
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::store::FIELD_MANAGER;

/// Something in the cluster that has to know the certificate authority.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Target {
    /// The `ValidatingWebhookConfiguration` of this name, which somebody else makes.
    Validating(String),
    /// The `MutatingWebhookConfiguration` of this name, which somebody else makes.
    Mutating(String),
    /// The conversion of the custom resource definition of this name, such as `widgets.example.com`, which somebody else makes.
    Conversion(String),
    /// This configuration, which is made here and kept as it is declared, by server-side apply.
    ApplyValidating(Box<ValidatingWebhookConfiguration>),
    /// This configuration, which is made here and kept as it is declared, by server-side apply.
    ApplyMutating(Box<MutatingWebhookConfiguration>),
}

/// Why a target does not know the authority.
#[derive(Debug, thiserror::Error)]
pub(super) enum InjectionError {
    #[error("cannot {act} {target}")]
    Api {
        act: &'static str,
        target: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{target} does not call service {service}; is it declared for another server?")]
    Elsewhere { target: String, service: String },
    #[error("{target} has no webhook for its conversion; set spec.conversion.strategy to Webhook")]
    NoConversion { target: String },
    #[error("{target} was changed by somebody else right after it was told; is another program or version keeping it?")]
    Contended { target: String },
    #[error("{target} cannot be written")]
    Write {
        target: String,
        #[source]
        source: serde_json::Error,
    },
}

/// A target, and what is known about it.
pub(super) struct Injection {
    target: Target,
    /// Version and bundle of the last apply: as long as both are the same, there is nothing to apply.
    applied: Option<(String, String)>,
    /// When it was last told, and what.
    told: Option<(Instant, String)>,
    calm: Duration,
}

impl Target {
    fn resource(&self) -> ApiResource {
        match self {
            Self::Validating(_) | Self::ApplyValidating(_) => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
            Self::Mutating(_) | Self::ApplyMutating(_) => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            Self::Conversion(_) => ApiResource::erase::<CustomResourceDefinition>(&()),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Validating(name) | Self::Mutating(name) | Self::Conversion(name) => name,
            Self::ApplyValidating(object) => object.meta().name.as_deref().unwrap_or_default(),
            Self::ApplyMutating(object) => object.meta().name.as_deref().unwrap_or_default(),
        }
    }

    /// API group and plural of the resource, its name, and whether it is made here.
    pub(super) fn access(&self) -> (String, String, String, bool) {
        let resource = self.resource();
        let made_here = matches!(self, Self::ApplyValidating(_) | Self::ApplyMutating(_));
        (resource.group, resource.plural, self.name().to_owned(), made_here)
    }

    fn declared(&self) -> Option<Result<Value, serde_json::Error>> {
        match self {
            Self::ApplyValidating(object) => Some(serde_json::to_value(object)),
            Self::ApplyMutating(object) => Some(serde_json::to_value(object)),
            Self::Validating(_) | Self::Mutating(_) | Self::Conversion(_) => None,
        }
    }
}

impl Injection {
    /// Two that keep one object otherwise, such as two versions of a program during its rollout, would write at each other's every
    /// write: the same is not told again before `calm` is over.
    pub(super) fn new(target: Target, calm: Duration) -> Self {
        Self { target, applied: None, told: None, calm }
    }

    /// Whether the target was told the same a moment ago, and somebody else has changed it since.
    fn check_calm(&self, bundle: &str) -> Result<(), InjectionError> {
        match &self.told {
            Some((when, what)) if what == bundle && when.elapsed() < self.calm => {
                Err(InjectionError::Contended { target: self.described() })
            }
            _ => Ok(()),
        }
    }

    /// Kind and name.
    pub(super) fn described(&self) -> String {
        format!("{} {}", self.target.resource().kind, self.target.name())
    }

    /// Sees to it that the target knows the authorities. True if it had to be told.
    ///
    /// `service` is the namespace and name that webhooks must call if they name a service at all.
    pub(super) async fn bring(
        &mut self,
        client: &Client,
        bundle: &str,
        service: (&str, &str),
    ) -> Result<bool, InjectionError> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.target.resource());
        match self.target.declared() {
            Some(Ok(declared)) => self.apply(&api, &with_bundle(declared, bundle), bundle).await,
            Some(Err(source)) => Err(InjectionError::Write { target: self.described(), source }),
            None => self.patch(&api, bundle, service).await,
        }
    }

    async fn apply(&mut self, api: &Api<DynamicObject>, object: &Value, bundle: &str) -> Result<bool, InjectionError> {
        let found = api.get_metadata_opt(self.target.name()).await.map_err(|source| self.failed("read", source))?;
        let before = found.and_then(|object| object.metadata.resource_version);
        if let (Some((applied, with)), Some(before)) = (&self.applied, &before)
            && applied == before
            && with == bundle
        {
            return Ok(false);
        }
        self.check_calm(bundle)?;
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(self.target.name(), &parameters, &Patch::Apply(object)).await;
        let after = applied.map_err(|source| self.failed("apply", source))?.metadata.resource_version;
        let changed = before != after;
        self.told = Some((Instant::now(), bundle.to_owned()));
        self.applied = after.map(|after| (after, bundle.to_owned()));
        Ok(changed)
    }

    async fn patch(
        &mut self,
        api: &Api<DynamicObject>,
        bundle: &str,
        service: (&str, &str),
    ) -> Result<bool, InjectionError> {
        let object = api.get(self.target.name()).await.map_err(|source| self.failed("read", source))?;
        let operations = match &self.target {
            Target::Conversion(_) => conversion(&object.data, bundle, service),
            _ => webhooks(&object.data, bundle, service),
        };
        let operations = operations.map_err(|unfit| match unfit {
            Unfit::NoConversion => InjectionError::NoConversion { target: self.described() },
            Unfit::Elsewhere => {
                let service = format!("{}/{}", service.0, service.1);
                InjectionError::Elsewhere { target: self.described(), service }
            }
        })?;
        if operations.is_empty() {
            return Ok(false);
        }
        let operations: Operations = serde_json::from_value(Value::Array(operations))
            .map_err(|source| InjectionError::Write { target: self.described(), source })?;
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.check_calm(bundle)?;
        let patched = api.patch(self.target.name(), &parameters, &Patch::Json::<()>(operations)).await;
        patched.map_err(|source| self.failed("patch", source))?;
        self.told = Some((Instant::now(), bundle.to_owned()));
        Ok(true)
    }

    fn failed(&self, act: &'static str, source: kube::Error) -> InjectionError {
        InjectionError::Api { act, target: self.described(), source: Box::new(source) }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    Elsewhere,
    NoConversion,
}

/// A declared configuration that knows the authorities.
fn with_bundle(mut declared: Value, bundle: &str) -> Value {
    let encoded = STANDARD.encode(bundle);
    for webhook in declared.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        webhook["clientConfig"]["caBundle"] = encoded.clone().into();
    }
    declared
}

/// What makes the webhooks of a configuration know the authorities. Webhooks that call another service are left alone.
fn webhooks(object: &Value, bundle: &str, service: (&str, &str)) -> Result<Vec<Value>, Unfit> {
    let encoded = STANDARD.encode(bundle);
    let (mut operations, mut ours) = (Vec::new(), false);
    for (index, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let config = &webhook["clientConfig"];
        if !is_ours(config, service) {
            continue;
        }
        ours = true;
        if config["caBundle"] != encoded.as_str() {
            // The order may have changed since it was read.
            operations
                .push(json!({ "op": "test", "path": format!("/webhooks/{index}/name"), "value": webhook["name"] }));
            operations.push(
                json!({ "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": encoded }),
            );
        }
    }
    if ours { Ok(operations) } else { Err(Unfit::Elsewhere) }
}

/// What makes the conversion of a definition know the authorities.
fn conversion(object: &Value, bundle: &str, service: (&str, &str)) -> Result<Vec<Value>, Unfit> {
    let encoded = STANDARD.encode(bundle);
    let conversion = &object["spec"]["conversion"];
    let config = &conversion["webhook"]["clientConfig"];
    if conversion["strategy"] != "Webhook" || !config.is_object() {
        return Err(Unfit::NoConversion);
    }
    if !is_ours(config, service) {
        return Err(Unfit::Elsewhere);
    }
    if config["caBundle"] == encoded.as_str() {
        return Ok(Vec::new());
    }
    let path = "/spec/conversion/webhook/clientConfig/caBundle";
    Ok(vec![
        json!({ "op": "test", "path": "/spec/conversion/strategy", "value": "Webhook" }),
        json!({ "op": "add", "path": path, "value": encoded }),
    ])
}

/// A URL may be anybody's, and was declared to be ours.
fn is_ours(config: &Value, (namespace, name): (&str, &str)) -> bool {
    let service = &config["service"];
    service.is_null() || (service["namespace"] == namespace && service["name"] == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: (&str, &str) = ("shop", "hooks");

    fn webhook(name: &str, service: &str, bundle: Option<&str>) -> Value {
        let mut webhook =
            json!({ "name": name, "clientConfig": { "service": { "namespace": "shop", "name": service } } });
        if let Some(bundle) = bundle {
            webhook["clientConfig"]["caBundle"] = STANDARD.encode(bundle).into();
        }
        webhook
    }

    #[test]
    fn only_our_webhooks_with_another_bundle_are_told() {
        let all = json!({ "webhooks": [
            webhook("a", "hooks", None),
            webhook("b", "theirs", None),
            webhook("c", "hooks", Some("old")),
            webhook("d", "hooks", Some("new")),
            { "name": "e", "clientConfig": { "url": "https://127.0.0.1" } },
        ] });
        let operations = webhooks(&all, "new", OURS).unwrap();
        let mut patched = all.clone();
        json_patch::patch(&mut patched, &serde_json::from_value::<Operations>(json!(operations)).unwrap()).unwrap();
        let bundles: Vec<_> =
            (0..5).map(|index| patched["webhooks"][index]["clientConfig"]["caBundle"].clone()).collect();
        let new = json!(STANDARD.encode("new"));
        assert_eq!(bundles, [new.clone(), Value::Null, new.clone(), new.clone(), new]);
        assert_eq!(operations.len(), 6, "two for each that changes");
        assert_eq!(webhooks(&patched, "new", OURS), Ok(vec![]));
        assert_eq!(
            webhooks(&json!({ "webhooks": [webhook("b", "theirs", None)] }), "new", OURS),
            Err(Unfit::Elsewhere)
        );
        assert_eq!(webhooks(&json!({}), "new", OURS), Err(Unfit::Elsewhere));
    }

    #[test]
    fn the_same_is_not_told_again_at_once() {
        let told = |calm, what: &str| Injection {
            told: Some((Instant::now(), what.to_owned())),
            ..Injection::new(Target::Validating("shop".to_owned()), calm)
        };
        let hour = Duration::from_hours(1);
        let error = told(hour, "same").check_calm("same").unwrap_err();
        assert!(error.to_string().starts_with("ValidatingWebhookConfiguration shop was changed"), "{error}");
        assert!(told(hour, "old").check_calm("new").is_ok(), "news do not wait");
        assert!(told(Duration::ZERO, "same").check_calm("same").is_ok());
    }

    #[test]
    fn a_conversion_is_told_if_it_is_ours() {
        let definition = |strategy: &str, config: Value| json!({ "spec": { "conversion": { "strategy": strategy, "webhook": { "clientConfig": config } } } });
        let service = |name: &str| json!({ "service": { "namespace": "shop", "name": name } });
        let table = [
            (definition("Webhook", service("hooks")), Ok(2)),
            (definition("Webhook", json!({ "url": "https://a" })), Ok(2)),
            (definition("Webhook", json!({ "url": "https://a", "caBundle": STANDARD.encode("new") })), Ok(0)),
            (definition("Webhook", service("theirs")), Err(Unfit::Elsewhere)),
            (definition("None", Value::Null), Err(Unfit::NoConversion)),
            (json!({ "spec": {} }), Err(Unfit::NoConversion)),
        ];
        for (object, expected) in table {
            assert_eq!(conversion(&object, "new", OURS).map(|operations| operations.len()), expected, "{object}");
        }
    }
}
