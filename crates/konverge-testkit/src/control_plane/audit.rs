//! The API server's audit log: who did what to which object, in the order in which it was done.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;

use crate::wait::eventually;

/// The log is written within milliseconds after an answer.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(20);

/// The audit policy: requests that have ended, without bodies, and without those of the API server itself.
pub(super) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    { "level": "None", "users": ["system:apiserver", "system:anonymous"] },
    { "level": "Metadata" }
  ]
}"#;

/// One request that the API server has answered, or a watch that it has begun to answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AuditEntry {
    /// `ResponseStarted` for watches, `ResponseComplete` for all that ended.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` and the like.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The user of the request.
    pub user: AuditUser,
    /// The object of the request, if any; a request such as `/version` has none.
    #[serde(default)]
    pub object_ref: AuditObject,
    /// How it was answered.
    #[serde(default)]
    pub response_status: AuditStatus,
    /// When this stage was reached.
    pub stage_timestamp: Timestamp,
}

/// The user of the request.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct AuditUser {
    /// The user name; a service account's is `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
}

/// The object of the request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AuditObject {
    /// Its API group; empty for the core.
    #[serde(rename = "apiGroup")]
    pub api_group: String,
    /// Plural name of the kind.
    pub resource: String,
    /// The subresource, for example `status`.
    pub subresource: String,
    /// Empty for lists over all namespaces and for kinds without.
    pub namespace: String,
    /// Empty for collections.
    pub name: String,
}

/// How it was answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AuditStatus {
    /// HTTP status code.
    pub code: u16,
}

impl AuditEntry {
    /// Whether it asked for a change.
    pub fn is_mutating(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// A reader of the audit log, from a place in it.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
    /// In bytes.
    from: u64,
}

impl AuditLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, from: 0 }
    }

    /// A reader of what is written from now on.
    pub fn from_now(&self) -> io::Result<Self> {
        let length = match self.path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            metadata => metadata?.len(),
        };
        Ok(Self { path: self.path.clone(), from: length })
    }

    /// Waits until everything that was answered before this call is in the log: what is not in it then was not asked.
    pub async fn catch_up(&self, client: &Client) -> io::Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A request that nobody else makes; the log keeps the order of the answers.
        let marker = format!("no-such-map-{}-{}-at-all", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // Only what comes from here on can have the marker, and reading all of a long log takes seconds.
        let new = self.from_now()?;
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        maps.get_opt(&marker).await.map_err(io::Error::other)?;
        let written = || async { new.content().ok()?.contains(&marker).then_some(()) };
        eventually(CAUGHT_UP_WITHIN, written).await.map_err(io::Error::other)
    }

    /// All entries since its place. The log is written after the answer is sent, so the newest may be missing for a moment; see
    /// [`AuditLog::catch_up`].
    pub fn entries(&self) -> io::Result<Vec<AuditEntry>> {
        let content = self.content()?;
        // The last line may be half written.
        let whole = content.rfind('\n').map_or("", |end| &content[..end]);
        whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    /// The entries of one user.
    pub fn entries_of(&self, username: &str) -> io::Result<Vec<AuditEntry>> {
        Ok(self.entries()?.into_iter().filter(|entry| entry.user.username == username).collect())
    }

    /// The text since its place.
    fn content(&self) -> io::Result<String> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.from))?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        // A character may be half written.
        Ok(String::from_utf8_lossy(&content).into_owned())
    }
}
