//! Benchmarks against the limit, as ratios of one run.
fn main() {}
