//! Rotation: freed blocks go round first in, first out, so that the GPU is done with each when its turn comes again. The more of them
//! go round, the fewer questions and waits it takes, and the more memory. How much that may be is decided here.

use super::Gpu;
use super::inner::Inner;
use super::server::Server;

/// Blocks up to this size go round, first in, first out, instead of being asked about one by one.
const ROTATED_MAX: u64 = 1 << 20;
/// Misses are close when fewer requests than this lie between them.
const SERVED_PER_MISS: u64 = 32;
/// So many close misses in a row show a loop that has too few blocks in rotation.
const CLOSE_MISSES: u32 = 4;
/// Memory that rotation may cost beyond what is live at the peak: this much, or a thirty-second, whichever is more; but in a
/// range, which is there to waste nothing, this much. One wait makes all of it clean, so it serves 16 reuses and more for blocks
/// of up to 2 MiB.
const ROTATION_BYTES: u64 = 32 << 20;
const ROTATION_SHARE: u64 = 32;
/// And for each further thread: what all of them free until an epoch is over must not be waited for by any. But all threads
/// together no more than so many times what is live: most of a program's threads may have little to do with its memory.
const ROTATION_PER_THREAD: u64 = 16 << 20;
const ROTATION_TIMES: u64 = 2;

/// What rotation may cost in bytes, where `peak` bytes are live at the peak and `threads` have a cache.
fn rotation(peak: u64, threads: u32, range: bool) -> u64 {
    let further = u64::from(threads).saturating_sub(1);
    let share = if range { 0 } else { peak / ROTATION_SHARE };
    (ROTATION_BYTES + (further * ROTATION_PER_THREAD).min(peak * ROTATION_TIMES)).max(share)
}

impl<G: Gpu> Server<G> {
    /// Counts a miss, and says whether to answer it with more memory in rotation rather than with questions: a miss costs a
    /// record and a query, a microsecond that every allocation of a small loop would pay while its blocks are few.
    pub(super) fn should_rotate(&self, rounded: u64) -> bool {
        let mut inner = self.locked();
        let served = inner.heap.clock();
        let close = served - std::mem::replace(&mut inner.served_at_miss, served) < SERVED_PER_MISS;
        inner.close_misses = if close { inner.close_misses.saturating_add(1) } else { 0 };
        inner.close_misses >= CLOSE_MISSES && rounded <= ROTATED_MAX && self.is_within_slack(&inner, rounded)
    }

    /// Whether growing for this request stays within what rotation may cost.
    pub(super) fn is_within_slack(&self, inner: &Inner, rounded: u64) -> bool {
        let peak = inner.heap.allocated().peak;
        let slack = rotation(peak, self.caches.threads(), self.range_in_use());
        let growth = inner.heap.growth(rounded).minimum;
        inner.heap.reserved().current + growth <= peak + slack && growth <= self.books.account.headroom()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn rotation_costs_little_of_a_large_program_and_no_more_than_a_small_ones_threads_can_use() {
        for (peak, threads, range, most) in [
            (0, 1, false, 32),
            (MIB, 64, false, 34),
            (256 * MIB, 16, false, 272),
            (256 * MIB, 64, false, 544),
            (8 << 30, 1, false, 256),
            (8 << 30, 3, true, 64),
        ] {
            assert_eq!(rotation(peak, threads, range), most * MIB, "{peak} {threads} {range}");
        }
    }
}
