//! The calling thread's variables, found by two instructions.
//!
//! A shared library finds its threads' variables by a call into the dynamic linker, which costs a hit a tenth of its time,
//! because it might be loaded late and in any order. This one is loaded with the program, so its variables can lie where the program's do,
//! at an offset from the thread pointer that is fixed once it is loaded (the *initial-exec* model of thread-local storage). Rust
//! has no stable way to ask for that; the assembler has. Loaded late it works as well, as long as all thread-local storage
//! of the library, less than a kilobyte (`scripts/check-exports.sh`), finds room in what the C library keeps for that, which is more.

pub use here::with;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod here {
    use crate::pool::local::Thread;
    use std::arch::{asm, global_asm};

    const BYTES: usize = 256;
    const ALIGN: usize = 64;
    const _: () = assert!(size_of::<Thread>() <= BYTES && align_of::<Thread>() <= ALIGN);

    global_asm!(
        ".pushsection .tbss.gpucache_thread, \"awT\", @nobits",
        ".hidden gpucache_thread",
        ".globl gpucache_thread",
        ".type gpucache_thread, @object",
        ".size gpucache_thread, {bytes}",
        ".balign {align}",
        "gpucache_thread:",
        ".zero {bytes}",
        ".popsection",
        bytes = const BYTES,
        align = const ALIGN,
    );

    /// The calling thread's [`Thread`].
    #[inline(always)]
    pub fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
        let thread: *const Thread;
        // SAFETY: reads the variable's offset from the thread pointer, which the dynamic linker has filled in, and the thread
        // pointer itself, which the first word that it points at holds.
        unsafe {
            asm!(
                "mov {thread}, qword ptr [rip + gpucache_thread@GOTTPOFF]",
                "add {thread}, qword ptr fs:[0]",
                thread = out(reg) thread,
                options(pure, nomem, nostack),
            );
        }
        // SAFETY: the thread's own copy, large and aligned enough, begun as zeros, which are a valid `Thread`: numbers, false and
        // `None`s of references. It lives as long as the thread, and the reference cannot leave either: it is lent to `body`, and
        // a `Thread` is not `Sync`.
        body(unsafe { &*thread })
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod here {
    pub use crate::pool::local::with;
}
