//! Which contexts live, and the pool of each.
//!
//! A context's handle is no key: after a reset the next context often has the same value. So a pool belongs to one
//! *life* of a context; when that has ended, the pool is empty and serves the next context of its device. While a call
//! that may end the context is under way its pool is *suspended* (nothing is served from it); afterwards it either resumes
//! or has ended.

use crate::driver::books::{Change, DeviceBooks};
use crate::driver::external::{Entry, Ledger};
use crate::driver::fence::Fence;
use crate::driver::real::thread;
use crate::driver::real::{self, RealGpu};
use crate::driver::server::{Server, Tuning};
use crate::driver::{Ctx, CuResult};
use crate::life::{
    captures, control, exit, failures, graphs, green, history, live, notes, peers, process, sites,
};
use crate::policy::{Conf, DeviceAccount};
use crate::pool::local::Thread;
use crate::pool::{Caches, Index, Usage};
use crate::report::units::human;
use crate::stats::{AtomicCounts, ExternalKind};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Contexts alive at once that get a pool; more are forwarded.
const LIVES: usize = 1024;
/// Devices that are accounted for.
pub const DEVICES: usize = 64;
/// A queue of launches that a program has filled is done in less.
const GROWTH_WAIT: Duration = Duration::from_secs(1);

/// A pool, and the life of a context that it serves.
pub struct Life {
    /// The pool.
    pub server: Server<RealGpu>,
    /// The device's ordinal.
    pub device: u32,
    /// The driver's id of the context, never given twice; 0 if the driver does not tell.
    id: AtomicU64,
    suspended: AtomicU64,
}

static INDEX: Index = Index::new();
static FENCE: OnceLock<Fence<RealGpu>> = OnceLock::new();
static LIFE: [OnceLock<Box<Life>>; LIVES] = [const { OnceLock::new() }; LIVES];
static LIVED: AtomicUsize = AtomicUsize::new(0);
static BOOKS: [OnceLock<DeviceBooks>; DEVICES] = [const { OnceLock::new() }; DEVICES];
static PRIMARY: [AtomicUsize; DEVICES] = [const { AtomicUsize::new(0) }; DEVICES];
/// Rises whenever a pool is suspended or ends, so that threads forget which one they last used.
static VERSION: AtomicU64 = AtomicU64::new(1);
static CREATING: Mutex<()> = Mutex::new(());

/// Allocations outside the pools.
pub static LEDGER: Ledger = Ledger::new();

/// The index of all pooled addresses.
pub fn index() -> &'static Index {
    &INDEX
}

/// Epochs, captures and barriers of the process; `None` before the driver is known.
pub fn fence() -> Option<&'static Fence<RealGpu>> {
    if let Some(fence) = FENCE.get() {
        return Some(fence);
    }
    let gpu = RealGpu::new()?;
    Some(FENCE.get_or_init(|| Fence::new(gpu)))
}

/// The pool whose heap is number `owner`.
#[inline(always)]
pub fn by_owner(owner: u32) -> Option<&'static Life> {
    LIFE.get(owner as usize)?.get().map(|life| &**life)
}

/// All lives so far, ended ones included.
pub fn all() -> impl Iterator<Item = &'static Life> {
    (0..LIVED.load(Ordering::Acquire).min(LIVES)).filter_map(|at| by_owner(at as u32))
}

/// The pool of the calling thread's current context, made if there is none yet. `None` without a current context, and
/// while or after that context is being ended.
#[inline(always)]
pub fn current(thread: &Thread) -> Option<&'static Life> {
    let ctx = real::current_ctx()?;
    let version = VERSION.load(Ordering::Acquire);
    let (last, seen, at) = thread.context.get();
    if last == ctx.0 && seen == version {
        return by_owner(at as u32);
    }
    look_up(thread, ctx, version)
}

#[cold]
fn look_up(thread: &Thread, current: Ctx, version: u64) -> Option<&'static Life> {
    let ctx = green::home(current);
    let life = match find(ctx) {
        Some((at, life)) if !life.is_suspended() => Some((at, life)),
        Some(_) => None,
        None => create(ctx, current).inspect(|(_, life)| {
            peers::introduce(ctx, life.device);
            fence().into_iter().for_each(Fence::settle);
        }),
    };
    let (at, life) = life?;
    thread.context.set((current.0, version, at));
    Some(life)
}

pub(super) fn find(ctx: Ctx) -> Option<(usize, &'static Life)> {
    let lived = LIVED.load(Ordering::Acquire).min(LIVES);
    (0..lived)
        .rev()
        .filter_map(|at| Some((at, by_owner(at as u32)?)))
        .find(|(_, life)| life.server.ctx() == ctx && life.server.is_alive())
}

/// Makes the pool of `ctx`, which is the current context or whose green context is.
fn create(ctx: Ctx, current: Ctx) -> Option<(usize, &'static Life)> {
    let (fence, conf) = (fence()?, process::conf()?);
    // From here on no context ends, so what is read of this one stays true.
    let _touch = fence.touch()?;
    let device = real::current_device().filter(|_| real::current_ctx() == Some(current))?;
    let (books, id) = (books(device)?, real::ctx_id(ctx).unwrap_or(0));
    let _one_at_a_time = CREATING.lock();
    if let Some((at, life)) = find(ctx) {
        return (!life.is_suspended()).then_some((at, life));
    }
    let lived = LIVED.load(Ordering::Acquire).min(LIVES);
    let ended = |life: &&Life| life.device == device && !life.server.is_alive() && !life.is_suspended();
    let free = (0..lived).filter_map(|at| Some((at, by_owner(at as u32)?))).find(|(_, life)| ended(life));
    let (at, life) = if let Some((at, life)) = free {
        life.id.store(id, Ordering::Release);
        life.server.revive(ctx);
        (at, life)
    } else {
        let Some(slot) = LIFE.get(lived) else {
            let text = format!("more than {LIVES} contexts at once: later ones are not pooled");
            tracing::warn!("{text}");
            notes::add(text);
            return None;
        };
        // For ever, like the slot: threads keep references to their caches.
        let caches = Box::leak(Box::new(Caches::new(lived as u32, &INDEX)));
        slot.set(begin(ctx, id, caches, fence, books, tuning(conf))).ok()?;
        LIVED.store(lived + 1, Ordering::Release);
        (lived, by_owner(lived as u32)?)
    };
    let (total, limit) = (books.account.total_bytes(), books.account.limit_bytes());
    let cap =
        if limit < total { format!("under a cap of {}", human(limit)) } else { "without a cap".to_owned() };
    tracing::info!("serving context {:#x} on GPU {device}, {}, {}, {cap}", ctx.0, books.name, human(total));
    Some((at, life))
}

/// The first life of a pool. Apart from its caller, whose frame stays small that way: a pool is some kilobytes, and is moved
/// while it is made, and the first CUDA call of a process may come from a thread with a small stack.
#[inline(never)]
fn begin(
    ctx: Ctx,
    id: u64,
    caches: &'static Caches,
    fence: &'static Fence<RealGpu>,
    books: &'static DeviceBooks,
    tuning: Tuning,
) -> Box<Life> {
    let server = Server::new(ctx, caches, fence, books, tuning);
    Box::new(Life { server, device: books.device, id: AtomicU64::new(id), suspended: AtomicU64::new(0) })
}

fn tuning(conf: &Conf) -> Tuning {
    Tuning {
        rounding: *conf.rounding(),
        max_split: conf.max_split_size().unwrap_or(u64::MAX),
        max_non_split_rounding: conf.max_non_split_rounding(),
        gc_threshold: conf.garbage_collection_threshold(),
        free_sync: conf.free_sync(),
        patience: GROWTH_WAIT,
        expandable: conf.expandable_segments(),
    }
}

/// The books of a device, opened at the first look; `None` if the driver does not know the device.
pub fn books(device: u32) -> Option<&'static DeviceBooks> {
    let slot = BOOKS.get(device as usize)?;
    if let Some(books) = slot.get() {
        return Some(books);
    }
    // Asked before the slot is held: a driver call must not be made under a lock.
    let (total, name) = (real::device_total(device)?, real::device_name(device));
    let limit = process::conf()?.limit_for(device, total);
    live::open();
    history::open();
    let books = slot.get_or_init(|| DeviceBooks {
        account: DeviceAccount::new(total, limit.bytes),
        counts: AtomicCounts::default(),
        ooms: Mutex::new(Vec::new()),
        reclaim,
        reclaimable,
        usage,
        changed: live::changed,
        clock: live::now,
        failed: failures::failed,
        chronicle: history::chronicle(),
        device,
        name,
    });
    if let Some(wanted) = control::wanted_limit(device) {
        books.account.set_limit(wanted);
    }
    Some(books)
}

/// The cap of a device of `total` bytes.
pub fn limit(device: u32, total: u64) -> u64 {
    if let Some(books) = known_books(device) {
        return books.account.limit_bytes();
    }
    let configured = process::conf().map_or(total, |conf| conf.limit_for(device, total).bytes);
    configured.min(control::wanted_limit(device).unwrap_or(u64::MAX))
}

/// The books of a device, if they have been opened.
pub fn known_books(device: u32) -> Option<&'static DeviceBooks> {
    BOOKS.get(device as usize)?.get()
}

/// The books of the calling thread's current device.
pub fn current_books() -> Option<&'static DeviceBooks> {
    match thread::with(current) {
        Some(life) => Some(life.server.books()),
        None => books(real::current_device()?),
    }
}

/// Books that have been opened, by ordinal.
pub fn opened_books() -> impl Iterator<Item = &'static DeviceBooks> {
    BOOKS.iter().filter_map(OnceLock::get)
}

/// The pools of a device that serve.
pub(super) fn alive_on(device: u32) -> impl Iterator<Item = &'static Life> {
    all().filter(move |life| life.device == device && life.server.is_alive() && !life.is_suspended())
}

/// Gives idle memory of a device's pools back, at least so many bytes if there are; returns the bytes.
pub fn reclaim(device: u32, bytes: u64) -> u64 {
    let mut returned = 0;
    let Some(fence) = FENCE.get() else { return 0 };
    let touch = fence.touch().or_else(|| {
        fence.await_calm();
        fence.touch()
    });
    let Some(_touch) = touch else { return 0 };
    for life in alive_on(device) {
        if returned >= bytes {
            break;
        }
        returned += life.server.give_back(bytes - returned);
    }
    returned
}

fn reclaimable(device: u32) -> u64 {
    alive_on(device).map(|life| life.server.idle_bytes()).sum()
}

fn usage(device: u32) -> Usage {
    let mut sum = Usage::default();
    for life in alive_on(device) {
        sum.merge(&life.server.usage());
    }
    sum
}

/// The primary context of `device` is `ctx`.
pub fn primary_is(device: u32, ctx: Ctx) {
    peers::introduce(ctx, device);
    if let Some(slot) = PRIMARY.get(device as usize) {
        slot.store(ctx.0, Ordering::Release);
    }
    begun(ctx, || real::primary_active(device as i32) != Some(false));
}

/// A context has begun, unless `lives` denies it by now. It takes part in barriers from its first moment: its work may
/// touch the memory of other contexts before it allocates any of its own, and without ever doing so.
pub fn begun(ctx: Ctx, lives: impl FnOnce() -> bool) {
    let Some(fence) = fence().filter(|fence| !fence.has(ctx)) else { return };
    let touch = fence.touch().or_else(|| {
        fence.await_calm();
        fence.touch()
    });
    if let Some(_touch) = touch
        && lives()
    {
        fence.enter(ctx);
    }
    fence.settle();
}

/// The primary context of `device`, if it was seen.
pub fn primary(device: u32) -> Option<Ctx> {
    match PRIMARY.get(device as usize)?.load(Ordering::Acquire) {
        0 => None,
        handle => Some(Ctx(handle)),
    }
}

/// Whether the primary context of `device`, just released, has ended: it is inactive, or another thread has already
/// begun a new life of it, which has another id.
pub fn primary_has_ended(device: i32) -> bool {
    if real::primary_active(device) == Some(false) {
        return true;
    }
    let life = u32::try_from(device).ok().and_then(primary).and_then(find);
    life.is_some_and(|(_, life)| {
        let id = life.id.load(Ordering::Acquire);
        id != 0 && Some(id) != real::ctx_id(life.server.ctx())
    })
}

/// The context that memory of `kind` ends with, by its handle; 0 if it outlives the current one: stream-ordered memory is
/// the device's, which only a reset of the primary context takes back.
pub fn ends_with(kind: ExternalKind) -> usize {
    let Some(ctx) = real::current_ctx().map(green::home) else { return 0 };
    let outlives = kind == ExternalKind::Async
        && !PRIMARY.iter().any(|primary| primary.load(Ordering::Acquire) == ctx.0);
    if outlives { 0 } else { ctx.0 }
}

/// Enters an allocation outside the pools in the ledger.
pub fn write_down(key: u64, entry: Entry) {
    if let Some(unseen) = LEDGER.insert(key, entry) {
        give_up(unseen);
    }
}

/// The driver may hand out at once what a context leaves that another thread is just ending: before that one's pool is gone, a free
/// of the address would find it there. Waits for that, though not for ever.
pub fn await_end_at(address: u64) {
    if index().owner_of(address).is_some() {
        fence().into_iter().for_each(Fence::await_calm);
    }
}

/// Takes an allocation that is gone off its device's account.
pub fn give_up(entry: Entry) {
    if let Some(books) = books(entry.device) {
        books.account.release_external(entry.kind, entry.bytes);
        (books.changed)(entry.device, Change::External);
    }
}

/// Runs a driver call that may end `ctx`: nothing is served from its pool meanwhile, and if `call` says that the context
/// has ended, its pool ends, with everything that was charged to it.
pub fn while_ending(ctx: impl FnOnce() -> Option<Ctx>, call: impl FnOnce() -> (CuResult, bool)) -> CuResult {
    // First of all: no pool of the context can begin or end from here on but by this call.
    let _ending = FENCE.get().map(Fence::end);
    let ctx = ctx();
    let life = ctx.and_then(find).map(|(_, life)| life);
    if let Some(life) = life {
        life.suspend();
    }
    let (result, ended) = call();
    if ended && let Some(ctx) = ctx {
        captures::forget_context(ctx);
        FENCE.get().into_iter().for_each(|fence| fence.leave_context(ctx));
        peers::forget(ctx);
        sites::context_ended(ctx.0);
        for primary in &PRIMARY {
            let _ = primary.compare_exchange(ctx.0, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        for (address, entry) in LEDGER.remove_context(ctx.0) {
            if entry.kind == ExternalKind::Graph {
                graphs::forget(address);
            }
            give_up(entry);
        }
    }
    if let Some(life) = life {
        let pooled = life.server.usage();
        if ended {
            if exit::is_over() {
                life.server.end_silently();
            } else {
                life.server.end();
            }
        }
        life.resume();
        if ended {
            tracing::info!(
                "context {:#x} on GPU {} has ended, and {} of its pool with it, {} of that in use",
                life.server.ctx().0,
                life.device,
                human(pooled.reserved.current),
                human(pooled.allocated.current)
            );
        }
    }
    result
}

impl Life {
    fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire) != 0
    }

    fn suspend(&self) {
        self.suspended.fetch_add(1, Ordering::AcqRel);
        VERSION.fetch_add(1, Ordering::AcqRel);
    }

    fn resume(&self) {
        self.suspended.fetch_sub(1, Ordering::AcqRel);
        VERSION.fetch_add(1, Ordering::AcqRel);
    }
}

/// A synchronisation of `ctx` by the program has failed with `code`, which may be one that it does not recover from.
pub fn has_answered(ctx: Ctx, code: CuResult) {
    if let Some((_, life)) = find(green::home(ctx)) {
        life.server.note_error(code);
    }
}

/// Which context a handle stands for has changed: threads forget what they last used.
pub fn handles_changed() {
    VERSION.fetch_add(1, Ordering::AcqRel);
}
