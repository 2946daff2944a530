//! The recipes, one function a command.

use std::{
    num::NonZero,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result};

use crate::{
    assets::{Assets, Binary},
    cluster::Named,
    paths, postgres,
    step::{cargo, program, run, step},
    testing::{PROGRAMS_AT_ONCE, Tests},
    tools::{self, Tool},
};

const READ_ABOVE: &str = "What failed, and why, is above.";

pub(crate) fn demo(kubeconfig: Option<&Path>, keep: bool) -> Result<()> {
    let cluster = Named::find(kubeconfig);
    build_all_for_demo(cluster.is_none())?;
    let mut demo = program(&paths::built("debug", "demo"));
    if keep {
        demo.arg("--keep");
    }
    if let Some(cluster) = cluster {
        cluster.tell(&mut demo);
    }
    // Replaces our process, so a signal to us ends the demo, which then removes everything that it created.
    let error = demo.exec();
    Err(error).context("cannot start the demo")
}

pub(crate) fn quick_tests(filter: Option<&str>) -> Result<()> {
    let mut tests = cargo(["test", "--workspace", "--lib", "--bins"]);
    tests.args(filter);
    run("unit tests", tests, READ_ABOVE)
}

pub(crate) fn all_tests(
    kubeconfig: Option<&Path>,
    programs: Option<NonZero<usize>>,
    filter: Option<&str>,
) -> Result<()> {
    // Tests look for our servers beside themselves, so they are built before, and with the tests' features.
    build_all()?;
    fetch_servers()?;
    let cluster = Named::find(kubeconfig);
    // Two programs in one cluster would meet the webhooks and the definitions of each other.
    let at_once = if cluster.is_some() { 1 } else { PROGRAMS_AT_ONCE };
    let tests = Tests {
        chosen: &["--workspace", "--all-targets"],
        with_docs: true,
        filter,
        at_once: programs.map_or(at_once, NonZero::get),
    };
    let run = |tell: &(dyn Fn(&mut Command) + Sync)| {
        step("tests", "The logs of the servers are where the failed test says.", || tests.run(tell))
    };
    let Some(cluster) = cluster else { return run(&|_| {}) };
    cluster.announce();
    let outcome = run(&|command| cluster.tell(command));
    let cleaned = cluster.take_away();
    outcome.and(cleaned)
}

pub(crate) fn dashboards(arguments: &[String]) -> Result<()> {
    setup()?;
    run("build", cargo(["build", "--workspace", "--bins"]), READ_ABOVE)?;
    let mut draw = program(&paths::built("debug", "dashboards"));
    draw.args(arguments);
    run("dashboards", draw, "The logs of the servers are where the error says.")
}

pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    run("build", cargo(["build", "--release", "--workspace", "--bins"]), READ_ABOVE)?;
    let mut bench = program(&paths::built("release", "konverge-bench"));
    bench.args(arguments);
    run("benchmarks", bench, READ_ABOVE)
}

pub(crate) fn setup() -> Result<()> {
    build_test_kit()?;
    fetch_servers()
}

/// Builds all programs and tests.
pub(crate) fn build_all() -> Result<()> {
    run("build", cargo(["build", "--workspace", "--all-targets"]), READ_ABOVE)
}

/// Fetches or builds the servers that tests need, with the programs of the test kit.
fn fetch_servers() -> Result<()> {
    let mut control_plane = program(&paths::built("debug", "konverge-control-plane"));
    control_plane.arg("setup");
    run("control plane", control_plane, READ_ABOVE)?;
    let mut vault = program(&paths::built("debug", "konverge-test-stores"));
    vault.arg("vault");
    run("Vault", vault, READ_ABOVE)?;
    postgres::setup()
}

/// Builds the programs that fetch and start servers, with the features of the whole workspace, so that nothing is compiled twice.
fn build_test_kit() -> Result<()> {
    let build = cargo(["build", "--workspace", "--bin", "konverge-control-plane", "--bin", "konverge-test-stores"]);
    run("build of the test kit", build, READ_ABOVE)
}

/// The program that builds the servers of outside systems.
pub(crate) fn test_stores() -> Result<PathBuf> {
    build_test_kit()?;
    Ok(paths::built("debug", "konverge-test-stores"))
}

pub(crate) fn fmt(check: bool) -> Result<()> {
    let mut fmt = cargo(["fmt", "--all"]);
    if check {
        fmt.arg("--check");
    }
    run("format", fmt, "`cargo xtask fmt` mends it.")
}

pub(crate) fn lint() -> Result<()> {
    let clippy = cargo(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    run("clippy", clippy, "Mend what it names, or say why not with #[expect(…, reason = …)].")?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    run("docs", doc, "Mend the link or the text it names.")
}

pub(crate) fn deny() -> Result<()> {
    let mut deny = with_tool(&tools::DENY)?;
    deny.args(["--workspace", "check", "bans", "licenses", "sources"]);
    run("licences, bans and sources", deny, "deny.toml says what may enter and why.")
}

pub(crate) fn advisories() -> Result<()> {
    let mut deny = with_tool(&tools::DENY)?;
    deny.args(["--workspace", "check", "advisories"]);
    run("advisories", deny, "The database is fetched from the network; without it this cannot run.")
}

pub(crate) fn unused() -> Result<()> {
    let machete = with_tool(&tools::MACHETE)?;
    run("unused dependencies", machete, "Remove what it names from that Cargo.toml.")
}

/// Our programs and, at the same time, the servers that the first job needs. The demo itself builds the others once that job has been shown.
fn build_all_for_demo(with_control_plane: bool) -> Result<()> {
    thread::scope(|scope| {
        let servers = with_control_plane.then(|| scope.spawn(|| Assets::find(&[Binary::Etcd, Binary::ApiServer])));
        build_for_demo()?;
        let Some(servers) = servers else { return Ok(()) };
        match servers.join() {
            Ok(found) => found.map(drop).context("there is no control plane"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// With the features of the whole workspace, so that tests need not build them again; without what the demo does not use.
fn build_for_demo() -> Result<()> {
    let mut build = cargo(["build", "--workspace"]);
    for name in [
        "demo",
        "konverge-control-plane",
        "zopp",
        "zopp-operator",
        "zopp-server",
        "vault-sync-operator",
        "vault-rollout-operator",
        "openzro-operator",
    ] {
        build.args(["--bin", name]);
    }
    run("build", build, READ_ABOVE)
}

fn with_tool(tool: &Tool) -> Result<Command> {
    Ok(program(&tools::ensure(tool)?))
}
