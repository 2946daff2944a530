//! A server and an object of the cluster in memory, with a fault at a chosen call.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use konverge_remote::{
    Binding, Deletion, Failure, Finalized, Interest, Ledger, Mark, ObjectEvent, Remote, Remotes, Settings, Subject,
};
use tokio::time::sleep;

pub(crate) const CLUSTER: &str = "c-1";
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// The content by which a former operator of the same objects is recognized.
pub(crate) const FORMER: u32 = 1234;

/// The content of an item into which others have put something.
pub(crate) const VISITED: u32 = 4321;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before the call arrives.
    CrashBefore,
    /// The process dies after the call took effect.
    CrashAfter,
    /// The call takes effect, and its reply is lost.
    LostReply,
    /// The call does not arrive, and the caller cannot know.
    Unreachable,
    /// The call is refused, and the caller knows that it had no effect.
    Refused,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] =
        [Self::CrashBefore, Self::CrashAfter, Self::LostReply, Self::Unreachable, Self::Refused];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) mark: Option<Mark>,
    pub(crate) content: u32,
}

/// The content that an object wants, under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) name: String,
    pub(crate) content: u32,
}

/// The state of everything outside the process.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) items: BTreeMap<String, Item>,
    made: usize,
    /// Items that somebody else made, as they must stay.
    pub(crate) foreign: BTreeMap<String, Item>,
    pub(crate) record: Option<String>,
    pub(crate) is_held: bool,
    pub(crate) status: Option<String>,
    /// Calls of this process and earlier ones.
    pub(crate) calls: usize,
    /// Calls that changed something.
    pub(crate) writes: usize,
    pub(crate) lists: usize,
    pub(crate) faults: Vec<(usize, Fault)>,
    pub(crate) is_dead: bool,
    pub(crate) does_ignore_updates: bool,
    pub(crate) events: Vec<ObjectEvent>,
}

#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Somebody else makes an item.
    pub(crate) fn make_foreign(&self, name: &str, mark: Option<Mark>) -> String {
        let mut world = self.lock();
        let item = world.make(name, 99, mark);
        world.foreign.insert(item.id.clone(), item.clone());
        item.id
    }

    /// One call, which goes wrong if it is its turn. A call that changes something counts as a write.
    async fn call<T>(&self, is_write: bool, act: impl FnOnce(&mut World) -> Result<T, Failure>) -> Result<T, Failure> {
        // Time passes, so that no list begins in the moment in which a create ends.
        sleep(Duration::from_millis(1)).await;
        let mut world = self.lock();
        let world = &mut *world;
        if world.is_dead {
            return Err(Failure::unavailable("server", "Dead", "the process is dead"));
        }
        let index = world.calls;
        world.calls += 1;
        let fault = world.faults.iter().find(|(at, _)| *at == index).map(|(_, fault)| *fault);
        let unavailable = || Failure::unavailable("server", "Unavailable", "no answer");
        match fault {
            Some(Fault::CrashBefore) => {
                world.is_dead = true;
                return Err(unavailable());
            }
            Some(Fault::Unreachable) => return Err(unavailable()),
            Some(Fault::Refused) => return Err(Failure::refused("Refused", "no")),
            Some(Fault::CrashAfter | Fault::LostReply) | None => {}
        }
        let result = act(world);
        world.writes += usize::from(is_write && result.is_ok());
        match fault {
            None => result,
            Some(Fault::CrashAfter) => {
                world.is_dead = true;
                Err(unavailable())
            }
            Some(_) => Err(unavailable()),
        }
    }

    /// The object gets its status, in the one write at the end of a run.
    async fn write_status(&self, id: &str) -> Result<(), Failure> {
        if self.lock().status.as_deref() == Some(id) {
            return Ok(());
        }
        self.call(true, |world| {
            world.status = Some(id.to_owned());
            Ok(())
        })
        .await
    }
}

impl World {
    pub(crate) fn make(&mut self, name: &str, content: u32, mark: Option<Mark>) -> Item {
        self.made += 1;
        let item = Item { id: format!("i-{}", self.made), name: name.to_owned(), mark, content };
        self.items.insert(item.id.clone(), item.clone());
        item
    }
}

/// A server whose items bear marks or not, and whose names are unique or not.
pub(crate) struct Server<const MARKED: bool, const UNIQUE: bool>(pub(crate) Shared);

impl<const MARKED: bool, const UNIQUE: bool> Remote for Server<MARKED, UNIQUE> {
    type Item = Item;
    type Desired = Desired;

    const NOUN: &'static str = "item";
    const NAMES_ARE_UNIQUE: bool = UNIQUE;
    const IS_MARKED: bool = MARKED;
    const HAS_FOREIGN_CONTENT: bool = true;

    async fn list(&self, _: &str) -> Result<Vec<Item>, Failure> {
        let listed = self.0.call(false, |world| {
            world.lists += 1;
            Ok(world.items.values().cloned().collect())
        });
        listed.await
    }

    async fn get(&self, _: &str, id: &str) -> Result<Option<Item>, Failure> {
        self.0.call(false, |world| Ok(world.items.get(id).cloned())).await
    }

    async fn create(&self, _: &str, desired: &Desired, mark: &Mark) -> Result<Item, Failure> {
        let create = |world: &mut World| {
            if UNIQUE && world.items.values().any(|item| item.name == desired.name) {
                return Err(Failure::permanent("NameTaken", "there is one"));
            }
            Ok(world.make(&desired.name, desired.content, MARKED.then(|| mark.clone())))
        };
        self.0.call(true, create).await
    }

    async fn update(&self, _: &str, item: &Item, desired: &Desired, mark: &Mark) -> Result<Item, Failure> {
        let update = |world: &mut World| {
            let is_ignored = world.does_ignore_updates;
            let known = world.items.get_mut(&item.id).ok_or_else(|| Failure::permanent("NotFound", "gone"))?;
            if !is_ignored {
                known.name.clone_from(&desired.name);
                known.content = desired.content;
                known.mark = MARKED.then(|| mark.clone());
            }
            Ok(known.clone())
        };
        self.0.call(true, update).await
    }

    async fn delete(&self, _: &str, item: &Item) -> Result<Deletion, Failure> {
        let delete = |world: &mut World| {
            world.items.remove(&item.id);
            Ok(Deletion::Gone)
        };
        self.0.call(true, delete).await
    }

    async fn unmark(&self, _: &str, item: &Item) -> Result<Item, Failure> {
        let unmark = |world: &mut World| {
            let known = world.items.get_mut(&item.id).ok_or_else(|| Failure::permanent("NotFound", "gone"))?;
            known.mark = None;
            Ok(known.clone())
        };
        self.0.call(true, unmark).await
    }

    fn id(item: &Item) -> &str {
        &item.id
    }

    fn name(item: &Item) -> &str {
        &item.name
    }

    fn mark(item: &Item) -> Option<Mark> {
        item.mark.clone()
    }

    fn is_of_former_operator(item: &Item) -> bool {
        item.content == FORMER
    }

    fn foreign_content(item: &Item) -> Option<String> {
        (item.content == VISITED).then(|| "a guest".to_owned())
    }

    fn differences(item: &Item, desired: &Desired, mark: &Mark) -> Result<Vec<&'static str>, Failure> {
        let name = (item.name != desired.name).then_some("name");
        let content = (item.content != desired.content).then_some("content");
        let mark = (MARKED && item.mark.as_ref() != Some(mark)).then_some("mark");
        Ok(name.into_iter().chain(content).chain(mark).collect())
    }
}

/// The object, in a run.
pub(crate) struct Object {
    pub(crate) world: Shared,
    pub(crate) name: &'static str,
    pub(crate) uid: &'static str,
    pub(crate) deleting_for: Duration,
    pub(crate) is_dry_run: bool,
    /// Whether another replica leads.
    pub(crate) is_deposed: bool,
}

impl Object {
    pub(crate) fn new(world: &Shared) -> Self {
        let (name, uid, deleting_for) = ("a", "u-1", Duration::ZERO);
        Self { world: world.clone(), name, uid, deleting_for, is_dry_run: false, is_deposed: false }
    }

    /// Tells the interest of the object, as its watch does.
    pub(crate) fn declare<R: Remote>(&self, remotes: &Remotes<R>, created: i64, mut interest: Interest) {
        self.uid.clone_into(&mut interest.uid);
        interest.created = created;
        remotes.interest(&self.subject(), Some(interest));
    }

    /// A run of a reconciler: the item, then the status.
    pub(crate) async fn reconcile<R: Remote<Item = Item, Desired = Desired>>(
        &self,
        remotes: &Remotes<R>,
        binding: &Binding,
        desired: &Desired,
    ) -> Result<Item, Failure> {
        let status = self.world.lock().status.clone();
        let binding = binding.clone().with(|binding| binding.id = status);
        let synced = remotes.apply(self, &binding, desired).await?;
        self.world.write_status(&synced.item.id).await?;
        Ok((*synced.item).clone())
    }

    pub(crate) async fn delete<R: Remote>(
        &self,
        remotes: &Remotes<R>,
        binding: &Binding,
    ) -> Result<Finalized, Failure> {
        let status = self.world.lock().status.clone();
        let binding = binding.clone().with(|binding| binding.id = status);
        remotes.finalize(self, &binding).await
    }
}

impl Ledger for Object {
    fn subject(&self) -> Subject {
        Subject { kind: "Thing".to_owned(), namespace: Some("shop".to_owned()), name: self.name.to_owned() }
    }

    fn uid(&self) -> &str {
        self.uid
    }

    fn cluster(&self) -> &str {
        CLUSTER
    }

    fn deleting_for(&self) -> Duration {
        self.deleting_for
    }

    fn record(&self) -> Option<String> {
        self.world.lock().record.clone()
    }

    fn is_held(&self) -> bool {
        self.world.lock().is_held
    }

    async fn write(&self, record: &str, hold: bool) -> Result<(), Failure> {
        let write = |world: &mut World| {
            world.record = Some(record.to_owned());
            world.is_held |= hold;
            Ok(())
        };
        self.world.call(true, write).await
    }

    fn check_lease(&self) -> Result<(), Failure> {
        if self.is_deposed { Err(Failure::permanent("NotLeading", "another leads")) } else { Ok(()) }
    }

    fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    fn publish(&self, event: ObjectEvent) {
        self.world.lock().events.push(event);
    }
}

/// A process that begins to work with the server.
pub(crate) fn process<const MARKED: bool, const UNIQUE: bool>(world: &Shared) -> Remotes<Server<MARKED, UNIQUE>> {
    world.lock().is_dead = false;
    let remotes = Remotes::default();
    remotes.begin(Server(world.clone()), Settings::default().with(|settings| settings.interval = INTERVAL));
    remotes
}
