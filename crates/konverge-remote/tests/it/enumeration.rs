//! Every call fails in every way, alone and in pairs: no duplicate, no orphan, no foreign item touched, and always in sync in the end.

use std::time::Duration;

use konverge_core::error::Classify;
use konverge_remote::{Adoption, Binding, Finalized, Mark};
use tokio::time::sleep;

use crate::world::{CLUSTER, Desired, Fault, INTERVAL, Object, Shared, process};

/// The events of an object and its item, in order.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// The object wants this name and content, and gets it.
    Want(&'static str, u32),
    /// Somebody changes the content of its item on the server.
    Edit,
    /// Somebody deletes its item on the server.
    Vanish,
    /// The status of the object is lost.
    LoseStatus,
    /// The record of the object is lost.
    LoseRecord,
    /// The object is deleted, and its item goes.
    Delete,
}

const STORIES: [&[Act]; 7] = [
    &[Act::Want("a", 1), Act::Delete],
    &[Act::Want("a", 1), Act::Edit, Act::Want("a", 2), Act::Delete],
    &[Act::Want("a", 1), Act::Vanish, Act::Want("a", 1), Act::Delete],
    &[Act::Want("a", 1), Act::Want("b", 1), Act::Delete],
    &[Act::Want("a", 1), Act::Want("b", 1), Act::LoseStatus, Act::Want("c", 1), Act::Delete],
    &[Act::Want("a", 1), Act::LoseStatus, Act::Want("b", 2), Act::Vanish, Act::Delete],
    // With its record, an item without a mark loses the proof that it was made for the object.
    &[Act::Want("a", 1), Act::LoseRecord, Act::Want("b", 2), Act::Delete],
];

/// One story under some faults. Returns how many calls it took.
async fn live<const MARKED: bool, const UNIQUE: bool>(story: &[Act], faults: &[(usize, Fault)]) -> usize {
    let world = Shared::default();
    let stranger = Mark::new(CLUSTER, "u-0", "");
    world.make_foreign("theirs", None);
    world.make_foreign("another", MARKED.then_some(stranger));
    world.lock().faults = faults.to_vec();
    let object = Object::new(&world);
    let mut remotes = process::<MARKED, UNIQUE>(&world);
    let (mut binding, case) = (Binding::default(), || format!("{story:?} {faults:?} {MARKED} {UNIQUE}"));
    for act in story {
        let ours = || {
            let world = world.lock();
            world.items.keys().filter(|id| !world.foreign.contains_key(*id)).cloned().collect::<Vec<_>>()
        };
        match act {
            Act::Edit => {
                let id = &ours()[0];
                world.lock().items.get_mut(id).unwrap().content = 77;
            }
            Act::Vanish => {
                let id = &ours()[0];
                world.lock().items.remove(id);
            }
            Act::LoseStatus => world.lock().status = None,
            Act::LoseRecord => world.lock().record = None,
            Act::Want(..) | Act::Delete => {}
        }
        // Long enough for the list to be read again.
        sleep(3 * INTERVAL).await;
        let mut is_done = false;
        for _ in 0..8 {
            is_done = match act {
                Act::Want(name, content) => {
                    binding = Binding::new(*name);
                    let desired = Desired { name: (*name).to_owned(), content: *content };
                    object.reconcile(&remotes, &binding, &desired).await.is_ok()
                }
                Act::Delete => object.delete(&remotes, &binding).await == Ok(Finalized::Done),
                _ => true,
            };
            if world.lock().is_dead {
                remotes = process::<MARKED, UNIQUE>(&world);
                is_done = false;
            }
            assert!(ours().len() <= 1, "a duplicate: {:?} in {}", ours(), case());
            let is_there = !ours().is_empty();
            let is_held = world.lock().is_held;
            assert!(is_held || !is_there, "an item before the finalizer in {}", case());
            if is_done {
                break;
            }
            sleep(Duration::from_secs(2)).await;
        }
        assert!(is_done, "{act:?} does not end in {}: {:?}", case(), world.lock().items);
        match act {
            Act::Want(name, content) => {
                let mine = ours();
                let world = world.lock();
                assert_eq!(mine.len(), 1, "{act:?} in {}", case());
                let item = &world.items[&mine[0]];
                assert_eq!((item.name.as_str(), item.content), (*name, *content), "{}", case());
                assert_eq!(world.status.as_deref(), Some(item.id.as_str()), "{}", case());
            }
            Act::Delete => assert_eq!(ours(), [""; 0], "an orphan in {}", case()),
            _ => {}
        }
        let world = world.lock();
        for (id, item) in &world.foreign {
            assert_eq!(world.items.get(id), Some(item), "touched in {}", case());
        }
    }
    world.lock().calls
}

async fn enumerate<const MARKED: bool, const UNIQUE: bool>(stories: &[&[Act]]) {
    for story in stories {
        let calls = live::<MARKED, UNIQUE>(story, &[]).await;
        assert!(calls >= 4, "{story:?}");
        for first in 0..calls {
            for fault in Fault::ALL {
                let longer = live::<MARKED, UNIQUE>(story, &[(first, fault)]).await;
                for second in first + 1..longer {
                    for other in Fault::ALL {
                        live::<MARKED, UNIQUE>(story, &[(first, fault), (second, other)]).await;
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn marked_items_with_unique_names_survive_every_pair_of_faults() {
    enumerate::<true, true>(&STORIES).await;
}

#[tokio::test(start_paused = true)]
async fn marked_items_whose_names_repeat_survive_every_pair_of_faults() {
    enumerate::<true, false>(&STORIES).await;
}

#[tokio::test(start_paused = true)]
async fn items_without_marks_survive_every_pair_of_faults() {
    enumerate::<false, true>(&STORIES[..6]).await;
}

/// Under every fault, an item of another owner is neither taken over nor deleted.
#[tokio::test(start_paused = true)]
async fn an_item_of_somebody_else_is_refused_under_every_fault() {
    for mark in [None, Some(Mark::new(CLUSTER, "u-9", "")), Some(Mark::new("c-2", "u-1", ""))] {
        for adoption in [Adoption::Never, Adoption::ByName] {
            if mark.is_none() && adoption == Adoption::ByName {
                continue;
            }
            for fault in (0..4).flat_map(|at| Fault::ALL.map(|fault| (at, fault))) {
                let world = Shared::default();
                let id = world.make_foreign("a", mark.clone());
                world.lock().faults = vec![fault];
                let object = Object::new(&world);
                let binding = Binding::new("a").with(|binding| binding.adoption = adoption.clone());
                let desired = Desired { name: "a".to_owned(), content: 1 };
                let mut remotes = process::<true, true>(&world);
                let mut reason = "";
                for _ in 0..4 {
                    reason = object.reconcile(&remotes, &binding, &desired).await.unwrap_err().reason();
                    if world.lock().is_dead {
                        remotes = process::<true, true>(&world);
                    }
                    sleep(Duration::from_secs(2)).await;
                }
                assert_eq!(reason, if mark.is_none() { "NameTaken" } else { "NotOurs" });
                assert_eq!(object.delete(&remotes, &binding).await, Ok(Finalized::Done));
                let world = world.lock();
                assert_eq!(world.items.get(&id), world.foreign.get(&id), "{mark:?} {fault:?}");
                assert!(!world.is_held, "nothing of ours is outside");
            }
        }
    }
}

/// An adopted item survives its object, whatever goes wrong.
#[tokio::test(start_paused = true)]
async fn an_adopted_item_survives_its_object_under_every_fault() {
    for adoption in [Adoption::ByName, Adoption::ById("i-1".to_owned())] {
        for observe_adopted in [true, false] {
            for fault in (0..6).flat_map(|at| Fault::ALL.map(|fault| (at, fault))) {
                let world = Shared::default();
                let id = world.make_foreign("a", None);
                world.lock().faults = vec![fault];
                let object = Object::new(&world);
                let binding = Binding::new("a").with(|binding| {
                    binding.adoption = adoption.clone();
                    binding.observe_adopted = observe_adopted;
                });
                let desired = Desired { name: "a".to_owned(), content: 1 };
                let mut remotes = process::<false, true>(&world);
                let mut last = None;
                for _ in 0..5 {
                    last = Some(object.reconcile(&remotes, &binding, &desired).await);
                    if world.lock().is_dead {
                        remotes = process::<false, true>(&world);
                    }
                    sleep(Duration::from_secs(2)).await;
                }
                assert_eq!(last.unwrap().unwrap().id, id, "{fault:?}");
                let content = if observe_adopted { 99 } else { 1 };
                assert_eq!(world.lock().items[&id].content, content);
                assert_eq!(object.delete(&remotes, &binding).await, Ok(Finalized::Done));
                let world = world.lock();
                assert_eq!(world.items.len(), 1, "neither deleted nor made twice");
                assert!(world.items.contains_key(&id));
            }
        }
    }
}
