//! How many files and connections the process may have open (`RLIMIT_NOFILE`), and how many of them are for one server.
//!
//! A client keeps each connection that it has made for the next request, so the most that it has at once is what it holds. Two that
//! together may have more than the process may would shut each other out for as long as the connections of one lie idle.

use std::{fs, num::NonZeroUsize};

/// The number of servers that could have their connections beside each other, and what is left is for watches, probes
/// and files.
const SHARES: usize = 5;

/// As many as make sense, also where there is no limit.
const ENOUGH: usize = 1024;

/// The limit. Linux tells it; nothing elsewhere, and where there is none.
pub fn limit() -> Option<usize> {
    parse(&fs::read_to_string("/proc/self/limits").ok()?)
}

/// Returns the number of connections that may lead to one server at the same time.
pub fn for_one_server() -> NonZeroUsize {
    share(limit())
}

fn share(limit: Option<usize>) -> NonZeroUsize {
    let share = limit.map_or(ENOUGH, |limit| (limit / SHARES).min(ENOUGH));
    NonZeroUsize::new(share).unwrap_or(NonZeroUsize::MIN)
}

fn parse(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_room_for_others_and_is_never_nothing() {
        let shares = [Some(0), Some(4), Some(48), Some(1024), Some(1 << 20), None].map(|limit| share(limit).get());
        assert_eq!(shares, [1, 1, 9, 204, 1024, 1024]);
    }

    #[test]
    fn the_soft_limit_counts() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(parse(limits), Some(1024));
        assert_eq!(parse("Max open files            unlimited            unlimited            files"), None);
    }
}
