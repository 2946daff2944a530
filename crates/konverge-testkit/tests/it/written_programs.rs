//! Programs that a test has just written start, also while other tests write and start theirs.

use std::{process::Command, thread};

use konverge_testkit::write_program;

/// Of a thousand programs that threads write by themselves, seven or so cannot be started.
const EACH: usize = 250;

#[test]
fn written_programs_start_while_other_threads_write_and_start_theirs() {
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for writer in 0..4 {
            let folder = folder.path();
            scope.spawn(move || {
                for number in 0..EACH {
                    let program = folder.join(format!("program-{writer}-{number}"));
                    write_program(&program, &b"#!/bin/sh\nexit 7\n"[..]).unwrap();
                    assert_eq!(Command::new(&program).status().unwrap().code(), Some(7));
                }
            });
        }
    });
}

#[test]
fn a_program_that_cannot_be_written_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let error = write_program(folder.path(), &b"x"[..]).unwrap_err().to_string();
    let of_folder = format!("cannot write {}: ", folder.path().display());
    assert!(error.starts_with(&of_folder) && error.contains("directory"), "{error}");
}
