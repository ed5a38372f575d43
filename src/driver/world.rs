//! A random program on two contexts of the model device, everything checked after each action. One interpreter for
//! proptest (`tests/random.rs`) and for the coverage-guided fuzzer (`fuzz/`): an action is four bytes.

use super::books::DeviceBooks;
use super::external::charged;
use super::fence::Fence;
use super::model::Model;
use super::server::{Server, Tuning};
use super::{Ctx, CuResult, Gpu};
use crate::policy::{DeviceAccount, Rounding, footprint};
use crate::pool::{Claim, Heap, Index, PAGE, SMALL_MAX, Usage};
use crate::stats::{AtomicCounts, ExternalKind};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of one action.
pub const ACTION: usize = 4;
const MIB: u64 = 1 << 20;
/// Grain at which use is followed: blocks are multiples of it.
const GRAIN: u64 = 512;
const CALLS: [&str; 7] = ["mem_alloc", "mem_free", "event_create", "record", "query", "wait", "synchronize"];
const CODES: [CuResult; 3] = [CuResult::OUT_OF_MEMORY, CuResult::INVALID_VALUE, CuResult(999)];

/// What lasts for ever in the library. Used again by the next run, because a fuzzer makes millions; lost where a check
/// fails, so that nobody goes on with what is broken.
struct Eternal {
    fences: [Option<&'static Fence<Model>>; 2],
    index: &'static Index,
    books: HashMap<(u64, u64), &'static DeviceBooks>,
}

thread_local! {
    static ETERNAL: RefCell<Option<Eternal>> = const { RefCell::new(None) };
    /// The pools that the books' functions act on, as the library's own find them in a static.
    static POOLS: RefCell<Vec<Arc<Server<Model>>>> = const { RefCell::new(Vec::new()) };
}

fn pools() -> Vec<Arc<Server<Model>>> {
    POOLS.with_borrow(Clone::clone)
}

fn open_books(capacity: u64, limit: u64) -> &'static DeviceBooks {
    Box::leak(Box::new(DeviceBooks {
        account: DeviceAccount::new(capacity, limit),
        counts: AtomicCounts::default(),
        ooms: Mutex::new(Vec::new()),
        reclaim: |_, bytes| {
            let mut returned = 0;
            for pool in pools() {
                returned += if returned < bytes { pool.give_back(bytes - returned) } else { 0 };
            }
            returned
        },
        reclaimable: |_| pools().iter().map(|pool| pool.idle_bytes()).sum(),
        changed: |_, _| (),
        usage: |_| {
            pools().iter().fold(Usage::default(), |mut sum, pool| {
                sum.merge(&pool.usage());
                sum
            })
        },
        device: 0,
        name: String::new(),
    }))
}

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
        let mut eternal = ETERNAL.take().unwrap_or_else(|| Eternal {
            fences: [None; 2],
            index: Box::leak(Box::new(Index::new())),
            books: HashMap::new(),
        });
        let capacity = MIB * [16, 48, 64, 256][usize::from(device % 4)];
        let limit = [0, 12 * MIB, 30 * MIB, 64 * MIB, u64::MAX][usize::from(cap % 5)];
        let has_events = device / 4 % 4 != 0;
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
        };
        let pool = |at: u32| {
            let ctx = Ctx(at as usize + 1);
            Arc::new(Server::new(ctx, at, eternal.index, fence, books, tuning.clone()))
        };
        let (fence, books, pools) = (*fence, *books, [pool(0), pool(1)]);
        POOLS.set(pools.to_vec());
        World {
            eternal,
            fence,
            books,
            pools,
            whole,
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
        let addr = match pool.alloc(bytes) {
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

    /// Nothing may be refused that could be served: under the cap, by the device, from memory that only waits.
    fn check_refusal(&self, at: usize, bytes: u64, code: CuResult) {
        assert_eq!(code, if bytes == 0 { CuResult::INVALID_VALUE } else { CuResult::OUT_OF_MEMORY });
        let account = &self.books.account;
        if bytes <= SMALL_MAX || bytes > account.limit_bytes() / 2 || self.whole {
            return;
        }
        let idle: u64 = self.pools.iter().map(|pool| pool.idle_bytes()).sum();
        assert_eq!(idle, 0, "{bytes} bytes refused while idle memory is kept");
        let state = self.fence.gpu().state.lock();
        let left = account.headroom().min(state.capacity - state.used());
        drop(state);
        assert!(left < (2 * bytes).next_multiple_of(PAGE), "{bytes} bytes refused with {left} left");
        let largest = self.pools[at].usage().largest_free;
        assert!(
            self.captures > 0 || largest < 2 * bytes,
            "{bytes} bytes refused with {largest} in one piece"
        );
    }

    fn claim(&self, addr: u64) -> Claim {
        match self.eternal.index.claim(addr) {
            Claim::Ask { owner } => self.pools[owner as usize].claim(addr),
            decided => decided,
        }
    }

    fn free(&mut self, which: usize, user: usize) {
        let Some(at) = which.checked_rem(self.live.len()) else { return };
        let Live { pool, addr, bytes } = self.live.swap_remove(at);
        if self.pools[user].is_alive() {
            let work = self.fence.gpu().submit();
            for granule in addr / GRAIN..(addr + bytes).div_ceil(GRAIN) {
                self.touched.insert(granule, (work, self.pools[user].ctx()));
            }
        }
        let Claim::Claimed(claimed) = self.claim(addr) else { panic!("{addr:#x} is live") };
        assert_eq!((claimed.owner() as usize, claimed.requested()), (pool, bytes));
        assert_eq!(self.pools[pool].free(claimed), Ok(()));
        self.gone.push(addr);
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
        let regions = pool.with_heap(Heap::snapshot);
        pool.end();
        let mut state = self.fence.gpu().state.lock();
        for region in regions {
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
        } else if faults == 0 {
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

    /// Heaps, account, device and the list of what is live agree.
    fn check(&self) {
        let mut reserved = 0;
        for (at, pool) in self.pools.iter().enumerate() {
            pool.with_heap(Heap::check).expect("heap");
            let usage = pool.usage();
            reserved += usage.reserved.current;
            let live = || self.live.iter().filter(|live| live.pool == at);
            assert_eq!(usage.requested.current, live().map(|live| live.bytes).sum::<u64>());
            assert_eq!(usage.live_blocks, live().count() as u64);
            assert!(usage.reserved.current <= usage.reserved.peak);
        }
        let account = &self.books.account;
        let outside: u64 = self.external.iter().map(|(_, kind, bytes)| footprint(*kind, *bytes)).sum();
        assert_eq!(account.reserved().current, reserved, "account and heaps");
        assert_eq!(account.in_use(), reserved + outside, "nothing stays reserved");
        let state = self.fence.gpu().state.lock();
        assert_eq!(state.used(), reserved + outside, "account and device");
        assert!(account.limit_bytes() == account.total_bytes() || account.in_use() <= account.limit_bytes());
        assert!(!state.killed, "a call has killed a capture");
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
