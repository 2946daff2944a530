//! The memory of requests and of their answers: bounded in all and for each address.
//!
//! A request counts with a base and with its bytes, as they arrive. Its answer counts until the client took it, wherever the bytes wait; a large one
//! counts before it is read from the database. A connection on which an answer is not taken in time ends.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    guesses::network,
    limits::{Limits, Reached},
    metrics::Metrics,
    status::exhausted,
};

/// The memory of a request besides its message, and of an answer of half the size.
pub(crate) const BASE: u32 = 8 * 1024;
/// The base covers headers of so many bytes. A request may have eight times as many.
const USUAL_HEADERS: u32 = 2 * 1024;
/// By then a client took its answer. The largest one of the default limits needs 270 KiB a second.
const TAKING: Duration = Duration::from_secs(30);
/// How often late clients are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a large answer waits for room.
const PATIENCE: Duration = Duration::from_secs(10);
/// In how many seconds a client that reached a limit may try again.
pub(crate) const PAUSE: i64 = 1;

/// The memory of all requests and answers. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    requests: MemoryCap,
    answers: MemoryCap,
    taken: Arc<Mutex<Taken>>,
    /// Told when something is given back.
    freed: Arc<Notify>,
}

/// The limits of a kind of memory: of all addresses, and of one.
#[derive(Debug, Clone, Copy)]
struct MemoryCap {
    all: Reached,
    of_address: Reached,
}

/// The bytes that are taken.
#[derive(Debug, Default)]
struct Taken {
    requests: Sums,
    answers: Sums,
    /// Large answers to one address are made one after the other.
    queues: HashMap<Option<IpAddr>, Arc<tokio::sync::Mutex<()>>>,
    /// The answers that clients have not taken yet, by a number of their own.
    on_the_way: HashMap<u64, Answer>,
    numbers: u64,
}

#[derive(Debug, Default)]
struct Sums {
    all: u32,
    /// By the addresses that took any. A request without an address counts among all only.
    by_address: HashMap<IpAddr, u32>,
}

/// An answer on its way.
#[derive(Debug)]
struct Answer {
    late: Instant,
    /// Ends the connection.
    connection: CancellationToken,
}

/// The bytes of one request and its answer. Given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Memory,
    address: Option<IpAddr>,
    request: Mutex<u32>,
    answer: Mutex<u32>,
    number: Mutex<Option<u64>>,
}

impl Sums {
    /// Takes more, unless there is no room for it.
    fn add(&mut self, cap: &MemoryCap, address: Option<IpAddr>, more: u32) -> Result<(), Reached> {
        let all = self.all.saturating_add(more);
        if all > cap.all.limit {
            return Err(cap.all);
        }
        if let Some(address) = address {
            let own = self.by_address.get(&address).copied().unwrap_or_default().saturating_add(more);
            if own > cap.of_address.limit {
                return Err(cap.of_address);
            }
            self.by_address.insert(address, own);
        }
        self.all = all;
        Ok(())
    }

    fn give_back(&mut self, address: Option<IpAddr>, less: u32) {
        self.all -= less;
        if let Some(address) = address
            && let Some(own) = self.by_address.get_mut(&address)
        {
            *own -= less;
            if *own == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Memory {
    /// Nothing is taken yet.
    pub(crate) fn new(limits: &Limits) -> Self {
        let cap = |all: (&'static str, u32, &'static str), of_address: (&'static str, u32, &'static str)| {
            let [all, of_address] = [all, of_address].map(|(what, limit, flag)| Reached { what, limit, flag });
            MemoryCap { all, of_address }
        };
        let [request, answer] = ["--max-request-bytes", "--max-answer-bytes"];
        Self {
            requests: cap(
                ("bytes of all requests at once", limits.request_bytes, request),
                (
                    "bytes of requests of an address at once",
                    limits.request_bytes_per_address,
                    "--max-request-bytes-per-address",
                ),
            ),
            answers: cap(
                ("bytes of all answers at once", limits.answer_bytes, answer),
                ("bytes of answers to an address at once, which are half of all,", limits.answer_bytes / 2, answer),
            ),
            taken: Arc::default(),
            freed: Arc::default(),
        }
    }

    /// Ends connections on which answers are not taken in time, until `stop`.
    pub(crate) async fn end_late_connections(self, metrics: Metrics, stop: CancellationToken) {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(look.tick()).await.is_some() {
            let now = Instant::now();
            for Answer { late, connection } in self.lock().on_the_way.values() {
                if *late <= now && !connection.is_cancelled() {
                    connection.cancel();
                    metrics.answer_not_taken();
                }
            }
        }
    }

    /// Lets a request with so many bytes of headers in, unless there is no room for it.
    pub(crate) fn admit(&self, address: Option<IpAddr>, headers: u32) -> Result<Charge, Reached> {
        let charge = Charge {
            memory: self.clone(),
            address: address.map(network),
            request: Mutex::default(),
            answer: Mutex::default(),
            number: Mutex::default(),
        };
        charge.add(BASE.saturating_add(headers.saturating_sub(USUAL_HEADERS)))?;
        Ok(charge)
    }

    /// Returns the bytes of requests and of answers that are taken, and how many answers are on their way.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (u32, u32, usize) {
        let taken = self.lock();
        (taken.requests.all, taken.answers.all, taken.on_the_way.len())
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        lock(&self.taken)
    }
}

impl Charge {
    /// Takes more for the request, unless there is no room for it.
    pub(crate) fn add(&self, more: u32) -> Result<(), Reached> {
        self.memory.lock().requests.add(&self.memory.requests, self.address, more)?;
        *lock(&self.request) += more;
        Ok(())
    }

    /// Takes room for an answer of that size in all, unless there is no room for it. An answer that is larger than all the room takes all of it.
    fn raise(&self, bytes: u64) -> Result<(), Reached> {
        let MemoryCap { all, of_address } = self.memory.answers;
        let most = self.address.map_or(all.limit, |_| of_address.limit);
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX).min(most);
        let mut held = lock(&self.answer);
        let more = wanted.saturating_sub(*held);
        if more > 0 {
            self.memory.lock().answers.add(&self.memory.answers, self.address, more)?;
            *held += more;
        }
        Ok(())
    }

    /// Takes room for an answer that takes so much memory, and waits for it. A small one is covered by the base.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<(), Status> {
        if bytes <= u64::from(BASE) {
            return Ok(());
        }
        let queue = Arc::clone(self.memory.lock().queues.entry(self.address).or_default());
        let last = Mutex::new(self.memory.answers.of_address);
        let waited = timeout(PATIENCE, async {
            let _turn = queue.lock().await;
            loop {
                let freed = self.memory.freed.notified();
                tokio::pin!(freed);
                // Before the look: what is given back in between is heard.
                freed.as_mut().enable();
                let Err(reached) = self.raise(bytes) else { return };
                *lock(&last) = reached;
                freed.await;
            }
        });
        let waited = waited.await;
        let mut taken = self.memory.lock();
        // Ours, and the one of the map: nobody else waits.
        if Arc::strong_count(&queue) <= 2 {
            taken.queues.remove(&self.address);
        }
        drop(taken);
        waited.map_err(|_| exhausted(&lock(&last), Some(PAUSE)))
    }

    /// Takes the memory of an answer beyond the reserved one, if there is room for it. A message that is sent as a whole takes twice its encoded
    /// size, because it is in memory twice while it is encoded. Pieces take theirs once.
    pub(crate) fn cover(&self, encoded: usize, pieces: usize) -> Result<(), Status> {
        let bytes = u64::try_from(encoded.saturating_mul(2).saturating_add(pieces)).unwrap_or(u64::MAX);
        if bytes <= u64::from(BASE) {
            return Ok(());
        }
        self.raise(bytes).map_err(|reached| exhausted(&reached, Some(PAUSE)))
    }

    /// The answer takes so much from now on.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        let mut held = lock(&self.answer);
        let less = held.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        if less > 0 {
            *held -= less;
            self.memory.lock().answers.give_back(self.address, less);
            self.memory.freed.notify_waiters();
        }
    }

    /// From now on the client has to take its answer, or loses its connection.
    pub(crate) fn answered(&self, connection: &CancellationToken) {
        let mut taken = self.memory.lock();
        taken.numbers += 1;
        let number = taken.numbers;
        let answer = Answer { late: Instant::now() + TAKING, connection: connection.clone() };
        taken.on_the_way.insert(number, answer);
        drop(taken);
        *lock(&self.number) = Some(number);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let [request, answer] = [&self.request, &self.answer].map(|bytes| *lock(bytes));
        let mut taken = self.memory.lock();
        if let Some(number) = *lock(&self.number) {
            taken.on_the_way.remove(&number);
        }
        taken.requests.give_back(self.address, request);
        taken.answers.give_back(self.address, answer);
        drop(taken);
        if answer > 0 {
            self.memory.freed.notify_waiters();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held left sums that are still right: each step is complete or has not begun.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(request_bytes: u32, request_bytes_per_address: u32) -> Memory {
        let answer_bytes = 10 * BASE;
        Memory::new(&Limits { request_bytes, request_bytes_per_address, answer_bytes, ..Limits::default() })
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn long_headers_count() {
        let memory = memory(10 * BASE, 3 * BASE);
        drop(memory.admit(Some(address(1)), USUAL_HEADERS).unwrap());
        let first = memory.admit(Some(address(1)), USUAL_HEADERS + 2 * BASE).unwrap();
        assert_eq!(memory.in_use().0, 3 * BASE);
        drop(first);
        let refused = memory.admit(Some(address(1)), USUAL_HEADERS + 2 * BASE + 1).unwrap_err();
        assert_eq!(refused.flag, "--max-request-bytes-per-address");
    }

    #[test]
    fn an_address_takes_its_share_and_gives_it_back() {
        let memory = memory(10 * BASE, 3 * BASE);
        let first = memory.admit(Some(address(1)), 0).unwrap();
        first.add(BASE).unwrap();
        let second = memory.admit(Some(address(1)), 0).unwrap();
        assert_eq!(second.add(1).unwrap_err().flag, "--max-request-bytes-per-address");
        assert_eq!(memory.admit(Some(address(1)), 0).unwrap_err().flag, "--max-request-bytes-per-address");
        memory.admit(Some(address(2)), 0).unwrap();
        drop(first);
        second.add(2 * BASE).unwrap();
        drop(second);
        let Taken { requests, .. } = &*memory.lock();
        assert!(
            requests.all == 0 && requests.by_address.is_empty(),
            "nothing stays of requests that ended: {requests:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_waits_for_room_and_not_for_ever() {
        let memory = memory(10 * BASE, 4 * BASE);
        let charge = |last| memory.admit(Some(address(last)), 0).unwrap();
        // An address may have half of all the room.
        let first = charge(1);
        first.reserve(u64::from(3 * BASE)).await.unwrap();
        let second = charge(1);
        {
            let waiting = second.reserve(u64::from(3 * BASE));
            tokio::pin!(waiting);
            assert!(futures::poll!(&mut waiting).is_pending());
            charge(2).reserve(u64::from(5 * BASE)).await.expect("others are not concerned");
            drop(first);
            waiting.await.expect("there is room now");
        }
        second.cover(BASE as usize * 2, 0).expect("a little more than was reserved");
        assert!(second.cover(usize::MAX, 0).is_ok(), "all of the room");

        let third = charge(1);
        let began = Instant::now();
        let refused = third.reserve(u64::MAX).await.unwrap_err();
        assert!(refused.message().contains("--max-answer-bytes"), "{refused}");
        assert_eq!(began.elapsed(), PATIENCE);
        third.cover(BASE as usize, 0).unwrap_err();
        third.cover(BASE as usize / 2, 0).expect("the base covers it");
        drop(second);
        third.reserve(u64::MAX).await.expect("one that is larger than the room has all of it");
        assert_eq!(memory.lock().answers.by_address[&address(1)], 5 * BASE);
        drop(third);
        let Taken { answers, queues, .. } = &*memory.lock();
        assert!(answers.all == 0 && answers.by_address.is_empty() && queues.is_empty(), "{answers:?} {queues:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_take_its_answer_loses_its_connection() {
        let memory = memory(10 * BASE, 4 * BASE);
        let (metrics, stop) = (Metrics::new(), CancellationToken::new());
        tokio::spawn(memory.clone().end_late_connections(metrics.clone(), stop.clone()));
        let [quick, slow] = [(); 2].map(|()| (memory.admit(None, 0).unwrap(), CancellationToken::new()));
        for (charge, connection) in [&quick, &slow] {
            charge.answered(connection);
        }
        let began = Instant::now();
        drop(quick.0);
        slow.1.cancelled().await;
        assert!(began.elapsed() >= TAKING && began.elapsed() <= TAKING + LOOK_EVERY, "{:?}", began.elapsed());
        assert!(!quick.1.is_cancelled(), "its answer was taken");
        assert!(metrics.text().unwrap().contains("zopp_server_answers_not_taken_total 1\n"));
        stop.cancel();
    }

    #[test]
    fn all_addresses_together_have_a_limit() {
        let memory = memory(3 * BASE, 2 * BASE);
        let held: Vec<_> = (0..3).map(|last| memory.admit(Some(address(last)), 0).unwrap()).collect();
        assert_eq!(memory.admit(Some(address(9)), 0).unwrap_err().flag, "--max-request-bytes");
        assert_eq!(memory.admit(None, 0).unwrap_err().flag, "--max-request-bytes");
        drop(held);
        memory.admit(None, 0).unwrap().add(2 * BASE).unwrap();
    }
}
