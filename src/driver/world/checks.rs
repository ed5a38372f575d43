//! What must hold after each action, and of each refusal.

use super::World;
use crate::driver::CuResult;
use crate::policy::footprint;
use crate::pool::{PAGE, SMALL_MAX};

impl World {
    /// What the GPU may still use stays where it is in a range, and while a capture is open the host cannot wait for that to
    /// be over: memory may be refused that only lies in a cache.
    pub(super) fn may_not_wait(&self) -> bool {
        self.expandable && self.captures > 0
    }

    /// Nothing may be refused that could be served: under the cap, by the device, from memory that only waits.
    pub(super) fn check_refusal(&self, at: usize, bytes: u64, code: CuResult) {
        assert_eq!(code, if bytes == 0 { CuResult::INVALID_VALUE } else { CuResult::OUT_OF_MEMORY });
        let account = &self.books.account;
        if bytes <= SMALL_MAX || bytes > account.limit_bytes() / 2 || self.whole {
            return;
        }
        let idle = self.pools.each_ref().map(|pool| pool.idle_bytes());
        let state = self.fence.gpu().state.lock();
        let mut left = account.headroom().min(state.capacity - state.used());
        drop(state);
        if self.may_not_wait() {
            return;
        }
        if self.expandable {
            // What is free in the range serves where it makes up what is missing, and stays there else.
            assert_eq!(idle[1 - at], 0, "{bytes} bytes refused while the other pool keeps idle memory");
            left += idle[at];
        } else {
            assert_eq!(idle, [0, 0], "{bytes} bytes refused while idle memory is kept");
        }
        assert!(left < (2 * bytes).next_multiple_of(PAGE), "{bytes} bytes refused with {left} left");
        let largest = self.pools[at].usage().largest_free;
        assert!(
            self.captures > 0 || largest < 2 * bytes,
            "{bytes} bytes refused with {largest} in one piece"
        );
    }

    /// Heaps, account, device and the list of what is live agree.
    pub(super) fn check(&self) {
        let mut reserved = 0;
        for (at, pool) in self.pools.iter().enumerate() {
            pool.check().expect("heap");
            let usage = pool.usage();
            reserved += usage.reserved.current;
            let live = || self.live.iter().filter(|live| live.pool == at);
            assert_eq!(usage.requested.current, live().map(|live| live.bytes).sum::<u64>());
            assert_eq!(usage.live_blocks, live().count() as u64);
            assert!(usage.reserved.current <= usage.reserved.peak);
        }
        let gpu = self.fence.gpu();
        for live in &self.live {
            assert!(gpu.reaches(0, live.addr, live.bytes), "{:#x} is not the device's", live.addr);
        }
        let account = &self.books.account;
        let outside: u64 = self.external.iter().map(|(_, kind, bytes)| footprint(*kind, *bytes)).sum();
        assert_eq!(account.reserved().current, reserved, "account and heaps");
        assert_eq!(account.in_use(), reserved + outside, "nothing stays reserved");
        let state = gpu.state.lock();
        assert_eq!(state.used(), reserved + outside, "account and device");
        assert!(account.limit_bytes() == account.total_bytes() || account.in_use() <= account.limit_bytes());
        assert!(!state.killed, "a call has killed a capture");
    }
}
