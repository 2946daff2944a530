//! The steps of CI: room on the disk, the cheap checks, then the tests, and at the end the duration of each.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{generate, outside, recipes, semver, space, tidy};

type Recipe = fn() -> Result<()>;

pub(crate) fn run() -> Result<()> {
    let recipes: [(&str, Recipe); 10] = [
        ("space", space::check),
        ("tidy", tidy::run),
        ("fmt", || recipes::fmt(true)),
        ("unused", recipes::unused),
        ("deny", recipes::deny),
        ("lint", recipes::lint),
        ("outside", || outside::check(true)),
        ("semver", semver::check_in_ci),
        ("generated", || generate::generate(true)),
        ("test", || recipes::all_tests(None, None, None)),
    ];
    let mut times = Vec::new();
    for (name, recipe) in recipes {
        let began = Instant::now();
        recipe()?;
        times.push((name, began.elapsed()));
    }
    eprintln!("\nAll passed.");
    for (name, took) in &times {
        eprintln!("  {name:8} {:5.0} s", took.as_secs_f32());
    }
    eprintln!("  {:8} {:5.0} s", "all", times.iter().map(|(_, took)| *took).sum::<Duration>().as_secs_f32());
    Ok(())
}
