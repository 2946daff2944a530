//! The real server, in this process, on a database of its own.

use std::thread::JoinHandle;

use konverge_zopp_server::{
    admin,
    args::InviteCommand,
    serve::{Options, Server as ZoppServer},
    store::{Location, Store},
};
use konverge_zopp_testing::LyingServer;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::home::Home;

/// Ends, with all its streams and its database, when it is dropped.
pub(crate) struct Server {
    url: String,
    store: Store,
    runtime: Runtime,
    stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
    _directory: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Location { path: directory.path().join("zopp.db"), create: true };
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(ZoppServer::bind(Options::local(database))).unwrap();
        let (url, store, stop) =
            (format!("http://{}", server.address()), server.store().clone(), CancellationToken::new());
        let (handle, stopped) = (runtime.handle().clone(), stop.clone());
        let serving = std::thread::spawn(move || handle.block_on(server.run(stopped)).unwrap());
        Self { url, store, runtime, stop, serving: Some(serving), _directory: directory }
    }

    /// The home of somebody who is not on the server yet.
    pub(crate) fn home(&self) -> Home {
        let mut home = Home::new();
        home.set("ZOPP_SERVER", &self.url);
        home
    }

    /// A proxy that speaks for this server, and lies when told to.
    pub(crate) fn liar(&self) -> LyingServer {
        self.runtime.block_on(LyingServer::start(&self.url)).unwrap()
    }

    /// An invite to the server, as its operator makes it.
    pub(crate) fn invite(&self) -> String {
        let command = InviteCommand::Create { expires_hours: 24, uses: None, plain: true };
        let mut text = Vec::new();
        self.runtime.block_on(admin::run(&self.store, &command, &mut text)).unwrap();
        String::from_utf8(text).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}
