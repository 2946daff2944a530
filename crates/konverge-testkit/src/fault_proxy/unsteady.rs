//! A way that is bad for as long as somebody likes.

/// A plan, to be parsed: a tenth of all requests fails, some of them after they have taken effect.
pub const UNSTEADY: &str = "
seed: 12
rules:
- { when: { probability: 0.03 }, then: { status: { code: 500 } } }
- { when: { probability: 0.03 }, then: { status: { code: 503 } } }
- { when: { probability: 0.02 }, then: drop }
- { when: { phase: after, mutating: true, probability: 0.1 }, then: drop }
- { when: { probability: 0.1 }, then: { jitter: 200ms } }
";
