//! Finding out which engine holds a path.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    call::Call,
    client::Vault,
    error::VaultError,
    mount::{KvVersion, Location, Mount},
    mounts::MountLookup,
    path::{SecretPath, escaped},
};

/// Engines are moved by hand and rarely.
const KNOWN_FOR: Duration = Duration::from_mins(10);

#[derive(Deserialize)]
struct Answered {
    data: Described,
}

#[derive(Deserialize)]
struct Described {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    options: Option<BTreeMap<String, String>>,
}

impl Vault {
    /// Where the path leads: which engine, of which version. Vault's response is cached for ten minutes, or until a request finds nothing mounted
    /// there.
    ///
    /// Where the token may not ask, [`Mount::guess`] decides, which is right for version 2 at `secret` and version 1 elsewhere.
    pub async fn locate(&self, path: &SecretPath) -> Result<Location, VaultError> {
        self.locate_in(path, None).await
    }

    /// The same where somebody says which engine it is. That counts only where the token may not ask: what is a secret of one engine is in
    /// another the route by which somebody else's goes.
    pub async fn locate_in(&self, path: &SecretPath, claimed: Option<&Mount>) -> Result<Location, VaultError> {
        let told = match self.mounts().find(self.namespace(), path, Instant::now()) {
            Some(told) => told,
            None => self.ask_for_mount(path).await?,
        };
        match told {
            MountLookup::Mount(mount) => Ok(mount.location(path)?),
            MountLookup::Nothing => {
                let location = claimed.map_or_else(|| Mount::guess(path), Mount::clone).unverified(path)?;
                location.ok_or_else(|| VaultError::UnknownMount { what: format!("use {path}") })
            }
        }
    }

    pub(crate) fn forget_mount(&self, mount: &Mount) {
        self.mounts().forget(self.namespace(), mount);
    }

    async fn ask_for_mount(&self, path: &SecretPath) -> Result<MountLookup, VaultError> {
        // A route that the official command line uses as well; it needs no more than access to anything in the mount.
        let route = format!("sys/internal/ui/mounts/{}", escaped(path.as_str()));
        let call = Call::new(Method::GET, route, format!("find the mount of {path}"), "anything");
        let answer = self.ask(&call).await?;
        if answer.is_denied() {
            self.mounts().deny(self.namespace(), path, Instant::now());
            return Ok(MountLookup::Nothing);
        }
        let answer = self.succeeded(&call, answer)?;
        let Described { path: mount, kind, options } = self.parse::<Answered>(&call, &answer)?.data;
        if !matches!(kind.as_str(), "kv" | "generic") {
            return Err(VaultError::NotKv { what: format!("use {path}"), mount, found: kind });
        }
        let version = options.as_ref().and_then(|options| options.get("version")).map(String::as_str);
        let version = if version == Some("2") { KvVersion::Two } else { KvVersion::One };
        let mount = Mount::new(mount, version);
        self.mounts().keep(self.namespace(), &mount, Instant::now() + KNOWN_FOR);
        Ok(MountLookup::Mount(mount))
    }
}
