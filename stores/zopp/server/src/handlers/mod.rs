//! The handlers of the calls, by noun. Each function gets a verified [`Call`](crate::call::Call) (or, in [`accounts`], the bare request), and
//! checks in the order of the contract: place, role, arguments, change.

pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod effective;
pub(crate) mod environments;
pub(crate) mod exports;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod invites;
pub(crate) mod key_rotation;
pub(crate) mod lifecycle;
pub(crate) mod permissions;
pub(crate) mod principals;
pub(crate) mod projects;
mod roles;
pub(crate) mod secrets;
pub(crate) mod watch;
pub(crate) mod workspaces;
