//! OpenBao lists a folder together with the metadata of all that is in it, which is one question instead of many.

use std::collections::BTreeMap;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;

use super::key::{Seen, StateKey};
use crate::{call::Call, client::Vault, error::VaultError, kv::WireMetadata, mount::Location};

#[derive(Deserialize)]
struct Listed {
    data: Listing,
}

#[derive(Deserialize)]
struct Listing {
    key_info: BTreeMap<String, Option<WireMetadata>>,
}

/// The state of the locations of one folder that the listing shows, or `None` if the server has no such listing. A location that the listing leaves
/// out may still exist, because a policy may hide it.
pub(super) async fn list(
    vault: &Vault,
    locations: &[Location],
) -> Result<Option<BTreeMap<Location, Seen>>, VaultError> {
    let Some(first) = locations.first() else { return Ok(None) };
    let route = first.folder_route("detailed-metadata");
    let what = format!("list the folder of {first} with its metadata");
    let call = Call::new(Method::GET, format!("{route}?list=true"), what, "list");
    let answer = vault.ask(&call).await?;
    // Vault, or a policy that does not have it. An empty folder looks the same, and then there is little to ask for.
    if matches!(answer.status.as_u16(), 400 | 403 | 404 | 405) && answer.foreign().is_none() {
        return Ok(None);
    }
    let date = answer.date;
    let answer = vault.succeeded(&call, answer)?;
    // An answer that is no such listing comes from a server that took the question for another.
    let Ok(Listed { data }) = vault.parse::<Listed>(&call, &answer) else { return Ok(None) };
    let mut wires = data.key_info;
    let mut seen = BTreeMap::new();
    for location in locations {
        if let Some(wire) = wires.remove(location.base_name()).flatten() {
            let metadata = wire.metadata(date);
            let now = metadata.read_at.unwrap_or_else(Timestamp::now);
            seen.insert(location.clone(), Seen::State(StateKey::of_metadata(&metadata, now)));
        }
    }
    Ok(Some(seen))
}
