//! The list of the tests, to try the operator with.
#![allow(clippy::unwrap_used, dead_code, reason = "the list belongs to the tests, which also let it fail")]

#[path = "../tests/it/list.rs"]
mod list;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let list = list::FakeList::start_at("127.0.0.1:8000").await;
    println!("the list listens at {}; Ctrl-C ends it", list.url());
    tokio::signal::ctrl_c().await
}
