//! All grants of one holder in a workspace, and whether a caller may change one of them.
//!
//! [`Grants`] says which role a principal has at one place. A change at a place also has effects below it. A ceiling on one
//! environment counts only as long as no ceiling is set on its project. A user can have more in an environment than in the
//! project. The decisions here therefore compare the roles before and after a change at every place where they can differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{Grants, Level, Role, may_delegate};

/// A place in the tree of one workspace. Ids, not names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The workspace itself.
    Workspace,
    /// A project.
    Project(String),
    /// An environment of a project.
    Environment {
        /// The project.
        project: String,
        /// The environment.
        environment: String,
    },
}

impl Node {
    /// How deep it is.
    pub fn level(&self) -> Level {
        match self {
            Self::Workspace => Level::Workspace,
            Self::Project(_) => Level::Project,
            Self::Environment { .. } => Level::Environment,
        }
    }

    /// The place around it.
    pub fn parent(&self) -> Option<Self> {
        match self {
            Self::Workspace => None,
            Self::Project(_) => Some(Self::Workspace),
            Self::Environment { project, .. } => Some(Self::Project(project.clone())),
        }
    }
}

/// All grants of one holder (a principal, a user or a group) in one workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    /// A principal of a user: its own grants are ceilings, and its roles come from `base`.
    pub human: bool,
    /// A principal that is disabled, gone, or out of the workspace. Then nothing else counts.
    pub barred: bool,
    /// A principal of the user who owns the workspace.
    pub owner: bool,
    /// The grants to the holder itself.
    pub own: BTreeMap<Node, Role>,
    /// For a principal of a user: at each place the highest grant to its user and the user's groups.
    pub base: BTreeMap<Node, Role>,
}

impl Holdings {
    /// The grants that apply at a place.
    pub fn at(&self, node: &Node) -> Grants {
        let mut grants = Grants { human: self.human, barred: self.barred, owner: self.owner, ..Grants::default() };
        let mut next = Some(node.clone());
        while let Some(node) = next {
            grants = grants.with_own(node.level(), self.own.get(&node).copied());
            grants.user = grants.user.max(self.base.get(&node).copied());
            next = node.parent();
        }
        grants
    }

    /// The effective role at a place.
    pub fn role_at(&self, node: &Node) -> Option<Role> {
        self.at(node).effective()
    }

    /// The same with the holder's own grant at `node` replaced.
    #[must_use]
    pub fn with_own(mut self, node: &Node, role: Option<Role>) -> Self {
        match role {
            Some(role) => self.own.insert(node.clone(), role),
            None => self.own.remove(node),
        };
        self
    }

    /// Adds a grant to the user or to one of the user's groups. The highest one at a place counts.
    pub fn add_base(&mut self, node: Node, role: Role) {
        let highest = self.base.entry(node).or_insert(role);
        *highest = role.max(*highest);
    }
}

/// Returns whether `caller` may change the grant of `target` at `node` to `new` (`None`: remove it).
///
/// The caller needs its own role at the place to be at least the grant before and after the change. Wherever the change raises
/// or lowers the target's effective role, the caller needs at least the higher of the two roles there.
pub fn may_change(caller: &Holdings, target: &Holdings, node: &Node, new: Option<Role>) -> bool {
    may_delegate(&caller.at(node), &target.at(node), node.level(), new)
        && covers(caller, target, &target.clone().with_own(node, new))
}

/// Returns whether `caller` may add a user to a group, remove a user from it, or delete it.
///
/// That takes the admin role in the workspace, and wherever the group has a role, at least this role.
pub fn may_manage_group(caller: &Holdings, group: &Holdings) -> bool {
    caller.at(&Node::Workspace).allow(Role::Admin) && covers(caller, &Holdings::default(), group)
}

/// Returns whether the caller has, at every place where a holder's role differs before and after, at least the higher one.
fn covers(caller: &Holdings, before: &Holdings, after: &Holdings) -> bool {
    // At all other places the roles are those of the place around them.
    let mut nodes = BTreeSet::from([Node::Workspace]);
    for grants in [caller, before, after] {
        nodes.extend(grants.own.keys().chain(grants.base.keys()).cloned());
    }
    nodes.iter().all(|node| {
        let (old, new) = (before.role_at(node), after.role_at(node));
        old == new || caller.role_at(node) >= old.max(new)
    })
}

#[cfg(test)]
mod tests;
