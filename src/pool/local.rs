//! The caches that the calling thread has, by the number of the heap.
//!
//! All of it lies in one variable without a destructor, so that it can be used at any time of a thread's life. The quick
//! look is at a few places; a list through the caches themselves remembers all of them. When the thread ends, whoever
//! notices that calls [`leave`].

use super::cache::Cache;
use std::cell::Cell;
use std::sync::OnceLock;

/// Heaps that a thread may alternate between without a search.
const PLACES: usize = 8;
const NOBODY: u32 = u32::MAX;

type Place = Cell<(u32, Option<&'static Cache>)>;

/// What a thread keeps at hand for every call, in one place, because to find a thread's variables costs as much as a lock.
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
        places: [const { Cell::new((NOBODY, None)) }; PLACES],
        first: Cell::new(None),
        inside: Cell::new(false),
        context: Cell::new((0, 0, 0)),
    } };
}

/// Sees to it that [`leave`] is called at the end of the calling thread.
static NOTICE: OnceLock<fn()> = OnceLock::new();

/// Ends of threads are noticed by `notice`, which is called by a thread whenever it gets a cache. The first call counts; without
/// one, Rust's own means serve.
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
            leave();
        }
    }
    match NOTICE.get() {
        Some(notice) => notice(),
        None => LEAVES.try_with(|_| ()).unwrap_or_default(),
    }
}

/// The calling thread's [`Thread`].
#[inline(always)]
pub fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(body)
}

/// Leaves the caches of the calling thread to other threads.
pub fn leave() {
    with(|thread| {
        thread.places.iter().for_each(|place| place.set((NOBODY, None)));
        let mut next = thread.first.take();
        while let Some(cache) = next {
            // Before it is left: from then on it is in another thread's list.
            next = cache.unlink();
            cache.leave();
        }
    });
}

impl Thread {
    /// The thread's cache of heap `owner`: `None` if it has none at hand, and then perhaps by [`Thread::find`].
    #[inline(always)]
    pub fn get(&self, owner: u32) -> Option<&'static Cache> {
        let (of, cache) = self.places[owner as usize % PLACES].get();
        if of == owner { cache } else { None }
    }

    /// The same after a search, or from `enter`, which is asked once per thread and heap.
    #[inline(always)]
    pub fn find(&self, owner: u32, enter: impl FnOnce() -> Option<&'static Cache>) -> Option<&'static Cache> {
        let (of, cache) = self.places[owner as usize % PLACES].get();
        if of == owner { cache } else { self.search(owner, enter) }
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
        self.places[owner as usize % PLACES].set((owner, cache));
        cache
    }
}
