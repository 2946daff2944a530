//! Two controllers in one process: copies of Secrets, and service accounts, in other namespaces.
//!
//! Read [`secret_sync`] first; [`service_account_sync`] is the same for another kind, and [`sync`] is what they share.

pub mod secret_sync;
pub mod service_account_sync;
pub mod sync;

use konverge::prelude::*;

/// The operator: one client, one lease, one port, one set of caches for both controllers.
pub fn operator() -> Operator {
    let secrets = Controller::new(secret_sync::Secrets)
        .owns_anywhere::<Secret>()
        .finalizer("multicontroller.example.io/secretsync-cleanup")
        .workers(4);
    let accounts = Controller::new(service_account_sync::Accounts)
        .owns_anywhere::<ServiceAccount>()
        .finalizer("multicontroller.example.io/serviceaccountsync-cleanup")
        .workers(4);
    konverge::operator!().controller(secrets).controller(accounts).traces()
}
