//! At a terminal, the command prompts for a value and does not echo it.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    process::Child,
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use pty_process::blocking::{Pty, open};
use rustix::termios::{LocalModes, tcgetattr};

use crate::{home::Home, world::World};

/// Longer than anything here takes, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A command with a terminal of its own. It is hung up, and with it the command, when this is dropped.
struct Terminal {
    keyboard: Pty,
    output: Receiver<Vec<u8>>,
    screen: String,
    child: Child,
}

impl Terminal {
    fn start(home: &Home, line: &str) -> Self {
        let (keyboard, slave) = open().unwrap();
        let child = pty_process::blocking::Command::from(home.command(line)).spawn(slave).unwrap();
        let mut display = File::from(keyboard.as_fd().try_clone_to_owned().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            // An error is how a terminal says that nobody holds its other end any more.
            while let Ok(count @ 1..) = display.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { keyboard, output, screen: String::new(), child }
    }

    fn shows(&mut self, expected: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.screen.contains(expected) {
            let more = self.output.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let more = more.unwrap_or_else(|_| panic!("not on the screen: {expected:?}; instead: {:?}", self.screen));
            self.screen.push_str(&String::from_utf8(more).unwrap());
        }
    }

    /// Waits until what is typed does not show, as people do not have to: they are slow enough.
    fn hides_what_is_typed(&self) {
        let deadline = Instant::now() + DEADLINE;
        while tcgetattr(&self.keyboard).unwrap().local_modes.contains(LocalModes::ECHO) {
            assert!(Instant::now() < deadline, "the terminal shows what is typed");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_value_is_asked_for_and_does_not_show() {
    let World { alice, server: _server } = World::new();
    let mut terminal = Terminal::start(&alice, "secret set PASSWORD");
    terminal.shows("Value of PASSWORD: ");
    terminal.hides_what_is_typed();
    terminal.keyboard.write_all(b"hunter two\r").unwrap();
    terminal.shows("Secret 'PASSWORD' set");
    assert!(terminal.child.wait().unwrap().success());
    assert!(!terminal.screen.contains("hunter"), "{:?}", terminal.screen);
    assert_eq!(alice.run("secret get PASSWORD --raw").stdout, b"hunter two", "without a newline");
}

/// A terminal that marks pastes, and one that does not.
#[test]
fn all_lines_of_a_pasted_key_are_its_value() {
    const KEY: &[u8] = b"-----BEGIN PRIVATE KEY-----\rMIIEsecret\r\r-----END PRIVATE KEY-----\r";
    let World { alice, server: _server } = World::new();
    let stored = String::from_utf8(KEY.to_vec()).unwrap().replace('\r', "\n");
    for pasted in [[b"\x1b[200~", KEY, b"\x1b[201~\r"].concat(), KEY.to_vec(), [KEY, b"a line more\r"].concat()] {
        let mut terminal = Terminal::start(&alice, "secret set TLS_KEY");
        terminal.shows("Value of TLS_KEY: ");
        terminal.hides_what_is_typed();
        terminal.keyboard.write_all(&pasted).unwrap();
        terminal.shows("Secret 'TLS_KEY' set");
        assert!(terminal.child.wait().unwrap().success());
        assert!(!terminal.screen.contains("MIIE"), "{:?}", terminal.screen);
        let more = if pasted.ends_with(b"more\r") { "a line more\n" } else { "" };
        assert_eq!(alice.ok("secret get TLS_KEY --raw"), stored.clone() + more);
    }
}

#[test]
fn a_value_that_is_interrupted_is_not_stored() {
    let World { alice, server: _server } = World::new();
    let mut terminal = Terminal::start(&alice, "secret set PASSWORD");
    terminal.shows("Value of PASSWORD: ");
    terminal.hides_what_is_typed();
    terminal.keyboard.write_all(b"hunter\x03").unwrap();
    terminal.shows("Error: the value of 'PASSWORD' cannot be asked for");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(1));
    assert!(tcgetattr(&terminal.keyboard).unwrap().local_modes.contains(LocalModes::ECHO), "the terminal is as before");
    assert_eq!(alice.ok("secret list"), "No secrets found\n");
}

#[test]
fn a_long_import_shows_how_far_it_is() {
    let World { alice, server: _server } = World::new();
    let lines: Vec<_> = (0..60).map(|number| format!("KEY_{number}=x")).collect();
    alice.write("many.env", lines.join("\n"));
    let mut terminal = Terminal::start(&alice, "secret import -i many.env");
    terminal.shows("Importing:  0 of 60");
    terminal.shows("Imported 60 secrets");
    assert!(terminal.child.wait().unwrap().success());
    assert_eq!(alice.run("secret import -i many.env").stderr, "", "nobody watches a pipe");
}

/// A device that a server names, and that this one has never seen.
#[test]
fn a_person_compares_a_new_device_before_it_gets_a_key() {
    let world = World::new();
    let bob = world.other_home();
    let code = world.alice.ok("invite create --plain");
    bob.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
    let fingerprint = bob.ok("principal fingerprint").trim().to_owned();
    let before = world.alice.ok("workspace fingerprint");
    for (answer, code) in [(b"\r".as_slice(), 1), (b"no\r", 1), (b"y\r", 0)] {
        let mut terminal = Terminal::start(&world.alice, "workspace rotate-key");
        terminal.shows(&fingerprint);
        terminal.shows("Give it the new key? [y/N] ");
        assert_eq!(world.alice.ok("workspace fingerprint"), before, "nothing was changed yet");
        terminal.keyboard.write_all(answer).unwrap();
        assert_eq!(terminal.child.wait().unwrap().code(), Some(code));
        assert_eq!(world.alice.ok("workspace fingerprint") == before, code == 1);
    }
    let known = world.alice.run("workspace rotate-key");
    assert_eq!(known.code, 0, "a known one is not asked about: {}", known.stderr);

    // The same before access is granted.
    let carol = world.other_home();
    carol.ok(&format!("join {} carol@example.com --principal watch", world.server.invite()));
    let id = carol.json("principal current")["id"].as_str().unwrap().to_owned();
    let fingerprint = carol.ok("principal fingerprint").trim().to_owned();
    let line = format!("workspace grant-principal-access --principal {id}");
    let stderr = world.alice.fails(&line, 1);
    assert!(stderr.contains(&fingerprint) && stderr.contains("add --fingerprint"), "{stderr}");
    for (answer, code) in [(b"n\r".as_slice(), 1), (b"yes\r", 0)] {
        let mut terminal = Terminal::start(&world.alice, &line);
        terminal.shows(&fingerprint);
        terminal.shows("the key of workspace 'acme'? [y/N] ");
        terminal.keyboard.write_all(answer).unwrap();
        assert_eq!(terminal.child.wait().unwrap().code(), Some(code));
    }
}
