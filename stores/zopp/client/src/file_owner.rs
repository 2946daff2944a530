//! The check that only the user can have written a file: git's rule for repositories, `safe.directory`.
//!
//! A file that another user owns or may write, or in such a folder, can have been replaced by that user. Root does not count as another user.

use std::{fs::Metadata, os::unix::fs::MetadataExt};

const ROOT: u32 = 0;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// The user for whom this process works.
#[derive(Debug, Clone, Copy)]
pub struct User {
    id: u32,
    /// The user who became root with sudo.
    before_sudo: Option<u32>,
}

/// The owner and the mode of a file or folder.
#[derive(Debug, Clone, Copy)]
struct Ownership {
    user: u32,
    group: u32,
    mode: u32,
}

impl User {
    /// The user of this process.
    pub fn of_process() -> Self {
        let id = rustix::process::geteuid().as_raw();
        let sudo = std::env::var("SUDO_UID").ok().and_then(|id| id.parse().ok());
        Self { id, before_sudo: sudo.filter(|_| id == ROOT) }
    }

    /// Returns `true` if the file or folder belongs to the user.
    pub fn owns(self, metadata: &Metadata) -> bool {
        metadata.uid() == self.id
    }

    /// Returns the reason why another user may have written the file or folder.
    pub fn doubts(self, metadata: &Metadata) -> Option<String> {
        self.doubts_ownership(Ownership { user: metadata.uid(), group: metadata.gid(), mode: metadata.mode() })
    }

    fn doubts_ownership(self, Ownership { user, group, mode }: Ownership) -> Option<String> {
        // Distributions give each user a group of the same number. Root's group has other members on many machines.
        let is_own_group = group == user && group != ROOT;
        if user != self.id && user != ROOT && Some(user) != self.before_sudo {
            Some(format!("belongs to the user with the ID {user}"))
        } else if mode & OTHERS_WRITE != 0 {
            Some("can be written by every user of this machine".to_owned())
        } else if mode & GROUP_WRITES != 0 && !is_own_group {
            Some(format!("can be written by the group with the ID {group}"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_safe_if_only_its_user_and_root_can_write_it() {
        const USER: User = User { id: 1000, before_sudo: None };
        let doubts = |by: User, user: u32, group: u32, mode: u32| {
            by.doubts_ownership(Ownership { user, group, mode: 0o100_000 | mode })
        };
        for (user, group, mode) in [(1000, 100, 0o644), (1000, 1000, 0o664), (0, 0, 0o644), (0, 50, 0o755)] {
            assert_eq!(doubts(USER, user, group, mode), None, "{user}:{group} {mode:o}");
        }
        for (user, group, mode, expected) in [
            (1001, 1001, 0o644, "belongs to the user with the ID 1001"),
            (1000, 100, 0o664, "can be written by the group with the ID 100"),
            (0, 0, 0o775, "can be written by the group with the ID 0"),
            (1000, 1000, 0o666, "can be written by every user of this machine"),
            (0, 0, 0o1777, "can be written by every user of this machine"),
        ] {
            assert_eq!(doubts(USER, user, group, mode).as_deref(), Some(expected), "{user}:{group} {mode:o}");
        }
        let root = User { id: ROOT, before_sudo: None };
        assert!(doubts(root, 1000, 1000, 0o644).is_some(), "root is careful, too");
        assert_eq!(doubts(User { before_sudo: Some(1000), ..root }, 1000, 1000, 0o644), None);
        assert!(doubts(User { before_sudo: Some(1000), ..root }, 1001, 1001, 0o644).is_some());
    }
}
