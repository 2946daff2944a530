//! What each call does, by noun. Each function gets a verified [`Call`](crate::call::Call) (or, in [`accounts`], the bare request), and
//! checks in the order of the contract: place, role, arguments, change.

pub mod accounts;
pub mod environments;
pub mod invites;
pub mod permissions;
pub mod principals;
pub mod projects;
pub mod secrets;
pub mod watch;
pub mod workspaces;
