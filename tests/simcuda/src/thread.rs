//! What belongs to a host thread: its stack of contexts, its capture mode, its number. Nothing here has a destructor,
//! because destructors of other thread-local values may still call the driver.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static STACK: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    /// Capture mode of this thread: 0 global, 1 thread-local, 2 relaxed.
    pub static MODE: Cell<i32> = const { Cell::new(0) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Works on the contexts that the calling thread has pushed, the current one last.
pub fn stack<T>(f: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    STACK.with(|s| f(&mut s.borrow_mut()))
}

/// Marks that the driver runs a function of the program, which must not call the driver.
pub struct InCallback(bool);

impl InCallback {
    /// Marks until dropped.
    pub fn enter() -> InCallback {
        InCallback(IN_CALLBACK.replace(true))
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        IN_CALLBACK.set(self.0);
    }
}

/// Number of the calling thread, from 1.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = THREAD.get();
    if n != 0 {
        return n;
    }
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    THREAD.set(n);
    n
}

/// Whether the driver runs a function of the program on this thread.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}
