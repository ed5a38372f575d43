//! The live file of this process: made when the first device's books are opened, written by whoever comes by, removed when
//! the report has been written.
//!
//! | what changes | what is written |
//! |---|---|
//! | a pool grows, shrinks or fails; a device's first memory | everything |
//! | so many allocations or frees of a pool; anything outside the pools | the quick figures, and everything if that was not done for 10 ms |
//!
//! No system call is made for it, and no lock is waited for: where a pool's lock is not free at once, its figures wait for
//! the next occasion. Nothing here can fail a call of the program.

use super::contexts::{self, Life};
use super::{control, exit, history, notes, process, watch};
use crate::driver::books::{Change, DeviceBooks};
use crate::policy::Conf;
use crate::report::cap::SetBy;
use crate::report::model::DeviceReport;
use crate::stats::live::{
    self, BYTES, DEVICES, Identity, MOST_STALE, Quick, STALE_KEPT, WORDS, Words, boot, name_of, namespace,
    started_at,
};
use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Between two writings of everything for want of a better reason, in nanoseconds.
const INTERVAL: u64 = 10_000_000;

/// The mapped file.
struct Mapped {
    words: Words,
    path: CString,
}

static MAPPED: OnceLock<Mapped> = OnceLock::new();
static TRIED: AtomicBool = AtomicBool::new(false);
/// A thread writes whole figures.
static WRITING: AtomicBool = AtomicBool::new(false);
/// Another had figures to write meanwhile.
static MISSED: AtomicBool = AtomicBool::new(false);
/// When whole figures were last written, and which notes.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static NOTED: AtomicU64 = AtomicU64::new(0);

/// Makes the file, once. A child that was forked meanwhile goes without one.
pub fn open() {
    let wanted = process::conf().is_some_and(Conf::live_file);
    if !wanted || TRIED.swap(true, Ordering::AcqRel) {
        return;
    }
    match create() {
        Ok(mapped) => {
            tracing::debug!("figures are kept in {}", mapped.path.to_string_lossy());
            let _ = MAPPED.set(mapped);
        }
        Err(why) => notes::add(format!("no live file: {why}")),
    }
}

/// Removes the file: the process has ended well.
pub fn close() {
    if let Some(mapped) = MAPPED.get() {
        // SAFETY: a C string.
        unsafe { libc::unlink(mapped.path.as_ptr()) };
    }
}

fn create() -> Result<Mapped, String> {
    let pid = std::process::id();
    let start = started_at(pid).ok_or("/proc does not tell when this process started")?;
    let now = now();
    let identity = Identity {
        pid,
        start,
        boot: boot(),
        namespace: namespace(),
        // SAFETY: no arguments, cannot fail.
        uid: unsafe { libc::geteuid() },
        started: now.saturating_sub((process::age() * 1e9) as u64),
        runs: process::conf().map(|conf| conf.runs().to_vec()).unwrap_or_default(),
        command: exit::command(),
        config: process::conf().map(Conf::settings).unwrap_or_default(),
    };
    let mut refusals = Vec::new();
    for folder in live::folders() {
        let made = make_folder(&folder, identity.uid).and_then(|()| {
            let _ = live::sweep(&folder, STALE_KEPT, MOST_STALE);
            make_file(&folder.join(name_of(pid, start)))
        });
        match made {
            Ok((words, path)) => {
                let words = Words::begin(words, &identity).ok_or("too few words")?;
                return Ok(Mapped { words, path });
            }
            Err(why) => refusals.push(format!("{}: {why}", folder.display())),
        }
    }
    Err(refusals.join("; "))
}

fn last_error() -> String {
    std::io::Error::last_os_error().to_string()
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name holds a zero".to_owned())
}

/// Makes the folder, or finds it: a folder of this user's that nobody else may enter.
fn make_folder(folder: &Path, uid: u32) -> Result<(), String> {
    let path = c_path(folder)?;
    // SAFETY: a C string.
    let made = unsafe { libc::mkdir(path.as_ptr(), 0o700) } == 0;
    if !made && std::io::Error::last_os_error().kind() != std::io::ErrorKind::AlreadyExists {
        return Err(last_error());
    }
    // SAFETY: plain data, for which all zeros is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // Of the link itself, if it is one. SAFETY: a C string; writes to our local.
    if unsafe { libc::lstat(path.as_ptr(), &raw mut status) } != 0 {
        return Err(last_error());
    }
    if status.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err("it is not a folder".to_owned());
    }
    if status.st_uid != uid {
        return Err("it belongs to another user".to_owned());
    }
    if status.st_mode & 0o077 != 0 {
        return Err("other users may enter it".to_owned());
    }
    Ok(())
}

/// Makes and maps the file, all of its memory taken: a full file system must show now, and not as a signal later.
fn make_file(path: &Path) -> Result<(&'static [AtomicU64], CString), String> {
    let path = c_path(path)?;
    // A file of this name is this process's own, from before an `exec`: a number and a start are never given twice.
    // SAFETY: a C string.
    unsafe { libc::unlink(path.as_ptr()) };
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    if file < 0 {
        return Err(last_error());
    }
    let words = map(file);
    // SAFETY: our descriptor; the mapping stays.
    unsafe { libc::close(file) };
    if words.is_err() {
        // SAFETY: a C string.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    words.map(|words| (words, path))
}

fn map(file: c_int) -> Result<&'static [AtomicU64], String> {
    // SAFETY: plain data, for which all zeros is a value.
    let mut most: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: writes to our local.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut most) };
    if most.rlim_cur < BYTES as libc::rlim_t {
        // Past that limit the kernel sends a signal.
        return Err("this process may not make files of that size".to_owned());
    }
    // SAFETY: our descriptor.
    let result = unsafe { libc::posix_fallocate(file, 0, BYTES as libc::off_t) };
    if result != 0 {
        return Err(std::io::Error::from_raw_os_error(result).to_string());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, libc::MAP_SHARED, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(last_error());
    }
    // SAFETY: the mapping has this many words, is never unmapped, and is only ever used by atomic operations.
    Ok(unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), WORDS) })
}

/// The time in nanoseconds since 1970, to a few milliseconds, without a system call.
pub fn now() -> u64 {
    // SAFETY: plain data, for which all zeros is a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: writes to our local.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    // The types differ between processors.
    #[allow(clippy::unnecessary_cast)]
    let (seconds, nanoseconds) = (time.tv_sec as u64, time.tv_nsec as u64);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// Something has changed on a device: [`DeviceBooks::changed`].
pub fn changed(device: u32, change: Change) {
    if !process::is_active() {
        return;
    }
    let Some(books) = contexts::known_books(device) else { return };
    let now = now();
    if change == Change::Counted {
        control::keep_to_the_cap(books);
    }
    watch::look(books, now, change == Change::Held);
    history::look();
    let Some(mapped) = MAPPED.get() else { return };
    write_quick(mapped.words, books, now);
    let due = change == Change::Held || now.wrapping_sub(WRITTEN.load(Ordering::Relaxed)) >= INTERVAL;
    if due {
        write_whole(mapped.words, now, change == Change::Held);
    }
    let mailbox = mapped.words.mailbox();
    if change == Change::Counted && mailbox.is_waiting() {
        control::attend(mailbox);
    }
}

/// Several threads may do this at once, so each looks again after it has written: the last to write has seen what is held.
fn write_quick(words: Words, books: &DeviceBooks, now: u64) {
    for _ in 0..8 {
        let quick = quick_of(books);
        words.quick(books.device, &quick, now);
        fence(Ordering::SeqCst);
        let account = &books.account;
        if (account.reserved().current, account.external().current) == (quick.reserved, quick.external) {
            break;
        }
    }
}

fn quick_of(books: &DeviceBooks) -> Quick {
    let (reserved, external) = (books.account.reserved(), books.account.external());
    let mut quick = Quick {
        used: 1,
        reserved: reserved.current,
        reserved_peak: reserved.peak,
        external: external.current,
        external_peak: external.peak,
        limit: books.account.limit_bytes(),
        cap_set_by: SetBy::code(control::setter(books.device)),
        ..Quick::default()
    };
    for life in contexts::all().filter(|life| life.device == books.device) {
        let glimpse = life.server.glimpse();
        quick.requested += glimpse.requested;
        quick.allocated += glimpse.allocated;
        quick.allocs += glimpse.allocs;
        quick.frees += glimpse.frees;
        quick.hits += glimpse.hits;
    }
    quick
}

/// Writes everything, unless another thread does: then that one does it once more.
fn write_whole(words: Words, now: u64, look: bool) {
    if WRITING.swap(true, Ordering::AcqRel) {
        MISSED.store(true, Ordering::Release);
        return;
    }
    for _ in 0..2 {
        MISSED.store(false, Ordering::Release);
        if let Some(mut devices) = all_devices(look) {
            words.whole(&mut devices);
            for books in contexts::opened_books() {
                write_quick(words, books, now);
            }
            WRITTEN.store(now, Ordering::Relaxed);
        }
        if !MISSED.load(Ordering::Acquire) {
            break;
        }
    }
    let version = notes::version();
    if NOTED.swap(version, Ordering::Relaxed) != version {
        words.notes(&notes::all());
    }
    WRITING.store(false, Ordering::Release);
}

/// The figures of all devices; `None` if any of them could not be had.
pub(super) fn all_devices(look: bool) -> Option<Vec<DeviceReport>> {
    let books = contexts::opened_books().take(DEVICES);
    books.map(|books| device(books, look)).collect()
}

fn device(books: &'static DeviceBooks, look: bool) -> Option<DeviceReport> {
    let (mut complete, mut blocks) = (true, 0);
    let mut report = exit::device(books, |life: &Life| {
        let figures = life.server.passing_figures(look);
        complete &= figures.is_some();
        blocks += figures.as_ref().map_or(0, |figures| figures.usage.live_blocks);
        figures
    });
    report.live_at_exit.blocks = blocks;
    report.live_at_exit.bytes = report.requested_bytes.current;
    report.fragmentation.at_oom = exit::moments(&books.ooms.try_lock()?, false);
    complete.then_some(report)
}

/// Where the file is, if there is one.
pub fn path() -> Option<&'static CStr> {
    MAPPED.get().map(|mapped| mapped.path.as_c_str())
}
