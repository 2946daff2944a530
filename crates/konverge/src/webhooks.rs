//! Webhooks as a part of a program.

mod setup;

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use konverge_admission::{
    AdmissionMetrics, Certificates, Location, Security, WebhookServer,
    certificates::{PairError, SelfMade, Target},
};
use konverge_gen::Access;
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::{home::Home, migration, options::webhook::PORT, part::Part, setup::Setup, start_error::StartError};

pub use setup::{WebhookCaches, WebhookSetup};

/// The reason why the webhooks cannot answer the API server alone.
#[derive(Debug, thiserror::Error)]
enum ClientCaError {
    #[error("cannot read {} (--webhook-client-ca)", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} (--webhook-client-ca) has no usable authority; it must contain certificates in PEM", path.display())]
    Authorities { path: PathBuf, source: PairError },
    #[error(
        "the API server shows no certificate to the conversion webhooks of this program; start it without --webhook-client-ca"
    )]
    Conversions,
}

/// Admits only callers with a certificate of one of these CAs.
fn for_callers_of(certificates: Certificates, path: PathBuf) -> Result<Certificates, ClientCaError> {
    match std::fs::read(&path) {
        Ok(authorities) => {
            certificates.only_for(&authorities).map_err(|source| ClientCaError::Authorities { path, source })
        }
        Err(source) => Err(ClientCaError::Read { path, source }),
    }
}

/// The webhooks of a program, answered by every replica, leading or not.
///
/// The API server is told through configurations named after the program. They are among the generated manifests, with the Service that
/// they name. The program puts its authority into them. If it has a URL of its own, it also replaces the Service in them, and in the
/// definitions that it converts.
pub(crate) struct Admission {
    pub(crate) setup: WebhookSetup,
}

impl Admission {
    fn location(home: &Home<'_>) -> Location {
        match home.webhook_url {
            Some(url) => Location::Url(url.to_owned()),
            None => Location::service(home.namespace, home.program),
        }
    }

    fn certificates(&self, home: &Home<'_>) -> SelfMade {
        let (program, location, url) = (home.program, Self::location(home), home.webhook_url);
        let mut own = SelfMade::new(home.namespace, program).lifetimes(self.setup.lifetimes);
        if let Some(host) = url.and_then(host) {
            own = own.also_for(host);
        }
        if let Some(configuration) = self.setup.declared.validating_configuration(program, &location) {
            own = own.inject(match url {
                None => Target::Validating(program.to_owned()),
                Some(_) => Target::ApplyValidating(Box::new(configuration)),
            });
        }
        if let Some(configuration) = self.setup.declared.mutating_configuration(program, &location) {
            own = own.inject(match url {
                None => Target::Mutating(program.to_owned()),
                Some(_) => Target::ApplyMutating(Box::new(configuration)),
            });
        }
        for (definition, conversion) in self.setup.declared.conversions(&location) {
            let url = conversion.webhook.and_then(|webhook| webhook.client_config?.url);
            own = own.inject(match url {
                None => Target::Conversion(definition),
                Some(url) => Target::ConversionAt { definition, url },
            });
        }
        own
    }
}

impl Part for Admission {
    fn crds(&self) -> Vec<CustomResourceDefinition> {
        self.setup.declared.definitions().cloned().collect()
    }

    #[cfg(feature = "cli")]
    fn command(&self, command: clap::Command) -> clap::Command {
        command.mut_args(|argument| {
            let is_ours = argument.get_id().as_str().starts_with("webhook-");
            if is_ours { argument.hide(false) } else { argument }
        })
    }

    fn describe(&self, registry: &mut Registry) {
        drop(AdmissionMetrics::register(registry));
    }

    fn access(&self, home: &Home<'_>, everywhere: &mut Access, at_home: &mut Access) {
        let access = self.certificates(home).permissions();
        everywhere.rules_of(access.cluster_role);
        at_home.rules_of(access.role);
        everywhere.merge(&self.setup.access);
        for definition in self.setup.declared.migrations() {
            migration::declare(definition, everywhere);
        }
    }

    fn amend(&self, home: &Home<'_>, definition: &mut CustomResourceDefinition) {
        let name = definition.metadata.name.as_deref();
        if let Some(versioned) =
            self.setup.declared.definitions().find(|versioned| versioned.metadata.name.as_deref() == name)
        {
            definition.spec.versions.clone_from(&versioned.spec.versions);
        }
        let conversions = self.setup.declared.conversions(&Self::location(home));
        if let Some((_, conversion)) = conversions.into_iter().find(|(of, _)| Some(of.as_str()) == name) {
            definition.spec.conversion = Some(conversion);
        }
    }

    fn objects(&self, home: &Home<'_>) -> Result<Vec<Value>, serde_json::Error> {
        let (program, location) = (home.program, Self::location(home));
        let validating = self.setup.declared.validating_configuration(program, &location).map(serde_json::to_value);
        let mutating = self.setup.declared.mutating_configuration(program, &location).map(serde_json::to_value);
        let service = serde_json::to_value(service(home));
        [service].into_iter().chain(validating).chain(mutating).collect()
    }

    fn install(self: Box<Self>, setup: &mut Setup) -> BoxFuture<'_, Result<(), StartError>> {
        async move {
            if setup.options().dry_run {
                tracing::info!("dry run: webhooks are not answered, and no certificate is made");
                return Ok(());
            }
            let failed = |source: Box<dyn std::error::Error + Send + Sync>| StartError::Part {
                part: "webhooks".to_owned(),
                source,
            };
            let options = setup.options().webhook.clone();
            let (program, namespace, url) = (setup.program, setup.namespace().to_owned(), options.url.clone());
            let home = Home { program, namespace: &namespace, webhook_url: url.as_deref() };
            let mut certificates = match (&options.certificate, &options.key) {
                (Some(certificate), Some(key)) => {
                    Certificates::from_files(certificate, key).map_err(|error| failed(error.into()))?
                }
                _ => Certificates::self_made(setup.client_of_each_replica().clone(), self.certificates(&home)),
            };
            let converted = self.setup.declared.conversions(&Self::location(&home));
            if let Some(path) = options.client_ca {
                if !converted.is_empty() {
                    return Err(failed(ClientCaError::Conversions.into()));
                }
                certificates = for_callers_of(certificates, path).map_err(|error| failed(error.into()))?;
            }
            let in_order = certificates.in_order();
            let metrics = setup.metrics.register(AdmissionMetrics::register);
            for definition in self.setup.declared.migrations() {
                migration::install(definition, &setup.client, &mut setup.manager);
            }
            setup.caches.ready_before(converted.into_iter().map(|(definition, _)| definition));
            let half_of_the_grace = Duration::from_secs(setup.options().grace_period) / 2;
            let linger = Duration::from_secs(options.drain).min(half_of_the_grace);
            let limits = self.setup.limits.with(|limits| limits.linger = linger);
            let (webhooks, synced) = self.setup.webhooks(setup);
            let server = WebhookServer::bind(options.address, webhooks, Security::Tls(certificates))
                .await
                .map_err(|error| failed(error.into()))?
                .metrics(metrics)
                .limits(limits)
                .admit_once(synced);
            let manager = &mut setup.manager;
            manager.checks().readiness("webhooks", server.readiness());
            // A warning, since unready replicas would not make the authority known; `Certificates::in_order` says more.
            manager.checks().warning("webhook-certificates", in_order);
            // From the signal on, callers look for another replica; the last runs may still need it.
            let (leave, stop) = (manager.shutdown(), manager.stop_tasks());
            manager.server_task("webhooks", server.run_until(leave, stop));
            Ok(())
        }
        .boxed()
    }
}

/// The Service by which the API server reaches the program. It selects the pods by the label that the service account
/// has, too.
fn service(home: &Home<'_>) -> Service {
    let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), home.program.to_owned())]);
    Service {
        metadata: ObjectMeta {
            name: Some(home.program.to_owned()),
            namespace: Some(home.namespace.to_owned()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            selector: Some(labels),
            ports: Some(vec![ServicePort {
                name: Some("webhooks".to_owned()),
                port: 443,
                target_port: Some(IntOrString::Int(PORT.into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The host of a URL, without brackets and port.
fn host(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    Some(uri.host()?.trim_matches(['[', ']']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_what_a_certificate_names() {
        for (url, expected) in [
            ("https://10.0.0.1:9443", Some("10.0.0.1")),
            ("https://[::1]:9443/base", Some("::1")),
            ("https://example.com", Some("example.com")),
            ("/path", None),
        ] {
            assert_eq!(host(url).as_deref(), expected, "{url}");
        }
    }
}
