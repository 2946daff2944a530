//! Between a server and its PostgreSQL: ends all connections at once, as a kill of the server does.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

/// The name of the socket in a folder, as PostgreSQL gives it.
const SOCKET: &str = ".s.PGSQL.5432";
/// In the first message of a connection of the server's pools.
const OF_POOL: &[u8] = b"application_name\0zopp-server\0";

/// It keeps what passes, and counts the statements of changes, which take a lock as they begin, and those that write outside of a transaction. The server learns nothing
/// of the one at which it is cut off. The records of refusals, which follow some time later and take no lock, do not count.
pub(crate) struct Severing {
    address: String,
    plan: Arc<Plan>,
    _directory: TempDir,
    _accepting: AbortOnDropHandle<()>,
}

/// One way of a connection of the server's pools to the database and back.
#[derive(Debug)]
pub(crate) struct Trip {
    /// The kinds of the statements; none if the server only asks whether the connection is there.
    pub(crate) statements: Vec<String>,
    /// Whether a transaction, and with it each lock, goes on until the next one.
    pub(crate) is_open: bool,
}

struct Plan {
    /// The statements of the server since the last look.
    trips: Mutex<Vec<Trip>>,
    /// The statements until the cut.
    left: Mutex<Option<u32>>,
    cuts: watch::Sender<u32>,
}

impl Severing {
    /// In front of the database of that address.
    pub(crate) fn before(address: &str) -> Self {
        let (database, host) = address.split_once("?host=").expect("an address with the folder of a socket");
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(SOCKET)).unwrap();
        let address = format!("{database}?host={}&sslmode=disable", directory.path().display());
        let plan = Arc::new(Plan { trips: Mutex::default(), left: Mutex::default(), cuts: watch::channel(0).0 });
        let accepting = accept(listener, Path::new(host).join(SOCKET), Arc::clone(&plan));
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self { address, plan, _directory: directory, _accepting: accepting }
    }

    /// Where the server finds it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The ways of the server to the database and back since this was asked last.
    pub(crate) fn trips(&self) -> Vec<Trip> {
        std::mem::take(&mut self.plan.trips.lock().unwrap())
    }

    /// Cuts the server off after so many statements from now on.
    pub(super) fn after(&self, statements: u32) {
        *self.plan.left.lock().unwrap() = Some(statements);
    }

    /// Was the server cut off? From now on it is not.
    pub(super) fn was_cut(&self) -> bool {
        self.plan.left.lock().unwrap().take().is_none()
    }
}

impl Plan {
    /// Counts a statement. Returns whether it is the last one.
    fn is_last(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        let Some(statements) = left.as_mut() else { return false };
        *statements -= 1;
        let is_last = *statements == 0;
        if is_last {
            *left = None;
            self.cuts.send_modify(|cuts| *cuts += 1);
        }
        is_last
    }
}

async fn accept(listener: UnixListener, database: PathBuf, plan: Arc<Plan>) {
    while let Ok((client, _)) = listener.accept().await {
        let (database, plan, mut cuts) = (database.clone(), Arc::clone(&plan), plan.cuts.subscribe());
        tokio::spawn(async move {
            // Whichever ends, both ends of the connection are closed.
            tokio::select! {
                _ = pass(client, &database, &plan) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}

/// Passes everything on, until the cut.
async fn pass(mut client: UnixStream, database: &Path, plan: &Plan) -> io::Result<()> {
    let mut database = UnixStream::connect(database).await?;
    let length = client.read_u32().await?;
    let mut first = vec![0; length as usize - 4];
    client.read_exact(&mut first).await?;
    database.write_u32(length).await?;
    database.write_all(&first).await?;
    let is_pool = first.windows(OF_POOL.len()).any(|part| part == OF_POOL);

    let (mut requests, mut to_client) = client.split();
    let (answers, mut to_database) = database.split();
    let answers = async {
        let mut answers = BufReader::new(answers);
        // Until the first time that the database is ready, it lets the client in.
        let mut is_in = false;
        let (mut completed, mut in_transaction, mut in_change) = (Vec::new(), false, false);
        loop {
            let kind = answers.read_u8().await?;
            let length = answers.read_u32().await?;
            let mut message = vec![0; length as usize - 4];
            answers.read_exact(&mut message).await?;
            match kind {
                // A statement is complete: this is its kind.
                b'C' => completed.push(message.clone()),
                // The database is ready for the next one, in a transaction or outside.
                b'Z' => {
                    let was_in_transaction = in_transaction;
                    in_transaction = message != b"I";
                    let has = |kind: &str| completed.iter().any(|tag| tag.starts_with(kind.as_bytes()));
                    if has("BEGIN") {
                        in_change = has("SELECT");
                    }
                    let writes_alone =
                        !was_in_transaction && ["INSERT", "UPDATE", "DELETE", "CALL"].into_iter().any(has);
                    if is_pool && is_in {
                        let text = |tag: &Vec<u8>| String::from_utf8_lossy(tag).trim_end_matches('\0').to_owned();
                        let statements = completed.iter().map(text).collect();
                        plan.trips.lock().unwrap().push(Trip { statements, is_open: in_transaction });
                    }
                    if is_pool && is_in && (in_change || writes_alone) && plan.is_last() {
                        return Ok::<(), io::Error>(());
                    }
                    in_change &= in_transaction;
                    is_in = true;
                    completed.clear();
                }
                _ => {}
            }
            to_client.write_u8(kind).await?;
            to_client.write_u32(length).await?;
            to_client.write_all(&message).await?;
        }
    };
    tokio::select! {
        passed = tokio::io::copy(&mut requests, &mut to_database) => passed.map(drop),
        passed = answers => passed,
    }
}
