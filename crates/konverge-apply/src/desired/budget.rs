//! How much one run may delete.

/// The annotation of an owner that allows more: the number of objects that may be deleted.
pub const ALLOW_DELETES: &str = "konverge.dev/allow-deletes";

/// A limit for what one run may delete, so that a mistake in a template or an input that came back empty does not take everything
/// down. A run deletes all that it should, or nothing. It gets no further field, so that it can be written as a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeleteBudget {
    /// The number of children that may always be deleted.
    pub at_most: usize,
    /// The share of the children that may be deleted, if that is more. Percent.
    pub percent: u8,
}

impl Default for DeleteBudget {
    /// Ten objects, or half of what there is.
    fn default() -> Self {
        Self { at_most: 10, percent: 50 }
    }
}

impl DeleteBudget {
    /// No limit.
    pub const UNLIMITED: Self = Self { at_most: usize::MAX, percent: 100 };

    /// How many of `existing` objects may be deleted.
    pub fn allowed(self, existing: usize) -> usize {
        let share = u128::from(self.percent.min(100)) * existing as u128 / 100;
        self.at_most.max(usize::try_from(share).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_limit_counts() {
        let table = [
            (DeleteBudget { at_most: 2, percent: 10 }, 5, 2),
            (DeleteBudget { at_most: 2, percent: 10 }, 100, 10),
            (DeleteBudget { at_most: 0, percent: 0 }, 100, 0),
            (DeleteBudget { at_most: 0, percent: 255 }, 7, 7),
            (DeleteBudget { at_most: 0, percent: 33 }, 2, 0),
            (DeleteBudget::UNLIMITED, usize::MAX, usize::MAX),
        ];
        for (budget, existing, allowed) in table {
            assert_eq!(budget.allowed(existing), allowed, "{budget:?} of {existing}");
        }
    }
}
