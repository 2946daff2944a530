//! `docs/first-operator.md`, followed word for word: its crate is made, its files are written, its commands are run, and their output is compared.

use std::{fs, path::Path, process::Command, time::Duration};

use clap::Parser;
use konverge_new::New;
use konverge_testkit::{ControlPlane, Options, Process, ProcessSpec, eventually};

use crate::{
    crates::{cargo, passes, program, target},
    page::{Block, blocks, shows},
};

const PAGE: &str = include_str!("../../../../docs/first-operator.md");

/// The time limit for what a reader would see at once.
const LIMIT: Duration = Duration::from_mins(1);

/// The commands that the test does not run as they are written: it does the same with other folders, names or terminals.
const COMMANDS_OF_THE_READER: [&str; 10] = [
    "export CARGO_TARGET_DIR=$PWD/target",
    "cargo run -p konverge-new -- pages --kind StaticPage --path ../pages",
    "export CARGO_TARGET_DIR=$PWD/target",
    "cargo run -p konverge-testkit -F cli,v1_36 -- up",
    "cd ../pages",
    "cargo run -- generate --into deploy",
    "cargo test reconcile",
    "cargo test",
    "cargo run",
    "kubectl apply -f deploy/crds.yaml -f deploy/role.yaml -f deploy/deployment.yaml",
];

/// The command line of `konverge-new`.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    new: New,
}

/// Makes the crate of the page with its files.
fn make(folder: &Path, blocks: &[Block]) {
    let (_, arguments) = COMMANDS_OF_THE_READER[1].split_once(" -- ").unwrap();
    let arguments = ["konverge-new"].into_iter().chain(arguments.split(' '));
    Cli::parse_from(arguments).new.write(folder).unwrap();
    let mut files: Vec<(&str, String)> = Vec::new();
    for block in blocks {
        let Some(path) = block.purpose.strip_prefix("file: ") else { continue };
        assert!(folder.join(path).is_file(), "the page speaks of {path} as a file that is there");
        match files.iter_mut().find(|(known, _)| *known == path) {
            Some((_, text)) => text.extend(["\n", &block.text]),
            None => files.push((path, block.text.clone())),
        }
    }
    for (path, text) in files {
        fs::write(folder.join(path), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_operator_is_as_the_page_says() {
    let blocks = blocks(PAGE);
    for block in &blocks {
        assert!(block.is_commands || block.purpose.starts_with("file: "), "no file is named for {:?}", block.text);
    }
    let of_the_reader = blocks.iter().filter(|block| block.purpose.is_empty()).flat_map(Block::commands);
    let of_the_reader: Vec<_> = of_the_reader.map(|(command, _)| command).collect();
    assert_eq!(of_the_reader, COMMANDS_OF_THE_READER, "change the test together with the page");

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("pages");
    make(&folder, &blocks);
    passes(&folder, &["fmt", "--check"]);
    passes(&folder, &["run", "--quiet", "--", "generate", "--into", "deploy"]);
    passes(&folder, &["test", "--quiet"]);

    let options = Options::ours().with(|options| {
        options.controller_manager = true;
        options.kubectl = true;
    });
    let plane = ControlPlane::start(options).await.unwrap();
    let bash = |command: &str| {
        let mut bash = program("bash", &folder);
        let kubectl = plane.kubectl().unwrap().parent().unwrap().display();
        bash.env("PATH", format!("{kubectl}:{}", std::env::var("PATH").unwrap()));
        said(bash.args(["-c", command]).env("KUBECONFIG", plane.kubeconfig())).1
    };
    let mut operator = None;
    for block in blocks.iter().filter(|block| block.purpose == "run") {
        for (command, lines) in block.commands() {
            let may_be_repeated = ["get", "describe", "events", "apply"]
                .iter()
                .any(|verb| command.starts_with(&format!("kubectl {verb}")));
            let mut output = String::new();
            let found = eventually(LIMIT, || {
                output = bash(&command);
                std::future::ready((!may_be_repeated || shows(&output, &lines)).then_some(()))
            });
            let _ = found.await;
            assert!(shows(&output, &lines), "{command}\n{output}\nis not\n{}", lines.join("\n"));
        }
        // The program that the page installs first runs from then on.
        operator.get_or_insert_with(|| {
            let spec = ProcessSpec::new("pages", target().join("debug/pages"))
                .env("KONVERGE_KUBECONFIG", plane.kubeconfig())
                .env("KONVERGE_ADDRESS", "127.0.0.1:0");
            Process::start(plane.run_directory(), spec).unwrap()
        });
    }

    // The mistake.
    for block in &blocks {
        let Some(line) = block.purpose.strip_prefix("without: ") else { continue };
        let source = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let changed: Vec<_> = source.lines().filter(|found| found.trim() != line).collect();
        assert_eq!(changed.len() + 1, source.lines().count(), "{line} is in the code once");
        fs::write(folder.join("src/lib.rs"), changed.join("\n")).unwrap();
        let commands = block.commands();
        let [(command, lines)] = commands.as_slice() else { panic!("one command") };
        let arguments: Vec<_> = command.strip_prefix("cargo ").unwrap().split(' ').collect();
        let (succeeded, output) = said(cargo(&folder).args(arguments));
        assert!(!succeeded && shows(&output, lines), "{output}\nis not\n{}", lines.join("\n"));
    }
}

/// Runs the command; returns whether it succeeded, and all that it printed.
fn said(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}
