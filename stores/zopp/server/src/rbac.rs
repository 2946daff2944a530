//! Permissions: pure functions over the grants that apply to one principal at one place.
//!
//! A grant at a workspace or project holds for everything below it. For a service principal its own grants are all there is.
//! For a human the grants to the user and to the user's groups are the base, and the principal's own grants are a *ceiling*:
//! they make one device weaker than its user, never stronger. The owner of a workspace is never restricted.

/// The roles; later ones include earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// See secrets.
    Read,
    /// Change secrets.
    Write,
    /// Everything else at the place.
    Admin,
}

/// Where a grant is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A workspace and all in it.
    Workspace,
    /// A project and all in it.
    Project,
    /// One environment.
    Environment,
}

/// The grants that apply to one principal at one place: those at the place and at the places around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grants {
    /// Does the principal belong to a user (and not to a service)?
    pub human: bool,
    /// Is the principal disabled, gone, or out of the workspace? Then nothing else counts.
    pub barred: bool,
    /// Does its user own the workspace?
    pub owner: bool,
    /// Grants to the principal itself, by [`Level`].
    pub principal: [Option<Role>; 3],
    /// The highest grant to its user.
    pub user: Option<Role>,
    /// The highest grant to a group its user is in.
    pub group: Option<Role>,
}

impl Grants {
    /// Returns the effective role of the principal at the place, or `None` without any.
    pub fn effective(&self) -> Option<Role> {
        if self.barred {
            return None;
        }
        // `None` orders below every role, so `max` ignores absent grants.
        let own = self.principal.into_iter().max().flatten();
        if !self.human {
            return own;
        }
        if self.owner {
            return Some(Role::Admin);
        }
        let base = self.user.max(self.group)?;
        Some(own.map_or(base, |ceiling| ceiling.min(base)))
    }

    /// May the principal do there what needs `required`?
    pub fn allow(&self, required: Role) -> bool {
        self.effective() >= Some(required)
    }

    /// The same with the principal's own grant at `level` replaced.
    #[must_use]
    pub fn with_own(mut self, level: Level, role: Option<Role>) -> Self {
        self.principal[level as usize] = role;
        self
    }
}

/// May `caller` change the grant of the principal `target` at `level` from what it is to `new` (`None`: remove it)?
///
/// One may hand out and take away what one has oneself. A grant to a human's principal is a ceiling, so setting a low one takes
/// away and removing a low one gives back: there the target's effective role before and after counts as well.
pub fn may_delegate(caller: &Grants, target: &Grants, level: Level, new: Option<Role>) -> bool {
    let Some(role) = caller.effective() else { return false };
    let old = target.principal[level as usize];
    let after = target.with_own(level, new);
    let mut touched = old.max(new);
    if target.human && target.effective() != after.effective() {
        touched = touched.max(target.effective()).max(after.effective());
    }
    Some(role) >= touched
}

/// Does a change of what `target` has at one place stay within what `caller` has there?
///
/// Nobody is raised beyond the caller. A grant to a human's principal is a ceiling, whose change in either direction concerns the
/// role that the principal has without it.
pub fn stays_within(caller: &Grants, before: &Grants, after: &Grants) -> bool {
    let (old, new) = (before.effective(), after.effective());
    let touched = match new.cmp(&old) {
        std::cmp::Ordering::Equal => return true,
        std::cmp::Ordering::Less if !after.human => return true,
        _ => old.max(new),
    };
    caller.effective() >= touched
}

mod holdings;

pub use holdings::{Holdings, Node, may_change, may_manage_group};

#[cfg(test)]
mod tests;
