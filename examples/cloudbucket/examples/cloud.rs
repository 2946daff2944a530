//! The cloud of the tests, to try the operator with.
#![allow(clippy::unwrap_used, dead_code, reason = "the cloud belongs to the tests, which also let it fail")]

#[path = "../tests/it/cloud.rs"]
mod cloud;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let cloud = cloud::FakeCloud::start_at("127.0.0.1:8000").await;
    println!("the cloud listens at {}; Ctrl-C ends it", cloud.server.url());
    tokio::signal::ctrl_c().await
}
