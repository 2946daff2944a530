//! The bodies of answers, and what goes wrong with them on their way.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch::Receiver};

use super::{
    Proxy,
    decide::{Decision, Moment},
    frame::{Event, Lines},
    journal::Place,
    plan::{Action, EventKind, Phase},
    reply::{BodySender, ReplyBody, error_event},
};
use crate::api_request::ApiRequest;

/// Whether a stream goes on.
enum Next {
    Line,
    End,
}

/// The body of a watch: event by event, with the faults of the plan.
pub(super) fn watch(proxy: Arc<Proxy>, request: ApiRequest, place: Place, upstream: Incoming) -> ReplyBody {
    let (body_sender, body) = BodySender::new();
    let gone = body_sender.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = gone.closed() => {}
            () = forward_events(&proxy, &request, &place, upstream, &body_sender) => {}
        }
    });
    body
}

async fn forward_events(
    proxy: &Proxy,
    request: &ApiRequest,
    place: &Place,
    upstream: Incoming,
    body_sender: &BodySender,
) {
    let mut lines = read_ahead(upstream);
    while let Some(line) = lines.recv().await {
        let Some(line) = line else { return body_sender.break_off().await };
        let Some(event) = Event::parse(&line) else {
            // Not for us to judge.
            body_sender.send(line).await;
            continue;
        };
        let outcome = forward_event(proxy, request, place, &event, line, body_sender).await;
        if matches!(outcome, Next::End) {
            return;
        }
    }
}

/// Reads the lines as they come, also while nobody wants them, because the API server ends watches that fall behind. `None` is a broken
/// connection.
fn read_ahead(mut upstream: Incoming) -> mpsc::UnboundedReceiver<Option<Bytes>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut lines = Lines::default();
        loop {
            let frame = tokio::select! {
                () = sender.closed() => return,
                frame = upstream.frame() => frame,
            };
            match frame {
                Some(Ok(frame)) => lines.push(frame.data_ref().map_or(&[], |data| data.as_ref())),
                Some(Err(_)) => {
                    let _ = sender.send(None);
                    return;
                }
                None => {
                    let _ = lines.rest().map(|rest| sender.send(Some(rest)));
                    return;
                }
            }
            while let Some(line) = lines.next_line() {
                let _ = sender.send(Some(line));
            }
        }
    });
    receiver
}

async fn forward_event(
    proxy: &Proxy,
    request: &ApiRequest,
    place: &Place,
    event: &Event,
    line: Bytes,
    body_sender: &BodySender,
) -> Next {
    // Before the decision, so that a release right after it is heard.
    let mut releases = proxy.control.releases();
    let mut copies = 1;
    for decision in proxy.control.decide(Moment { request, phase: Phase::Body, event: Some(event) }) {
        place.fault_injected(Phase::Body, &decision);
        match &decision.action {
            Action::Hold => {
                let _ = releases.changed().await;
            }
            Action::Suppress if event.kind == EventKind::Bookmark && event.ends_initial => {}
            Action::Suppress => copies = 0,
            Action::Duplicate => copies = 2,
            Action::ErrorEvent(code) => {
                body_sender.send(error_event(*code)).await;
                return Next::End;
            }
            _ => {
                if matches!(cut(proxy, &decision, &line, body_sender, &mut releases).await, Next::End) {
                    return Next::End;
                }
            }
        }
    }
    for _ in 0..copies {
        body_sender.send(line.clone()).await;
        place.event_sent();
    }
    Next::Line
}

/// The body of an answer that is no watch, once the plan has something to say about it.
pub(super) fn cut_short(
    proxy: Arc<Proxy>,
    place: Place,
    decisions: Vec<Decision>,
    whole: Bytes,
    mut releases: Receiver<u64>,
) -> ReplyBody {
    let (body_sender, body) = BodySender::new();
    let gone = body_sender.clone();
    tokio::spawn(async move {
        let cuts = async {
            for decision in decisions {
                place.fault_injected(Phase::Body, &decision);
                if matches!(cut(&proxy, &decision, &whole, &body_sender, &mut releases).await, Next::End) {
                    return;
                }
            }
            body_sender.send(whole).await;
        };
        tokio::select! {
            () = gone.closed() => {}
            () = cuts => {}
        }
    });
    body
}

/// The unit that a fault hits: the next line of a watch, else the whole body.
async fn cut(
    proxy: &Proxy,
    decision: &Decision,
    next: &Bytes,
    body_sender: &BodySender,
    releases: &mut Receiver<u64>,
) -> Next {
    match &decision.action {
        Action::Delay(span) => {
            tokio::time::sleep(span.duration()).await;
            return Next::Line;
        }
        Action::Truncate => body_sender.send(next.slice(..next.len() / 2)).await,
        Action::Freeze => {
            let _ = releases.changed().await;
        }
        Action::Kill(process) => proxy.control.kill(process).await,
        Action::Down(span) => proxy.control.go_down(span.duration()),
        _ => {}
    }
    body_sender.break_off().await;
    Next::End
}
