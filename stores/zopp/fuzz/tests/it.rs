//! Runs each target for a moment: on its seeds, on mutations of them, and on bytes of no kind. The same ones in each run, unless
//! `KONVERGE_FUZZ_CASES` asks for more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::time::{Duration, Instant};

use konverge_zopp_fuzz::{TARGETS, Target, target};
use proptest::{
    prelude::*,
    sample::Index,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

const CASES_VARIABLE: &str = "KONVERGE_FUZZ_CASES";
const CASES: u32 = 3000;
/// Bytes of a few hundred must not keep a parser for longer, on a busy machine and without optimisation.
const LONGEST: Duration = Duration::from_secs(5);

/// A change of bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    Truncate(Index),
    /// The rest is that of another seed.
    Splice(Index, Index, Index),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[&[u8]]) {
        let place = |index: &Index, length: usize| if length == 0 { 0 } else { index.index(length) };
        let length = bytes.len();
        match self {
            Self::Flip(index, mask) => {
                if length > 0 {
                    bytes[index.index(length)] ^= mask;
                }
            }
            Self::Insert(index, more) => {
                let at = place(index, length + 1);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Remove(index, count) => {
                let at = place(index, length);
                drop(bytes.drain(at..(at + count).min(length)));
            }
            Self::Repeat(index, count, times) => {
                let at = place(index, length);
                let piece = bytes[at..(at + count).min(length)].repeat(*times);
                bytes.splice(at..at, piece);
            }
            Self::Truncate(index) => bytes.truncate(place(index, length + 1)),
            Self::Splice(index, seed, from) => {
                let seed = seeds[seed.index(seeds.len())];
                bytes.truncate(place(index, length + 1));
                bytes.extend_from_slice(&seed[place(from, seed.len() + 1)..]);
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let odd = prop::sample::select(b"\0\n\r\t \"'\\$#{}[]:=/%@-_.\x7f\xff\xc3\xe2".to_vec());
    let odd = prop_oneof![any::<u8>(), odd];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(index, mask)| Mutation::Flip(index, mask)),
        (any::<Index>(), prop::collection::vec(odd, 1..8)).prop_map(|(index, more)| Mutation::Insert(index, more)),
        (any::<Index>(), 1..40_usize).prop_map(|(index, count)| Mutation::Remove(index, count)),
        (any::<Index>(), 1..40_usize, 1..200_usize)
            .prop_map(|(index, count, times)| Mutation::Repeat(index, count, times)),
        any::<Index>().prop_map(Mutation::Truncate),
        (any::<Index>(), any::<Index>(), any::<Index>())
            .prop_map(|(index, seed, from)| Mutation::Splice(index, seed, from)),
    ]
}

fn bytes(seeds: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let mutated =
        (prop::sample::select(seeds), prop::collection::vec(mutation(), 0..5)).prop_map(|(seed, mutations)| {
            let mut bytes = seed.to_vec();
            for mutation in &mutations {
                mutation.apply(&mut bytes, seeds);
            }
            bytes
        });
    prop_oneof![9 => mutated, 1 => any::<Vec<u8>>()]
}

fn run(Target { name, seeds, run }: Target) {
    let run = |bytes: &[u8]| {
        let began = Instant::now();
        run(bytes);
        let elapsed = began.elapsed();
        assert!(elapsed < LONGEST, "{name}: {elapsed:?} for {} bytes", bytes.len());
    };
    for seed in seeds {
        run(seed);
    }
    let cases = std::env::var(CASES_VARIABLE).ok().map_or(CASES, |cases| cases.parse().expect("a number of cases"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    // With more cases, other ones each time.
    let mut runner = if cases == CASES {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    } else {
        TestRunner::new(config)
    };
    let outcome = runner.run(&bytes(seeds), |bytes| {
        run(&bytes);
        Ok::<(), TestCaseError>(())
    });
    outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            run(target(stringify!($name)));
        })*

        #[test]
        fn every_target_is_run_here_and_by_cargo_fuzz() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let manifest = include_str!("../cargo-fuzz/Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has no binary in cargo-fuzz/Cargo.toml");
            }
        }
    };
}

targets!(config_file, dotenv, project_file, invite_code, envelope, key_link, message, address);
