//! The policy for new identities, and for clients of the first generation.

use clap::ValueEnum;

use crate::rbac::Role;

/// One hour.
const HOUR: i64 = 3600;

/// The policy for new identities, and for clients of the first generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// May anybody who reaches the server become a user, without an invite?
    pub open_registration: bool,
    /// Must a client that registers a key prove that it holds it? Stock clients cannot.
    pub require_key_proof: bool,
    /// For how many hours an invite to a workspace can be good at most.
    pub invite_max_hours: u32,
    /// Are clients of the first generation (zopp 0.1.1) served, and how?
    pub first_generation: Option<FirstGeneration>,
}

/// How clients of the first generation are served. They know no roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstGeneration {
    /// The role that each member of a workspace has without any grant, whichever client is used. `None` is the one that the database keeps from
    /// an earlier start of any replica, else the default.
    pub member_role: Option<MemberRole>,
}

/// The role of members without any grant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum MemberRole {
    /// No role.
    None,
    /// To read secrets.
    Read,
    /// To read and change secrets.
    #[default]
    Write,
    /// Everything.
    Admin,
}

impl MemberRole {
    /// The role, if it is one.
    pub const fn role(self) -> Option<Role> {
        match self {
            Self::None => None,
            Self::Read => Some(Role::Read),
            Self::Write => Some(Role::Write),
            Self::Admin => Some(Role::Admin),
        }
    }
}

impl Policy {
    /// A year.
    pub const INVITE_MAX_HOURS: u32 = 8760;

    /// The latest moment at which an invite made `now` may expire, both in Unix seconds.
    pub(crate) fn latest_expiry(self, now: i64) -> i64 {
        now.saturating_add(i64::from(self.invite_max_hours) * HOUR)
    }

    /// Logs a warning for each dangerous setting. `member_role` is that of the first generation, if it is served.
    pub(crate) fn warn(self, member_role: Option<MemberRole>) {
        if let Some(member_role) = member_role {
            let role = match member_role {
                MemberRole::None => "no role",
                MemberRole::Read => "the role read",
                MemberRole::Write => "the role write",
                MemberRole::Admin => "the role admin",
            };
            tracing::warn!(
                "--allow-v1 is on: requests of zopp 0.1.1 are signed over nothing but the time, so anybody who sees one can act as its \
                 principal, in every call that 0.1.1 has, for a minute; each member of a workspace has {role} without any grant \
                 (--v1-member-role); turn it off once no such client is left"
            );
        }
        if self.open_registration {
            tracing::warn!(
                "--open-registration is on: anybody who reaches this server can become a user, without an invite and under any \
                 e-mail address that nobody has yet; a later grant to that address goes to them"
            );
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            open_registration: false,
            require_key_proof: false,
            invite_max_hours: Self::INVITE_MAX_HOURS,
            first_generation: None,
        }
    }
}
