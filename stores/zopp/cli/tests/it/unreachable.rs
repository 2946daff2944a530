//! Servers that are not there, do not answer, or are something else.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use crate::home::Home;

const CONFIG: &str = r#"{"principals":[{"id":"01890a5d-ac96-774b-bcce-b302099a8057","name":"laptop","user_id":"u",
    "email":"a@b.c","private_key":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    "public_key":"03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"}]}"#;

fn home(server: &str) -> Home {
    let mut home = Home::new();
    home.write(".zopp/config.json", CONFIG);
    home.set("ZOPP_SERVER", server);
    home
}

/// A port with nobody behind it, and the address of it.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn a_refused_connection_fails_at_once() {
    let server = closed_port();
    let started = Instant::now();
    assert_eq!(
        home(&server).fails("workspace list", 1),
        format!(
            "Error: cannot list workspaces: GetPrincipalExport: server {server} cannot be reached (Unavailable): \
             Connection refused (os error 111)\n  Is zopp-server running there? --server or ZOPP_SERVER names another \
             address.\n"
        )
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_flag_counts_more_than_the_variable() {
    let (from_variable, from_flag) = (closed_port(), closed_port());
    let stderr = home(&from_variable).fails(&format!("--server {from_flag} workspace list"), 1);
    assert!(stderr.contains(&from_flag) && !stderr.contains(&from_variable), "{stderr}");
}

#[test]
fn c8_a_server_that_never_answers_fails_within_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    // The kernel accepts; nobody reads.
    let started = Instant::now();
    let stderr = home(&server).fails("workspace list --timeout 1", 1);
    assert_eq!(
        stderr,
        format!(
            "Error: cannot list workspaces: GetPrincipalExport: server {server} did not answer within 1 s \
             (DeadlineExceeded)\n  Is zopp-server running there? --server or ZOPP_SERVER names another address.\n"
        )
    );
    assert!(started.elapsed() < Duration::from_secs(8));
    drop(listener);
}

#[test]
fn a_web_server_is_not_a_zopp_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let stderr = home(&server).fails("workspace list --timeout 5", 1);
    // Whether its answer or its hanging up is noticed first is a matter of luck.
    let beginning = "Error: cannot list workspaces: GetPrincipalExport: ";
    assert!(stderr.starts_with(beginning) && stderr.contains(&server), "{stderr}");
}
