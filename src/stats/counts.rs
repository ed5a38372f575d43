//! The counters that a running process increments, from the same list as the report's [`Counts`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::Counts;
use crate::report::counts::with_count_fields;

macro_rules! atomic {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// [`Counts`] that any number of threads increment without a lock.
        #[derive(Debug, Default)]
        pub struct AtomicCounts {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl AtomicCounts {
            /// The figures now. Each is exact; while other threads count, they need not be of the same instant.
            pub fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            /// Adds another set of figures, for example those of a thread that ends.
            pub fn add(&self, other: &Counts) {
                $(self.$name.fetch_add(other.$name, Ordering::Relaxed);)*
            }
        }

        impl Counts {
            /// Adds the figures of `other`.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }
    };
}
with_count_fields!(atomic);

impl AtomicCounts {
    /// Counts one occurrence: `counts.bump(|c| &c.alloc)` reads no worse than the atomic's own method and cannot pick
    /// a wrong memory order.
    pub fn bump(&self, field: impl FnOnce(&Self) -> &AtomicU64) {
        field(self).fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twins_have_the_same_fields() {
        let atomic = AtomicCounts::default();
        atomic.bump(|c| &c.alloc);
        atomic.bump(|c| &c.alloc);
        atomic.bump(|c| &c.forwarded);
        let expected = Counts { alloc: 2, forwarded: 1, ..Counts::default() };
        assert_eq!(atomic.snapshot(), expected);
        atomic.add(&expected);
        let mut doubled = expected;
        doubled.merge(&expected);
        assert_eq!(atomic.snapshot(), doubled);
        assert_eq!(doubled.alloc, 4);
    }

    #[test]
    fn the_json_names_are_the_documented_ones() {
        let json = serde_json::to_value(Counts::default()).unwrap();
        let mut names: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(
            names,
            [
                "alloc",
                "barrier",
                "cache_hit",
                "driver_alloc",
                "driver_free",
                "forwarded",
                "free",
                "gc",
                "invalid_free",
                "oom",
                "retry"
            ]
        );
    }
}
