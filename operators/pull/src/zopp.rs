//! zopp: environments that are followed by stream, with a poll as the net beneath it.

mod follow;
pub mod memory;
pub(crate) mod messages;
mod missed;
pub mod record;

use std::sync::Arc;

use async_trait::async_trait;
use konverge_apply::Statement;
use konverge_core::error::{Classify, ErrorClass};
use konverge_zopp_client::{Client, Connection, EnvironmentName, EnvironmentReader, FetchError};

use self::{follow::Follow, memory::Memory};
use crate::{
    hub::Feed,
    reasons,
    source::{Cause, Failure, Reference, Revision, Snapshot, Source, Succession, Upstream},
};

/// The scheme of references to environments.
pub const SCHEME: &str = "zopp";

/// The remark about an environment without a manifest.
const UNPROVEN: &str = "it has no manifest to show that it is whole and current";

/// Names an environment.
pub fn reference(name: &EnvironmentName) -> Reference {
    Reference::new(SCHEME, [&*name.workspace, &*name.project, &*name.environment])
}

/// Returns the environment that a reference names, or `None` if it names none.
pub fn environment(reference: &Reference) -> Option<EnvironmentName> {
    let segments: Vec<_> = reference.segments().collect();
    let [workspace, project, environment] = &segments[..] else { return None };
    let is_zopp = reference.scheme() == SCHEME && reference.version().is_none();
    is_zopp.then(|| EnvironmentName::new(&**workspace, &**project, &**environment))
}

/// One zopp server, as one principal.
pub struct Zopp {
    client: Client,
    memory: Arc<Memory>,
}

impl Zopp {
    /// Reads with this client once the memory is loaded.
    pub fn new(client: Client, memory: Memory) -> Self {
        Self { client, memory: Arc::new(memory) }
    }
}

#[async_trait]
impl Source for Zopp {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn open(&self, reference: &Reference) -> Result<Box<dyn Upstream>, Statement> {
        let name = environment(reference).ok_or_else(|| crate::messages::not_an_environment(reference))?;
        let reader = EnvironmentReader::new(self.client.clone(), name);
        let principal = self.client.identity().principal_id().to_owned();
        Ok(Box::new(Environment { reader, memory: Arc::clone(&self.memory), principal }))
    }

    fn recall(&self, record: &str) {
        self.memory.recall(record);
    }

    fn records_are_complete(&self) {
        self.memory.load();
    }

    async fn check(&self) -> Result<(), Statement> {
        let is_serving = check_serving(self.client.connection()).await;
        is_serving.map_err(|cause| crate::messages::failure(reasons::SERVER_UNREACHABLE, cause))
    }
}

/// Asks the server whether it serves.
///
/// # Errors
/// Why it does not, for people.
pub async fn check_serving(connection: &Connection) -> Result<(), String> {
    match connection.is_serving().await {
        Ok(true) => Ok(()),
        Ok(false) => Err("the server says that it is not serving".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// An environment.
struct Environment {
    reader: EnvironmentReader,
    memory: Arc<Memory>,
    /// The ID of the operator's principal, for messages that say what to grant.
    principal: String,
}

#[async_trait]
impl Upstream for Environment {
    async fn fetch(&self) -> Result<Snapshot, Failure> {
        self.memory.loaded().await;
        match self.reader.fetch().await {
            Ok(snapshot) => Ok(convert(snapshot)),
            Err(error) => Err(Failure {
                statement: messages::fetch_failed(&self.principal, &error),
                kind: error.reason(),
                cause: cause(&error),
            }),
        }
    }

    async fn is_current(&self, tag: &str) -> bool {
        self.reader.is_current(tag).await.unwrap_or(false)
    }

    async fn follow(&self, feed: Feed) {
        Follow { reader: &self.reader, feed }.run().await;
    }

    fn accepted(&self) -> Option<Revision> {
        // The state is empty after a person has accepted an older one.
        let state = self.memory.state(self.reader.name()).filter(|state| !state.id.is_empty())?;
        Some(Revision { identity: state.id, number: state.version, fingerprint: None })
    }

    fn accept(&self, snapshot: &Snapshot) {
        self.memory.accept(self.reader.name(), snapshot);
    }

    fn record(&self, snapshot: &Snapshot) -> Option<String> {
        self.memory.record(self.reader.name(), snapshot)
    }
}

/// Returns an environment as a content of any store.
fn convert(snapshot: konverge_zopp_client::Snapshot) -> Snapshot {
    let konverge_zopp_client::Snapshot { environment_id, version, content, tag, proven, serial, values, failed } =
        snapshot;
    Snapshot {
        revision: Revision { identity: environment_id, number: version, fingerprint: Some(content.get()) },
        succession: serial.map_or(Succession::Unproven, Succession::Proven),
        tag,
        remark: (!proven).then_some(UNPROVEN),
        values,
        failed: failed.into_iter().map(|(key, _)| key).collect(),
    }
}

/// Returns what an error of the client shows of the server.
fn cause(error: &FetchError) -> Cause {
    match error {
        FetchError::Unreachable { .. } => Cause::Unreachable,
        error if error.class() == ErrorClass::Transient => Cause::Broken,
        _ => Cause::Refused,
    }
}
