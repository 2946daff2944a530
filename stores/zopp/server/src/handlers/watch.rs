//! The stream of changes to one environment.
//!
//! A client lists, then watches since the version it saw. Guarantees: it is told of every later change, or told to list again, or the stream
//! ends with an error; never is a change left out in silence. The stream ends when the caller may no longer read, when the environment is
//! deleted and when the server stops. The server notices a disabled key or a lost workspace at once, and another lost right at the next
//! change, at the latest after the recheck period. It costs nothing once the client is gone: there is no task behind it, only what the
//! connection holds. All watches of a principal on an environment look at the database once ([`Rechecks`](crate::rechecks::Rechecks)).

use std::sync::Arc;

use futures::{Stream, stream};
use konverge_zopp_proto::{self as proto, secret_change_event::EventType, watch_secrets_response::Response};
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status};

use super::secrets::resolve;
use crate::{
    call::Call,
    events::{Event, Gap, NotListening, Subscription},
    limits::Reached,
    rbac::Role,
    rechecks::Question,
    revocations::Losses,
    shares::Share,
    status::{exhausted, from_store},
};

/// When a caller with too many watches may try again, in seconds.
const FULL_PAUSE: i64 = 30;

/// The sources of an open watch: changes of the environment with this id, and losses. Also the version that it begins with.
pub(crate) type Opened = (Subscription, Losses, Share, String, i64);

/// An item, and what comes after it.
type Step = Result<proto::WatchSecretsResponse, Status>;

/// One client's stream.
struct Watch {
    call: Call,
    message: proto::WatchSecretsRequest,
    environment_id: String,
    subscription: Subscription,
    losses: Losses,
    question: Arc<Question>,
    /// The client has seen this version, or began with it; what led to it is no news.
    seen: i64,
    /// The version at the last recheck, which the client must see before the next.
    due: i64,
    state: Phase,
    /// Of the watches that the caller may have open.
    _share: Share,
}

enum Phase {
    /// Tell the client to list again, then end.
    Resync(i64),
    /// Pass on changes.
    Live,
    /// Over.
    Ended,
}

/// Opens the stream. `call` has been verified; place and role are checked here, so that refusals come as the call's answer.
pub(crate) async fn open(call: &mut Call, message: &proto::WatchSecretsRequest) -> Result<Opened, Status> {
    // Before the caller's right is looked at: a loss in between is heard.
    let losses = call.state.revocations.subscribe();
    let limit = call.state.store.limits().watches;
    let share = call.state.usage.watches.take(&call.caller.principal.id, limit).ok_or_else(|| {
        exhausted(&Reached { what: "open watches of a principal", limit, flag: "--max-watches" }, Some(FULL_PAUSE))
    })?;
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let (_, environment) = resolve(call, names, Role::Read).await?;
    call.about(&environment.id, None);
    // Subscribed before the version is read: a change in between is seen at least one way.
    let subscription = call.state.events.subscribe(&environment.id).await.map_err(|NotListening| {
        Status::unavailable("changes by other replicas cannot be heard at the moment; try again, or list instead")
    })?;
    let current = call
        .state
        .store
        .environment_version(&environment.id)
        .await
        .map_err(from_store)?
        .ok_or_else(|| Status::not_found(format!("environment {:?} not found", environment.name)))?;
    Ok((subscription, losses, share, environment.id, current))
}

/// The stream of an opened watch.
pub(crate) fn run(
    call: Call,
    message: proto::WatchSecretsRequest,
    (subscription, losses, share, environment_id, seen): Opened,
) -> impl Stream<Item = Step> + Send + 'static {
    let names = [&message.workspace_name, &message.project_name, &message.environment_name];
    let question = call.state.rechecks.question(&call.caller.principal, names);
    // Unequal, not less: an environment made anew starts from 0 again.
    let resync = message.since_version.is_some_and(|since| since != seen);
    let state = if resync { Phase::Resync(seen) } else { Phase::Live };
    let watch =
        Watch { call, message, environment_id, subscription, losses, question, seen, due: seen, state, _share: share };
    stream::unfold(watch, |mut watch| async move {
        let step = watch.next().await?;
        if step.is_err() {
            watch.state = Phase::Ended;
        }
        Some((step, watch))
    })
}

impl Watch {
    async fn next(&mut self) -> Option<Step> {
        match self.state {
            Phase::Ended => None,
            Phase::Resync(version) => {
                self.state = Phase::Ended;
                Some(Ok(resync(version)))
            }
            Phase::Live => Some(self.live().await),
        }
    }

    async fn live(&mut self) -> Step {
        let stopping = self.call.state.stopping.clone();
        loop {
            let due = self.question.due();
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Status::unavailable("the server is stopping; connect again")),
                event = self.subscription.next() => {
                    if let Some(step) = self.pass_on(event).await {
                        return step;
                    }
                }
                () = self.losses.of(&self.call.caller.principal.id) => {
                    self.check(Instant::now()).await?;
                }
                () = sleep_until(due) => {
                    let version = self.check(due).await?;
                    if self.seen < self.due {
                        return self.lagged().await;
                    }
                    self.due = version;
                }
            }
        }
    }

    async fn pass_on(&mut self, event: Result<Event, Gap>) -> Option<Step> {
        match event {
            Ok(Event::EnvironmentDeleted) => Some(Err(self.gone())),
            Ok(Event::Changed { version, .. } | Event::SeveralChanged { version }) if version <= self.seen => None,
            // Each change counts by one: what is between was not heard.
            Ok(Event::Changed { version, .. }) if version > self.seen + 1 => Some(self.lagged().await),
            Ok(Event::Changed { key, version, deleted, timestamp }) => {
                if let Err(status) = self.check(Instant::now()).await {
                    return Some(Err(status));
                }
                self.seen = version;
                let event_type = if deleted { EventType::Deleted } else { EventType::Updated };
                let event = proto::SecretChangeEvent { event_type: event_type.into(), key, version, timestamp };
                Some(Ok(proto::WatchSecretsResponse { response: Some(Response::Event(event)) }))
            }
            // No message of the contract tells of several keys.
            Ok(Event::SeveralChanged { .. } | Event::Missed) | Err(Gap::Lagged | Gap::Closed) => {
                Some(self.lagged().await)
            }
        }
    }

    /// Changes were missed: the client must list again.
    async fn lagged(&mut self) -> Step {
        self.check(Instant::now()).await?;
        let current = self
            .call
            .state
            .store
            .environment_version(&self.environment_id)
            .await
            .map_err(from_store)?
            .ok_or_else(|| self.gone())?;
        self.state = Phase::Ended;
        Ok(resync(current))
    }

    /// May the caller still read this very environment, by an answer that was asked for at this moment or later? Returns its version.
    async fn check(&mut self, since: Instant) -> Result<i64, Status> {
        let readable = match self.question.answer(since).await {
            Ok(readable) => readable,
            // A principal that lost the workspace is told so; it was there when the stream began.
            Err(status) if status.code() == Code::NotFound && status.message().starts_with("workspace") => {
                return Err(Status::permission_denied("access to the workspace was taken away"));
            }
            Err(status) => return Err(status),
        };
        if readable.environment_id == self.environment_id { Ok(readable.version) } else { Err(self.gone()) }
    }

    fn gone(&self) -> Status {
        Status::not_found(format!("environment {:?} was deleted", self.message.environment_name))
    }
}

fn resync(current_version: i64) -> proto::WatchSecretsResponse {
    let resync = proto::ResyncRequired { current_version };
    proto::WatchSecretsResponse { response: Some(Response::Resync(resync)) }
}
