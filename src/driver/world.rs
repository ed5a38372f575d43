//! A random program on two contexts of the model device, everything checked after each action. One interpreter for
//! proptest (`tests/random.rs`) and for the coverage-guided fuzzer (`fuzz/`): an action is four bytes. The pools take segments,
//! or memory mapped into ranges.

mod checks;
mod lasting;

use super::books::DeviceBooks;
use super::external::charged;
use super::fence::Fence;
use super::model::Model;
use super::server::{Server, Tuning};
use super::{Ctx, CuResult, Gpu};
use crate::policy::{Rounding, footprint};
use crate::pool::{Claim, Freed, Heap, SMALL_MAX, local};
use crate::stats::ExternalKind;
use lasting::{ETERNAL, Eternal, POOLS, open_books};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of one action.
pub const ACTION: usize = 4;
const MIB: u64 = 1 << 20;
/// Grain at which use is followed: blocks are multiples of it.
const GRAIN: u64 = 512;
const CALLS: [&str; 14] = [
    "mem_alloc",
    "mem_free",
    "event_create",
    "record",
    "query",
    "wait",
    "synchronize",
    "reserve",
    "create",
    "map",
    "set_access",
    "unmap",
    "release",
    "free_addresses",
];
/// Those that a pool makes when its context ends.
const LAST_CALLS: [&str; 3] = ["unmap", "release", "free_addresses"];
const CODES: [CuResult; 3] = [CuResult::OUT_OF_MEMORY, CuResult::INVALID_VALUE, CuResult(999)];

struct Live {
    pool: usize,
    addr: u64,
    bytes: u64,
}

/// The run.
pub struct World {
    eternal: Eternal,
    fence: &'static Fence<Model>,
    books: &'static DeviceBooks,
    pools: [Arc<Server<Model>>; 2],
    whole: bool,
    expandable: bool,
    live: Vec<Live>,
    gone: Vec<u64>,
    /// Work that last touched each granule of memory that was freed, and its context.
    touched: HashMap<u64, (u64, Ctx)>,
    /// Memory outside the pools: address, kind, bytes.
    external: Vec<(u64, ExternalKind, u64)>,
    captures: u32,
}

/// Plays the actions in `bytes` from a fresh start to the end of everything; the first four bytes are the settings.
///
/// # Panics
/// If anything is not as it should be.
pub fn play(bytes: &[u8]) {
    let mut actions = bytes.chunks_exact(ACTION).map(|action| [action[0], action[1], action[2], action[3]]);
    let Some(settings) = actions.next() else { return };
    let mut world = World::new(settings);
    for action in actions {
        world.step(action);
        world.check();
    }
    world.finish();
}

impl World {
    fn new([device, cap, tuned, other]: [u8; 4]) -> World {
        let mut eternal = ETERNAL.take().unwrap_or_else(Eternal::new);
        eternal.caches.iter().for_each(|caches| caches.begin_anew());
        let capacity = MIB * [16, 48, 64, 256][usize::from(device % 4)];
        let limit = [0, 12 * MIB, 30 * MIB, 64 * MIB, u64::MAX][usize::from(cap % 5)];
        let (has_events, expandable) = (device / 4 % 4 != 0, device / 16 % 2 == 1);
        let fence = eternal.fences[usize::from(has_events)]
            .get_or_insert_with(|| Box::leak(Box::new(Fence::new(Model::new(capacity, has_events)))));
        let books = eternal.books.entry((capacity, limit)).or_insert_with(|| open_books(capacity, limit));
        fence.gpu().state.lock().capacity = capacity;
        let whole = tuned % 4 == 0;
        let tuning = Tuning {
            rounding: Rounding::uniform([1, 1, 2, 8][usize::from(tuned / 4 % 4)]),
            max_split: if whole { 20 * MIB } else { u64::MAX },
            max_non_split_rounding: 20 * MIB,
            gc_threshold: (other % 4 == 0).then_some(0.5),
            free_sync: other / 4 % 4 == 0,
            patience: std::time::Duration::ZERO,
            expandable,
        };
        let pool =
            |at: usize| Arc::new(Server::new(Ctx(at + 1), eternal.caches[at], fence, books, tuning.clone()));
        let (fence, books, pools) = (*fence, *books, [pool(0), pool(1)]);
        POOLS.set(pools.to_vec());
        World {
            eternal,
            fence,
            books,
            pools,
            whole,
            expandable,
            live: Vec::new(),
            gone: Vec::new(),
            touched: HashMap::new(),
            external: Vec::new(),
            captures: 0,
        }
    }

    fn step(&mut self, [what, a, b, c]: [u8; 4]) {
        let (at, which) = (usize::from(a % 2), usize::from(a) << 8 | usize::from(b));
        match what % 32 {
            0..8 => self.alloc(at, size(a / 2, b, c)),
            8..15 => self.free(which, usize::from(c % 2)),
            15 => self.free_again(which),
            16 => self.free_inside(which, u64::from(c)),
            17 => {
                let addr = (u64::from(a) << 30) + u64::from(b) * 512;
                assert!(matches!(self.eternal.index.claim(addr), Claim::Foreign), "{addr:#x}");
            }
            18 | 19 => {
                let mut state = self.fence.gpu().state.lock();
                state.completed = state.completed.max(state.submitted.saturating_sub(u64::from(b % 20)));
            }
            20 => _ = self.fence.seal(),
            21 => _ = self.fence.poll(),
            22 => _ = self.fence.barrier(self.fence.current()),
            23 => self.synchronise(at),
            24 => self.reset(at),
            25 => self.begin_capture(),
            26 => self.end_capture(),
            27 => _ = self.pools[at].give_back(u64::from(b) * MIB),
            28 => {
                let failure = (CALLS[usize::from(a) % CALLS.len()], CODES[usize::from(b) % CODES.len()]);
                self.fence.gpu().state.lock().failures.push(failure);
            }
            29 => self.alloc_outside(ExternalKind::ALL[usize::from(a % 8)], size(a / 8, b, c)),
            30 => self.free_outside(which),
            _ => {
                // Another process takes memory of the device, or gives it back.
                let mut state = self.fence.gpu().state.lock();
                let most = self.books.account.total_bytes();
                state.capacity = (most / 8 * u64::from(a % 9)).max(state.used());
            }
        }
    }

    fn alloc(&mut self, at: usize, bytes: u64) {
        let pool = Arc::clone(&self.pools[at]);
        if !pool.is_alive() {
            // As the next call on the device does, when it finds no context. What keeps a context from taking part, a
            // capture or a failing call, is not what is tried here.
            if self.captures > 0 {
                return;
            }
            self.fence.gpu().state.lock().failures.clear();
            pool.revive(pool.ctx());
        }
        let faults = self.fence.gpu().state.lock().failures.len();
        let addr = match local::with(|thread| pool.alloc(thread, bytes)) {
            Ok(addr) => addr,
            Err(code) => {
                if faults == 0 {
                    self.check_refusal(at, bytes, code);
                }
                return;
            }
        };
        assert!(self.live.iter().all(|live| addr + bytes <= live.addr || live.addr + live.bytes <= addr));
        for granule in addr / GRAIN..(addr + bytes).div_ceil(GRAIN) {
            if let Some((work, source)) = self.touched.get(&granule) {
                let safe = self.pools.iter().filter(|user| user.is_alive());
                let safe = safe.map(|user| self.fence.gpu().is_safe_for(user.ctx(), *source, *work));
                assert!(safe.min().unwrap_or(true), "{addr:#x} is still in use by work {work} of {source:?}");
            }
        }
        self.live.push(Live { pool: at, addr, bytes });
    }

    fn claim(&self, addr: u64) -> Claim {
        match self.eternal.index.claim(addr) {
            Claim::Ask { owner } => self.pools[self.pool_of(owner)].claim(addr),
            decided => decided,
        }
    }

    fn free(&mut self, which: usize, user: usize) {
        let Some(at) = which.checked_rem(self.live.len()) else { return };
        let Live { pool, addr, bytes } = self.live.swap_remove(at);
        if self.pools[user].is_alive() {
            let work = self.fence.gpu().touch(addr, bytes);
            for granule in addr / GRAIN..(addr + bytes).div_ceil(GRAIN) {
                self.touched.insert(granule, (work, self.pools[user].ctx()));
            }
        }
        self.gone.push(addr);
        // By the thread's cache, where that has room, or past it.
        let beside = !which.is_multiple_of(4);
        let freed = if beside {
            local::with(|thread| self.eternal.index.keep(addr, |owner| thread.get(owner)))
        } else {
            Freed::No
        };
        let claim = match freed {
            Freed::Kept(kept) => {
                assert_eq!(self.pool_of(kept.owner()), pool);
                assert_eq!(self.pools[pool].keep(kept), CuResult::SUCCESS);
                return;
            }
            Freed::Claimed(claimed) => Claim::Claimed(claimed),
            Freed::No => self.claim(addr),
        };
        let Claim::Claimed(claimed) = claim else { panic!("{addr:#x} is live") };
        assert_eq!((self.pool_of(claimed.owner()), claimed.requested()), (pool, bytes));
        assert_eq!(local::with(|thread| self.pools[pool].free(thread, claimed)), CuResult::SUCCESS);
    }

    fn free_again(&self, which: usize) {
        let Some(&addr) = which.checked_rem(self.gone.len()).and_then(|at| self.gone.get(at)) else { return };
        if self.live.iter().any(|live| live.addr == addr) {
            return;
        }
        let found = self.claim(addr);
        match self.live.iter().find(|live| live.addr < addr && addr < live.addr + live.bytes) {
            Some(live) => {
                assert!(matches!(found, Claim::Interior { start, .. } if start == live.addr), "{found:?}");
            }
            None => assert!(!matches!(found, Claim::Claimed(_) | Claim::Ask { .. }), "{addr:#x}: {found:?}"),
        }
    }

    fn free_inside(&self, which: usize, offset: u64) {
        let Some(at) = which.checked_rem(self.live.len()) else { return };
        let Live { addr, bytes, .. } = self.live[at];
        if bytes > 1 {
            let found = self.claim(addr + 1 + offset * 97 % (bytes - 1));
            assert!(matches!(found, Claim::Interior { start, .. } if start == addr), "{found:?}");
        }
    }

    /// The program's own synchronisation, which would kill a capture without us too.
    fn synchronise(&self, at: usize) {
        if self.captures == 0 && self.pools[at].is_alive() {
            let epoch = self.fence.before_sync();
            self.fence.gpu().complete();
            self.fence.synced(self.pools[at].ctx(), epoch);
        }
    }

    /// The context ends, and all its memory and work with it.
    fn reset(&mut self, at: usize) {
        let _ending = self.fence.end();
        let pool = &self.pools[at];
        self.fence.gpu().complete();
        let mut segments = pool.with_heap(Heap::snapshot);
        segments.retain(|region| !pool.is_mapped(region.addr));
        // What a driver keeps of a range whose end it refuses stays charged for ever: not what is tried here.
        self.fence.gpu().state.lock().failures.retain(|(name, _)| !LAST_CALLS.contains(name));
        pool.end();
        let mut state = self.fence.gpu().state.lock();
        for region in segments {
            assert!(state.memory.remove(&region.addr).is_some(), "{:#x} is not the device's", region.addr);
        }
        let (gone, live) = std::mem::take(&mut self.live).into_iter().partition(|live| live.pool == at);
        self.live = live;
        let gone: Vec<Live> = gone;
        self.gone.extend(gone.iter().map(|live| live.addr));
    }

    fn begin_capture(&mut self) {
        if self.captures < 3 {
            let beginning = self.fence.gate().begin();
            self.fence.gpu().state.lock().capturing = true;
            beginning.succeeded();
            self.captures += 1;
        }
    }

    fn end_capture(&mut self) {
        if self.captures > 0 {
            self.captures -= 1;
            self.fence.gpu().state.lock().capturing = self.captures > 0;
            self.fence.gate().ended();
        }
    }

    /// Another allocator of the process takes memory.
    fn alloc_outside(&mut self, kind: ExternalKind, bytes: u64) {
        let (gpu, mut addr) = (self.fence.gpu(), 0);
        let faults = gpu.state.lock().failures.len();
        let takes = footprint(kind, bytes);
        let result = charged(self.books, kind, bytes, || match gpu.mem_alloc(Ctx(0), takes) {
            Ok(place) => {
                addr = place;
                CuResult::SUCCESS
            }
            Err(code) => code,
        });
        if result.is_ok() {
            self.external.push((addr, kind, bytes));
        } else if faults == 0 && !self.may_not_wait() {
            assert_eq!(result, Err(CuResult::OUT_OF_MEMORY));
            let account = &self.books.account;
            let state = gpu.state.lock();
            let left = account.headroom().min(state.capacity - state.used());
            drop(state);
            let idle: u64 = self.pools.iter().map(|pool| pool.idle_bytes()).sum();
            let refused = left + idle < takes || takes > account.limit_bytes();
            assert!(refused, "{bytes} bytes refused with {left} left and {idle} that only lie in the cache");
        }
    }

    fn free_outside(&mut self, which: usize) {
        let Some(at) = which.checked_rem(self.external.len()) else { return };
        let (addr, kind, bytes) = self.external.swap_remove(at);
        assert!(self.fence.gpu().state.lock().memory.remove(&addr).is_some());
        self.books.account.release_external(kind, bytes);
    }

    fn pool_of(&self, owner: u32) -> usize {
        self.eternal.caches.iter().position(|caches| caches.owner() == owner).expect("a pool of this run")
    }

    /// Everything ends, and nothing is left.
    fn finish(mut self) {
        while self.captures > 0 {
            self.end_capture();
        }
        while !self.live.is_empty() {
            self.free(0, 0);
        }
        self.check();
        while !self.external.is_empty() {
            self.free_outside(0);
        }
        (0..2).for_each(|at| self.reset(at));
        self.check();
        assert_eq!(self.books.account.in_use(), 0);
        let mut state = self.fence.gpu().state.lock();
        assert!(state.memory.is_empty());
        let maps = &state.mapping;
        assert!(maps.handles.is_empty() && maps.mapped.is_empty() && maps.reserved.is_empty());
        let capacity = state.capacity;
        *state = super::model::State::of(capacity);
        drop(state);
        POOLS.take();
        ETERNAL.set(Some(self.eternal));
    }
}

/// Sizes of all kinds: small ones, whole pages and their neighbours, and some that do not fit.
fn size(kind: u8, b: u8, c: u8) -> u64 {
    let n = u64::from(b) << 8 | u64::from(c);
    match kind % 8 {
        0 | 1 => n % 2000,
        2 | 3 => 1 + n % (SMALL_MAX + 600),
        4 => 1 + n * 8,
        5 => n * 64 + 1,
        6 => (n % 16 + 1) * MIB + u64::from(c % 3) * 512 - 512,
        _ => n * 1024,
    }
}
