//! The memory that a list needs. A test program of its own, because it measures its process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{fs, net::SocketAddr};

use konverge_core::SecretValue;
use konverge_openzro::{Collection, Credential, OpenZro, OpenZroConfig, types::Reference};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

const GROUPS: usize = 6000;
const PEERS: usize = 10;

fn group(number: usize) -> String {
    let peer = |peer: usize| format!(r#"{{"id":"d2{peer:018}","name":"laptop-{peer}.openzro.selfhosted"}}"#);
    let peers = (number..number + PEERS).map(peer).collect::<Vec<_>>().join(",");
    format!(r#"{{"id":"d1{number:018}","name":"group-{number}","peers":[{peers}],"peers_count":{PEERS}}}"#)
}

/// Serves many groups, and empty collections of all else. It makes each group when it sends it, so that it needs no memory itself.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            answer(connection).await;
        }
    });
    address
}

async fn answer(connection: TcpStream) {
    let mut connection = BufReader::new(connection);
    let (mut request, mut line) = (String::new(), String::new());
    connection.read_line(&mut request).await.unwrap();
    while connection.read_line(&mut line).await.unwrap() > 2 {
        line.clear();
    }
    let connection = connection.get_mut();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n[";
    connection.write_all(head.as_bytes()).await.unwrap();
    for number in (0..GROUPS).filter(|_| request.contains("/groups ")) {
        let comma = if number == 0 { "" } else { "," };
        connection.write_all(format!("{comma}{}", group(number)).as_bytes()).await.unwrap();
    }
    connection.write_all(b"]").await.unwrap();
    connection.shutdown().await.unwrap();
}

/// A line of the process's status, in bytes.
fn status(key: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_list_needs_little_more_memory_than_its_answer() {
    let token = Credential::value(SecretValue::from("nbp_x".to_owned()));
    let openzro = OpenZro::new(&OpenZroConfig::new(&format!("http://{}", serve().await), token).unwrap());
    // The client makes its connections and buffers.
    assert!(openzro.list(&Collection::Policies).await.unwrap().is_empty());
    let size: usize = (0..GROUPS).map(|number| group(number).len() + 1).sum();

    let before = status("VmRSS");
    let groups = openzro.list_as::<Reference>(&Collection::Groups).await.unwrap();
    let peak = status("VmHWM").saturating_sub(before);
    assert_eq!((groups.len(), &*groups[GROUPS - 1].name), (GROUPS, &*format!("group-{}", GROUPS - 1)));
    assert!(peak < 3 * size, "a list of {size} bytes took {peak} bytes");

    // The whole content takes much more, which shows that the measure would notice it.
    let groups = openzro.list(&Collection::Groups).await.unwrap();
    let peak = status("VmHWM").saturating_sub(before);
    assert!(groups.len() == GROUPS && peak > 4 * size, "{size} bytes of JSON took {peak} bytes");
}
