//! A source outside the cluster wakes the objects that it concerns.

use std::collections::VecDeque;

use konverge::{
    external::{Change, Options, Polled, Source, SourceError},
    prelude::*,
};

use crate::stage::{Place, Prober, operator};

/// Tells what it is told to tell, and fails first.
struct Scripted(VecDeque<Result<Vec<Change<String>>, SourceError>>);

impl Source for Scripted {
    type Item = String;

    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn poll(&mut self) -> Result<Polled<String>, SourceError> {
        match self.0.pop_front() {
            Some(answer) => answer.map(Polled::from),
            None => Ok(Vec::new().into()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_25_a_source_is_a_trigger_with_health_metrics_and_pauses() {
    let (place, prober) = (Place::new().await, Prober::default());
    let runs = prober.runs.clone();
    let failure = SourceError::transient("Unavailable", std::io::Error::other("not now"));
    let script = [Err(failure), Ok(Vec::new()), Ok(vec![Change::Modified("outside".to_owned())])];
    place.create_probe("outside", "ok").await;
    let controller = Controller::new(prober).watches_outside(
        "scripted",
        Scripted(script.into()),
        Options::every(Duration::from_millis(200)),
        |change, probes| {
            let (Change::Added(name) | Change::Modified(name) | Change::Removed(name)) = change;
            probes.keys().into_iter().filter(|key| key.name == *name).collect::<Vec<_>>()
        },
    );
    // It is ready once the source has answered, which it does at the second attempt.
    let running = place.run(operator(controller), &[]).await;
    let is_woken = |run: &crate::stage::Run| run.reasons.contains(&"scripted");
    let woken = konverge_testkit::eventually(crate::stage::LIMIT, || {
        std::future::ready(runs.of("outside").iter().any(is_woken).then_some(()))
    });
    woken.await.unwrap();
    running.measures(r#"source="scripted""#).await;
}
