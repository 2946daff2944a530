//! The real server, in this process, on a database of its own.

use std::thread::JoinHandle;

use konverge_zopp_server::{
    admin,
    args::InviteCommand,
    policy::{FirstGeneration, MemberRole, Policy},
    serve::{Options, Server as ZoppServer, TlsFiles},
    store::{Location, Store},
};
use konverge_zopp_testing::{Authority, LyingServer};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::home::Home;

const DATABASE: &str = "zopp.db";

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
        Self::start_with(tempfile::tempdir().unwrap(), TlsFiles::default(), Policy::default())
    }

    /// Also for clients of the first generation, which expect that each member of a workspace may do everything.
    pub(crate) fn start_for_first_generation() -> Self {
        let first_generation = Some(FirstGeneration { member_role: Some(MemberRole::Admin) });
        let policy = Policy { first_generation, ..Policy::default() };
        Self::start_with(tempfile::tempdir().unwrap(), TlsFiles::default(), policy)
    }

    /// On what was read out of a database of the original.
    pub(crate) fn import(original: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) =
            (Location::parse(original).unwrap().existing(), Location::file(directory.path().join(DATABASE)));
        let imported = Runtime::new().unwrap().block_on(admin::import(&from, &to, &mut Vec::new()));
        imported.unwrap_or_else(|error| panic!("{error}"));
        Self::start_with(directory, TlsFiles::default(), Policy::default())
    }

    /// With TLS for `localhost`, and only for clients whose certificate is from the authority.
    pub(crate) fn start_private(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let issued = authority.issue("localhost").unwrap();
        let write = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            Some(path)
        };
        let tls = TlsFiles {
            certificate: write("cert.pem", &issued.certificate),
            key: write("key.pem", &issued.key),
            client_authority: write("ca.pem", &authority.pem()),
        };
        Self::start_with(directory, tls, Policy::default())
    }

    fn start_with(directory: TempDir, tls: TlsFiles, policy: Policy) -> Self {
        let database = Location::file(directory.path().join(DATABASE));
        let runtime = Runtime::new().unwrap();
        let uses_tls = tls.certificate.is_some();
        let server = runtime.block_on(ZoppServer::bind(Options { tls, policy, ..Options::local(database) })).unwrap();
        let url = if uses_tls {
            format!("https://localhost:{}", server.address().port())
        } else {
            format!("http://{}", server.address())
        };
        let (store, stop) = (server.store().clone(), CancellationToken::new());
        let (handle, stopped) = (runtime.handle().clone(), stop.clone());
        let serving = std::thread::spawn(move || handle.block_on(server.run(stopped)).unwrap());
        Self { url, store, runtime, stop, serving: Some(serving), _directory: directory }
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
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
