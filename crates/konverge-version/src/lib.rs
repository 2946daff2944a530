//! The version and commit of Konverge's programs, and the rule for their environment [`variables`].
//!
//! `cargo xtask image` and `cargo xtask dist` set the variables `KONVERGE_COMMIT` and `KONVERGE_BUILT` for the compiler. Cargo compiles this crate
//! again when they change. Every other build prints `unknown`: a commit that a build script looks up would be wrong after the next commit,
//! unless each commit rebuilt every program.

pub mod variables;

use std::sync::LazyLock;

/// The version of this workspace, which all its programs share.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this program was built from, or `unknown`.
pub const COMMIT: &str = or_unknown(option_env!("KONVERGE_COMMIT"));

/// The time of that commit (RFC 3339, UTC), or `unknown`. It is not the time of the build, so two builds of one commit are equal.
pub const BUILT: &str = or_unknown(option_env!("KONVERGE_BUILT"));

const fn or_unknown(given: Option<&'static str>) -> &'static str {
    match given {
        Some(text) if !text.is_empty() => text,
        _ => "unknown",
    }
}

/// Returns the text that a program prints after its name for `--version`, such as `0.1.0 (commit: 1a2b3c4d, built: 2026-11-23T02:00:00Z)`.
pub fn line() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| format!("{VERSION} (commit: {COMMIT}, built: {BUILT})"));
    &LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_missing_or_empty_is_unknown() {
        for (given, expected) in [(None, "unknown"), (Some(""), "unknown"), (Some("1a2b"), "1a2b")] {
            assert_eq!(or_unknown(given), expected, "{given:?}");
        }
    }

    #[test]
    fn the_line_has_version_commit_and_time() {
        assert_eq!(line(), format!("{VERSION} (commit: {COMMIT}, built: {BUILT})"));
        assert!(VERSION.split('.').count() == 3, "{VERSION}");
    }
}
