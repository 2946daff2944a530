//! Callers that try to fill the memory of a server with its default limits: lists whose answers nobody takes, requests that never end, and huge names.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use konverge_zopp_proto::{GetInviteRequest, UpsertSecretRequest, zopp_service_client::ZoppServiceClient};
use konverge_zopp_testing::UnfinishedRequest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::{Code, transport::Channel};

use super::site::{Database, Site, key, list, value};
use crate::report::{Report, Row};

const LIMIT_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// The largest value that the default limits allow, and as many of them as fit into an environment.
const VALUE_BYTES: usize = 2 * 1024 * 1024 - 16;
const VALUES: usize = 4;
/// Connections whose answers nobody takes, and the lists on each of them.
const DEAF: usize = 10;
const LISTS: usize = 10;
/// An answer to a handshake or a refusal is shorter, a list is longer.
const TAKEN_BYTES: u64 = 16 * 1024;
/// Connections with requests that never end, the requests on each of them, and the bytes of each that are announced and that arrive.
const SENDERS: usize = 20;
const REQUESTS: usize = 40;
const ANNOUNCED_BYTES: u32 = 3 * 1024 * 1024;
const SENT_BYTES: usize = 512 * 1024;
/// At least so many of these requests find no room.
const REFUSED: usize = 700;
/// Callers with huge names, and the calls of each of them.
const NAMERS: usize = 8;
const NAMES: usize = 10;
const NAME_BYTES: usize = 3 * 1024 * 1024;
/// A server takes at most so long to refuse what it has no room for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The server has read the requests for lists.
const SETTLED: Duration = Duration::from_secs(3);

pub(crate) async fn measure(database: Database, report: &mut Report) -> Result<()> {
    eprintln!("zopp: hostile callers, {database}");
    let site = Site::with_default_limits(database).await?;
    let name = site.environment("large", 0).await?;
    let client = site.client()?;
    for number in 0..VALUES {
        let request = value(&name, &key(number));
        let request = UpsertSecretRequest { ciphertext: vec![7; VALUE_BYTES], ..request };
        client.upsert_secret(request).await.context("cannot set a large value")?;
    }
    let mut lists = JoinSet::new();
    for _ in 0..DEAF {
        let deaf = site.client_at(&deaf_way(site.address()?).await?)?;
        for _ in 0..LISTS {
            let (client, request) = (deaf.clone(), list(name.clone()));
            // The answer is refused, or never arrives whole.
            lists.spawn(async move { drop(client.list_secrets(request).await) });
        }
    }
    sleep(SETTLED).await;
    unfinished(&site).await?;
    huge_names(&site).await?;
    lists.shutdown().await;
    let most = site.peak_resident()?;
    report.add(Row {
        subject: format!("zopp: resident set beside hostile callers, at most, {database}").leak(),
        figure: super::mebibytes(most),
        against: super::mebibytes(LIMIT_BYTES),
        ratio: most / LIMIT_BYTES,
        bound: Some(1.0),
    });
    Ok(())
}

/// A way to the server by which the first bytes of each connection's answers arrive, and no others.
async fn deaf_way(server: String) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await?;
                let ((from, mut to), (mut requests, mut answers)) = (far.split(), near.split());
                let forward = copy(&mut requests, &mut to);
                let back = async {
                    copy(&mut from.take(TAKEN_BYTES), &mut answers).await?;
                    answers.flush().await?;
                    std::future::pending::<std::io::Result<()>>().await
                };
                tokio::try_join!(forward, back).map(drop)
            });
        }
    });
    Ok(url)
}

async fn unfinished(site: &Site) -> Result<()> {
    let request = UnfinishedRequest::new(ANNOUNCED_BYTES, SENT_BYTES);
    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        let channel = site.channel().await?;
        for _ in 0..REQUESTS {
            let (request, channel) = (request.clone(), channel.clone());
            senders.spawn(async move { request.send(channel).await });
        }
    }
    for _ in 0..REFUSED {
        let refused = timeout(PATIENCE, senders.join_next()).await.context("a request without room is not refused")?;
        let refused = refused.context("all requests ended")??.map_err(|error| anyhow::anyhow!("{error}"))?;
        ensure!(refused.code() == Code::ResourceExhausted, "refused with {refused}");
    }
    senders.shutdown().await;
    Ok(())
}

async fn huge_names(site: &Site) -> Result<()> {
    let token = "x".repeat(NAME_BYTES);
    let mut callers = JoinSet::new();
    for _ in 0..NAMERS {
        let mut client: ZoppServiceClient<Channel> = ZoppServiceClient::new(site.channel().await?);
        let token = token.clone();
        callers.spawn(async move {
            for _ in 0..NAMES {
                let answer = client.get_invite(GetInviteRequest { token: token.clone() }).await;
                ensure!(answer.is_err(), "there is no such invite");
            }
            Ok(())
        });
    }
    callers.join_all().await.into_iter().collect()
}
