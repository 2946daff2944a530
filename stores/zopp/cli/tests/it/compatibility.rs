//! `docs/compatibility.md` says for each call and for each verb, also of the server's program, how ours relates to the original's.

use std::path::Path;

use clap::{Command, CommandFactory};
use konverge_zopp_testing::calls;

const RELATIONS: [&str; 5] = ["same", "fixed", "extended", "own", "fixed, extended"];
/// Stands for any part of a name.
const ANY: char = '…';

/// The rows of a section: the names in the first cell, and the second cell.
fn rows(section: &str) -> Vec<(Vec<String>, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/compatibility.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section:?}"));
    let rest = rest.split("\n## ").next().unwrap();
    let mut rows = Vec::new();
    for line in rest.lines().filter(|line| line.starts_with("| ")) {
        // A bar within a cell is written with a backslash.
        let line = line.replace("\\|", "/");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let names: Vec<&str> = cells[1].split('`').skip(1).step_by(2).collect();
        // The noun of the first verb of a row is that of the others.
        let noun = names.first().and_then(|first| first.split_once(' ')).map(|(noun, _)| noun);
        let full = |name: &&str| match noun {
            Some(noun) if !name.contains(' ') && !name.starts_with('-') => format!("{noun} {name}"),
            _ => (*name).to_owned(),
        };
        rows.push((names.iter().map(full).collect(), cells[2].to_owned()));
    }
    rows
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once(ANY) {
        None => pattern == name,
        Some((begin, end)) => name.len() > begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end),
    }
}

/// The relations of the rows in which a name is.
fn relations<'a>(rows: &'a [(Vec<String>, String)], name: &str) -> Vec<&'a str> {
    let named = rows.iter().filter(|(names, _)| names.iter().any(|pattern| fits(pattern, name)));
    named.map(|(_, relation)| relation.as_str()).collect()
}

/// All verbs of a program, such as `secret set`.
fn verbs(command: &Command, before: &str, all: &mut Vec<String>) {
    for below in command.get_subcommands() {
        let verb = format!("{before}{}", below.get_name());
        if below.has_subcommands() {
            verbs(below, &format!("{verb} "), all);
        } else {
            all.push(verb);
        }
    }
}

#[test]
fn each_call_has_its_row() {
    let rows = rows("Calls");
    for call in calls() {
        let name = call.path.rsplit('/').next().unwrap();
        let relations = relations(&rows, name);
        assert!(!relations.is_empty(), "{name} has no row");
        if call.path.starts_with("/zopp.ZoppService/") {
            assert!(relations.iter().any(|relation| RELATIONS.contains(relation)), "{name}: {relations:?}");
        }
    }
}

#[test]
fn each_verb_has_its_row() {
    let server = konverge_zopp_server::args::Arguments::command();
    for (section, program) in [
        ("Verbs of the command line", konverge_zopp_cli::arguments::command()),
        ("Verbs and endpoints of zopp-server", server),
    ] {
        let rows = rows(section);
        let mut all = Vec::new();
        verbs(&program, "", &mut all);
        assert!(all.len() > 10, "{all:?}");
        for verb in all.iter().filter(|verb| verb.as_str() != "help") {
            let relations = relations(&rows, verb);
            assert!(!relations.is_empty(), "{section}: `{verb}` has no row");
            assert!(relations.iter().all(|relation| RELATIONS.contains(relation)), "{verb}: {relations:?}");
        }
    }
}

#[test]
fn names_fit_their_patterns() {
    for (pattern, name, expected) in [
        ("GetInvite", "GetInvite", true),
        ("GetInvite", "GetInvites", false),
        ("Set…Permission", "SetUserProjectPermission", true),
        ("Set…Permission", "SetPermission", false),
        ("permission project-…", "permission project-set", true),
        ("permission project-…", "permission env-set", false),
    ] {
        assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
    }
}
