//! The consequence of a refusal for the token. Pure.
//!
//! Vault answers 403 both when the token is gone and when the policies do not allow the request. A token that is gone is replaced at
//! once. For the other, a login now and then is worth it, because the policies' names are fixed at login; but not one for each refusal,
//! or a thousand paths without permission become a thousand logins.
//!
//! Vault says of a token that is gone that it is invalid. OpenBao does not, so there a look-up has to tell, and it tells only where a good
//! token may look itself up.

use std::time::Duration;

/// A token that nothing has been done with is not replaced again within this: then it is not the token.
const YOUNG: Duration = Duration::from_secs(10);

/// A token that was looked up is good for this long, whatever is refused.
const VERIFIED: Duration = Duration::from_secs(30);

/// Policies may have been bound to the role since the login; asked for at most this often.
const POLICIES: Duration = Duration::from_mins(5);

/// The state of a token after a refusal.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenState {
    /// Vault said that the token itself is invalid.
    pub(super) invalid: bool,
    /// Something was done with it before.
    pub(super) proven: bool,
    /// Since its login.
    pub(super) age: Duration,
    /// Since it was looked up and found good.
    pub(super) verified: Option<Duration>,
    /// Since a refusal last led to a login.
    pub(super) replaced: Option<Duration>,
    /// A token of this login was looked up, so that only one that is gone is refused that.
    pub(super) looks_up: bool,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenCheck {
    /// The token is good and the refusal stands.
    Stands,
    /// Look the token up.
    LookUp,
    /// Log in again.
    LogIn,
}

impl TokenState {
    pub(super) fn judge(self) -> TokenCheck {
        let within = |since: Option<Duration>, limit| since.is_some_and(|since| since < limit);
        if self.invalid {
            return if self.proven || self.age >= YOUNG { TokenCheck::LogIn } else { TokenCheck::Stands };
        }
        let hopeless = within(self.replaced, POLICIES) && !self.looks_up;
        if hopeless || within(self.verified, VERIFIED) { TokenCheck::Stands } else { TokenCheck::LookUp }
    }

    /// After it was looked up.
    pub(super) fn judge_again(self, good: bool) -> TokenCheck {
        let stands = if good { self.age < POLICIES } else { self.looks_up && !self.proven && self.age < YOUNG };
        if stands { TokenCheck::Stands } else { TokenCheck::LogIn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let secs = Duration::from_secs;
        let known =
            TokenState { invalid: false, proven: true, age: secs(60), verified: None, replaced: None, looks_up: false };
        for (known, expected) in [
            (known, TokenCheck::LookUp),
            (TokenState { invalid: true, ..known }, TokenCheck::LogIn),
            (TokenState { invalid: true, proven: false, age: secs(1), ..known }, TokenCheck::Stands),
            (TokenState { invalid: true, proven: false, ..known }, TokenCheck::LogIn),
            (TokenState { invalid: true, replaced: Some(secs(1)), ..known }, TokenCheck::LogIn),
            (TokenState { verified: Some(secs(29)), ..known }, TokenCheck::Stands),
            (TokenState { verified: Some(secs(31)), ..known }, TokenCheck::LookUp),
            (TokenState { replaced: Some(secs(299)), ..known }, TokenCheck::Stands),
            (TokenState { replaced: Some(secs(301)), ..known }, TokenCheck::LookUp),
            (TokenState { replaced: Some(secs(1)), looks_up: true, ..known }, TokenCheck::LookUp),
            (TokenState { verified: Some(secs(29)), looks_up: true, ..known }, TokenCheck::Stands),
        ] {
            assert_eq!(known.judge(), expected, "{known:?}");
        }
        assert_eq!(known.judge_again(false), TokenCheck::LogIn);
        assert_eq!(known.judge_again(true), TokenCheck::Stands);
        assert_eq!(TokenState { age: secs(300), ..known }.judge_again(true), TokenCheck::LogIn);
        let young = TokenState { proven: false, age: secs(1), ..known };
        assert_eq!(young.judge_again(false), TokenCheck::LogIn);
        assert_eq!(
            TokenState { looks_up: true, ..young }.judge_again(false),
            TokenCheck::Stands,
            "it is not the token"
        );
        assert_eq!(TokenState { looks_up: true, ..known }.judge_again(false), TokenCheck::LogIn);
    }
}
