//! The folders whose project files are used although other users may write them.
//!
//! The file decides which environment a command uses. So a file that another user owns or may write, or in such a folder, is not used until
//! the user names the folder ([`User`]).

use std::path::{Path, PathBuf};

pub use konverge_zopp_client::file_owner::User;

/// The variable with the folders whose project files are used although other users may write them, separated by colons.
pub const VARIABLE: &str = "ZOPP_SAFE_DIRECTORY";

/// Returns `true` if the user named the folder as safe.
pub fn is_allowed(folder: &Path) -> bool {
    let Some(safe) = std::env::var_os(VARIABLE) else { return false };
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = canonical(folder);
    std::env::split_paths(&safe).filter(|path| path.is_absolute()).any(|path: PathBuf| canonical(&path) == folder)
}
