//! The client behind a proxy that breaks requests and answers, before each target of this machine.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use konverge_core::error::{Classify, ErrorClass};
use konverge_openzro::{
    Cause, Collection, Credential, Deletion, Effect, Limits, OpenZro, OpenZroConfig, OpenZroError, types::Group,
};
use konverge_testkit::eventually;
use konverge_testkit_stores::{Fault, HttpFront};
use serde_json::json;

use crate::{
    client::{fields, token},
    target::Target,
};

const SOON: Duration = Duration::from_mins(1);

/// A client with a short deadline behind a front.
async fn behind(target: &Target) -> (HttpFront, OpenZro) {
    let front = HttpFront::start(target.url()).await.unwrap();
    let limits = Limits::default().with(|limits| limits.deadline = Duration::from_secs(2));
    let config = OpenZroConfig::new(&front.url(), token(&target.account().tokens["admin"])).unwrap().limits(limits);
    (front, OpenZro::new(&config))
}

async fn create(openzro: &OpenZro, name: &str) -> Result<String, OpenZroError> {
    let created = openzro.create(&Collection::Groups, &fields(json!({ "name": name }))).await?;
    Ok(created.object.id().to_owned())
}

#[tokio::test]
async fn an_error_says_whether_the_request_may_have_taken_effect() {
    for target in Target::all().await {
        for (fault, effect, took_effect, reason) in [
            // The client cannot tell these two apart.
            (Fault::DropRequest, Effect::Unknown, false, "OpenZroUnreachable"),
            (Fault::DropReply, Effect::Unknown, true, "OpenZroUnreachable"),
            (Fault::Truncate(9), Effect::Unknown, true, "InvalidAnswer"),
            (Fault::Hang, Effect::Unknown, false, "OpenZroTimeout"),
            (Fault::html_404(), Effect::Unknown, false, "InvalidAnswer"),
            (Fault::too_many_requests(1), Effect::None, false, "RateLimited"),
        ] {
            let (front, openzro) = behind(&target).await;
            let planned = fault.clone();
            front.plan(move |seen| (seen.method == Method::POST).then(|| planned.clone()));
            let error = create(&openzro, "g").await.unwrap_err();
            assert_eq!((error.effect(), error.reason()), (effect, reason), "{fault:?}: {error}");
            // After the pause that a 429 asks for, the list tells what happened.
            let groups = eventually(SOON, || async { openzro.list(&Collection::Groups).await.ok() }).await.unwrap();
            let exists = groups.iter().any(|group| group.raw()["name"] == "g");
            assert_eq!(exists, took_effect, "{fault:?} on the {}", target.name());
        }
    }
}

#[tokio::test]
async fn a_page_of_a_proxy_deletes_nothing_and_counts_as_no_absence() {
    for target in Target::all().await {
        let (front, openzro) = behind(&target).await;
        let group = Collection::Groups.place(create(&openzro, "g").await.unwrap());
        front.plan(|_| Some(Fault::html_404()));
        let errors = [openzro.find(&group).await.unwrap_err(), openzro.delete(&group).await.unwrap_err()];
        assert!(
            errors.iter().all(|error| matches!(error.cause, Cause::Foreign { .. }) && !error.is_absent()),
            "{errors:?}"
        );
        front.plan(|seen| (seen.method == Method::DELETE).then_some(Fault::DropReply));
        assert_eq!(openzro.delete(&group).await.unwrap_err().effect(), Effect::Unknown);
        front.plan(|_| None);
        assert_eq!(openzro.delete(&group).await.unwrap(), Deletion::Absent, "the lost deletion had taken effect");
    }
}

#[tokio::test]
async fn a_token_that_is_refused_costs_one_request_per_pause_and_its_replacement_takes_effect() {
    for target in Target::all().await {
        let front = HttpFront::start(target.url()).await.unwrap();
        let account = target.account();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, &account.tokens["expired"]).unwrap();
        let openzro = OpenZro::new(&OpenZroConfig::new(&front.url(), Credential::file(&file)).unwrap());
        let error = openzro.list(&Collection::Groups).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Unauthenticated { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains(&account.tokens["expired"]));
        for _ in 0..100 {
            let error = openzro.list(&Collection::Groups).await.unwrap_err();
            assert!(error.to_string().contains("token"), "each caller is told why: {error}");
            assert!(matches!(error.class(), ErrorClass::After(_)) && error.concerns_every_request());
        }
        // The machine may be slow, so that a pause ends meanwhile.
        assert!(front.journal().len() <= 3, "{:?}", front.journal());
        assert!(openzro.outage().is_some_and(|cause| cause.contains("token")), "{:?}", openzro.outage());
        std::fs::write(&file, format!("{}\n", account.tokens["admin"])).unwrap();
        eventually(SOON, || async { openzro.list(&Collection::Groups).await.ok() }).await.unwrap();
        assert_eq!(openzro.outage(), None);
    }
}

#[tokio::test]
async fn a_hang_costs_only_its_caller() {
    let target = Target::double().await;
    let (front, openzro) = behind(&target).await;
    front.plan(|seen| seen.path.contains("/policies").then_some(Fault::Hang));
    let hangs = openzro.list(&Collection::Policies);
    let answered = async {
        for _ in 0..20 {
            openzro.list(&Collection::Groups).await.unwrap();
        }
    };
    let (hung, ()) = tokio::join!(hangs, answered);
    assert!(matches!(hung.unwrap_err().cause, Cause::Timeout { .. }));
    assert!(openzro.outage().is_none());
}

#[tokio::test]
async fn requests_keep_to_the_budget_and_each_is_observed() {
    let target = Target::double().await;
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let limits = Limits::default().with(|limits| {
        limits.rate = NonZeroU32::new(20);
        limits.burst = NonZeroU32::new(5).unwrap();
    });
    let config = OpenZroConfig::new(target.url(), token(&target.account().tokens["admin"])).unwrap().limits(limits);
    let config = config.observer(Arc::new(move |call| {
        assert_eq!((call.route, call.status), ("/groups", Some(200)));
        counts.fetch_add(1, Ordering::SeqCst);
    }));
    let openzro = OpenZro::new(&config);
    let began = tokio::time::Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..25 {
        let openzro = openzro.clone();
        calls.spawn(async move { openzro.list(&Collection::Groups).await.map(drop) });
    }
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    // 5 at once and 20 more at 20 per second.
    assert!(began.elapsed() >= Duration::from_millis(950), "{:?}", began.elapsed());
    assert_eq!(count.load(Ordering::SeqCst), 25);
}

#[tokio::test]
async fn a_list_of_another_form_is_never_an_empty_one() {
    for target in Target::all().await {
        let (front, openzro) = behind(&target).await;
        let groups = async |body: &str| {
            let body = body.to_owned();
            let headers = vec![("content-type", "application/json".to_owned())];
            front.plan(move |_| Some(Fault::Answer { status: 200, headers: headers.clone(), body: body.clone() }));
            openzro.list_as::<Group>(&Collection::Groups).await
        };
        assert_eq!(groups("null").await.unwrap(), []);
        assert_eq!(groups(r#"[{"id":"g","name":"n","peers":null}]"#).await.unwrap()[0].name, "n");
        for body in ["{}", r#""g""#, "[1]", "[null]", r#"[{"id":"g"}"#, "[", ""] {
            let error = groups(body).await.unwrap_err();
            assert!(matches!(error.cause, Cause::Foreign { .. }), "{body}: {error}");
        }
        // One group that cannot be read: nothing is known of the others, and the error names it.
        let error = groups(r#"[{"id":"f"},{"id":"g","name":["n"]}]"#).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Unreadable(_)) && error.to_string().contains("group g"), "{error}");
        assert_eq!(
            (error.effect(), error.reason(), error.class()),
            (Effect::None, "InvalidAnswer", ErrorClass::Transient)
        );
        assert!(!error.concerns_every_request());
    }
}
