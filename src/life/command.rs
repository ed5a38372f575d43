//! Runs the command for an alarm in such a way that the program cannot notice: it gets no signal, and its `wait` finds
//! nothing that it did not start.
//!
//! ```text
//!   a thread of the program          waits by its number, with __WALL; suspended until then
//!     '- clone, exit signal 0        the intermediate: no SIGCHLD, and not of the children that a plain `wait` looks for
//!          '- clone                  becomes the command by `exec`; an orphan once the intermediate has ended
//! ```
//!
//! Both clones share the memory of the process and suspend their parent, as `vfork` does: nothing is copied, no handler of
//! `pthread_atfork` runs, and no lock that another thread holds matters, because all that they do is system calls. Signals
//! are blocked meanwhile, so that no handler of the program runs in the wrong process. Raw system calls throughout: the
//! library's own `_exit` writes reports, and the C library's `waitpid` may cancel a thread.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_long, c_void};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use super::{process, say};
use crate::policy::Conf;

/// What the command's environment is made of: that of the process at its first CUDA call. Later the program may be changing
/// it in another thread.
static ENVIRONMENT: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();

const SHELL: &std::ffi::CStr = c"/bin/sh";

/// Stack of each of the two, in bytes; they need a few hundred.
const STACK: usize = 32 << 10;

/// Bytes of the kernel's set of signals, and the highest of them.
const SIGNALS_BYTES: usize = 8;
const LAST_SIGNAL: c_int = 64;

/// Everything that is needed after the first clone, where no memory may be asked for.
struct Plan {
    argv: [*const c_char; 4],
    envp: Vec<*const c_char>,
    /// End of the stack of the one that becomes the command.
    stack: *mut c_void,
    /// Whether the command may write to stderr: the program may have given the number to something else.
    may_speak: bool,
    /// Why there is no command, as an error number.
    error: AtomicI32,
}

/// Keeps the environment, if a command may have to be run.
pub fn arm() {
    if process::conf().and_then(Conf::alert_command).is_some() {
        let _ = ENVIRONMENT.set(std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect());
    }
}

/// Whether a variable is for the command, too: the library and its settings are the program's.
fn is_passed_on(name: &OsStr) -> bool {
    name != "LD_PRELOAD" && !name.as_bytes().starts_with(b"GPUCACHE_")
}

/// Starts a command of the shell, with facts as variables, and does not wait for its end.
///
/// # Errors
/// Why it was not started.
pub fn run(command: &str, facts: &[(&str, String)]) -> Result<(), String> {
    if would_inherit() {
        return Err("orphans of this process are its children, and it would have to wait for them".to_owned());
    }
    let text = CString::new(command).map_err(|_| "it holds a zero".to_owned())?;
    let own = ENVIRONMENT.get().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
    let facts = facts.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let variables: Vec<CString> = own
        .filter(|(name, _)| !name.as_bytes().starts_with(b"ALERT_"))
        .chain(facts)
        .filter_map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec()).ok()
        })
        .collect();
    let mut stacks = [vec![0_u128; STACK / 16], vec![0_u128; STACK / 16]];
    let [first, second] = stacks.each_mut().map(|stack| stack.as_mut_ptr_range().end.cast::<c_void>());
    let plan = Plan {
        argv: [SHELL.as_ptr(), c"-c".as_ptr(), text.as_ptr(), std::ptr::null()],
        envp: variables.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect(),
        stack: second,
        may_speak: say::is_ours(),
        error: AtomicI32::new(0),
    };
    let kept = errno();
    let before = block_signals(u64::MAX);
    let started = start(&plan, first);
    block_signals(before);
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = kept };
    started.map_err(|error| error.to_string())
}

/// Whether a child of a child of ours that has ended becomes ours.
fn would_inherit() -> bool {
    let mut reaps: c_int = 0;
    // SAFETY: no arguments, cannot fail.
    let is_first = unsafe { libc::getpid() } == 1;
    // SAFETY: writes to our local.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut reaps) };
    is_first || reaps != 0
}

/// Sets the calling thread's blocked signals, those of the C library among them; returns what was blocked before.
fn block_signals(set: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = (&raw const set, &raw mut before);
    // SAFETY: reads and writes our locals, which are as large as the kernel's set.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, SIGNALS_BYTES) };
    before
}

fn start(plan: &Plan, stack: *mut c_void) -> io::Result<()> {
    // Shares memory and suspends this thread; no signal at the end.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the end of a stack of our own, and a plan, both of which outlive the intermediate: this thread does not go on
    // before that has ended.
    let child = unsafe { libc::clone(intermediate, stack, flags, argument) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: only waits. If the program waits for everything with __WALL at this moment, it is told of the intermediate
    // instead, and this call of an unknown child.
    while unsafe {
        libc::syscall(
            libc::SYS_wait4,
            child,
            std::ptr::null::<c_int>(),
            libc::__WALL,
            std::ptr::null::<c_void>(),
        )
    } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    match plan.error.load(Ordering::Relaxed) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn errno() -> c_int {
    // SAFETY: the calling thread's own; the intermediate uses that of the thread which it keeps waiting.
    unsafe { *libc::__errno_location() }
}

/// Ends the calling process at once.
fn end() -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, 0 as c_long) };
    }
}

/// The process in between: starts the command and ends, so that nobody has it for a child.
extern "C" fn intermediate(plan: *mut c_void) -> c_int {
    // SAFETY: the plan that `start` has passed, and keeps.
    let plan = unsafe { &*plan.cast_const().cast::<Plan>() };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the other stack; memory is shared until the command has taken over, and this process waits until then.
    if unsafe { libc::clone(become_command, plan.stack, flags, argument) } < 0 {
        plan.error.store(errno(), Ordering::Relaxed);
    }
    end()
}

/// Becomes the command: as from a fresh shell, in a session of its own.
extern "C" fn become_command(plan: *mut c_void) -> c_int {
    // SAFETY: the plan that `start` has passed, and keeps.
    let plan = unsafe { &*plan.cast_const().cast::<Plan>() };
    // Handler, flags, restorer and mask: all zeros is the default.
    let default = [0_u64; 4];
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: reads our local, which is as large as the kernel's structure or larger. Of this process alone: handlers
        // are not shared.
        unsafe {
            let nothing = std::ptr::null_mut::<c_void>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), nothing, SIGNALS_BYTES);
        }
    }
    // The program's input stays the program's, and its output, which others may read, free of the command's. SAFETY: of this
    // process alone, as descriptors are not shared; the name is a C string.
    unsafe {
        libc::syscall(libc::SYS_setsid);
        let null =
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR) as c_int;
        libc::syscall(libc::SYS_dup3, null, 0, 0);
        libc::syscall(libc::SYS_dup3, if plan.may_speak { 2 } else { null }, 1, 0);
        if !plan.may_speak {
            libc::syscall(libc::SYS_dup3, null, 2, 0);
        }
        if libc::syscall(libc::SYS_close_range, 3 as c_long, c_long::from(c_int::MAX), 0 as c_long) < 0 {
            close_all();
        }
    }
    block_signals(0);
    // SAFETY: lists of C strings that end with a null, all of which outlive the call.
    unsafe { libc::syscall(libc::SYS_execve, plan.argv[0], plan.argv.as_ptr(), plan.envp.as_ptr()) };
    plan.error.store(errno(), Ordering::Relaxed);
    end()
}

/// Closes descriptors from 3 on one by one, for kernels before 5.9; as many as a process may have by default, several times.
fn close_all() {
    for descriptor in 3..c_long::from(1 << 16) {
        // SAFETY: of this process alone.
        unsafe { libc::syscall(libc::SYS_close, descriptor) };
    }
}
