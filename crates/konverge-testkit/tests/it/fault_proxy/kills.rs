use std::{
    env,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_testkit::{Process, ProcessSpec, eventually, fault_proxy::JournalEntry};
use kube::api::PostParams;

use super::{Rig, SOON, control_plane, map};

/// The example operator, which cargo builds with the tests.
pub(crate) fn three_config_maps() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/three_config_maps");
    assert!(path.is_file(), "{} is missing; `cargo build -p konverge-testkit --examples` makes it", path.display());
    path
}

#[tokio::test]
async fn a_process_is_killed_before_and_after_its_second_write() {
    for (phase, left) in [("before", vec!["one"]), ("after", vec!["one", "two"])] {
        let rig = Rig::new().await;
        let wish = ConfigMap { data: Some([("sky".into(), "blue".into())].into()), ..map("wish") };
        rig.direct.create(&PostParams::default(), &wish).await.unwrap();

        let operator: Arc<Mutex<Option<Process>>> = Arc::default();
        let killed = Arc::clone(&operator);
        rig.proxy.on_kill("operator", move || killed.lock().unwrap().as_mut().unwrap().kill());
        rig.plan(&format!("- {{ when: {{ phase: {phase}, mutating: true, nth: 2 }}, then: {{ kill: operator }} }}"));
        let spec = ProcessSpec::new(format!("killed-{phase}"), three_config_maps());
        let spec = spec.arg(rig.proxy.kubeconfig()).arg(&rig.namespace);
        let started = Process::start(control_plane().await.run_directory(), spec).unwrap();
        *operator.lock().unwrap() = Some(started);

        let dead = || async { operator.lock().unwrap().as_ref().unwrap().pid().is_none().then_some(()) };
        eventually(SOON, dead).await.unwrap();
        let mut found = Vec::new();
        for name in ["one", "two", "three"] {
            found.extend(rig.exists(name).await.then_some(name));
        }
        assert_eq!(found, left, "{phase}");
        let writes: Vec<JournalEntry> =
            rig.proxy.journal().into_iter().filter(|entry| entry.mutation.is_some()).collect();
        let committed: Vec<bool> = writes.iter().map(JournalEntry::is_committed).collect();
        assert_eq!(committed, [true, phase == "after"]);
        assert_eq!((writes[1].mutation, writes[1].client_code), (Some(2), None));
    }
}
