//! Several programs at the same time.

use std::{
    panic::resume_unwind,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{order, program::Program};

/// The programs that have not started, and those that run.
struct Programs {
    waiting: Vec<Program>,
    running: Vec<Program>,
}

/// Programs that workers take one after the other.
struct Queue {
    programs: Mutex<Programs>,
    /// A program has ended, so another one may run.
    ended: Condvar,
}

/// Lets `run` run each program to its end, `at_once` of them at the same time. They start in their order, except that a program waits for the end of
/// those that must not run beside it.
pub(crate) fn run<T: Send>(programs: Vec<Program>, at_once: usize, run: impl Fn(&Program) -> T + Sync) -> Vec<T> {
    let programs = Programs { waiting: programs, running: Vec::new() };
    let queue = Queue { programs: Mutex::new(programs), ended: Condvar::new() };
    let work = || {
        let mut results = Vec::new();
        while let Some(program) = queue.take() {
            results.push(run(&program));
            queue.release(&program);
        }
        results
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

impl Queue {
    /// Returns a program that may run now, and waits for one if there is none; `None` once all have started.
    fn take(&self) -> Option<Program> {
        let mut programs = self.lock();
        loop {
            if programs.waiting.is_empty() {
                return None;
            }
            let (waiting, running) = (names(&programs.waiting), names(&programs.running));
            if let Some(index) = order::next(waiting, running) {
                let program = programs.waiting.remove(index);
                programs.running.push(program.clone());
                return Some(program);
            }
            programs = self.ended.wait(programs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn release(&self, program: &Program) {
        self.lock().running.retain(|running| running != program);
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn names(programs: &[Program]) -> impl Iterator<Item = &str> {
    programs.iter().map(|program| program.name.as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    fn programs(names: &[&str]) -> Vec<Program> {
        names.iter().map(|name| Program::named(name)).collect()
    }

    #[test]
    fn as_many_run_as_there_may_and_each_runs_once() {
        // No program ends before another one has begun.
        let two = Barrier::new(2);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut ran = run(programs(&["a", "b", "c", "d"]), 2, |program| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            two.wait();
            running.fetch_sub(1, Ordering::SeqCst);
            program.name.clone()
        });
        ran.sort();
        assert_eq!(ran, ["a", "b", "c", "d"]);
        assert_eq!(most.into_inner(), 2);
    }

    #[test]
    fn a_program_waits_for_the_server_of_another_one_and_those_after_it_do_not() {
        let (first, second) = ("-p konverge-manage --test it", "-p konverge-openzro --test it");
        let (begun, has_begun) = mpsc::channel();
        let has_begun = Mutex::new(has_begun);
        let is_first_over = AtomicBool::new(false);
        let ran = run(programs(&[first, second, "other"]), 2, |program| match program.name.as_str() {
            "other" => begun.send(()).unwrap(),
            name if name == first => {
                has_begun.lock().unwrap().recv().unwrap();
                is_first_over.store(true, Ordering::SeqCst);
            }
            _ => assert!(is_first_over.load(Ordering::SeqCst), "there is one server"),
        });
        assert_eq!(ran.len(), 3);
    }
}
