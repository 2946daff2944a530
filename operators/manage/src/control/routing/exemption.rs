//! Groups whose peers the admission checks of the account leave out.

use konverge::{
    Object,
    prelude::{Context, Error},
    remote::Remotes,
};
use konverge_core::error::Classify;

use crate::{reasons, remote::Groups};

/// Puts the group into the setting of the account, or takes it out. A dry run only says so.
pub(super) async fn set<K: Object>(
    context: &Context<K>,
    groups: &Remotes<Groups>,
    scope: &str,
    group: &str,
    is_wanted: bool,
) -> Result<(), Error> {
    let Some(remote) = groups.remote() else { return Ok(()) };
    let account = remote.account().of(scope)?;
    let (place, is_exempt) = account.exemption(group).await?;
    if is_exempt == is_wanted {
        return Ok(());
    }
    if context.applier().is_dry_run() {
        tracing::info!(group, is_wanted, "dry run: would change the groups that the admission checks leave out");
        return Ok(());
    }
    context.check_lease()?;
    Ok(account.set_exempt(&place, group, is_wanted).await?)
}

/// Takes the group out before it goes. A token that may not write settings leaves its id there, where it has no effect any more.
pub(super) async fn withdraw<K: Object>(
    context: &Context<K>,
    groups: &Remotes<Groups>,
    scope: &str,
    group: &str,
) -> Result<(), Error> {
    match set(context, groups, scope, group, false).await {
        Err(error) if error.reason() == reasons::PERMISSION_DENIED => {
            tracing::warn!(group, "the token may not take the group out of the settings of the account: {error}");
            Ok(())
        }
        result => result,
    }
}
