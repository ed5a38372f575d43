//! The ladder and the fence against the model.

mod asking;
mod expandable;
mod members;
mod random;
mod steps;
mod trades;
mod waits;

use super::books::DeviceBooks;
use super::fence::Fence;
use super::model::Model;
use super::server::{Server, Tuning};
use super::{Ctx, CuResult};
use crate::policy::{DeviceAccount, Rounding};
use crate::pool::{Caches, Claim, Freed, Heap, Index, local};
use crate::stats::AtomicCounts;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const MIB: u64 = 1 << 20;
static OWNERS: AtomicU32 = AtomicU32::new(0);

/// One context on a model device. Leaked: the library's own are for ever, too.
struct Bench {
    fence: &'static Fence<Model>,
    index: &'static Index,
    server: &'static Server<Model>,
}

impl Bench {
    fn new(capacity: u64, limit: u64) -> Bench {
        Bench::with(Model::new(capacity, true), limit, Tuning::default())
    }

    fn with(model: Model, limit: u64, mut tuning: Tuning) -> Bench {
        let capacity = model.state.lock().capacity;
        let fence: &'static Fence<Model> = Box::leak(Box::new(Fence::new(model)));
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let books: &'static DeviceBooks = Box::leak(Box::new(DeviceBooks {
            account: DeviceAccount::new(capacity, limit),
            counts: AtomicCounts::default(),
            ooms: Mutex::new(Vec::new()),
            reclaim: |_, _| 0,
            reclaimable: |_| 0,
            usage: |_| crate::pool::Usage::default(),
            changed: |_, _| (),
            clock: || 0,
            failed: |_, _| (),
            chronicle: None,
            device: 0,
            name: String::new(),
        }));
        if tuning.max_split == 0 {
            tuning.max_split = u64::MAX;
        }
        // A number of its own: threads know their caches by it.
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        let caches = Box::leak(Box::new(Caches::new(owner, index)));
        let server = Box::leak(Box::new(Server::new(Ctx(1), caches, fence, books, tuning)));
        Bench { fence, index, server }
    }

    fn model(&self) -> &'static Model {
        self.fence.gpu()
    }

    fn alloc(&self, bytes: u64) -> Result<u64, CuResult> {
        local::with(|thread| self.server.alloc(thread, bytes))
    }

    fn free(&self, address: u64) {
        match local::with(|thread| self.index.keep(address, |owner| thread.get(owner))) {
            Freed::Kept(kept) => {
                let _ = self.server.keep(kept);
            }
            Freed::Claimed(claimed) => {
                let _ = local::with(|thread| self.server.free(thread, claimed));
            }
            Freed::No => self.free_locked(address),
        }
    }

    fn free_locked(&self, address: u64) {
        let claim = match self.index.claim(address) {
            Claim::Ask { .. } => self.server.claim(address),
            decided => decided,
        };
        let Claim::Claimed(claimed) = claim else { panic!("{address:#x} is not live: {claim:?}") };
        let _ = local::with(|thread| self.server.free(thread, claimed));
    }

    fn reserved(&self) -> u64 {
        self.server.usage().reserved.current
    }

    /// Heap, account and device agree.
    fn check(&self) {
        self.server.check().expect("heap");
        let used = self.model().state.lock().used();
        assert_eq!(self.reserved(), used, "heap and device");
        assert_eq!(self.server.books().account.reserved().current, used, "account and device");
        assert_eq!(self.server.books().account.in_use(), used, "nothing stays reserved");
        let state = self.model().state.lock();
        let maps = &state.mapping;
        for piece in self.server.with_heap(Heap::attached) {
            let mapped = maps.mapped.get(&piece.addr).map(|(size, handle, _)| (*size, *handle));
            assert_eq!(mapped, Some((piece.size, piece.handle)), "heap and device at {:#x}", piece.addr);
        }
    }
}

fn rounding(divisions: u64) -> Tuning {
    Tuning { rounding: Rounding::uniform(divisions), ..Tuning::default() }
}
