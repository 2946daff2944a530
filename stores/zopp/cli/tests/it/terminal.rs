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
