use std::time::Duration;

use super::*;

fn page(names: &[&str], token: Option<&str>) -> Page<usize> {
    let wanted = |(number, name): (usize, &&str)| ((*name).to_owned(), "1".to_owned(), number);
    Page {
        wanted: names.iter().enumerate().map(wanted).collect(),
        last: names.last().map(|name| (*name).to_owned()),
        seen: names.len(),
        bytes: 100,
        token: token.map(str::to_owned),
    }
}

/// A pager whose first page was asked for.
fn begun() -> (NamespacePager<usize>, Instant) {
    let now = Instant::now();
    let mut pager = NamespacePager::new(now);
    assert!(matches!(pager.fetch("a", "1", true), Answer::Read(None, FIRST)));
    (pager, now)
}

#[test]
fn each_page_is_read_by_one_and_what_is_in_it_fetched_once() {
    let (mut pager, now) = begun();
    let Answer::Wait(mut turned) = pager.fetch("b", "1", true) else { panic!("somebody reads it already") };
    turned.mark_unchanged();
    pager.turn(page(&["a", "b", "c"], Some("more")), now);
    assert!(turned.has_changed().unwrap());
    assert!(matches!(pager.fetch("b", "1", true), Answer::Fetched(1)));
    assert!(matches!(pager.fetch("b", "1", true), Answer::Alone), "it was handed over");
    assert!(matches!(pager.fetch("a", "2", true), Answer::Alone), "it has changed");
    assert!(matches!(pager.fetch("a", "1", true), Answer::Alone), "nobody wants the old one");
    assert!(matches!(pager.fetch("aa", "1", true), Answer::Alone), "it came after its page was read");
    let Answer::Read(token, size) = pager.fetch("d", "1", true) else { panic!("it is ahead") };
    assert_eq!((token.as_deref(), size), (Some("more"), 2 * FIRST));
    pager.turn(page(&["d"], None), now);
    assert!(matches!(pager.fetch("e", "1", true), Answer::Alone), "there are no more pages");
    assert!(matches!(pager.fetch("c", "1", true), Answer::Fetched(2)), "of an earlier page");
}

#[test]
fn who_waits_is_told_when_nothing_comes() {
    let (mut pager, _) = begun();
    let Answer::Wait(turned) = pager.fetch("b", "1", true) else { panic!("somebody reads it already") };
    pager.stop();
    assert!(turned.has_changed().unwrap());
    assert!(matches!(pager.fetch("b", "1", true), Answer::Alone));
}

#[test]
fn large_secrets_are_read_by_themselves() {
    let (mut pager, now) = begun();
    pager.turn(Page { bytes: HEAVY + 1, ..page(&["a"], Some("more")) }, now);
    assert!(matches!(pager.fetch("a", "1", true), Answer::Fetched(0)));
    assert!(matches!(pager.fetch("b", "1", true), Answer::Alone));
}

#[test]
fn pages_grow_to_a_limit_and_what_nobody_fetches_stops_it() {
    let (mut pager, now) = begun();
    let mut sizes = Vec::new();
    for number in 0..6 {
        pager.turn(page(&[&format!("p{number}")], Some("more")), now);
        let Answer::Read(_, size) = pager.fetch("z", "1", true) else { panic!("there is more") };
        sizes.push(size);
    }
    assert_eq!(sizes, [16, LARGEST, LARGEST, LARGEST, LARGEST, LARGEST]);
    let names: Vec<String> = (0..MOST_LEFT).map(|number| format!("q{number:04}")).collect();
    pager.turn(page(&names.iter().map(String::as_str).collect::<Vec<_>>(), Some("more")), now);
    assert!(matches!(pager.fetch("z", "1", true), Answer::Alone));
}

#[test]
fn what_is_left_goes_when_nobody_comes_and_another_course_may_begin_later() {
    let (mut pager, now) = begun();
    let later = now + Duration::from_secs(10);
    pager.tidy(later);
    assert!(matches!(pager.fetch("b", "1", true), Answer::Wait(_)), "it is for whoever reads it");
    pager.turn(page(&["a", "b"], Some("more")), later);
    pager.tidy(now);
    assert!(matches!(pager.fetch("a", "1", true), Answer::Fetched(0)));
    pager.tidy(later);
    assert!(matches!(pager.fetch("b", "1", true), Answer::Alone));
    assert!(!pager.is_over(now) && pager.is_over(later));
}

#[test]
fn a_secret_goes_in_time_although_further_pages_come() {
    let (mut pager, now) = begun();
    let at = |second| now + Duration::from_secs(second);
    pager.turn(page(&["a"], Some("more")), at(1));
    let Answer::Read(..) = pager.fetch("b", "1", true) else { panic!("there is more") };
    pager.turn(page(&["b", "c"], Some("more")), at(20));
    assert_eq!(pager.oldest(), Some(at(1)));
    pager.tidy(at(1));
    assert!(matches!(pager.fetch("a", "1", true), Answer::Alone), "its time is over");
    assert!(matches!(pager.fetch("b", "1", true), Answer::Fetched(0)));
    assert_eq!(pager.oldest(), Some(at(20)));
    assert!(matches!(pager.fetch("d", "1", true), Answer::Read(..)), "it goes on");
}

#[test]
fn foreign_ones_are_read_no_further_than_it_takes_to_see_that_they_are() {
    let (mut pager, now) = begun();
    let sample = |wanted: usize, seen: usize| {
        let names: Vec<String> = (0..wanted).map(|number| format!("p{number:03}")).collect();
        Page { seen, ..page(&names.iter().map(String::as_str).collect::<Vec<_>>(), Some("more")) }
    };
    pager.turn(sample(0, SAMPLE - 1), now);
    let Answer::Read(..) = pager.fetch("q", "1", true) else { panic!("too few to tell") };
    pager.turn(sample(SAMPLE - 1, SAMPLE - 1), now);
    let Answer::Read(..) = pager.fetch("q", "1", true) else { panic!("half are wanted") };
    pager.turn(sample(0, 1), now);
    assert!(matches!(pager.fetch("q", "1", true), Answer::Alone));
}

#[test]
fn without_others_nothing_more_is_read() {
    let (mut pager, now) = begun();
    pager.turn(page(&["a"], Some("more")), now);
    assert!(matches!(pager.fetch("b", "1", false), Answer::Alone));
    assert!(matches!(pager.fetch("a", "1", false), Answer::Fetched(0)));
    assert!(matches!(pager.fetch("b", "1", true), Answer::Read(..)));
}
