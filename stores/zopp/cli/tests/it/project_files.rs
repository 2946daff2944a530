//! Project files that count or are refused, and protected environments.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use crate::{
    home::{Ended, Home, as_root},
    world::World,
};

/// Alice, whose commands use a project file.
fn world() -> World {
    let mut world = World::new();
    world.alice.ok("secret set WHERE dev");
    for name in ["ZOPP_WORKSPACE", "ZOPP_PROJECT", "ZOPP_ENVIRONMENT"] {
        world.alice.set(name, "");
    }
    world
}

fn defaults(more: &str) -> String {
    format!("[defaults]\nworkspace = \"acme\"\nproject = \"backend\"\nenvironment = \"dev\"\n{more}")
}

fn run_in(home: &Home, folder: &str, line: &str) -> Ended {
    let output = home.command(line).current_dir(home.path(folder)).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Ended { code: output.status.code().unwrap(), stdout: output.stdout, stderr }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_of_a_parent_directory_is_named_and_one_that_others_may_write_is_refused() {
    let World { mut alice, server: _server } = world();
    let file = alice.write("repository/zopp.toml", defaults(""));
    fs::create_dir_all(alice.path("repository/inner")).unwrap();
    let folder = alice.path("repository");
    let get = |alice: &Home, folder: &str| run_in(alice, folder, "secret get WHERE");

    let ended = get(&alice, "repository/inner");
    assert_eq!(ended.stderr, format!("Note: environment acme/backend/dev, by {}\n", file.display()));
    assert_eq!(ended.succeeded("get"), "dev\n");
    let ended = get(&alice, "repository");
    assert_eq!((ended.stderr.as_str(), ended.code), ("", 0), "nobody is surprised by the file in front of them");

    for (path, other) in [(&file, 0o644), (&folder, 0o755)] {
        for mode in [other | 0o002, other | 0o020] {
            set_mode(path, mode);
            for line in ["secret get WHERE", "run -- printenv WHERE", "secret export", "workspace list", "project list"]
            {
                let ended = run_in(&alice, "repository/inner", line);
                if line == "workspace list" {
                    assert_eq!(ended.code, 0, "it needs no file: {}", ended.stderr);
                    continue;
                }
                let stderr = ended.failed(line, 1);
                let expected = format!(
                    "Error: project file {} is not used: {} can be written by ",
                    file.display(),
                    path.display()
                );
                assert!(stderr.starts_with(&expected), "{mode:o} {line}: {stderr}");
                assert!(stderr.contains(&format!("export ZOPP_SAFE_DIRECTORY={}.", folder.display())), "{stderr}");
            }
            let named = "-w acme -p backend -e dev";
            let ended = run_in(&alice, "repository/inner", &format!("secret export {named}"));
            assert_eq!(ended.succeeded("export"), "WHERE=dev\n", "a script that names the environment needs no file");
        }
        set_mode(path, other);
    }
    set_mode(&folder, 0o777);
    alice.set("ZOPP_SAFE_DIRECTORY", &folder.display().to_string());
    assert_eq!(get(&alice, "repository/inner").succeeded("get"), "dev\n");
}

#[test]
fn a_file_of_another_user_is_refused() {
    let World { alice, server: _server } = world();
    let file = alice.write("theirs/zopp.toml", defaults(""));
    let given = as_root("chown").arg("12345").arg(&file).output();
    assert!(given.is_ok_and(|given| given.status.success()), "only root can give a file away");
    let stderr = run_in(&alice, "theirs", "secret get WHERE").failed("get", 1);
    assert!(stderr.contains(&format!("{} belongs to the user with the ID 12345", file.display())), "{stderr}");
}

#[test]
fn the_search_ends_at_the_root_of_the_repository() {
    let World { alice, server: _server } = world();
    alice.write("zopp.toml", defaults(""));
    fs::create_dir_all(alice.path("cloned/inner")).unwrap();
    assert_eq!(run_in(&alice, "cloned/inner", "secret get WHERE").succeeded("get"), "dev\n");
    fs::create_dir(alice.path("cloned/.git")).unwrap();
    let stderr = run_in(&alice, "cloned/inner", "secret get WHERE").failed("get", 2);
    assert!(stderr.starts_with("Error: no workspace is given"), "{stderr}");
}

#[test]
fn a_protected_environment_is_named_on_the_command_line_or_allowed_in_its_directory() {
    let World { mut alice, server: _server } = world();
    for (protected, variable) in [("[environments]\nprotected = [\"dev\"]\n", ""), ("", "other, acme/backend/dev")] {
        alice.set("ZOPP_PROTECTED_ENVIRONMENTS", variable);
        alice.write("repository/zopp.toml", defaults(protected));
        fs::create_dir_all(alice.path("repository/inner")).unwrap();
        for (line, output) in [("run -- printenv WHERE", "dev\n"), ("secret export", "WHERE=dev\n")] {
            let mut from_variable = alice.command(line);
            from_variable.env("ZOPP_ENVIRONMENT", "dev").current_dir(alice.path("repository"));
            assert_eq!(from_variable.output().unwrap().status.code(), Some(2), "a variable may be an old one");
            let stderr = run_in(&alice, "repository/inner", line).failed(line, 2);
            assert!(stderr.contains("Error: environment acme/backend/dev is protected"), "{stderr}");
            assert!(stderr.contains("zopp environment allow dev -w acme -p backend"), "{stderr}");
            let named = line.replace("run", "run -e dev").replace("export", "export -e dev");
            assert_eq!(run_in(&alice, "repository/inner", &named).succeeded(&named), output);

            run_in(&alice, "repository/inner", "environment allow dev").succeeded("allow");
            assert_eq!(run_in(&alice, "repository/inner", line).succeeded(line), output);
            alice.write("elsewhere/zopp.toml", defaults(protected));
            run_in(&alice, "elsewhere", line).failed(line, 2);
            run_in(&alice, "repository", "environment allow dev --off").succeeded("allow --off");
            run_in(&alice, "repository/inner", line).failed(line, 2);
        }
        assert_eq!(
            run_in(&alice, "repository", "secret get WHERE").succeeded("get"),
            "dev\n",
            "one value is no mistake"
        );
    }
}
