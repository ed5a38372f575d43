//! The list of things the library counts, kept once so that the plain struct in the report and the atomic twin that the
//! running process increments cannot drift apart.

/// Calls `$then!` with every counter's documentation and name, in the order in which the report shows them.
macro_rules! with_count_fields {
    ($then:ident) => {
        $then! {
            /// Allocation requests that the pool served.
            alloc,
            /// Frees of pooled blocks.
            free,
            /// Allocations served from memory that the pool already held, without a driver call.
            cache_hit,
            /// Allocation calls that the pool made to the driver.
            driver_alloc,
            /// Free calls that the pool made to the driver.
            driver_free,
            /// Context-wide waits inserted so that freed memory could be reused.
            barrier,
            /// Requests answered with out of memory.
            oom,
            /// Requests that succeeded only after cached memory had been given back.
            retry,
            /// Garbage collections that gave at least one region back.
            gc,
            /// Frees of pointers that were already free or never the start of a block.
            invalid_free,
            /// Calls passed to the driver untouched because the pool could not keep its promise for them.
            forwarded,
        }
    };
}
pub(crate) use with_count_fields;

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened, on one device.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct Counts {
            $($(#[$doc])* #[serde(default)] pub $name: u64,)*
        }
    };
}
with_count_fields!(plain);

impl Counts {
    /// Driver calls that the program asked for and that never reached the driver.
    ///
    /// The program asked for `alloc + free` calls; the pool made `driver_alloc + driver_free`. Never negative: a pool
    /// that gave more back than it was asked for has avoided nothing.
    pub fn driver_calls_avoided(&self) -> u64 {
        let asked = self.alloc.saturating_add(self.free);
        asked.saturating_sub(self.driver_alloc.saturating_add(self.driver_free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avoided_calls_are_what_was_asked_less_what_was_made() {
        let counts = Counts { alloc: 100, free: 90, driver_alloc: 7, driver_free: 3, ..Counts::default() };
        assert_eq!(counts.driver_calls_avoided(), 180);
    }

    #[test]
    fn avoided_calls_never_wrap() {
        let counts = Counts { alloc: 1, driver_alloc: 2, driver_free: 2, ..Counts::default() };
        assert_eq!(counts.driver_calls_avoided(), 0);
    }
}
