//! The policy for new identities.

/// One hour.
const HOUR: i64 = 3600;

/// The policy for new identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// May anybody who reaches the server become a user, without an invite?
    pub open_registration: bool,
    /// Must a client that registers a key prove that it holds it? Stock clients cannot.
    pub require_key_proof: bool,
    /// For how many hours an invite to a workspace can be good at most.
    pub invite_max_hours: u32,
}

impl Policy {
    /// A year.
    pub const INVITE_MAX_HOURS: u32 = 8760;

    /// The latest moment at which an invite made `now` may expire, both in Unix seconds.
    pub(crate) fn latest_expiry(self, now: i64) -> i64 {
        now.saturating_add(i64::from(self.invite_max_hours) * HOUR)
    }

    /// Says loudly what is dangerous.
    pub(crate) fn warn(self) {
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
        Self { open_registration: false, require_key_proof: false, invite_max_hours: Self::INVITE_MAX_HOURS }
    }
}
