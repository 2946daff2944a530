//! An operator outside of the workspace of Konverge, which names one crate: `konverge`.

use konverge::prelude::*;

/// The spec of a greeting.
#[konverge::resource(group = "example.io", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
#[serde(rename_all = "camelCase")]
pub struct GreetingSpec {
    /// The text of the config map.
    pub text: String,
    /// Where the greeting is shown.
    #[serde(default)]
    pub places: Vec<Place>,
}

/// A place.
#[konverge::schema]
#[derive(PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub name: String,
}

/// The status of a greeting.
#[konverge::schema]
#[derive(Default)]
pub struct GreetingStatus {
    /// How often the text was shown.
    #[serde(default)]
    pub shown: u32,
    /// Conditions of the framework.
    #[serde(flatten)]
    pub standard: Status,
}

impl CustomStatus for GreetingStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }
}

struct Greeter;

impl Reconcile<Greeting> for Greeter {
    type Error = Error;

    async fn apply(&self, greeting: Arc<Greeting>, context: Context<Greeting>) -> Result<Action, Error> {
        let mut child = ConfigMap::default();
        child.metadata.name = Some(greeting.name_any());
        child.data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
        context.children().with(child).apply().await?;
        Ok(Action::Done)
    }
}

/// The operator.
pub fn operator() -> Operator {
    konverge::operator!().controller(Controller::new(Greeter).owns::<ConfigMap>())
}

/// Runs the operator in a program that reads no command line.
pub fn run() -> Result<(), konverge::StartError> {
    operator().run(konverge::Options::default().with(|options| options.leader_election = true))
}

/// The token that stops a program that the caller has assembled.
pub fn stop(manager: &konverge::runtime::Manager) -> konverge::CancellationToken {
    manager.shutdown()
}

/// The definition of the custom resource, as it is installed.
#[cfg(feature = "generate")]
pub fn manifest() -> Result<String, konverge::GenerateError> {
    Ok(operator().generate("here")?.manifest())
}

/// The settings of the HTTP server.
#[cfg(feature = "serve")]
pub fn server() -> konverge::ServerOptions {
    konverge::Options::default().server
}

/// The settings of a program that sends its traces.
#[cfg(feature = "otlp")]
pub fn traced(endpoint: &str) -> konverge::Options {
    konverge::Options::default().with(|options| options.otlp_endpoint = Some(endpoint.to_owned()))
}

/// Webhooks, whose TLS is the author's own.
#[cfg(feature = "admission")]
pub mod hooks {
    use std::{convert::Infallible, sync::Arc};

    use konverge::{
        CancellationToken,
        admission::{Review, Security, Validator, Verdict, Webhook, WebhookServer, Webhooks, rustls},
    };

    use crate::Greeting;

    struct Polite;

    impl Validator<Greeting> for Polite {
        type Error = Infallible;

        async fn validate(&self, review: &Review<Greeting>) -> Result<Verdict, Infallible> {
            let is_empty = review.object.as_ref().is_some_and(|greeting| greeting.spec.text.is_empty());
            Ok(Verdict::unless(is_empty.then_some(("spec.text", "is empty"))))
        }
    }

    /// Serves until the token is cancelled.
    pub async fn serve(
        config: Arc<rustls::ServerConfig>,
        stop: CancellationToken,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let webhooks = Webhooks::new().validate(Webhook::of::<Greeting>(), Polite);
        WebhookServer::bind(([127, 0, 0, 1], 0).into(), webhooks, Security::Config(config)).await?.run(stop).await;
        Ok(())
    }
}

/// Sources outside the cluster, with clients of the author's own.
#[cfg(feature = "external")]
pub mod sources {
    use std::{sync::Arc, time::Duration};

    use konverge::{
        CancellationToken,
        external::{
            Options,
            http::{Endpoint, HttpSource, InvalidEndpoint, reqwest},
            objects::{
                ObjectSource,
                object_store::{ObjectStore, memory::InMemory},
            },
        },
    };

    /// A document that is fetched with this client.
    pub fn document(client: reqwest::Client) -> Result<HttpSource, InvalidEndpoint> {
        Ok(HttpSource::new("greetings", Endpoint::new("https://example.com/greetings.json")?.client(client)))
    }

    /// The objects of a store in memory.
    pub fn objects() -> ObjectSource {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        ObjectSource::new("greetings", store)
    }

    /// Asks each minute until the token is cancelled.
    pub fn each_minute(stop: CancellationToken) -> Options {
        Options::every(Duration::from_secs(60)).shutdown(stop)
    }
}

/// A run of the reconciler against a model of an API server.
#[cfg(feature = "testing")]
pub async fn first_run() -> Result<konverge::testing::Ran<Greeting>, konverge::testing::TestError> {
    let greeting = Greeting::new("first", GreetingSpec { text: "hello".to_owned(), places: Vec::new() });
    konverge::testing::TestRun::new(greeting).apply(Controller::new(Greeter).owns::<ConfigMap>()).await
}
