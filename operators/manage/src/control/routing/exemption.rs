//! Groups whose peers the admission checks of the account leave out.

use konverge::{prelude::Error, remote::Remotes};
use konverge_core::error::Classify;

use crate::remote::Groups;

/// Puts the group into the setting of the account, or takes it out.
pub(super) async fn set(groups: &Remotes<Groups>, scope: &str, group: &str, is_wanted: bool) -> Result<(), Error> {
    let Some(remote) = groups.remote() else { return Ok(()) };
    Ok(remote.account().of(scope)?.set_exempt(group, is_wanted).await?)
}

/// Takes the group out before it goes. A token that may not write settings leaves its id there, where it has no effect any more.
pub(super) async fn withdraw(groups: &Remotes<Groups>, scope: &str, group: &str) -> Result<(), Error> {
    match set(groups, scope, group, false).await {
        Err(error) if error.reason() == "PermissionDenied" => {
            tracing::warn!(group, "the token may not take the group out of the settings of the account: {error}");
            Ok(())
        }
        result => result,
    }
}
