//! `zopp-server doctor`: everything that `serve` depends on, judged, with the next step.
//!
//! It looks and changes nothing, with one exception: if no server runs, the database is opened as `serve` opens it, which brings its
//! schema up to date.

use std::{
    fmt,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    args::ServeArguments,
    clock,
    serve::Tls,
    store::{Location, Store},
};

/// A certificate that ends within it is worth a warning: two weeks leave time to find out why it was not renewed.
const CERTIFICATE_SOON: i64 = 14 * 24 * 3600;
/// Less free space than this, in bytes, is worth a warning; SQLite's log alone can take some tens of megabytes.
const LITTLE_SPACE: u64 = 256 * 1024 * 1024;
/// How long a running server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How good or bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grade {
    /// As it should be.
    Good,
    /// The server serves, and somebody should look at this.
    Warning,
    /// The server does not serve, or not those it should.
    Problem,
}

/// The judgement on one thing that `serve` depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How good or bad it is.
    pub grade: Grade,
    /// The thing, such as `database`.
    pub subject: &'static str,
    /// Its state, and the next step if there is one.
    pub text: String,
}

impl Finding {
    fn new(grade: Grade, subject: &'static str, text: impl Into<String>) -> Self {
        Self { grade, subject, text: text.into() }
    }

    /// Does the server not serve because of it?
    pub fn is_problem(&self) -> bool {
        self.grade == Grade::Problem
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grade = match self.grade {
            Grade::Good => "ok",
            Grade::Warning => "warning",
            Grade::Problem => "problem",
        };
        write!(f, "{grade:<8} {}: {}", self.subject, self.text)
    }
}

/// One line for each finding.
pub fn print(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    findings.iter().try_for_each(|finding| writeln!(out, "{finding}"))
}

/// Examines everything that `serve` with these arguments depends on.
pub async fn examine(database: &Location, arguments: &ServeArguments) -> Vec<Finding> {
    let answer = ask(&arguments.health_addr).await;
    let mut findings = vec![running(answer.as_deref(), &arguments.health_addr)];
    if answer.is_none() {
        findings.push(address(&arguments.addr, "--addr").await);
        findings.push(address(&arguments.health_addr, "--health-addr").await);
    }
    findings.push(open(database, answer.is_some()).await);
    if let Location::Sqlite { path, .. } = database {
        findings.extend(file(path));
    }
    findings.push(tls(arguments));
    findings.push(if arguments.open_registration {
        Finding::new(
            Grade::Warning,
            "registration",
            "--open-registration lets everybody who reaches the server become a user; leave it out",
        )
    } else {
        Finding::new(Grade::Good, "registration", "new users need an invite")
    });
    findings.push(memory(&konverge_zopp_memory::protect()));
    findings
}

/// The answer of a server at the health address about its readiness; `None` if nobody is there.
async fn ask(address: &str) -> Option<String> {
    let asked = async {
        let mut connection = TcpStream::connect(reachable(address)).await.ok()?;
        let request = "GET /readyz?verbose HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        connection.take(64 * 1024).read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Some(String::new()))
}

/// The address to ask where the server listens on all of this machine.
fn reachable(address: &str) -> String {
    match address.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => address.to_owned(),
    }
}

fn running(answer: Option<&str>, address: &str) -> Finding {
    let subject = "server";
    match answer {
        None => Finding::new(Grade::Good, subject, format!("none runs at {address} (--health-addr)")),
        Some(answer) if answer.starts_with("HTTP/1.1 200") => {
            Finding::new(Grade::Good, subject, format!("ready, as {address} says"))
        }
        Some(answer) => {
            let failed: Vec<_> = answer.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
            let why = if failed.is_empty() {
                format!(
                    "what answers at {address} (--health-addr) is no zopp-server, or it hangs; choose another port or look at its log"
                )
            } else {
                format!("not ready: {}; its log says more", failed.join("; "))
            };
            Finding::new(Grade::Problem, subject, why)
        }
    }
}

async fn address(address: &str, flag: &'static str) -> Finding {
    match TcpListener::bind(address).await {
        Ok(_) => Finding::new(Grade::Good, flag, format!("{address} is free")),
        Err(error) => {
            Finding::new(Grade::Problem, flag, format!("cannot listen on {address}: {error}; choose another address"))
        }
    }
}

async fn open(database: &Location, is_running: bool) -> Finding {
    let subject = "database";
    if is_running {
        return Finding::new(Grade::Good, subject, "open in the running server");
    }
    if let Location::Sqlite { path, create } = database
        && !path.exists()
    {
        let path = path.display();
        return if *create {
            Finding::new(Grade::Warning, subject, format!("{path} does not exist; serve and init make an empty one"))
        } else {
            Finding::new(Grade::Problem, subject, format!("{path} does not exist; check the path, or add ?mode=rwc"))
        };
    }
    match Store::open(database).await {
        Ok(store) => {
            let answer = store.ping().await;
            store.close().await;
            match answer {
                Ok(()) => Finding::new(Grade::Good, subject, format!("{database} can be opened and answers")),
                Err(error) => Finding::new(
                    Grade::Problem,
                    subject,
                    format!("{database} does not answer: {error}; check its disk"),
                ),
            }
        }
        Err(error) => Finding::new(Grade::Problem, subject, error.to_string()),
    }
}

/// The mode of the database's file, and the space on its disk.
fn file(path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(metadata) = std::fs::metadata(path) {
        let mode = metadata.permissions().mode() & 0o777;
        let is_private = mode | 0o700 == 0o700;
        let (grade, next) =
            if is_private { (Grade::Good, "") } else { (Grade::Warning, "; others can read it: chmod 600") };
        findings.push(Finding::new(grade, "database file", format!("{} has mode {mode:o}{next}", path.display())));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(space) = rustix::fs::statvfs(folder) {
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let grade = if free < LITTLE_SPACE { Grade::Warning } else { Grade::Good };
        findings.push(Finding::new(
            grade,
            "disk",
            format!("{} MiB are free in {}", free / (1024 * 1024), folder.display()),
        ));
    }
    findings
}

fn tls(arguments: &ServeArguments) -> Finding {
    let outcome = arguments.tls().read().and_then(|tls| tls.as_ref().map(Tls::expires_at).transpose());
    match outcome {
        Err(error) => Finding::new(Grade::Problem, "TLS", error.to_string()),
        Ok(Some(expires_at)) => certificate(expires_at, clock::now()),
        Ok(None) if is_local(&arguments.addr) => {
            Finding::new(Grade::Good, "TLS", "none; only this machine reaches the server")
        }
        Ok(None) => Finding::new(
            Grade::Warning,
            "TLS",
            "none, and other machines reach the server: everybody on the way can read requests; use --tls-cert and --tls-key",
        ),
    }
}

fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Judges a certificate by the time that is left.
fn certificate(expires_at: i64, now: i64) -> Finding {
    let time =
        jiff::Timestamp::from_second(expires_at).map_or_else(|_| expires_at.to_string(), |time| time.to_string());
    let (grade, text) = match expires_at - now {
        ..=0 => (
            Grade::Problem,
            format!("the certificate ended at {time}; renew it, the server takes it without a restart"),
        ),
        left if left < CERTIFICATE_SOON => (Grade::Warning, format!("the certificate ends soon, at {time}; renew it")),
        _ => (Grade::Good, format!("the certificate is good until {time}")),
    };
    Finding::new(grade, "TLS", text)
}

fn memory(protection: &konverge_zopp_memory::Protection) -> Finding {
    let is_whole = protection.dumps.is_none() && protection.swap == konverge_zopp_memory::Swap::Locked;
    Finding::new(if is_whole { Grade::Good } else { Grade::Warning }, "memory", protection.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_judged_by_what_is_left_of_it() {
        let day = 24 * 3600;
        for (left, grade) in [
            (-1, Grade::Problem),
            (0, Grade::Problem),
            (day, Grade::Warning),
            (14 * day, Grade::Good),
            (90 * day, Grade::Good),
        ] {
            assert_eq!(certificate(1_700_000_000 + left, 1_700_000_000).grade, grade, "{left}");
        }
    }

    #[test]
    fn a_running_server_is_judged_by_its_readiness() {
        let grade = |answer: Option<&str>| running(answer, "x:1").grade;
        assert_eq!(grade(None), Grade::Good);
        assert_eq!(grade(Some("HTTP/1.1 200 OK\r\n\r\n[+]database ok\n")), Grade::Good);
        let sick =
            running(Some("HTTP/1.1 503 Service Unavailable\r\n\r\n[-]database failed: away\n[+]shutdown ok\n"), "x:1");
        assert_eq!(
            (sick.grade, sick.text.as_str()),
            (Grade::Problem, "not ready: database failed: away; its log says more")
        );
        assert!(running(Some("SSH-2.0"), "x:1").text.contains("no zopp-server"));
    }

    #[test]
    fn addresses_of_all_of_the_machine_are_asked_at_home() {
        for (address, expected, local) in [
            ("0.0.0.0:8080", "127.0.0.1:8080", false),
            ("[::]:8080", "[::1]:8080", false),
            ("localhost:1", "localhost:1", true),
            ("[::1]:1", "[::1]:1", true),
            ("zopp.example.com:1", "zopp.example.com:1", false),
        ] {
            assert_eq!((reachable(address).as_str(), is_local(address)), (expected, local), "{address}");
        }
    }
}
