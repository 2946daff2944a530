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

/// A course whose first page was asked for.
fn begun() -> (NamespacePager<usize>, Instant) {
    let now = Instant::now();
    let mut course = NamespacePager::new(now);
    assert!(matches!(course.fetch("a", "1", true), Answer::Read(None, FIRST)));
    (course, now)
}

#[test]
fn each_page_is_read_by_one_and_what_is_in_it_fetched_once() {
    let (mut course, now) = begun();
    let Answer::Wait(mut turned) = course.fetch("b", "1", true) else { panic!("somebody reads it already") };
    turned.mark_unchanged();
    course.turn(page(&["a", "b", "c"], Some("more")), now);
    assert!(turned.has_changed().unwrap());
    assert!(matches!(course.fetch("b", "1", true), Answer::Fetched(1)));
    assert!(matches!(course.fetch("b", "1", true), Answer::Alone), "it was handed over");
    assert!(matches!(course.fetch("a", "2", true), Answer::Alone), "it has changed");
    assert!(matches!(course.fetch("a", "1", true), Answer::Alone), "nobody wants the old one");
    assert!(matches!(course.fetch("aa", "1", true), Answer::Alone), "it came after its page was read");
    let Answer::Read(token, size) = course.fetch("d", "1", true) else { panic!("it is ahead") };
    assert_eq!((token.as_deref(), size), (Some("more"), 2 * FIRST));
    course.turn(page(&["d"], None), now);
    assert!(matches!(course.fetch("e", "1", true), Answer::Alone), "there are no more pages");
    assert!(matches!(course.fetch("c", "1", true), Answer::Fetched(2)), "of an earlier page");
}

#[test]
fn who_waits_is_told_when_nothing_comes() {
    let (mut course, _) = begun();
    let Answer::Wait(turned) = course.fetch("b", "1", true) else { panic!("somebody reads it already") };
    course.stop();
    assert!(turned.has_changed().unwrap());
    assert!(matches!(course.fetch("b", "1", true), Answer::Alone));
}

#[test]
fn large_secrets_are_read_by_themselves() {
    let (mut course, now) = begun();
    course.turn(Page { bytes: HEAVY + 1, ..page(&["a"], Some("more")) }, now);
    assert!(matches!(course.fetch("a", "1", true), Answer::Fetched(0)));
    assert!(matches!(course.fetch("b", "1", true), Answer::Alone));
}

#[test]
fn pages_grow_to_a_limit_and_what_nobody_fetches_stops_it() {
    let (mut course, now) = begun();
    let mut sizes = Vec::new();
    for number in 0..6 {
        course.turn(page(&[&format!("p{number}")], Some("more")), now);
        let Answer::Read(_, size) = course.fetch("z", "1", true) else { panic!("there is more") };
        sizes.push(size);
    }
    assert_eq!(sizes, [16, LARGEST, LARGEST, LARGEST, LARGEST, LARGEST]);
    let names: Vec<String> = (0..MOST_LEFT).map(|number| format!("q{number:04}")).collect();
    course.turn(page(&names.iter().map(String::as_str).collect::<Vec<_>>(), Some("more")), now);
    assert!(matches!(course.fetch("z", "1", true), Answer::Alone));
}

#[test]
fn what_is_left_goes_when_nobody_comes_and_another_course_may_begin_later() {
    let (mut course, now) = begun();
    let later = now + Duration::from_secs(10);
    course.tidy(later);
    assert!(matches!(course.fetch("b", "1", true), Answer::Wait(_)), "it is for whoever reads it");
    course.turn(page(&["a", "b"], Some("more")), later);
    course.tidy(now);
    assert!(matches!(course.fetch("a", "1", true), Answer::Fetched(0)));
    course.tidy(later);
    assert!(matches!(course.fetch("b", "1", true), Answer::Alone));
    assert!(!course.is_over(now) && course.is_over(later));
}

#[test]
fn a_secret_goes_in_time_although_further_pages_come() {
    let (mut course, now) = begun();
    let at = |second| now + Duration::from_secs(second);
    course.turn(page(&["a"], Some("more")), at(1));
    let Answer::Read(..) = course.fetch("b", "1", true) else { panic!("there is more") };
    course.turn(page(&["b", "c"], Some("more")), at(20));
    assert_eq!(course.oldest(), Some(at(1)));
    course.tidy(at(1));
    assert!(matches!(course.fetch("a", "1", true), Answer::Alone), "its time is over");
    assert!(matches!(course.fetch("b", "1", true), Answer::Fetched(0)));
    assert_eq!(course.oldest(), Some(at(20)));
    assert!(matches!(course.fetch("d", "1", true), Answer::Read(..)), "it goes on");
}

#[test]
fn foreign_ones_are_read_no_further_than_it_takes_to_see_that_they_are() {
    let (mut course, now) = begun();
    let sample = |wanted: usize, seen: usize| {
        let names: Vec<String> = (0..wanted).map(|number| format!("p{number:03}")).collect();
        Page { seen, ..page(&names.iter().map(String::as_str).collect::<Vec<_>>(), Some("more")) }
    };
    course.turn(sample(0, SAMPLE - 1), now);
    let Answer::Read(..) = course.fetch("q", "1", true) else { panic!("too few to tell") };
    course.turn(sample(SAMPLE - 1, SAMPLE - 1), now);
    let Answer::Read(..) = course.fetch("q", "1", true) else { panic!("half are wanted") };
    course.turn(sample(0, 1), now);
    assert!(matches!(course.fetch("q", "1", true), Answer::Alone));
}

#[test]
fn without_others_nothing_more_is_read() {
    let (mut course, now) = begun();
    course.turn(page(&["a"], Some("more")), now);
    assert!(matches!(course.fetch("b", "1", false), Answer::Alone));
    assert!(matches!(course.fetch("a", "1", false), Answer::Fetched(0)));
    assert!(matches!(course.fetch("b", "1", true), Answer::Read(..)));
}
