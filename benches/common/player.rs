//! The pool of one run, with a model of the ladder above it and a driver that is a counter. `lag N` means that the GPU is N
//! frees behind: what was freed since is pending. The pool waits for it before it grows; with `wait N` also when no clean
//! block is a tight fit and the last wait is at least N allocations ago, so that it need not cut a larger block; for the sake of requests
//! that make a difference as often as the library would.

use super::trace::Op;
use gpucache::driver::pace::Pace;
use gpucache::pool::{
    CACHED_MAX, Cache, Caches, Claim, Drain, Fit, Freed, Heap, Idle, Index, Popped, Purse, Rules, SMALL_MAX,
    Trade, cached_need,
};

/// `cuMemAlloc` and `cuMemFree`: a call, and bytes in a nanosecond.
const ALLOC_NS: u64 = 37_000;
const TAKEN_IN_NS: u64 = 13_000;
const FREE_NS: u64 = 35_000;
const FREED_IN_NS: u64 = 3_000;
/// Requests between two drains for the sake of a tighter fit.
const SERVED_PER_DRAIN: u64 = 4;

/// The pool of one run, with its driver and what it cost.
pub struct Player {
    pub heap: Heap,
    index: &'static Index,
    pub caches: &'static Caches,
    cache: &'static Cache,
    pub lag: u64,
    spacing: u64,
    served: u64,
    since_wait: u64,
    pace: Pace,
    since_drain: u64,
    waited: u64,
    frees: u64,
    pub live: u64,
    pub live_peak: u64,
    next_region: u64,
    pub grown: u32,
    pub given_back: u32,
    pub waits: u32,
    /// What the driver would take for the regions, read off an H200.
    pub driver_ns: u64,
    purse: Purse,
    /// Address and bytes by the trace's number.
    pub held: Vec<(u64, u64)>,
}

impl Player {
    pub fn new((lag, spacing): (u64, u64), ids: usize) -> Player {
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let caches: &'static Caches = Box::leak(Box::new(Caches::new(0, index)));
        Player {
            heap: Heap::new(0, index, Rules::default()),
            index,
            caches,
            cache: caches.enter().expect("the first cache"),
            lag,
            spacing,
            served: 0,
            since_wait: 0,
            pace: Pace::default(),
            since_drain: 0,
            waited: 0,
            frees: 0,
            live: 0,
            live_peak: 0,
            next_region: 0x7f00_0000_0000,
            grown: 0,
            given_back: 0,
            waits: 0,
            driver_ns: 0,
            purse: Purse::default(),
            held: vec![(0, 0); ids],
        }
    }

    fn retired(&self) -> u64 {
        self.frees.saturating_sub(self.lag).max(self.waited)
    }

    pub fn alloc(&mut self, id: usize, bytes: u64) {
        self.served += 1;
        self.since_wait += 1;
        self.since_drain += 1;
        let addr = self.serve(bytes);
        self.held[id] = (addr, bytes);
        self.live += bytes;
        self.live_peak = self.live_peak.max(self.live);
    }

    fn drain(&mut self, which: Drain) {
        let now = self.frees;
        self.caches.drain(&mut self.heap, which, || now);
    }

    /// What the server does, but for its locks, and for asking the driver what is over.
    fn serve(&mut self, bytes: u64) -> u64 {
        let retired = self.retired();
        let need = cached_need(bytes);
        let mut lend = false;
        if need <= CACHED_MAX {
            let mut popped = self.cache.pop(need, bytes, retired);
            if popped == Popped::Empty && self.caches.refill(self.cache, need, retired) {
                popped = self.cache.pop(need, bytes, retired);
            }
            if let Popped::Block(addr) = popped {
                return addr;
            }
            lend = popped == Popped::Empty;
        }
        self.heap.settle(self.cache);
        let mut addr = None;
        if self.wait_is_due(need) && bytes > SMALL_MAX {
            addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            if addr.is_none() && need > CACHED_MAX && self.since_drain >= SERVED_PER_DRAIN {
                self.since_drain = 0;
                self.drain(Drain::Like(bytes));
                addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            }
            if addr.is_none() && retired < self.frees {
                self.wait(self.frees);
            }
        }
        let retired = self.retired();
        if addr.is_none() && need > CACHED_MAX && self.since_drain >= SERVED_PER_DRAIN {
            addr = self.heap.alloc(bytes, bytes, Fit::Tight, retired);
            if addr.is_none() {
                self.since_drain = 0;
                self.drain(Drain::Like(bytes));
            }
        }
        let addr = addr.or_else(|| self.search(bytes, need, retired));
        let Some(addr) = addr else { return self.miss(bytes) };
        if lend {
            self.heap.lend(self.cache, addr, need);
        }
        addr
    }

    fn search(&mut self, bytes: u64, need: u64, retired: u64) -> Option<u64> {
        if need > CACHED_MAX && self.heap.may_trade(bytes, &self.purse) {
            let begun = self.heap.alloc(bytes, bytes, Fit::Begun, retired);
            if begun.is_some() {
                return begun;
            }
            if let Some(trade) = self.heap.trade(bytes)
                && self.heap.pay(&trade, &mut self.purse)
            {
                self.make(trade);
            }
        }
        self.heap.alloc(bytes, bytes, Fit::Any, retired)
    }

    fn wait_is_due(&self, need: u64) -> bool {
        let huge = || self.heap.is_huge(need) && self.pace.is_due_for_huge(self.served);
        self.since_wait >= self.spacing || (self.spacing != u64::MAX && huge())
    }

    fn wait(&mut self, epoch: u64) {
        self.waits += 1;
        self.since_wait = 0;
        self.pace.waited(self.served);
        self.waited = self.waited.max(epoch);
    }

    /// What the ladder above the pool does: drain, wait, give idle regions back, grow.
    #[cold]
    fn miss(&mut self, bytes: u64) -> u64 {
        self.drain(Drain::All);
        let retired = self.retired();
        if let Some(addr) = self.heap.alloc(bytes, bytes, Fit::Any, retired) {
            return addr;
        }
        if let Some(epoch) = self.heap.epoch_needed(bytes) {
            self.wait(epoch);
            if let Some(addr) = self.heap.alloc(bytes, bytes, Fit::Any, epoch) {
                return addr;
            }
        }
        let growth = self.heap.growth(bytes);
        let mark = self.heap.usage().reserved.peak;
        let mut idle = Vec::new();
        self.heap.idle_regions(&mut idle);
        idle.sort_unstable_by_key(|idle| (idle.size, idle.addr));
        for idle in idle {
            if self.heap.usage().reserved.current + growth.preferred <= mark {
                break;
            }
            self.give_back(idle);
        }
        self.grow(growth.preferred);
        self.heap.alloc(bytes, bytes, Fit::Any, 0).expect("the new region serves")
    }

    fn make(&mut self, trade: Trade) {
        if let Some(idle) = trade.give {
            self.give_back(idle);
        }
        self.grow(trade.take);
    }

    fn give_back(&mut self, idle: Idle) {
        assert_eq!(self.heap.take_region(idle.addr), Some(idle.size));
        self.given_back += 1;
        self.driver_ns += FREE_NS + idle.size / FREED_IN_NS;
    }

    fn grow(&mut self, bytes: u64) {
        self.grown += 1;
        self.driver_ns += ALLOC_NS + bytes / TAKEN_IN_NS;
        assert!(self.heap.add_region(self.next_region, bytes));
        self.next_region += bytes;
    }

    pub fn free(&mut self, id: usize) {
        let (addr, bytes) = std::mem::take(&mut self.held[id]);
        self.frees += 1;
        self.live -= bytes;
        let cache = self.cache;
        let claim = match self.index.keep(addr, |_| Some(cache)) {
            Freed::Kept(kept) => {
                kept.put(self.frees);
                return;
            }
            Freed::Claimed(claimed) => Claim::Claimed(claimed),
            Freed::No => match self.index.claim(addr) {
                Claim::Ask { .. } => self.heap.claim(addr),
                decided => decided,
            },
        };
        let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} gave {claim:?}") };
        let batch = self.caches.relieve(cache, claimed.size());
        self.heap.settle(cache);
        self.heap.free(claimed, self.frees);
        if let Some(batch) = batch {
            self.heap.take_batch(&batch);
        }
        if self.lag == 0 {
            self.heap.retire(self.frees);
        }
    }

    pub fn step(&mut self, op: Op) {
        match op {
            Op::Alloc { id, bytes } => self.alloc(id, bytes),
            Op::Free { id } => self.free(id),
        }
    }

    pub fn play(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(*op);
        }
    }

    /// Frees what lives of the trace's first `ids` numbers.
    pub fn end_phase(&mut self, ids: usize) {
        for id in 0..ids {
            if self.held[id].0 != 0 {
                self.free(id);
            }
        }
    }
}
