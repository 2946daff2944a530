//! The proxy that breaks requests and answers, before a server that counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use konverge_testkit_stores::{Fault, HttpFront};
use tokio::net::TcpListener;

/// A server that answers `{"ok":true}`, and the number of its requests.
async fn server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counts = Arc::clone(&counts);
            let service = service_fn(move |_| {
                counts.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from_static(br#"{"ok":true}"#)))) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, count)
}

/// Status and body of the answer, if there is a complete one.
async fn post(url: &str) -> Option<(u16, Bytes)> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder().method(Method::POST).uri(format!("{url}/a?b=c")).body(Full::default()).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(2), client.request(request)).await.ok()?.ok()?;
    Some((answer.status().as_u16(), answer.into_body().collect().await.ok()?.to_bytes()))
}

#[tokio::test]
async fn each_fault_does_what_it_says_and_the_journal_knows_what_the_server_answered() {
    let (url, count) = server().await;
    let front = HttpFront::start(&url).await.unwrap();
    assert_eq!(post(&front.url()).await.unwrap(), (200, Bytes::from_static(br#"{"ok":true}"#)));
    for (fault, reached, answer) in [
        (Fault::DropRequest, false, None),
        (Fault::DropReply, true, None),
        (Fault::Hang, false, None),
        (Fault::Delay(Duration::from_millis(1)), true, Some((200, r#"{"ok":true}"#))),
        (Fault::Truncate(4), true, Some((200, r#"{"ok"#))),
        (Fault::too_many_requests(7), false, Some((429, ""))),
    ] {
        let planned = fault.clone();
        front.plan(move |seen| (seen.path == "/a?b=c" && seen.method == Method::POST).then(|| planned.clone()));
        let before = count.load(Ordering::SeqCst);
        let got = post(&front.url()).await;
        let got = got.as_ref().map(|(status, body)| (*status, std::str::from_utf8(body).unwrap()));
        assert_eq!(got, answer, "{fault:?}");
        assert_eq!(count.load(Ordering::SeqCst) - before, usize::from(reached), "{fault:?}");
        assert_eq!(front.journal().last().unwrap().status, reached.then_some(200), "{fault:?}");
    }
}
