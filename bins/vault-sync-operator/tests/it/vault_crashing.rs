//! The operator, crashed at every write to Vault, and told nothing of the success of every one (F01, F02; I12, I13).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use konverge_testkit::Process;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};

use crate::{
    life::{STEPS, change, is_converged, vault_state},
    stage::{Result, Stage},
};

/// From a restart to what it should be.
const LIMIT: Duration = Duration::from_secs(10);

/// So many runs at the same time, each with a namespace, a proxy and an operator of its own.
const AT_ONCE: usize = 3;

/// What befalls a write.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillBefore,
    KillAfter,
    ReplyLost,
}

/// Stands before Vault, and lets one fault befall the write of that number.
struct Proxy {
    server: String,
    fault: Option<(Fault, usize)>,
    writes: AtomicUsize,
    befallen: AtomicBool,
    kill: Box<dyn Fn() + Send + Sync>,
}

impl Proxy {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((client, _)) = listener.accept().await {
            let proxy = Arc::clone(&self);
            tokio::spawn(async move { proxy.pass_on(client).await });
        }
    }

    /// One request and its answer; then the connection ends.
    async fn pass_on(&self, mut client: TcpStream) -> std::io::Result<()> {
        let request = read_request(&mut client).await?;
        let is_write = !request.starts_with(b"GET") && request.windows(11).any(|part| part == b" /v1/secret");
        let number = if is_write { self.writes.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        let fault = self.fault.filter(|(_, nth)| *nth == number).map(|(fault, _)| fault);
        self.befallen.fetch_or(fault.is_some(), Ordering::SeqCst);
        if matches!(fault, Some(Fault::KillBefore)) {
            (self.kill)();
            return Ok(());
        }
        let mut server = TcpStream::connect(&self.server).await?;
        server.write_all(&request).await?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        match fault {
            Some(Fault::KillAfter) => (self.kill)(),
            Some(_) => {}
            None => client.write_all(&answer).await?,
        }
        Ok(())
    }
}

/// Reads a request, and asks for the connection to be closed after its answer.
async fn read_request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            let mut body = read.split_off(end + 4);
            let missing = length.unwrap_or_default().saturating_sub(body.len());
            let mut rest = vec![0; missing];
            client.read_exact(&mut rest).await?;
            body.extend(rest);
            return Ok([head.as_bytes(), b"\r\nConnection: close\r\n\r\n", &body].concat());
        }
        if client.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// How a life ended, and how many writes to Vault it took.
struct Ended {
    state: Value,
    writes: usize,
    befallen: bool,
}

async fn live(stage: &'static Stage, fault: Option<(Fault, usize)>) -> Result<Ended> {
    let namespace = stage.plane.namespace("vault-crash").await?;
    let view = stage.view(&namespace).await;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let vault = format!("http://{}", listener.local_addr()?);
    let (spec, ..) = stage.operator(stage.kubeconfig(), &namespace, &vault);
    let process = Arc::new(Mutex::new(Process::start(stage.plane.run_directory(), spec)?));
    let killed = Arc::clone(&process);
    let proxy = Arc::new(Proxy {
        server: stage.server.address().trim_start_matches("http://").to_owned(),
        fault,
        writes: AtomicUsize::new(0),
        befallen: AtomicBool::new(false),
        kill: Box::new(move || {
            let mut process = killed.lock().unwrap();
            process.kill();
            process.start_again().unwrap();
        }),
    });
    tokio::spawn(Arc::clone(&proxy).serve(listener));
    for step in 0..STEPS {
        change(&view, step).await?;
        let deadline = Instant::now() + LIMIT;
        while !is_converged(&view, step).await? {
            if Instant::now() >= deadline {
                let records = (view.record("Secret", "db").await?, view.record("Deployment", "app").await?);
                return Err(format!("step {step} is not done within {LIMIT:?}: {records:?}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    process.lock().unwrap().kill();
    let left = vault_state(&stage.server, &view).await?;
    let befallen = fault.is_none() || proxy.befallen.load(Ordering::SeqCst);
    Ok(Ended { state: left, writes: proxy.writes.load(Ordering::SeqCst), befallen })
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_crash_at_every_write_to_vault() {
    let stage = Stage::shared().await;
    let reference = live(stage, None).await.unwrap();
    // Two paths written, marked and written again; one moved to; three deleted and unmarked.
    assert_eq!(reference.writes, 4 + 2 + 2 + 6, "{}", reference.state);
    let faults = [Fault::KillBefore, Fault::KillAfter, Fault::ReplyLost];
    let points = (1..=reference.writes).flat_map(|nth| faults.map(|fault| (fault, nth)));
    let runs = stream::iter(points).map(async |point| (point, live(stage, Some(point)).await));
    let ended: Vec<_> = runs.buffer_unordered(AT_ONCE).collect().await;
    let mut wrong = Vec::new();
    for (point, ended) in ended {
        match ended {
            Ok(ended) if ended.befallen && ended.state == reference.state => {}
            Ok(ended) => wrong.push(format!("{point:?}: befallen {}, {}", ended.befallen, ended.state)),
            Err(error) => wrong.push(format!("{point:?}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "as it should be: {}\n{}", reference.state, wrong.join("\n"));
}
