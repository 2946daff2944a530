//! Candidates against a model of the API server, under every order of steps, lost requests and lost answers that proptest finds.

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;

const CANDIDATES: usize = 3;

/// The possible next events.
#[derive(Debug, Clone)]
enum Step {
    /// Time goes by, in milliseconds.
    Wait(u64),
    /// A candidate does a whole round without trouble.
    Round(usize),
    /// A candidate that waits for nothing begins a round or goes on with it.
    Act(usize),
    /// The API server handles the request of a candidate.
    Handle(usize),
    /// The candidate gets the answer.
    Answer(usize),
    /// The candidate gives up waiting. The request, if not handled yet, may still arrive.
    GiveUp(usize),
    /// A request that its sender gave up arrives after all.
    ArriveLate,
    /// The process gives the lease up in order, and starts again.
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let candidate = 0..CANDIDATES;
    let step = prop_oneof![
        4 => (1..6000_u64).prop_map(Step::Wait),
        8 => candidate.clone().prop_map(Step::Round),
        6 => candidate.clone().prop_map(Step::Act),
        5 => candidate.clone().prop_map(Step::Handle),
        5 => candidate.clone().prop_map(Step::Answer),
        1 => candidate.clone().prop_map(Step::GiveUp),
        1 => Just(Step::ArriveLate),
        1 => candidate.prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 0..400)
}

type Object = Option<(LeaseSpec, String)>;

/// The API server: one object, a version that grows, and a check of preconditions.
#[derive(Default)]
struct Server {
    object: Object,
    version: u64,
}

#[derive(Clone)]
enum Answer {
    Read(Object),
    Written(LeaseSpec, String),
    Conflict,
}

impl Server {
    fn handle(&mut self, request: &Decision) -> Answer {
        let spec = match request {
            Decision::Create(spec) if self.object.is_none() => spec,
            Decision::Replace { spec, version } if self.object.as_ref().is_some_and(|object| object.1 == *version) => {
                spec
            }
            Decision::Create(_) | Decision::Replace { .. } => return Answer::Conflict,
            Decision::Read | Decision::Wait | Decision::Lost => return Answer::Read(self.object.clone()),
        };
        self.version += 1;
        let version = self.version.to_string();
        self.object = Some((spec.clone(), version.clone()));
        Answer::Written(spec.clone(), version)
    }
}

enum Call {
    Sent(Decision, Instant),
    Handled(Answer, Instant),
}

struct Candidate {
    election: Election,
    call: Option<Call>,
}

struct World {
    now: Instant,
    started: Instant,
    server: Server,
    candidates: Vec<Candidate>,
    late: Vec<Decision>,
    births: usize,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut world =
            Self { now, started: now, server: Server::default(), candidates: Vec::new(), late: Vec::new(), births: 0 };
        world.candidates = (0..CANDIDATES).map(|_| world.candidate()).collect();
        world
    }

    fn candidate(&mut self) -> Candidate {
        self.births += 1;
        let election = Election::new(format!("candidate-{}", self.births), Timings::default());
        Candidate { election, call: None }
    }

    /// A wall clock that is wrong in its own way for each candidate; it must not matter.
    fn stamp(&self, candidate: usize) -> MicroTime {
        let elapsed = i64::try_from(self.now.duration_since(self.started).as_micros()).expect("a short test");
        let wrong_by = [0, 3_600_000_000, -3_600_000_000][candidate];
        MicroTime(Timestamp::from_microsecond(1_000_000_000_000_000 + elapsed + wrong_by).expect("in range"))
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Wait(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Step::Round(who) => self.round(who),
            Step::Act(who) => self.act(who),
            Step::Handle(who) => {
                if let Some(Call::Sent(request, sent)) = &self.candidates[who].call {
                    let call = Call::Handled(self.server.handle(request), *sent);
                    self.candidates[who].call = Some(call);
                }
            }
            Step::Answer(who) => self.answer(who),
            Step::GiveUp(who) => match self.candidates[who].call.take() {
                Some(Call::Sent(request, _)) => {
                    self.late.push(request);
                    self.candidates[who].election.failed();
                }
                Some(Call::Handled(..)) => self.candidates[who].election.failed(),
                None => {}
            },
            Step::ArriveLate => {
                if let Some(request) = self.late.pop() {
                    self.server.handle(&request);
                }
            }
            Step::Release(who) => self.release(who),
        }
    }

    /// Waiting requests are handled and answered. Then a candidate reads the lease and, if allowed, writes it.
    fn round(&mut self, who: usize) {
        for _ in 0..3 {
            for step in [Step::Handle(who), Step::Answer(who), Step::Act(who)] {
                self.take(&step);
            }
        }
    }

    fn act(&mut self, who: usize) {
        if self.candidates[who].call.is_some() {
            return;
        }
        let stamp = self.stamp(who);
        let candidate = &mut self.candidates[who];
        match candidate.election.decide(self.now, &stamp) {
            // The real process ends; another with another name takes its place.
            Decision::Lost => self.candidates[who] = self.candidate(),
            Decision::Wait => candidate.election.begin_round(),
            request => candidate.call = Some(Call::Sent(request, self.now)),
        }
    }

    fn answer(&mut self, who: usize) {
        let candidate = &mut self.candidates[who];
        match candidate.call.take() {
            Some(Call::Handled(answer, sent)) => match answer {
                Answer::Read(object) => candidate.election.found(object, self.now),
                Answer::Written(spec, version) => {
                    candidate.election.written(spec, version, sent);
                    candidate.election.begin_round();
                }
                Answer::Conflict => candidate.election.failed(),
            },
            call => candidate.call = call,
        }
    }

    fn release(&mut self, who: usize) {
        if let Some((spec, version)) = self.candidates[who].election.release(&self.stamp(who)) {
            self.server.handle(&Decision::Replace { spec, version });
        }
        self.candidates[who] = self.candidate();
    }

    fn leaders(&self) -> usize {
        let leads = |candidate: &&Candidate| candidate.election.leads_until().is_some_and(|until| self.now < until);
        self.candidates.iter().filter(leads).count()
    }

    /// All goes well for a while.
    fn calm(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now += Duration::from_secs(2);
            for who in 0..CANDIDATES {
                self.round(who);
            }
            assert!(self.leaders() <= 1, "two lead");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn two_never_lead_at_once_and_calm_brings_a_leader(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            prop_assert!(world.leaders() <= 1, "two lead after {step:?}");
        }
        // A lease to run out, and the round in which that is noticed.
        world.calm(10);
        prop_assert_eq!(world.leaders(), 1);
    }
}
