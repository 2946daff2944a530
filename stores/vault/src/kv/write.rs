//! Writing.

use http::Method;
use serde::{Deserialize, Serialize};

use super::version::{VersionState, Wire};
use crate::{
    call::Call,
    client::Vault,
    content::{Content, Sent, to_wiped_json},
    error::VaultError,
    mount::{KvVersion, Location},
};

/// The state that a location must have for a write to take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing: no version was ever written, or all was removed.
    Absent,
    /// This version, deleted or not.
    Version(u64),
    /// Any state.
    Any,
}

#[derive(Serialize)]
struct Body<'a> {
    data: Sent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Options>,
}

#[derive(Serialize)]
struct Options {
    cas: u64,
}

#[derive(Deserialize)]
struct Written {
    data: Wire,
}

impl Vault {
    /// Replaces all of a secret if what is there is as expected, else [`VaultError::Conflict`]. Gives the version that it made.
    ///
    /// An engine of version 1 checks nothing and has no versions: there the last who writes wins.
    pub async fn write(
        &self,
        location: &Location,
        content: &Content,
        expected: Expected,
    ) -> Result<Option<VersionState>, VaultError> {
        let what = format!("write {location}");
        let written = match location.mount().version() {
            KvVersion::One => to_wiped_json(&Sent(content), content.size()),
            KvVersion::Two => {
                let cas = match expected {
                    Expected::Absent => Some(0),
                    Expected::Version(version) => Some(version),
                    Expected::Any => None,
                };
                let body = Body { data: Sent(content), options: cas.map(|cas| Options { cas }) };
                to_wiped_json(&body, content.size())
            }
        };
        let body = written.map_err(|_| VaultError::NotText {
            what: what.clone(),
            key: content.not_text().unwrap_or_default().to_owned(),
        })?;
        let capability = if expected == Expected::Absent { "create" } else { "create and update" };
        let call = Call::new(Method::POST, location.data_route(), what, capability).body(body);
        let answer = self.kv(location, &call).await?;
        let written = match location.mount().version() {
            KvVersion::One => self.confirmed(&call, &answer).map(|()| None),
            KvVersion::Two => self
                .succeeded(&call, answer)
                .and_then(|answer| Ok(Some(self.parse::<Written>(&call, &answer)?.data.into()))),
        };
        written.map_err(|error| error.withhold(|words| content.is_told_by(words)))
    }
}
