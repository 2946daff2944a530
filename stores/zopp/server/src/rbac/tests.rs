use proptest::{option, prelude::*, sample::select};

use super::{
    Grants, Level,
    Role::{self, Admin, Read, Write},
    may_delegate, stays_within,
};

fn human(user: Option<Role>, principal: [Option<Role>; 3]) -> Grants {
    Grants { human: true, user, principal, ..Grants::default() }
}

fn service(principal: [Option<Role>; 3]) -> Grants {
    Grants { principal, ..Grants::default() }
}

fn owner() -> Grants {
    Grants { human: true, owner: true, ..Grants::default() }
}

#[test]
fn effective_roles() {
    let none = [None; 3];
    let table = [
        ("a member without a grant may nothing", human(None, none), None),
        ("a grant to the user counts", human(Some(Write), none), Some(Write)),
        ("a ceiling lowers", human(Some(Admin), [None, None, Some(Read)]), Some(Read)),
        ("a ceiling does not raise", human(Some(Read), [Some(Admin), None, None]), Some(Read)),
        ("a ceiling alone gives nothing", human(None, [Some(Admin), None, None]), None),
        ("the highest ceiling counts", human(Some(Admin), [None, Some(Write), Some(Read)]), Some(Write)),
        ("a group gives too", Grants { group: Some(Write), ..human(Some(Read), none) }, Some(Write)),
        ("a service has its own grants", service([None, Some(Read), None]), Some(Read)),
        ("a service takes the highest", service([Some(Read), None, Some(Write)]), Some(Write)),
        ("a service without a grant may nothing", service(none), None),
        ("an owner is not restricted", owner().with_own(Level::Workspace, Some(Read)), Some(Admin)),
    ];
    for (why, grants, expected) in table {
        assert_eq!(grants.effective(), expected, "{why}");
    }
}

#[test]
fn delegation() {
    let none = [None; 3];
    let (admin, writer, reader) = (human(Some(Admin), none), human(Some(Write), none), human(Some(Read), none));
    let new_service = service(none);
    let table = [
        ("a writer sets WRITE on a service", &writer, new_service, Some(Write), true),
        ("a writer sets READ on a service", &writer, new_service, Some(Read), true),
        ("a writer does not set ADMIN", &writer, new_service, Some(Admin), false),
        ("a writer removes WRITE", &writer, service([Some(Write), None, None]), None, true),
        ("a writer does not remove ADMIN", &writer, service([Some(Admin), None, None]), None, false),
        ("a reader removes READ", &reader, service([Some(Read), None, None]), None, true),
        (
            "a reader does not lower a service's ADMIN to READ",
            &reader,
            service([Some(Admin), None, None]),
            Some(Read),
            false,
        ),
        ("a reader puts no ceiling on an admin", &reader, admin, Some(Read), false),
        ("a reader lifts no ceiling from an admin", &reader, human(Some(Admin), [Some(Read), None, None]), None, false),
        ("an admin puts a ceiling on an admin", &admin, admin, Some(Read), true),
        ("an owner sets ADMIN", &owner(), new_service, Some(Admin), true),
        ("who may nothing delegates nothing", &human(None, none), new_service, Some(Read), false),
        ("who may nothing removes nothing, not even what is not there", &human(None, none), new_service, None, false),
    ];
    for (why, caller, target, new, expected) in table {
        assert_eq!(may_delegate(caller, &target, Level::Workspace, new), expected, "{why}");
    }
}

fn role() -> impl Strategy<Value = Option<Role>> {
    option::of(select(vec![Read, Write, Admin]))
}

fn grants() -> impl Strategy<Value = Grants> {
    (any::<bool>(), prop::bool::weighted(0.1), prop::array::uniform3(role()), role(), role()).prop_map(
        |(human, owner, principal, user, group)| Grants {
            human,
            owner: owner && human,
            principal,
            user,
            group,
            ..Grants::default()
        },
    )
}

fn level() -> impl Strategy<Value = Level> {
    select(vec![Level::Workspace, Level::Project, Level::Environment])
}

proptest! {
    #[test]
    fn a_grant_to_a_human_principal_never_raises_it(grants in grants()) {
        let free = Grants { principal: [None; 3], ..grants };
        prop_assert!(!grants.human || grants.effective() <= free.effective());
    }

    #[test]
    fn nobody_touches_more_than_they_have(caller in grants(), target in grants(), level in level(), new in role()) {
        if may_delegate(&caller, &target, level, new) {
            let after = target.with_own(level, new);
            prop_assert!(caller.effective().is_some());
            prop_assert!(new <= caller.effective());
            prop_assert!(target.principal[level as usize] <= caller.effective());
            if after.effective() != target.effective() && target.human {
                prop_assert!(target.effective() <= caller.effective());
                prop_assert!(after.effective() <= caller.effective());
            }
        }
    }

    #[test]
    fn nobody_is_raised_beyond_the_one_who_raises(caller in grants(), before in grants(), after in grants()) {
        let after = Grants { human: before.human, ..after };
        if stays_within(&caller, &before, &after) {
            prop_assert!(after.effective() <= before.effective().max(caller.effective()));
            if before.human && before.effective() != after.effective() {
                prop_assert!(before.effective().max(after.effective()) <= caller.effective());
            }
        }
    }

    #[test]
    fn who_is_barred_may_nothing(grants in grants()) {
        prop_assert_eq!(Grants { barred: true, ..grants }.effective(), None);
    }

    #[test]
    fn an_admin_may_change_every_grant(target in grants(), level in level(), new in role()) {
        prop_assert!(may_delegate(&owner(), &target, level, new));
    }

    #[test]
    fn more_of_a_grant_to_the_user_is_never_less(grants in grants(), more in role()) {
        let raised = Grants { user: grants.user.max(more), ..grants };
        prop_assert!(raised.effective() >= grants.effective());
    }
}
