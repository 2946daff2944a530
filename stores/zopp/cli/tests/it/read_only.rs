//! A configuration file that cannot be written, as in a container that mounts it read-only.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
};

use crate::world::World;

/// Root can write anywhere, so the commands run as this user if the tests run as root.
const NOBODY: u32 = 65534;

#[test]
fn commands_that_do_not_change_the_file_work_after_a_rotation() {
    let world = World::new();
    let alice = &world.alice;
    alice.ok("secret set K v");
    let (id, robot) = world.robot("ci");
    alice.ok(&format!("permission set --principal {id} --role write"));
    let program = robot.path("zopp-copy");
    fs::copy(env!("CARGO_BIN_EXE_zopp"), &program).unwrap();
    let robot = robot.with_program(&program);
    let (file, folder) = (robot.config_file(), robot.path(""));
    let is_root = rustix::process::geteuid().is_root();
    let close = |path: &Path, mode: u32| {
        if is_root {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    close(&file, 0o400);
    close(file.parent().unwrap(), 0o555);
    close(&folder, 0o555);
    let zopp = |line: &str| {
        let mut command = robot.command(line);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let before = fs::read(&file).unwrap();
    alice.ok("workspace rotate-key --accept-recipients");
    for line in [
        "secret list",
        "secret history K",
        "secret history K --show",
        "secret set L v",
        "secret forget L",
        "secret delete L",
        "workspace fingerprint",
        "whoami",
        "status",
    ] {
        let (code, stderr) = zopp(line);
        assert_eq!(code, Some(0), "{line}: {stderr}");
    }
    let (code, stderr) = zopp("workspace fingerprint --pin 0000-0000-0000-0000-0000-0000-0000-0000-0000-0000");
    assert_ne!(code, Some(0), "a pin that is not saved does not count: {stderr}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
}
