//! Helpers of tests with real threads.

use std::thread;

use rand::{RngExt, rngs::SmallRng};

/// Gives way now and then, so that each seed is another order.
pub(crate) fn yield_or_sleep(random: &mut SmallRng) {
    match random.random_range(0..8) {
        0 => thread::yield_now(),
        1 => (0..random.random_range(0..200)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}
