//! The caches that the calling thread has, by the number of the heap.
//!
//! The quick look is at a few places that need no destructor, so that it works at any time of a thread's life. A second
//! variable, whose destructor leaves the caches to other threads, remembers all of them. It is asked for only when the
//! thread meets a heap that is in no place; once it has been destroyed the thread goes without caches.

use super::cache::Cache;
use std::cell::{Cell, RefCell};

/// Heaps that a thread may alternate between without a search.
const PLACES: usize = 8;
const NOBODY: u32 = u32::MAX;

type Place = Cell<(u32, Option<&'static Cache>)>;

/// What a thread keeps at hand for every call, in one place, because to find a thread's variables costs as much as a lock.
pub struct Thread {
    places: [Place; PLACES],
    /// Whether the thread is inside a driver call that the library makes.
    pub inside: Cell<bool>,
    /// What the layers above found out about the context that was current last, and a number of theirs by which they know
    /// whether that still holds.
    pub context: Cell<(usize, u64, usize)>,
}

thread_local! {
    static THREAD: Thread = const { Thread {
        places: [const { Cell::new((NOBODY, None)) }; PLACES],
        inside: Cell::new(false),
        context: Cell::new((0, 0, 0)),
    } };
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
}

/// The calling thread's [`Thread`].
#[inline(always)]
pub fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(body)
}

struct Mine(RefCell<Vec<(u32, Option<&'static Cache>)>>);

impl Drop for Mine {
    fn drop(&mut self) {
        with(|thread| thread.places.iter().for_each(|place| place.set((NOBODY, None))));
        for (_, cache) in self.0.borrow().iter() {
            if let Some(cache) = cache {
                cache.leave();
            }
        }
    }
}

/// The calling thread's cache of heap `owner`: `None` if it has none at hand, and then perhaps by [`find`].
#[inline(always)]
pub fn get(owner: u32) -> Option<&'static Cache> {
    with(|thread| {
        let (of, cache) = thread.places[owner as usize % PLACES].get();
        if of == owner { cache } else { None }
    })
}

/// The same after a search, or from `enter`, which is asked once per thread and heap.
#[inline(always)]
pub fn find(owner: u32, enter: impl FnOnce() -> Option<&'static Cache>) -> Option<&'static Cache> {
    with(|thread| {
        let (of, cache) = thread.places[owner as usize % PLACES].get();
        if of == owner { cache } else { search(owner, enter) }
    })
}

#[cold]
fn search(owner: u32, enter: impl FnOnce() -> Option<&'static Cache>) -> Option<&'static Cache> {
    let found = MINE.try_with(|mine| {
        let mut mine = mine.0.try_borrow_mut().ok()?;
        if let Some((_, cache)) = mine.iter().find(|(of, _)| *of == owner) {
            return Some(*cache);
        }
        let cache = enter();
        mine.push((owner, cache));
        Some(cache)
    });
    let cache = found.ok().flatten()?;
    with(|thread| thread.places[owner as usize % PLACES].set((owner, cache)));
    cache
}
