//! What outlives a run: the library has it for as long as the process lives.

use super::super::books::DeviceBooks;
use super::super::fence::Fence;
use super::super::model::Model;
use super::super::server::Server;
use crate::policy::DeviceAccount;
use crate::pool::{Caches, Index, Usage};
use crate::stats::AtomicCounts;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What lasts for ever in the library. Used again by the next run, because a fuzzer makes millions; lost where a check
/// fails, so that nobody goes on with what is broken.
pub(super) struct Eternal {
    pub fences: [Option<&'static Fence<Model>>; 2],
    pub index: &'static Index,
    pub books: HashMap<(u64, u64), &'static DeviceBooks>,
    /// Of each pool.
    pub caches: [&'static Caches; 2],
}

/// Numbers of pools, apart from those of other tests: a thread knows its caches by them.
static OWNERS: AtomicU32 = AtomicU32::new(1 << 20);

impl Eternal {
    pub fn new() -> Eternal {
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let caches = || &*Box::leak(Box::new(Caches::new(OWNERS.fetch_add(1, Ordering::Relaxed), index)));
        Eternal { fences: [None; 2], index, books: HashMap::new(), caches: [caches(), caches()] }
    }
}

thread_local! {
    pub(super) static ETERNAL: RefCell<Option<Eternal>> = const { RefCell::new(None) };
    /// The pools that the books' functions act on, as the library's own find them in a static.
    pub(super) static POOLS: RefCell<Vec<Arc<Server<Model>>>> = const { RefCell::new(Vec::new()) };
}

fn pools() -> Vec<Arc<Server<Model>>> {
    POOLS.with_borrow(Clone::clone)
}

pub(super) fn open_books(capacity: u64, limit: u64) -> &'static DeviceBooks {
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
        clock: || 0,
        failed: |_, _| (),
        chronicle: None,
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
