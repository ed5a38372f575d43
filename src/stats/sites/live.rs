//! The sampled allocations that are not freed yet, by address.
//!
//! Every free asks whether its block was sampled, and nearly none was. So the question goes to a filter first: counts of
//! the addresses by their hash, without a lock. Only where that is not zero a part of the table is locked.

use super::sampler::Scaled;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// A power of two.
const CELLS: usize = 1 << 16;
/// Fewer than a cell counts to.
const MOST: u32 = 60_000;
const SHARDS: usize = 16;

/// One sampled allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of its site in the table.
    pub site: u32,
    /// What it stands for.
    pub scaled: Scaled,
    /// The context that it ends with, by its handle; 0 if it outlives contexts.
    pub ctx: usize,
}

/// What is live, by address or handle.
pub struct Live {
    filter: [AtomicU16; CELLS],
    held: AtomicU32,
    shards: [Mutex<Option<HashMap<u64, Sample>>>; SHARDS],
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Default for Live {
    fn default() -> Live {
        Live::new()
    }
}

impl Live {
    /// Nothing. For a static: it is too large for a stack.
    #[allow(clippy::large_stack_arrays)]
    pub const fn new() -> Live {
        Live {
            filter: [const { AtomicU16::new(0) }; CELLS],
            held: AtomicU32::new(0),
            shards: [const { Mutex::new(None) }; SHARDS],
        }
    }

    fn cell(&self, key: u64) -> &AtomicU16 {
        &self.filter[(hash(key) >> 48) as usize]
    }

    fn shard(&self, key: u64) -> &Mutex<Option<HashMap<u64, Sample>>> {
        &self.shards[(hash(key) >> 40) as usize % SHARDS]
    }

    /// Whether `key` may be there. It is not, where this says so: what a thread frees was entered before it could know
    /// the address.
    #[inline]
    pub fn may_hold(&self, key: u64) -> bool {
        self.cell(key).load(Ordering::Relaxed) != 0
    }

    /// Enters an allocation; `false` if there is no room. One of the same key whose end went unseen is handed back.
    pub fn insert(&self, key: u64, sample: Sample) -> (bool, Option<Sample>) {
        let mut shard = self.shard(key).lock();
        let map = shard.get_or_insert_default();
        if let Some(unseen) = map.get_mut(&key) {
            return (true, Some(std::mem::replace(unseen, sample)));
        }
        if self.held.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return (false, None);
        }
        self.cell(key).fetch_add(1, Ordering::Relaxed);
        map.insert(key, sample);
        (true, None)
    }

    /// Takes an allocation out.
    pub fn remove(&self, key: u64) -> Option<Sample> {
        if !self.may_hold(key) {
            return None;
        }
        let removed = self.shard(key).lock().as_mut()?.remove(&key)?;
        self.forget(key);
        Some(removed)
    }

    fn forget(&self, key: u64) {
        self.cell(key).fetch_sub(1, Ordering::Relaxed);
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes out everything that ends with a context, and hands it to `each`.
    pub fn remove_context(&self, ctx: usize, mut each: impl FnMut(Sample)) {
        for shard in &self.shards {
            let Some(mut gone): Option<Vec<_>> =
                shard.lock().as_mut().map(|map| map.extract_if(|_, sample| sample.ctx == ctx).collect())
            else {
                continue;
            };
            for (key, sample) in gone.drain(..) {
                self.forget(key);
                each(sample);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(site: u32, ctx: usize) -> Sample {
        Sample { site, scaled: Scaled { bytes: 512, blocks: 1024 }, ctx }
    }

    fn live() -> Box<Live> {
        Box::new(Live::new())
    }

    #[test]
    fn what_is_entered_is_found_once_and_the_filter_empties_with_it() {
        let live = live();
        for at in 0..1000u64 {
            assert_eq!(live.insert(0x7f00_0000_0000 + at * 512, sample(at as u32, 1)), (true, None));
        }
        for at in 0..1000u64 {
            let key = 0x7f00_0000_0000 + at * 512;
            assert!(live.may_hold(key));
            assert_eq!(live.remove(key), Some(sample(at as u32, 1)));
            assert_eq!(live.remove(key), None);
        }
        assert!(live.filter.iter().all(|cell| cell.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn most_addresses_pass_the_filter_by() {
        let live = live();
        for at in 0..500u64 {
            live.insert(0x7f00_0000_0000 + at * (2 << 20), sample(0, 1));
        }
        let met = (0..100_000u64).filter(|at| live.may_hold(0x7e00_0000_0000 + at * 512)).count();
        assert!(met < 1500, "{met} of 100,000 other addresses seem to be there");
    }

    #[test]
    fn an_end_that_went_unseen_is_handed_back() {
        let live = live();
        live.insert(512, sample(1, 1));
        assert_eq!(live.insert(512, sample(2, 1)), (true, Some(sample(1, 1))));
        assert_eq!(live.remove(512), Some(sample(2, 1)));
        assert!(!live.may_hold(512));
    }

    #[test]
    fn there_is_room_for_so_many_and_again_after_a_free() {
        let live = live();
        let entered = (0..u64::from(MOST) + 10).filter(|at| live.insert(at * 512, sample(0, 1)).0).count();
        assert_eq!(entered, MOST as usize);
        assert!(live.remove(512).is_some());
        assert!(live.insert(1, sample(0, 1)).0 && !live.insert(3, sample(0, 1)).0);
    }

    #[test]
    fn a_context_takes_its_own_along() {
        let live = live();
        (0..100u64).for_each(|at| _ = live.insert(at * 512, sample(at as u32, at as usize % 2)));
        let mut gone = 0;
        live.remove_context(1, |sample| {
            assert_eq!(sample.ctx, 1);
            gone += 1;
        });
        assert_eq!((gone, live.remove(512), live.remove(1024)), (50, None, Some(sample(2, 0))));
    }
}
