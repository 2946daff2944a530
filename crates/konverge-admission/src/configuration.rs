//! The objects that tell the API server about the webhooks, made from what was registered.

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
};
use kube::api::ObjectMeta;

use crate::{
    Webhook, Webhooks,
    webhook::{FailurePolicy, SideEffects},
    webhooks::{Converted, Declared},
};

/// The version of reviews that the API server is asked to send.
const REVIEW_VERSION: &str = "v1";

/// Where the API server finds the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// Behind a Service of the cluster.
    Service {
        /// Of the Service.
        namespace: String,
        /// Of the Service.
        name: String,
        /// Of the Service, usually 443.
        port: u16,
    },
    /// Outside of the cluster, at this beginning of a URL, such as `https://10.0.0.1:9443`.
    Url(String),
}

impl Location {
    /// Behind port 443 of a Service.
    pub fn service(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Service { namespace: namespace.into(), name: name.into(), port: 443 }
    }

    fn client_config(&self, path: &str) -> WebhookClientConfig {
        match self {
            Self::Service { namespace, name, port } => WebhookClientConfig {
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.to_owned()),
                    port: Some(i32::from(*port)),
                }),
                ..WebhookClientConfig::default()
            },
            Self::Url(base) => WebhookClientConfig {
                url: Some(format!("{}{path}", base.trim_end_matches('/'))),
                ..WebhookClientConfig::default()
            },
        }
    }
}

impl Webhooks {
    /// Returns the configuration of the validating webhooks, without the certificate authority, or `None` if there are none.
    pub fn validating_configuration(&self, name: &str, location: &Location) -> Option<ValidatingWebhookConfiguration> {
        let webhooks: Vec<_> = self.validating.iter().map(|declared| validating(declared, location)).collect();
        (!webhooks.is_empty())
            .then(|| ValidatingWebhookConfiguration { metadata: named(name), webhooks: Some(webhooks) })
    }

    /// Returns the configuration of the mutating webhooks, without the certificate authority, or `None` if there are none.
    pub fn mutating_configuration(&self, name: &str, location: &Location) -> Option<MutatingWebhookConfiguration> {
        let webhooks: Vec<_> = self.mutating.iter().map(|declared| mutating(declared, location)).collect();
        (!webhooks.is_empty()).then(|| MutatingWebhookConfiguration { metadata: named(name), webhooks: Some(webhooks) })
    }

    /// Returns the `spec.conversion` of each custom resource definition, with its name.
    pub fn conversions(&self, location: &Location) -> Vec<(String, apiextensions::CustomResourceConversion)> {
        let one = |converted: &Converted| {
            let WebhookClientConfig { service, url, .. } = location.client_config(&converted.path);
            let service = service.map(|service| apiextensions::ServiceReference {
                namespace: service.namespace,
                name: service.name,
                path: service.path,
                port: service.port,
            });
            let client_config = apiextensions::WebhookClientConfig { ca_bundle: None::<ByteString>, service, url };
            let conversion = apiextensions::CustomResourceConversion {
                strategy: "Webhook".to_owned(),
                webhook: Some(apiextensions::WebhookConversion {
                    client_config: Some(client_config),
                    conversion_review_versions: vec![REVIEW_VERSION.to_owned()],
                }),
            };
            (converted.definition.clone(), conversion)
        };
        self.conversions.iter().map(one).collect()
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn validating(Declared { name, path, webhook }: &Declared, location: &Location) -> ValidatingWebhook {
    ValidatingWebhook {
        admission_review_versions: vec![REVIEW_VERSION.to_owned()],
        client_config: location.client_config(path),
        failure_policy: Some(failure_policy(webhook)),
        match_conditions: conditions(webhook),
        match_policy: Some(match_policy(webhook)),
        name: name.clone(),
        namespace_selector: webhook.requests.namespace_selector.clone(),
        object_selector: webhook.requests.object_selector.clone(),
        rules: Some(webhook.requests.rules.clone()),
        side_effects: side_effects(webhook),
        timeout_seconds: Some(webhook.timeout_seconds),
    }
}

fn mutating(Declared { name, path, webhook }: &Declared, location: &Location) -> MutatingWebhook {
    MutatingWebhook {
        admission_review_versions: vec![REVIEW_VERSION.to_owned()],
        client_config: location.client_config(path),
        failure_policy: Some(failure_policy(webhook)),
        match_conditions: conditions(webhook),
        match_policy: Some(match_policy(webhook)),
        name: name.clone(),
        namespace_selector: webhook.requests.namespace_selector.clone(),
        object_selector: webhook.requests.object_selector.clone(),
        reinvocation_policy: Some(if webhook.reinvoke { "IfNeeded" } else { "Never" }.to_owned()),
        rules: Some(webhook.requests.rules.clone()),
        side_effects: side_effects(webhook),
        timeout_seconds: Some(webhook.timeout_seconds),
    }
}

fn failure_policy(webhook: &Webhook) -> String {
    match webhook.failure_policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    }
    .to_owned()
}

fn match_policy(webhook: &Webhook) -> String {
    if webhook.requests.exact_version { "Exact" } else { "Equivalent" }.to_owned()
}

fn side_effects(webhook: &Webhook) -> String {
    match webhook.side_effects {
        SideEffects::None => "None",
        SideEffects::NoneOnDryRun => "NoneOnDryRun",
    }
    .to_owned()
}

fn conditions(webhook: &Webhook) -> Option<Vec<k8s_openapi::api::admissionregistration::v1::MatchCondition>> {
    (!webhook.requests.match_conditions.is_empty()).then(|| webhook.requests.match_conditions.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    use kube::core::GroupVersionKind;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Mutation, Operation, Review, Verdict, handler};

    fn allow<T: Sync + 'static>() -> impl crate::Validator<T> {
        handler::validator(|_: &Review<T>| Verdict::allow())
    }

    #[test]
    fn a_plain_webhook_is_declared_with_the_usual_words() {
        let webhook = Webhook::of::<Deployment>().name("rollouts.shop.example.com");
        let webhooks = Webhooks::new().validate::<Deployment>(webhook, allow());
        let location = Location::service("shop", "hooks");
        let configuration = webhooks.validating_configuration("shop", &location).unwrap();
        assert_eq!(
            serde_json::to_value(configuration).unwrap(),
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": { "name": "shop" },
                "webhooks": [{
                    "name": "rollouts.shop.example.com",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {
                        "service": {
                            "namespace": "shop", "name": "hooks", "port": 443, "path": "/validate-apps-v1-deployment",
                        },
                    },
                    "failurePolicy": "Fail",
                    "matchPolicy": "Equivalent",
                    "rules": [{
                        "apiGroups": ["apps"], "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"], "resources": ["deployments"],
                    }],
                    "sideEffects": "None",
                    "timeoutSeconds": 10,
                }],
            })
        );
        assert_eq!(webhooks.mutating_configuration("shop", &location), None);
        assert_eq!(webhooks.conversions(&location), []);
    }

    #[test]
    fn names_and_paths_are_made_of_the_kind_and_the_purpose() {
        let kind = GroupVersionKind::gvk("stable.example.com", "v1beta1", "CronTab");
        let same = || handler::mutator(|map: ConfigMap, _: &Review<ConfigMap>| Mutation::to(map));
        let webhooks = Webhooks::new()
            .validate::<ConfigMap>(Webhook::of::<ConfigMap>(), allow())
            .validate::<ConfigMap>(Webhook::for_resource(kind, "crontabs"), allow())
            .mutate(Webhook::of::<ConfigMap>(), same())
            .defaults(Webhook::of::<ConfigMap>(), handler::defaulter(|_: &mut ConfigMap| ()));
        assert_eq!(webhooks.check(), Ok(()));
        let declared: Vec<_> = [&webhooks.validating, &webhooks.mutating]
            .into_iter()
            .flatten()
            .map(|declared| (declared.name.as_str(), declared.path.as_str()))
            .collect();
        assert_eq!(
            declared,
            [
                ("validate.configmaps.core", "/validate--v1-configmap"),
                ("validate.crontabs.stable.example.com", "/validate-stable-example-com-v1beta1-crontab"),
                ("mutate.configmaps.core", "/mutate--v1-configmap"),
                ("default.configmaps.core", "/default--v1-configmap"),
            ]
        );
    }

    #[test]
    fn every_word_reaches_the_declaration() {
        let webhook = Webhook::of::<ConfigMap>()
            .name("maps.shop.example.com")
            .operations([Operation::Delete])
            .subresource("status")
            .subresource("scale")
            .path("/here")
            .failure_policy(FailurePolicy::Ignore)
            .side_effects(SideEffects::NoneOnDryRun)
            .timeout_seconds(200)
            .namespace_labels([("a", "b")])
            .object_labels([("c", "d")])
            .condition("one", "true")
            .exact_version()
            .reinvoke();
        let same = handler::mutator(|map: ConfigMap, _: &Review<ConfigMap>| Mutation::to(map));
        let webhooks = Webhooks::new().mutate(webhook, same);
        let location = Location::Url("https://10.0.0.1:9443/".to_owned());
        let configuration = webhooks.mutating_configuration("shop", &location).unwrap();
        let declared = serde_json::to_value(configuration).unwrap()["webhooks"][0].take();
        let table: [(&str, Value); 12] = [
            ("/clientConfig/url", json!("https://10.0.0.1:9443/here")),
            ("/rules/0/operations", json!(["DELETE"])),
            ("/rules/0/resources", json!(["configmaps/status", "configmaps/scale"])),
            ("/rules/0/apiGroups", json!([""])),
            ("/failurePolicy", json!("Ignore")),
            ("/sideEffects", json!("NoneOnDryRun")),
            ("/timeoutSeconds", json!(30)),
            ("/namespaceSelector", json!({ "matchLabels": { "a": "b" } })),
            ("/objectSelector", json!({ "matchLabels": { "c": "d" } })),
            ("/matchConditions", json!([{ "name": "one", "expression": "true" }])),
            ("/matchPolicy", json!("Exact")),
            ("/reinvocationPolicy", json!("IfNeeded")),
        ];
        for (pointer, value) in table {
            assert_eq!(declared.pointer(pointer), Some(&value), "{pointer}");
        }
    }
}
