//! One connection per process on which replicas hear each other through PostgreSQL.
//!
//! While the connection is away, nothing is heard. So when it is found lost, all who listen learn that they missed something, and
//! a new subscription waits until PostgreSQL listens for it again.

use std::{collections::HashSet, time::Duration};

use sqlx::{
    PgPool,
    postgres::{PgListener, PgNotification, PgPoolOptions},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Channels, Event, lock,
    notice::{self, Notice, ReceivedNotice},
    send,
};
use crate::{revocations::Revocations, store::PostgresAddress};

/// How often the connection must prove that it lives, and how long it may take: a connection can die without a word.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between attempts to connect again.
const PAUSE: Duration = Duration::from_millis(500);
/// One to listen, one to tell.
const CONNECTIONS: u32 = 2;
/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The commands of the listener.
#[derive(Debug)]
pub(super) enum Command {
    /// To hear the environment of this id, and to say when it does.
    Listen(String, oneshot::Sender<()>),
    /// To hear the environment of this id no longer, if nobody listens to it.
    Unlisten(String),
    /// To tell the replicas.
    Tell(Notice),
}

/// The process's end of the connection to the other replicas.
#[derive(Debug)]
pub(crate) struct Listener {
    pool: PgPool,
    /// Connected when the server starts, so that a wrong address is found then.
    first: PgListener,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) sender: mpsc::UnboundedSender<Command>,
}

impl Listener {
    /// Connects.
    pub(crate) async fn connect(address: &PostgresAddress) -> Result<Self, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(address.options()?.application_name("zopp-server listener"))
            .await?;
        let first = listen(&pool).await?;
        let (sender, commands) = mpsc::unbounded_channel();
        Ok(Self { pool, first, commands, sender })
    }

    /// Passes on what is heard until `stop`.
    pub(super) async fn run(self, channels: Channels, revocations: Revocations, stop: CancellationToken) {
        let Self { pool, first, commands, sender } = self;
        // The bus has one of its own; once that is gone, nobody can ask anything.
        drop(sender);
        let mut session = Session { pool, channels, revocations, commands, listened: HashSet::new() };
        tokio::select! {
            () = session.run(first) => {}
            () = stop.cancelled() => {}
        }
        session.pool.close().await;
    }
}

async fn listen(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    // Connecting anew is for the session, which knows who missed what.
    listener.eager_reconnect(false);
    listener.listen(notice::OWN_CHANNEL).await?;
    Ok(listener)
}

struct Session {
    pool: PgPool,
    channels: Channels,
    revocations: Revocations,
    commands: mpsc::UnboundedReceiver<Command>,
    /// The environments that PostgreSQL tells this connection of.
    listened: HashSet<String>,
}

/// Why a connection is of no use any more.
enum Disconnect {
    Lost(String),
    Stopped,
}

impl Session {
    async fn run(&mut self, first: PgListener) {
        let mut next = Some(first);
        loop {
            let Some(listener) = next.take() else {
                if let Ok(Ok(listener)) = timeout(CONNECT_TIMEOUT, listen(&self.pool)).await {
                    tracing::info!("changes by other replicas are heard again");
                    next = Some(listener);
                } else {
                    sleep(PAUSE).await;
                }
                continue;
            };
            match self.receive(listener).await {
                Disconnect::Stopped => return,
                Disconnect::Lost(error) => {
                    tracing::warn!(error, "the connection for changes by other replicas is lost; watchers list again");
                    self.listened.clear();
                    self.miss_all();
                }
            }
        }
    }

    /// Passes on what one connection hears until it is lost.
    async fn receive(&mut self, mut listener: PgListener) -> Disconnect {
        let mut probe = interval(PROBE_EVERY);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                heard = listener.try_recv() => match heard {
                    Ok(Some(notification)) => {
                        self.pass_on(&notification);
                        Ok(())
                    }
                    Ok(None) => return Disconnect::Lost("closed by PostgreSQL".into()),
                    Err(error) => Err(error),
                },
                command = self.commands.recv() => match command {
                    Some(command) => self.execute(&mut listener, command).await,
                    None => return Disconnect::Stopped,
                },
                _ = probe.tick() => match timeout(PROBE_TIMEOUT, sqlx::query("SELECT 1").execute(&mut listener)).await {
                    Ok(result) => result.map(|_| ()),
                    Err(_) => return Disconnect::Lost(format!("no answer within {} s", PROBE_TIMEOUT.as_secs())),
                },
            };
            if let Err(error) = done {
                return Disconnect::Lost(error.to_string());
            }
        }
    }

    async fn execute(&mut self, listener: &mut PgListener, command: Command) -> Result<(), sqlx::Error> {
        match command {
            Command::Listen(environment_id, told) => {
                if !self.listened.contains(&environment_id) {
                    within(listener.listen(&notice::channel(&environment_id))).await?;
                    self.listened.insert(environment_id);
                }
                // A caller that hung up waits no more.
                let _ = told.send(());
            }
            Command::Unlisten(environment_id) => {
                // Somebody may have come since; that one's own command follows, and finds it done.
                let wanted = lock(&self.channels).contains_key(&environment_id);
                if !wanted && self.listened.remove(&environment_id) {
                    within(listener.unlisten(&notice::channel(&environment_id))).await?;
                }
            }
            Command::Tell(Notice { channel, payload }) => {
                let told = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(payload).execute(&self.pool);
                if let Err(error) = within(async { told.await.map(|_| ()) }).await {
                    tracing::error!(%error, "other replicas could not be told of a change; watchers here list again");
                    self.miss_all();
                }
            }
        }
        Ok(())
    }

    fn pass_on(&self, notification: &PgNotification) {
        match notice::parse(notification.channel(), notification.payload()) {
            Some(ReceivedNotice::Event(environment_id, event)) => send(&self.channels, &environment_id, event),
            Some(ReceivedNotice::Lost(principal_ids)) => self.revocations.announce(principal_ids),
            // A payload of another version: listeners of that channel may have missed a change.
            None => {
                tracing::warn!(channel = notification.channel(), "a notice of another replica is not understood");
                self.miss_all();
            }
        }
    }

    /// Tells all subscribers that they missed events.
    fn miss_all(&self) {
        for sender in lock(&self.channels).values() {
            // An error means that the last listener is going this moment.
            let _ = sender.send(Event::Missed);
        }
    }
}

/// A command of the connection, which is lost if it takes too long.
async fn within(done: impl Future<Output = Result<(), sqlx::Error>>) -> Result<(), sqlx::Error> {
    timeout(PROBE_TIMEOUT, done).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
