//! Publishes the authorities to the API server. Only `caBundle` is changed, and what else a target declares: a URL or a whole
//! configuration.

mod bundle;

use std::time::Duration;

use json_patch::Patch as Operations;
use k8s_openapi::{
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::Value;
use tokio::time::Instant;

use self::bundle::{Unfit, conversion, relocation, webhooks, with_bundle};
use super::{api_failure::ApiFailure, store::FIELD_MANAGER};

/// An apply with this version makes an object and changes none, because etcd counts from 2.
const NO_VERSION: &str = "1";

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
    /// The conversion of a custom resource definition, which another client makes. It is changed to call `url`, also if it names a Service.
    ConversionAt {
        /// The name of the definition.
        definition: String,
        /// The URL of the conversion.
        url: String,
    },
    /// This configuration, which is made here and kept as it is declared, by server-side apply. Where a declared webhook names a URL and the
    /// one in the cluster a Service, or the other way round, the declared one wins.
    ApplyValidating(Box<ValidatingWebhookConfiguration>),
    /// This configuration, which is made here and kept like [`ApplyValidating`](Self::ApplyValidating).
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
        source: ApiFailure,
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
            Self::Conversion(_) | Self::ConversionAt { .. } => ApiResource::erase::<CustomResourceDefinition>(&()),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Validating(name)
            | Self::Mutating(name)
            | Self::Conversion(name)
            | Self::ConversionAt { definition: name, .. } => name,
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
            Self::Validating(_) | Self::Mutating(_) | Self::Conversion(_) | Self::ConversionAt { .. } => None,
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
    pub(super) async fn inject(
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
        let found = api.get_opt(self.target.name()).await.map_err(|source| self.failed("read", source))?;
        let before = found.as_ref().and_then(|object| object.metadata.resource_version.clone());
        if let (Some((applied, with)), Some(before)) = (&self.applied, &before)
            && applied == before
            && with == bundle
        {
            return Ok(false);
        }
        self.check_calm(bundle)?;
        // An apply cannot remove a Service that belongs to another field manager, and the API server refuses a Service beside a URL.
        let relocation = found.map(|found| relocation(&found.data, object)).unwrap_or_default();
        let seen = if relocation.is_empty() { before.clone() } else { self.patch_with(api, relocation).await? };
        // Of an object that has changed since, another replica may have been the last to know the authorities. If there was none, nothing
        // but a new one is written.
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = seen.unwrap_or_else(|| NO_VERSION.to_owned()).into();
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(self.target.name(), &parameters, &Patch::Apply(&object)).await;
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
            Target::Conversion(_) => conversion(&object.data, bundle, service, None),
            Target::ConversionAt { url, .. } => conversion(&object.data, bundle, service, Some(url)),
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
        self.check_calm(bundle)?;
        self.patch_with(api, operations).await?;
        self.told = Some((Instant::now(), bundle.to_owned()));
        Ok(true)
    }

    /// Sends a JSON patch, and returns the new version. It fails if a tested value has changed.
    async fn patch_with(
        &self,
        api: &Api<DynamicObject>,
        operations: Vec<Value>,
    ) -> Result<Option<String>, InjectionError> {
        let operations: Operations = serde_json::from_value(Value::Array(operations))
            .map_err(|source| InjectionError::Write { target: self.described(), source })?;
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = api.patch(self.target.name(), &parameters, &Patch::Json::<()>(operations)).await;
        patched.map(|patched| patched.metadata.resource_version).map_err(|source| self.failed("patch", source))
    }

    fn failed(&self, act: &'static str, source: kube::Error) -> InjectionError {
        InjectionError::Api { act, target: self.described(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use konverge_testkit::double::{Answer, ApiDouble, RequestMatcher};
    use serde_json::json;

    use super::*;

    /// Another replica may make the configuration between the look and the write. A write without a precondition would then undo what that
    /// replica has told the API server.
    #[tokio::test]
    async fn a_configuration_that_was_not_there_is_only_ever_made() {
        let server = ApiDouble::default();
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/shop";
        let conflict = Answer::status(409, "Conflict", "the object exists");
        server.expect(RequestMatcher::get(path).answer(Answer::not_found("validatingwebhookconfigurations", "shop")));
        server.expect(
            RequestMatcher::patch(path).body(json!({ "metadata": { "resourceVersion": "1" } })).answer(conflict),
        );
        // The next look finds that of the other replica.
        let made = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "shop", "uid": "u", "resourceVersion": "7" },
        });
        server.expect(RequestMatcher::get(path).answer(Answer::object(&made)));
        server.expect(
            RequestMatcher::patch(path)
                .body(json!({ "metadata": { "resourceVersion": "7" } }))
                .answer(Answer::object(&made)),
        );
        let mut configuration = ValidatingWebhookConfiguration::default();
        configuration.metadata.name = Some("shop".to_owned());
        let mut injection = Injection::new(Target::ApplyValidating(Box::new(configuration)), Duration::ZERO);
        let client = server.client();
        let mut inject = async || injection.inject(&client, "bundle", ("shop", "program")).await;
        let error = inject().await.unwrap_err();
        assert_eq!(error.to_string(), "cannot apply ValidatingWebhookConfiguration shop");
        assert!(!inject().await.unwrap(), "the other replica has told it the same");
        server.finish().unwrap();
    }

    #[test]
    fn the_same_is_not_told_again_at_once() {
        let told = |calm, what: &str| Injection {
            told: Some((Instant::now(), what.to_owned())),
            ..Injection::new(Target::Validating("shop".to_owned()), calm)
        };
        let hour = Duration::from_secs(3600);
        let error = told(hour, "same").check_calm("same").unwrap_err();
        assert!(error.to_string().starts_with("ValidatingWebhookConfiguration shop was changed"), "{error}");
        assert!(told(hour, "old").check_calm("new").is_ok(), "news do not wait");
        assert!(told(Duration::ZERO, "same").check_calm("same").is_ok());
    }
}
