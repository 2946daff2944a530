use proptest::{prelude::*, sample::select};

use super::*;
use Role::{Admin, Read, Write};

fn project() -> Node {
    Node::Project("p".into())
}

fn environment(name: &str) -> Node {
    Node::Environment { project: "p".into(), environment: name.into() }
}

fn human(base: &[(Node, Role)], own: &[(Node, Role)]) -> Holdings {
    Holdings {
        human: true,
        own: own.iter().cloned().collect(),
        base: base.iter().cloned().collect(),
        ..Holdings::default()
    }
}

/// A service, a user or a group: its grants are all there is.
fn holder(own: &[(Node, Role)]) -> Holdings {
    Holdings { own: own.iter().cloned().collect(), ..Holdings::default() }
}

fn owner() -> Holdings {
    Holdings { human: true, owner: true, ..Holdings::default() }
}

#[test]
fn changes_of_grants() {
    use Node::Workspace as Top;
    let admin = human(&[(Top, Admin)], &[]);
    let writer = human(&[(Top, Write)], &[]);
    let reader = human(&[(Top, Read)], &[]);
    let limited = human(&[(Top, Admin)], &[(environment("e"), Read)]);
    let inner_admin = human(&[(Top, Read), (environment("e"), Admin)], &[(Top, Read)]);
    let table = [
        ("a writer gives a user WRITE", &writer, holder(&[]), Top, Some(Write), true),
        ("a writer does not give a user ADMIN", &writer, holder(&[]), Top, Some(Admin), false),
        ("a reader does not lower a user's ADMIN", &reader, holder(&[(Top, Admin)]), Top, Some(Read), false),
        ("a reader does not take a user's WRITE", &reader, holder(&[(Top, Write)]), Top, None, false),
        ("a reader takes a user's READ", &reader, holder(&[(Top, Read)]), Top, None, true),
        ("an admin changes what an admin has", &admin, holder(&[(Top, Admin)]), Top, Some(Read), true),
        ("a caller without a role changes nothing", &human(&[], &[]), holder(&[]), Top, Some(Read), false),
        (
            "an admin of a project gives nothing in the workspace",
            &human(&[(project(), Admin)], &[]),
            holder(&[]),
            Top,
            Some(Read),
            false,
        ),
        (
            "an admin of a project gives ADMIN there",
            &human(&[(project(), Admin)], &[]),
            holder(&[]),
            project(),
            Some(Admin),
            true,
        ),
        ("a ceiling below bounds what can be given above it", &limited, holder(&[]), Top, Some(Write), false),
        ("what the ceiling below leaves can be given", &limited, holder(&[]), Top, Some(Read), true),
        (
            "a wider ceiling that lifts a narrower one takes the authority over the narrower one",
            &limited,
            human(&[(Top, Write)], &[(environment("e"), Read)]),
            Top,
            Some(Write),
            false,
        ),
        ("removing a wide ceiling frees what the user has below it", &reader, inner_admin.clone(), Top, None, false),
        ("an owner removes it", &owner(), inner_admin, Top, None, true),
        (
            "a wide ceiling lowers what the user has below it",
            &reader,
            human(&[(Top, Read), (environment("e"), Admin)], &[]),
            Top,
            Some(Read),
            false,
        ),
    ];
    for (why, caller, target, node, new, expected) in table {
        assert_eq!(may_change(caller, &target, &node, new), expected, "{why}");
    }
}

#[test]
fn management_of_groups() {
    let admin = human(&[(Node::Workspace, Admin)], &[]);
    let limited = human(&[(Node::Workspace, Admin)], &[(environment("e"), Read)]);
    let writer = human(&[(Node::Workspace, Write)], &[]);
    let table = [
        ("an admin manages a group of admins", &admin, holder(&[(Node::Workspace, Admin)]), true),
        ("a writer does not manage a group without roles", &writer, holder(&[]), false),
        (
            "under a ceiling, a group that has more there is out of reach",
            &limited,
            holder(&[(project(), Write)]),
            false,
        ),
        ("under a ceiling, a group without roles is within reach", &limited, holder(&[]), true),
        ("and a group that has no more there", &limited, holder(&[(project(), Read)]), true),
    ];
    for (why, caller, group, expected) in table {
        assert_eq!(may_manage_group(caller, &group), expected, "{why}");
    }
}

/// A workspace with three users (the first may own it), two devices each, two services and two groups.
#[derive(Debug, Clone)]
struct World {
    owned: bool,
    /// Own grants of the six devices and two services.
    principals: Vec<Holdings>,
    users: Vec<Holdings>,
    groups: Vec<Holdings>,
    /// Which users are in which group.
    members: [[bool; 3]; 2],
}

const DEVICES: usize = 6;

impl World {
    /// The grants of a principal, as the store would read them.
    fn holdings(&self, principal: usize) -> Holdings {
        let mut holdings = self.principals[principal].clone();
        if principal >= DEVICES {
            return holdings;
        }
        let user = principal / 2;
        holdings.human = true;
        holdings.owner = self.owned && user == 0;
        let groups = self.groups.iter().zip(&self.members).filter(|(_, members)| members[user]).map(|(group, _)| group);
        for source in std::iter::once(&self.users[user]).chain(groups) {
            for (node, role) in &source.own {
                holdings.add_base(node.clone(), *role);
            }
        }
        holdings
    }

    /// Makes the change if it is allowed.
    fn attempt(&self, caller: usize, change: &Change) -> Option<Self> {
        let caller = self.holdings(caller);
        let mut after = self.clone();
        let allowed = match change {
            Change::Principal(target, node, role) => {
                after.principals[*target] = after.principals[*target].clone().with_own(node, *role);
                may_change(&caller, &self.holdings(*target), node, *role)
            }
            Change::User(target, node, role) => {
                after.users[*target] = after.users[*target].clone().with_own(node, *role);
                may_change(&caller, &self.users[*target], node, *role)
            }
            Change::Group(target, node, role) => {
                after.groups[*target] = after.groups[*target].clone().with_own(node, *role);
                may_change(&caller, &self.groups[*target], node, *role)
            }
            Change::Member(group, user, is_member) => {
                after.members[*group][*user] = *is_member;
                may_manage_group(&caller, &self.groups[*group])
            }
            Change::DeleteGroup(group) => {
                after.groups[*group].own.clear();
                may_manage_group(&caller, &self.groups[*group])
            }
        };
        allowed.then_some(after)
    }
}

#[derive(Debug, Clone)]
enum Change {
    Principal(usize, Node, Option<Role>),
    User(usize, Node, Option<Role>),
    Group(usize, Node, Option<Role>),
    Member(usize, usize, bool),
    DeleteGroup(usize),
}

fn nodes() -> Vec<Node> {
    let inner = |project: &str, environment: &str| Node::Environment {
        project: project.to_owned(),
        environment: environment.to_owned(),
    };
    vec![
        Node::Workspace,
        Node::Project("a".into()),
        Node::Project("b".into()),
        inner("a", "x"),
        inner("a", "y"),
        inner("b", "z"),
    ]
}

fn role() -> impl Strategy<Value = Role> {
    select(vec![Read, Write, Admin])
}

fn own() -> impl Strategy<Value = Holdings> {
    prop::collection::btree_map(select(nodes()), role(), 0..4).prop_map(|own| Holdings { own, ..Holdings::default() })
}

fn world() -> impl Strategy<Value = World> {
    (
        any::<bool>(),
        prop::collection::vec(own(), DEVICES + 2),
        prop::collection::vec(own(), 3),
        prop::collection::vec(own(), 2),
        any::<[[bool; 3]; 2]>(),
    )
        .prop_map(|(owned, principals, users, groups, members)| World {
            owned,
            principals,
            users,
            groups,
            members,
        })
}

fn change() -> impl Strategy<Value = Change> {
    let grant = || (select(nodes()), prop::option::of(role()));
    prop_oneof![
        (0..DEVICES + 2, grant()).prop_map(|(target, (node, role))| Change::Principal(target, node, role)),
        (0..3_usize, grant()).prop_map(|(target, (node, role))| Change::User(target, node, role)),
        (0..2_usize, grant()).prop_map(|(target, (node, role))| Change::Group(target, node, role)),
        (0..2_usize, 0..3_usize, any::<bool>()).prop_map(|(group, user, member)| Change::Member(group, user, member)),
        (0..2_usize).prop_map(Change::DeleteGroup),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// No allowed change takes a role, at any place, from or to more than the caller has there.
    #[test]
    fn no_call_reaches_beyond_the_callers_own_role(
        world in world(), caller in 0..DEVICES + 2, change in change(),
    ) {
        if let Some(after) = world.attempt(caller, &change) {
            let caller_before = world.holdings(caller);
            for principal in 0..DEVICES + 2 {
                let (before, later) = (world.holdings(principal), after.holdings(principal));
                for node in nodes() {
                    let (old, new) = (before.role_at(&node), later.role_at(&node));
                    if old != new {
                        prop_assert!(caller_before.role_at(&node) >= old.max(new), "{principal} at {node:?}: {old:?} to {new:?}");
                    }
                    if principal == caller {
                        prop_assert!(new <= old, "the caller raised itself at {node:?}: {old:?} to {new:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_owner_may_change_every_grant(world in world(), change in change()) {
        let world = World { owned: true, ..world };
        prop_assert!(world.attempt(0, &change).is_some());
    }

    #[test]
    fn a_ceiling_never_raises_a_device(world in world(), device in 0..DEVICES, node in select(nodes())) {
        let limited = world.holdings(device);
        let free = Holdings { own: BTreeMap::new(), ..limited.clone() };
        prop_assert!(limited.role_at(&node) <= free.role_at(&node));
    }

    /// The two ways to read grants agree: all at once, and those of one place.
    #[test]
    fn the_role_at_a_place_is_the_highest_of_the_places_around_it(held in own(), node in select(nodes())) {
        let mut highest = None;
        let mut next = Some(node.clone());
        while let Some(around) = next {
            highest = highest.max(held.own.get(&around).copied());
            next = around.parent();
        }
        prop_assert_eq!(held.role_at(&node), highest);
    }
}
