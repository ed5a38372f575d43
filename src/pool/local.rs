//! The caches that the calling thread has, by the number of the heap.
//!
//! All of it lies in one variable without a destructor, so that it can be used at any time of a thread's life. The quick
//! look is at a few places; a list through the caches themselves remembers all of them. When the thread ends, whoever
//! notices that calls [`Thread::leave`].

use super::cache::Cache;
use std::cell::Cell;
use std::sync::OnceLock;

/// Heaps that a thread may alternate between without a search.
const PLACES: usize = 8;

/// A heap's number and one, and the thread's cache of it; 0 for no heap.
type Place = Cell<(u32, Option<&'static Cache>)>;

/// What a thread keeps at hand for every call, in one place, because to find a thread's variables costs as much as a lock. It
/// begins as zeros.
pub struct Thread {
    places: [Place; PLACES],
    /// The first of its caches.
    first: Cell<Option<&'static Cache>>,
    /// Whether the thread is inside a driver call that the library makes.
    pub inside: Cell<bool>,
    /// What the layers above found out about the context that was current last, and a number of theirs by which they know
    /// whether that still holds.
    pub context: Cell<(usize, u64, usize)>,
}

thread_local! {
    static THREAD: Thread = const { Thread {
        places: [const { Cell::new((0, None)) }; PLACES],
        first: Cell::new(None),
        inside: Cell::new(false),
        context: Cell::new((0, 0, 0)),
    } };
}

/// Sees to it that [`Thread::leave`] is called at the end of the calling thread.
static NOTICE: OnceLock<fn()> = OnceLock::new();

/// Ends of threads are noticed by `notice`, which is called by a thread whenever it gets a cache. The first call counts; without
/// one, Rust's own means serve, for those who use [`with`].
pub fn notice_ends_by(notice: fn()) {
    let _ = NOTICE.set(notice);
}

fn notice() {
    thread_local! {
        static LEAVES: Leaves = const { Leaves };
    }
    struct Leaves;
    impl Drop for Leaves {
        fn drop(&mut self) {
            with(Thread::leave);
        }
    }
    match NOTICE.get() {
        Some(notice) => notice(),
        None => LEAVES.try_with(|_| ()).unwrap_or_default(),
    }
}

/// The calling thread's [`Thread`], by Rust's own means. A thread has one, so it is either this one or that of the layer which
/// knows a faster way.
#[inline(always)]
pub fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(body)
}

impl Thread {
    /// Leaves the thread's caches to other threads.
    pub fn leave(&self) {
        self.places.iter().for_each(|place| place.set((0, None)));
        let mut next = self.first.take();
        while let Some(cache) = next {
            // Before it is left: from then on it is in another thread's list.
            next = cache.unlink();
            cache.leave();
        }
    }

    /// The thread's cache of heap `owner`: `None` if it has none at hand, and then perhaps by [`Thread::find`].
    #[inline(always)]
    pub fn get(&self, owner: u32) -> Option<&'static Cache> {
        let (of, cache) = self.places[owner as usize % PLACES].get();
        if of == owner + 1 { cache } else { None }
    }

    /// The same after a search, or from `enter`, which is asked once per thread and heap.
    #[inline(always)]
    pub fn find(&self, owner: u32, enter: impl FnOnce() -> Option<&'static Cache>) -> Option<&'static Cache> {
        let (of, cache) = self.places[owner as usize % PLACES].get();
        if of == owner + 1 { cache } else { self.search(owner, enter) }
    }

    #[cold]
    fn search(&self, owner: u32, enter: impl FnOnce() -> Option<&'static Cache>) -> Option<&'static Cache> {
        let first = self.first.get();
        let known = std::iter::successors(first, |cache| cache.next()).find(|cache| cache.owner() == owner);
        let cache = known.or_else(|| {
            let cache = enter()?;
            cache.link(first);
            self.first.set(Some(cache));
            notice();
            Some(cache)
        });
        self.places[owner as usize % PLACES].set((owner + 1, cache));
        cache
    }
}
