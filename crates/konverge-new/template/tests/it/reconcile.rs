//! Single runs of the controller, without an API server. They take milliseconds.

use konverge::{prelude::*, testing::TestRun};
use konverge_template::{Greeting, GreetingSpec, controller};

fn object(text: &str) -> Greeting {
    Greeting::new("first", GreetingSpec { text: text.to_owned() })
}

#[tokio::test]
async fn a_child_holds_the_text_and_is_corrected() {
    let run = TestRun::new(object("one")).apply(controller()).await.unwrap();
    assert_eq!(run.action(), Ok(Action::Done));
    assert_eq!(run.get::<ConfigMap>("first").unwrap().data.unwrap()["text"], "one");
    assert_eq!(run.status().unwrap().child.as_deref(), Some("first"));
    assert!(run.conditions().is_true("Ready"));
    assert_eq!(run.events()[0].reason.as_deref(), Some("Created"));

    // A second run finds everything in sync, and sends nothing.
    let run = run.then().apply(controller()).await.unwrap();
    assert!(run.writes().is_empty(), "{:?}", run.writes());

    // Someone else changes the child.
    let run = run.then().change::<ConfigMap>("first", |child| child.data = None).apply(controller()).await.unwrap();
    assert_eq!(run.get::<ConfigMap>("first").unwrap().data.unwrap()["text"], "one");
}

#[tokio::test]
async fn an_empty_text_is_refused() {
    let run = TestRun::new(object("")).apply(controller()).await.unwrap();
    assert_eq!(run.error().unwrap().reason, "NoText");
    assert!(run.conditions().is_true("Stalled"));
    assert!(run.get::<ConfigMap>("first").is_none());
}

#[tokio::test]
async fn the_child_is_deleted_before_the_object() {
    let run = TestRun::new(object("one")).apply(controller()).await.unwrap();
    let run = run.then().deleted().apply(controller()).await.unwrap();
    assert!(run.get::<ConfigMap>("first").is_none());
    assert!(run.object().is_none(), "{:?}", run.writes());
}
