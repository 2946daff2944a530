//! Secrets: read, written with check-and-set, deleted.

mod delete;
mod metadata;
mod version;
mod write;

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;

pub(crate) use self::metadata::WireMetadata;
use self::version::Wire;
pub use self::{
    delete::Deletion,
    metadata::{Metadata, VersionRecord},
    version::{VersionState, is_before},
    write::Expected,
};
use crate::{
    answer::Answer,
    call::Call,
    client::Vault,
    content::{Content, RawContent},
    error::VaultError,
    mount::{KvVersion, Location, Mount},
};

/// The state of a location.
pub enum Found {
    /// Nothing, and Vault itself says so.
    Absent,
    /// The newest version is deleted or destroyed; a write has to name it all the same.
    Deleted(VersionState),
    /// A secret.
    Live(Secret),
}

/// A secret as it was read.
pub struct Secret {
    /// Its fields.
    pub content: Content,
    /// Its version; an engine of version 1 has none.
    pub version: Option<VersionState>,
}

impl Found {
    /// The version that a write has to expect, so that nobody's write in between is lost.
    pub fn expected(&self) -> Expected {
        match self {
            Self::Absent => Expected::Absent,
            Self::Deleted(version) | Self::Live(Secret { version: Some(version), .. }) => {
                Expected::Version(version.number)
            }
            Self::Live(Secret { version: None, .. }) => Expected::Any,
        }
    }

    /// Returns the version that holds the content. Returns `None` without content or versions.
    pub fn live_version(&self) -> Option<&VersionState> {
        match self {
            Self::Live(secret) => secret.version.as_ref(),
            Self::Absent | Self::Deleted(_) => None,
        }
    }

    /// The custom metadata; none where there is no version.
    pub fn custom_metadata(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Absent => None,
            Self::Deleted(version) => Some(&version.custom_metadata),
            Self::Live(secret) => secret.version.as_ref().map(|version| &version.custom_metadata),
        }
    }
}

#[derive(Deserialize)]
struct ReadOne<'a> {
    #[serde(borrow)]
    data: RawContent<'a>,
}

#[derive(Deserialize)]
struct ReadTwo<'a> {
    #[serde(borrow)]
    data: Versioned<'a>,
}

#[derive(Deserialize)]
struct Versioned<'a> {
    #[serde(borrow)]
    data: Option<RawContent<'a>>,
    metadata: Wire,
}

/// The common part of reads of the data and of the key names.
#[derive(Deserialize)]
struct ReadState {
    data: StateOnly,
}

#[derive(Deserialize)]
struct StateOnly {
    metadata: Wire,
}

#[derive(Deserialize)]
struct Keys {
    data: KeyList,
}

#[derive(Deserialize)]
struct KeyList {
    keys: Vec<String>,
}

impl Vault {
    /// Reads content, version and custom metadata of a location in one request.
    pub async fn read(&self, location: &Location) -> Result<Found, VaultError> {
        self.read_version(location, None).await
    }

    /// Reads this version, or the newest one.
    ///
    /// # Errors
    /// [`VaultError::Unversioned`] for a version in an engine of version 1, and everything by which a call can fail.
    pub async fn read_version(&self, location: &Location, version: Option<u64>) -> Result<Found, VaultError> {
        let (mut route, mut what) = (location.data_route(), format!("read {location}"));
        if let Some(version) = version {
            what = format!("read version {version} of {location}");
            if location.mount().version() == KvVersion::One {
                return Err(VaultError::Unversioned { what });
            }
            route = format!("{route}?version={version}");
        }
        let call = Call::new(Method::GET, route, what, "read");
        let answer = self.kv(location, &call).await?;
        if answer.is_absent() {
            return Ok(Found::Absent);
        }
        if location.mount().version() == KvVersion::One {
            let answer = self.succeeded(&call, answer)?;
            let content = Content::from_raw(self.parse::<ReadOne>(&call, &answer)?.data.0);
            return Ok(Found::Live(Secret { content, version: None }));
        }
        let answer = self.versioned(&call, answer)?;
        let Versioned { data, metadata } = self.parse::<ReadTwo>(&call, &answer)?.data;
        let version = VersionState::from(metadata).read_at(answer.date);
        Ok(match data {
            Some(raw) => Found::Live(Secret { content: Content::from_raw(raw.0), version: Some(version) }),
            None => Found::Deleted(version),
        })
    }

    /// The names in a folder of an engine, "" for its top; those of folders end in a slash. An empty folder has none.
    pub async fn list(&self, mount: &Mount, folder: &str) -> Result<Vec<String>, VaultError> {
        let route = mount.list_route(folder)?;
        let what = format!("list {}/{folder}", mount.path());
        let call = Call::new(Method::GET, format!("{route}?list=true"), what, "list");
        let answer = self.ask(&call).await?;
        if answer.is_absent() {
            return Ok(Vec::new());
        }
        let answer = self.succeeded(&call, answer)?;
        Ok(self.parse::<Keys>(&call, &answer)?.data.keys)
    }

    /// The newest version and whether it is there to be read, without its content; nothing if there is none. Needs a server that has
    /// this question (Vault 1.10).
    pub(crate) async fn subkeys(&self, location: &Location) -> Result<Option<(VersionState, bool)>, VaultError> {
        let what = format!("read the key names of {location}");
        let call = Call::new(Method::GET, format!("{}?depth=1", location.route("subkeys")), what, "read");
        let answer = self.kv_two(location, &call).await?;
        if answer.is_absent() {
            return Ok(None);
        }
        let answer = self.versioned(&call, answer)?;
        let live = answer.status.is_success();
        Ok(Some((self.parse::<ReadState>(&call, &answer)?.data.metadata.into(), live)))
    }

    /// A deleted version is told by 404 with a body, which is an answer here.
    fn versioned(&self, call: &Call, answer: Answer) -> Result<Answer, VaultError> {
        let deleted = answer.status.as_u16() == 404 && serde_json::from_slice::<ReadState>(&answer.body).is_ok();
        if deleted { Ok(answer) } else { self.succeeded(call, answer) }
    }

    /// Asks an engine. A mount that no longer exists is forgotten.
    async fn kv(&self, location: &Location, call: &Call) -> Result<Answer, VaultError> {
        let answer = self.ask(call).await?;
        if answer.is_unmounted() {
            self.forget_mount(location.mount());
        }
        Ok(answer)
    }

    /// Asks an engine of version 2.
    async fn kv_two(&self, location: &Location, call: &Call) -> Result<Answer, VaultError> {
        if location.mount().version() == KvVersion::One {
            return Err(VaultError::Unversioned { what: call.what.clone() });
        }
        self.kv(location, call).await
    }
}
