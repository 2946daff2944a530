//! A real server, and Alice, who owns workspace `acme` with project `backend` and environment `dev`.

use crate::{home::Home, server::Server};

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) alice: Home,
}

impl World {
    /// A server with Alice in it and nothing else.
    pub(crate) fn with_alice() -> Self {
        let server = Server::start();
        let alice = server.home();
        alice.ok(&format!("join {} alice@example.com --principal laptop", server.invite()));
        Self { server, alice }
    }

    pub(crate) fn new() -> Self {
        let mut world = Self::with_alice();
        world.alice.ok("workspace create acme");
        world.alice.ok("project create backend -w acme");
        world.alice.ok("environment create dev -w acme -p backend");
        for (name, value) in [("WORKSPACE", "acme"), ("PROJECT", "backend"), ("ENVIRONMENT", "dev")] {
            world.alice.set(&format!("ZOPP_{name}"), value);
        }
        world
    }

    /// A home for somebody else, whose commands are about the same environment.
    pub(crate) fn other_home(&self) -> Home {
        let mut home = self.server.home();
        for (name, value) in [("WORKSPACE", "acme"), ("PROJECT", "backend"), ("ENVIRONMENT", "dev")] {
            home.set(&format!("ZOPP_{name}"), value);
        }
        home
    }

    /// A service principal without a role: its ID, and a home in which it is the only principal.
    pub(crate) fn robot(&self, name: &str) -> (String, Home) {
        let robot = self.other_home();
        let file = robot.config_file();
        let line = format!("principal create {name} --service --credentials-file {}", file.display());
        let id = self.alice.json(&line)["id"].as_str().unwrap().to_owned();
        (id, robot)
    }
}

/// Replaces what differs from run to run.
pub(crate) fn normalise(text: &str) -> String {
    let is_border = |character: char| character.is_whitespace() || "(),'\"".contains(character);
    let mut normal = String::new();
    for piece in text.split_inclusive(is_border) {
        let word = piece.trim_end_matches(is_border);
        let kind = if uuid::Uuid::parse_str(word).is_ok() {
            "<uuid>"
        } else if word.len() >= 48 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            "<hex>"
        } else if word.parse::<jiff::Timestamp>().is_ok() {
            "<time>"
        } else if word.starts_with("inv_") {
            "<code>"
        } else {
            word
        };
        normal.push_str(kind);
        normal.push_str(&piece[word.len()..]);
    }
    normal
}
