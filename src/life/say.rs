//! One line on stderr: `gpucache[PID]: …`, in a single `write(2)`, so that lines of several processes never mix.
//!
//! The program owns its file descriptors. Where it has given number 2 to something else since its first CUDA call,
//! nothing is written; and where nobody reads any more, that is no reason for it to die.

use std::ffi::c_int;
use std::mem::{MaybeUninit, zeroed};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const NOT_ASKED: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// What stderr was at the first CUDA call: one of the above, and for an open one device and inode.
static STATE: AtomicU8 = AtomicU8::new(NOT_ASKED);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Notes what stderr is now; later, only that is written to.
pub fn remember() {
    if let Some((device, inode)) = identity() {
        DEVICE.store(device, Ordering::Relaxed);
        INODE.store(inode, Ordering::Relaxed);
        STATE.store(OPEN, Ordering::Release);
    } else {
        STATE.store(CLOSED, Ordering::Release);
    }
}

/// Device and inode behind file descriptor 2; `None` if it is closed.
fn identity() -> Option<(u64, u64)> {
    // SAFETY: plain data, for which all zeros is a value.
    let mut status: libc::stat = unsafe { zeroed() };
    // SAFETY: writes to our local.
    let result = unsafe { libc::fstat(libc::STDERR_FILENO, &raw mut status) };
    // The types differ between processors.
    #[allow(clippy::unnecessary_cast)]
    (result == 0).then_some((status.st_dev as u64, status.st_ino as u64))
}

/// Whether stderr is what it was at the first CUDA call.
pub(super) fn is_ours() -> bool {
    match STATE.load(Ordering::Acquire) {
        NOT_ASKED => true,
        OPEN => identity() == Some((DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed))),
        _ => false,
    }
}

/// Whether stderr takes something within a second: a full pipe that nobody reads must not keep the process from ending.
fn is_writable() -> bool {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, our local.
    unsafe { libc::poll(&raw mut stderr, 1, 1000) != 0 }
}

/// Writes `text` as one line.
pub fn line(text: &str) {
    raw(&format!("gpucache[{}]: {text}\n", std::process::id()));
}

/// Writes several lines at once: those of other processes come before or after.
pub fn lines(texts: &[String]) {
    let pid = std::process::id();
    let all: Vec<String> = texts.iter().map(|text| format!("gpucache[{pid}]: {text}\n")).collect();
    raw(&all.concat());
}

/// Writes `text` as it is. A closed stderr is not an error worth a word, and there would be nowhere to say it.
pub fn raw(text: &str) {
    if !is_ours() {
        return;
    }
    let _quiet = NoBrokenPipe::hold_back();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        if !is_writable() {
            return;
        }
        // No more than what poll has promised to take. SAFETY: a buffer that lives across the call.
        let written =
            unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len().min(libc::PIPE_BUF)) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = &rest[written..],
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// While it lives, a write of this thread to a pipe without a reader fails and does no more: the signal that would end
/// the process is held back and taken away again. One that the program has coming for itself stays.
pub struct NoBrokenPipe {
    /// The thread's own mask; `None` where nothing was changed.
    before: Option<libc::sigset_t>,
    was_pending: bool,
}

impl NoBrokenPipe {
    /// Holds the signal back.
    pub fn hold_back() -> NoBrokenPipe {
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        let signal = broken_pipe();
        // SAFETY: reads and writes our locals.
        let result =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, before.as_mut_ptr()) };
        // SAFETY: all zeros is a value, and the call fills it if it succeeds.
        let before = unsafe { before.assume_init() };
        NoBrokenPipe { was_pending: is_pending(), before: (result == 0).then_some(before) }
    }
}

impl Drop for NoBrokenPipe {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        if !self.was_pending && is_pending() {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let signal = broken_pipe();
            // SAFETY: reads our locals; takes the signal if it is there and never waits.
            unsafe { libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const at_once) };
        }
        // SAFETY: the mask that was there.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
}

const SIGNAL: c_int = libc::SIGPIPE;

fn broken_pipe() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: fills our local.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        set.assume_init()
    }
}

fn is_pending() -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: fills our local, and reads what was filled.
    unsafe { libc::sigpending(set.as_mut_ptr()) == 0 && libc::sigismember(set.as_ptr(), SIGNAL) == 1 }
}
