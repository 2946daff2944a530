//! The published programs of the first generation, zopp 0.1.1, and ours, in both directions.
//!
//! Their build takes minutes, so it is a command of its own: `cargo xtask zopp --record` builds them, runs these tests and writes the record.
//! Where the programs are in the cache, each run of the tests runs them. Elsewhere the record is checked: it must be of these tests, as they are,
//! and the files that the published programs wrote then must be read.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use konverge_testkit_stores::{PublishedSuite, PublishedZopp, PublishedZoppServer};
use tokio::runtime::Runtime;

use crate::{home::Home, server::Server};

const PLACE: &str = "-w acme -p backend -e dev";
/// Values that either dotenv dialect reads as the other writes them.
const DOTENV: &str = "A=one\nB=two=2\nC=https://example.com/path";

type Case = (&'static str, fn(&PublishedZopp));

const CASES: [Case; 6] = [
    ("their_command_line_works_on_our_server", their_command_line_works_on_our_server),
    ("our_command_line_works_on_their_server", our_command_line_works_on_their_server),
    ("either_reads_the_configuration_of_the_other", either_reads_the_configuration_of_the_other),
    ("either_imports_the_export_of_the_other", either_imports_the_export_of_the_other),
    ("either_takes_the_invite_of_the_other", either_takes_the_invite_of_the_other),
    ("our_server_serves_what_their_server_kept", our_server_serves_what_their_server_kept),
];

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published").join(name)
}

#[test]
fn the_published_programs_and_ours_understand_each_other() {
    let (record, cases) = (recorded("record.json"), CASES.map(|(name, _)| name));
    let suite = PublishedSuite { source: include_str!("published.rs"), cases: &cases, record: &record };
    let Some(published) = suite.programs().unwrap() else { return };
    let failed: Vec<&str> = CASES
        .iter()
        .filter(|(_, case)| catch_unwind(AssertUnwindSafe(|| case(&published))).is_err())
        .map(|(name, _)| *name)
        .collect();
    assert!(failed.is_empty(), "failed with zopp {}, see above: {failed:?}", PublishedZopp::VERSION);
    if PublishedSuite::is_to_be_recorded() {
        write_files(&published);
        recorded_files_are_read();
    }
    suite.passed(&published).unwrap();
}

/// The files that the published command line wrote when the record was made.
#[test]
fn the_recorded_files_of_the_published_command_line_are_read() {
    // While they are written, they are read after that.
    if !PublishedSuite::is_to_be_recorded() {
        recorded_files_are_read();
    }
}

fn recorded_files_are_read() {
    let alice = Home::new();
    alice.write(".zopp/config.json", fs::read(recorded("config.json")).unwrap());
    let list = alice.json("principal list");
    assert_eq!(list["principals"][0]["name"], "laptop");
    assert_eq!(list["principals"][0]["email"], "alice@example.com", "inherited from the top of the file");
    assert_eq!(fs::read_to_string(recorded("export.env")).unwrap(), DOTENV);
}

fn write_files(published: &PublishedZopp) {
    let server = TheirServer::start(published);
    let alice = server.home().with_program(&published.command_line());
    set_up(&alice, &server.invite());
    alice.write(".env", DOTENV);
    alice.ok(&format!("secret import {PLACE} -i .env"));
    alice.ok(&format!("secret export {PLACE} -o exported.env"));
    fs::create_dir_all(recorded("")).unwrap();
    fs::copy(alice.config_file(), recorded("config.json")).unwrap();
    fs::copy(alice.path("exported.env"), recorded("export.env")).unwrap();
}

/// A server of the published program.
struct TheirServer {
    server: PublishedZoppServer,
}

impl TheirServer {
    fn start(published: &PublishedZopp) -> Self {
        Self { server: Runtime::new().unwrap().block_on(published.start_server()).unwrap() }
    }

    fn invite(&self) -> String {
        self.server.invite().unwrap()
    }

    /// A home of somebody who is not on the server yet, and who knows of which generation it is.
    fn home(&self) -> Home {
        let mut home = Home::new();
        home.set("ZOPP_SERVER", &self.server.url());
        home.set("ZOPP_GENERATION", "v1");
        home
    }
}

/// Joins as Alice, and makes the environment.
fn set_up(alice: &Home, invite: &str) {
    alice.ok(&format!("join {invite} alice@example.com --principal laptop"));
    alice.ok("workspace create acme");
    alice.ok("project create backend -w acme");
    alice.ok("environment create dev -w acme -p backend");
}

/// Every verb that 0.1.1 has for projects, environments and secrets.
fn work(person: &Home) {
    assert!(person.ok("workspace list").contains("acme"));
    assert!(person.ok("project list -w acme").contains("backend"));
    assert!(person.ok("project get backend -w acme").contains("backend"));
    assert!(person.ok("environment list -w acme -p backend").contains("dev"));
    assert!(person.ok("environment get dev -w acme -p backend").contains("dev"));
    for (key, value) in [("A", "one"), ("B", "two=2"), ("LONG", "x".repeat(5000).as_str())] {
        person.ok(&format!("secret set {key} {value} {PLACE}"));
        assert_eq!(person.ok(&format!("secret get {key} {PLACE}")), format!("{value}\n"));
    }
    person.ok(&format!("secret set A three {PLACE}"));
    assert_eq!(person.ok(&format!("secret get A {PLACE}")), "three\n");
    let list = person.ok(&format!("secret list {PLACE}"));
    assert!(["A", "B", "LONG"].iter().all(|key| list.contains(&format!("  {key}"))), "{list}");
    person.ok(&format!("secret delete LONG {PLACE}"));
    assert_eq!(person.run(&format!("secret get LONG {PLACE}")).code, 1);
    person.write(".env", DOTENV);
    assert!(person.ok(&format!("secret import {PLACE} -i .env")).contains("Imported 3 secrets"));
    assert_eq!(person.ok(&format!("secret export {PLACE}")).trim_end(), DOTENV);
    assert_eq!(person.ok(&format!("run {PLACE} -- printenv B")), "two=2\n");
    person.ok("environment create short -w acme -p backend");
    person.ok("environment delete short -w acme -p backend");
    person.ok("project create short -w acme");
    person.ok("project delete short -w acme");
    assert!(!person.ok("project list -w acme").contains("short"));
}

/// Bob joins by a code of Alice's, and each reads what the other wrote.
fn share(alice: &Home, bob: &Home) {
    alice.ok(&format!("secret set FROM_ALICE 1 {PLACE}"));
    let code = alice.ok("invite create -w acme --plain");
    assert!(code.trim().starts_with("inv_"), "{code}");
    bob.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
    assert_eq!(bob.ok(&format!("secret get FROM_ALICE {PLACE}")), "1\n");
    bob.ok(&format!("secret set FROM_BOB 2 {PLACE}"));
    assert_eq!(alice.ok(&format!("secret get FROM_BOB {PLACE}")), "2\n");
    assert!(alice.ok("invite list").contains("Token:"));
    alice.ok(&format!("invite revoke {}", code.trim()));
}

fn their_command_line_works_on_our_server(published: &PublishedZopp) {
    let server = Server::start_for_first_generation();
    let home = || server.home().with_program(&published.command_line());
    let alice = home();
    set_up(&alice, &server.invite());
    work(&alice);
    share(&alice, &home());
    assert!(alice.ok("principal list").contains("laptop"));
    alice.ok("principal rename laptop desktop");
    assert_eq!(alice.ok("principal current"), "desktop\n");
    assert_eq!(alice.ok(&format!("secret get A {PLACE}")), "one\n");
    // Without the flag, the server is not for them.
    let server = Server::start();
    let eve = server.home().with_program(&published.command_line());
    eve.ok(&format!("join {} eve@example.com", server.invite()));
    assert_ne!(eve.run("workspace list").code, 0);
}

fn our_command_line_works_on_their_server(published: &PublishedZopp) {
    let server = TheirServer::start(published);
    let alice = server.home();
    set_up(&alice, &server.invite());
    work(&alice);
    share(&alice, &server.home());
    alice.ok("principal rename laptop desktop");
    assert_eq!(alice.ok(&format!("secret get A {PLACE}")), "one\n");
    // The refusal names the call that the first generation lacks.
    let refused = alice.run("group list -w acme");
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("Unimplemented") || refused.stderr.contains("generation"), "{}", refused.stderr);
    // Nobody speaks v1 to it unasked.
    let mut stranger = Home::new();
    stranger.set("ZOPP_SERVER", &server.server.url());
    let refused = stranger.run(&format!("join {} eve@example.com", server.invite()));
    assert!(refused.code == 1 && refused.stderr.contains("--generation v1"), "{}", refused.stderr);
}

fn either_reads_the_configuration_of_the_other(published: &PublishedZopp) {
    let server = Server::start_for_first_generation();
    // Theirs first, then ours rewrites it, then theirs again.
    let theirs = server.home().with_program(&published.command_line());
    set_up(&theirs, &server.invite());
    theirs.ok(&format!("secret set A one {PLACE}"));
    let ours = theirs.with_program(Path::new(env!("CARGO_BIN_EXE_zopp")));
    assert_eq!(ours.json("principal list")["principals"][0]["email"], "alice@example.com");
    assert_eq!(ours.ok(&format!("secret get A {PLACE}")), "one\n");
    ours.ok(&format!("secret set B two {PLACE}"));
    ours.ok("principal rename laptop desktop");
    assert_eq!(theirs.ok("principal current"), "desktop\n");
    assert_eq!(theirs.ok(&format!("secret get B {PLACE}")), "two\n");
    theirs.ok("principal rename desktop laptop");
    assert_eq!(ours.ok("principal current"), "laptop\n");
    assert_eq!(ours.ok(&format!("secret get A {PLACE}")), "one\n");

    // Ours first.
    let ours = server.home();
    ours.ok(&format!("join {} bob@example.com --principal phone", server.invite()));
    ours.ok("workspace create private");
    let theirs = ours.with_program(&published.command_line());
    assert_eq!(theirs.ok("principal current"), "phone\n");
    assert!(theirs.ok("workspace list").contains("private"));
    theirs.ok("project create own -w private");
    theirs.ok("environment create dev -w private -p own");
    theirs.ok("secret set A one -w private -p own -e dev");
    assert_eq!(ours.ok("secret get A -w private -p own -e dev"), "one\n");
}

fn either_imports_the_export_of_the_other(published: &PublishedZopp) {
    let server = Server::start_for_first_generation();
    let theirs = server.home().with_program(&published.command_line());
    set_up(&theirs, &server.invite());
    let ours = theirs.with_program(Path::new(env!("CARGO_BIN_EXE_zopp")));
    theirs.write(".env", DOTENV);
    for (writer, reader, environment) in [(&theirs, &ours, "one"), (&ours, &theirs, "two")] {
        let (from, to) = (format!("{environment}-from"), format!("{environment}-to"));
        for name in [&from, &to] {
            writer.ok(&format!("environment create {name} -w acme -p backend"));
        }
        let place = |name: &str| format!("-w acme -p backend -e {name}");
        writer.ok(&format!("secret import {} -i .env", place(&from)));
        writer.ok(&format!("secret export {} -o copy.env", place(&from)));
        reader.ok(&format!("secret import {} -i copy.env", place(&to)));
        fs::remove_file(reader.path("copy.env")).unwrap();
        assert_eq!(reader.ok(&format!("secret export {}", place(&to))).trim_end(), DOTENV);
    }
}

fn either_takes_the_invite_of_the_other(published: &PublishedZopp) {
    for theirs_invites in [true, false] {
        let server = Server::start_for_first_generation();
        let (theirs, ours) = (server.home().with_program(&published.command_line()), server.home());
        let (alice, bob) = if theirs_invites { (&theirs, &ours) } else { (&ours, &theirs) };
        set_up(alice, &server.invite());
        if !theirs_invites {
            // The environments that our command line makes are protected from writers that keep no manifest.
            alice.ok("environment protect dev --off -w acme -p backend");
        }
        share(alice, bob);
    }
    // The same on their server.
    for theirs_invites in [true, false] {
        let server = TheirServer::start(published);
        let (theirs, ours) = (server.home().with_program(&published.command_line()), server.home());
        let (alice, bob) = if theirs_invites { (&theirs, &ours) } else { (&ours, &theirs) };
        set_up(alice, &server.invite());
        share(alice, bob);
    }
}

fn our_server_serves_what_their_server_kept(published: &PublishedZopp) {
    let mut theirs = TheirServer::start(published);
    let (alice, bob) = (theirs.home(), theirs.home());
    let (alice, bob) = (alice.with_program(&published.command_line()), bob.with_program(&published.command_line()));
    set_up(&alice, &theirs.invite());
    work(&alice);
    share(&alice, &bob);
    let unused = theirs.invite();
    theirs.server.stop();

    let server = Server::import(theirs.server.database());
    // The owner goes on with our command line, its configuration and the second generation.
    let mut alice = alice.with_program(Path::new(env!("CARGO_BIN_EXE_zopp")));
    alice.set("ZOPP_SERVER", server.url());
    alice.set("ZOPP_GENERATION", "v2");
    let exported = alice.ok(&format!("secret export {PLACE}"));
    assert_eq!(exported.trim_end(), format!("{DOTENV}\nFROM_ALICE=1\nFROM_BOB=2"));
    alice.ok(&format!("secret set D four {PLACE}"));
    // A member has no role in the second generation until one is granted.
    let mut bob = bob.with_program(Path::new(env!("CARGO_BIN_EXE_zopp")));
    bob.set("ZOPP_SERVER", server.url());
    bob.set("ZOPP_GENERATION", "v2");
    assert!(bob.run(&format!("secret get D {PLACE}")).stderr.contains("(PermissionDenied)"));
    alice.ok("permission user-set -w acme --email bob@example.com --role read");
    assert_eq!(bob.ok(&format!("secret get D {PLACE}")), "four\n");
    // An invite that was made there is good here.
    let carol = server.home();
    carol.ok(&format!("join {unused} carol@example.com"));
}
