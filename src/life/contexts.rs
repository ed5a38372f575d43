//! Which contexts live, and the pool of each.
//!
//! A context's handle is no key: after a reset the next context often has the same value. So a pool belongs to one
//! *life* of a context; when that has ended, the pool is empty and serves the next context of its device. While a call
//! that may end the context is under way its pool is *suspended* (nothing is served from it); afterwards it either resumes
//! or has ended.

use crate::driver::books::DeviceBooks;
use crate::driver::external::Ledger;
use crate::driver::fence::Fence;
use crate::driver::real::{self, RealGpu};
use crate::driver::server::{Server, Tuning};
use crate::driver::{Ctx, CuResult};
use crate::life::{captures, exit, notes, peers, process};
use crate::policy::{Conf, DeviceAccount};
use crate::pool::{Index, Usage};
use crate::stats::{AtomicCounts, ExternalKind};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Contexts alive at once that get a pool; more are forwarded.
const LIVES: usize = 1024;
/// Devices that are accounted for.
pub const DEVICES: usize = 64;

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

thread_local! {
    static LAST: Cell<(usize, u64, usize)> = const { Cell::new((0, 0, 0)) };
}

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
#[inline]
pub fn by_owner(owner: u32) -> Option<&'static Life> {
    LIFE.get(owner as usize)?.get().map(|life| &**life)
}

/// All lives so far, ended ones included.
pub fn all() -> impl Iterator<Item = &'static Life> {
    (0..LIVED.load(Ordering::Acquire).min(LIVES)).filter_map(|at| by_owner(at as u32))
}

/// The pool of the calling thread's current context, made if there is none yet. `None` without a current context, and
/// while or after that context is being ended.
#[inline]
pub fn current() -> Option<&'static Life> {
    let ctx = real::current_ctx()?;
    let version = VERSION.load(Ordering::Acquire);
    let (last, seen, at) = LAST.get();
    if last == ctx.0 && seen == version {
        return by_owner(at as u32);
    }
    look_up(ctx, version)
}

#[cold]
fn look_up(ctx: Ctx, version: u64) -> Option<&'static Life> {
    let life = match find(ctx) {
        Some((at, life)) if !life.is_suspended() => Some((at, life)),
        Some(_) => None,
        None => create(ctx).inspect(|(_, life)| peers::introduce(ctx, life.device)),
    };
    let (at, life) = life?;
    LAST.set((ctx.0, version, at));
    Some(life)
}

pub(super) fn find(ctx: Ctx) -> Option<(usize, &'static Life)> {
    let lived = LIVED.load(Ordering::Acquire).min(LIVES);
    (0..lived)
        .rev()
        .filter_map(|at| Some((at, by_owner(at as u32)?)))
        .find(|(_, life)| life.server.ctx() == ctx && life.server.is_alive())
}

fn create(ctx: Ctx) -> Option<(usize, &'static Life)> {
    let (fence, conf) = (fence()?, process::conf()?);
    // From here on no context ends, so what is read of this one stays true.
    let _touch = fence.touch()?;
    let device = real::current_device().filter(|_| real::current_ctx() == Some(ctx))?;
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
            notes::add(format!("more than {LIVES} contexts at once: later ones are not pooled"));
            return None;
        };
        let server = Server::new(ctx, lived as u32, &INDEX, fence, books, tuning(conf));
        let (id, suspended) = (AtomicU64::new(id), AtomicU64::new(0));
        let life: &'static Life = slot.get_or_init(|| Box::new(Life { server, device, id, suspended }));
        LIVED.store(lived + 1, Ordering::Release);
        (lived, life)
    };
    tracing::info!(?ctx, device, owner = at, "serving a context");
    Some((at, life))
}

fn tuning(conf: &Conf) -> Tuning {
    Tuning {
        rounding: *conf.rounding(),
        max_split: conf.max_split_size().unwrap_or(u64::MAX),
        max_non_split_rounding: conf.max_non_split_rounding(),
        gc_threshold: conf.garbage_collection_threshold(),
        free_sync: conf.free_sync(),
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
    Some(slot.get_or_init(|| DeviceBooks {
        account: DeviceAccount::new(total, limit.bytes),
        counts: AtomicCounts::default(),
        ooms: Mutex::new(Vec::new()),
        reclaim,
        reclaimable,
        usage,
        device,
        name,
    }))
}

/// The books of the calling thread's current device.
pub fn current_books() -> Option<&'static DeviceBooks> {
    match current() {
        Some(life) => Some(life.server.books()),
        None => books(real::current_device()?),
    }
}

/// Books that have been opened, by ordinal.
pub fn opened_books() -> impl Iterator<Item = &'static DeviceBooks> {
    BOOKS.iter().filter_map(OnceLock::get)
}

fn alive_on(device: u32) -> impl Iterator<Item = &'static Life> {
    all().filter(move |life| life.device == device && life.server.is_alive() && !life.is_suspended())
}

fn reclaim(device: u32, bytes: u64) -> u64 {
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
    let Some(ctx) = real::current_ctx() else { return 0 };
    let outlives = kind == ExternalKind::Async
        && !PRIMARY.iter().any(|primary| primary.load(Ordering::Acquire) == ctx.0);
    if outlives { 0 } else { ctx.0 }
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
        peers::forget(ctx);
        for primary in &PRIMARY {
            let _ = primary.compare_exchange(ctx.0, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        for (_, entry) in LEDGER.remove_context(ctx.0) {
            if let Some(books) = books(entry.device) {
                books.account.release_external(entry.kind, entry.bytes);
            }
        }
    }
    if let Some(life) = life {
        if ended {
            if exit::is_over() {
                life.server.end_silently();
            } else {
                life.server.end();
            }
            tracing::info!(ctx = ?life.server.ctx(), "a context has ended");
        }
        life.resume();
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

/// Green contexts that have been seen, with the context of each.
static GREEN: Mutex<Vec<(usize, Ctx)>> = Mutex::new(Vec::new());

/// The context of the green context `green` is `ctx`.
pub fn green_is(green: usize, ctx: Ctx) {
    let mut all = GREEN.lock();
    all.retain(|(known, _)| *known != green);
    all.push((green, ctx));
}

/// The context of a green context that is about to be destroyed, if it was seen.
pub fn green(green: usize) -> Option<Ctx> {
    let mut all = GREEN.lock();
    let at = all.iter().position(|(known, _)| *known == green)?;
    Some(all.swap_remove(at).1)
}
