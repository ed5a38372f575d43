//! `cuMemAlloc` and `cuMemFree`, served from the pool; pitched and managed memory, counted.

use super::guard::shield;
use super::identity::UNKNOWN;
use super::table::real;
use super::types::{CuResult, DevicePtr};
use crate::driver::books::DeviceBooks;
use crate::driver::external::{Entry, charged};
use crate::life::contexts::{self, LEDGER, Life, give_up, write_down};
use crate::life::{history, process, sites};
use crate::pool::local::Thread;
use crate::pool::{Claim, Claimed, Freed, Kept};
use crate::stats::ExternalKind;
use std::ffi::c_uint;

/// `cuMemAlloc_v2`
///
/// # Safety
/// As the driver's.
#[inline(always)]
pub unsafe fn alloc(thread: &Thread, address: *mut DevicePtr, bytes: usize) -> CuResult {
    let result = shield(|| {
        if sites::is_on() {
            // SAFETY: the caller's arguments.
            return unsafe { alloc_sampled(thread, address, bytes) };
        }
        // SAFETY: the caller's arguments.
        unsafe { alloc_then(thread, address, bytes, |_, _| {}) }
    });
    // SAFETY: the caller's arguments; after a fault of our own the driver still has memory.
    result.unwrap_or_else(|| unsafe { real::cuMemAlloc_v2(address, bytes) })
}

/// The same with sampling: apart, so that a process without it pays for one look at a number.
#[cold]
#[inline(never)]
unsafe fn alloc_sampled(thread: &Thread, address: *mut DevicePtr, bytes: usize) -> CuResult {
    let sampled =
        |life: &Life, served| sites::allocated(life.device, life.server.ctx().0, served, bytes as u64);
    // SAFETY: the caller's arguments.
    unsafe { alloc_then(thread, address, bytes, sampled) }
}

/// Allocates; what the pool has served is handed to `then` before the program knows of it.
#[inline(always)]
unsafe fn alloc_then(
    thread: &Thread,
    address: *mut DevicePtr,
    bytes: usize,
    then: impl FnOnce(&Life, u64),
) -> CuResult {
    if address.is_null() || bytes == 0 || process::is_degraded() {
        // SAFETY: the caller's arguments; the driver has the right answer to each of these.
        return unsafe { real::cuMemAlloc_v2(address, bytes) };
    }
    if let Some(life) = contexts::current(thread).filter(|life| life.server.sticky_error().is_none()) {
        match life.server.alloc(thread, bytes as u64) {
            Ok(served) => {
                // SAFETY: not null, and the caller's to write.
                unsafe { *address = served };
                if history::wants(bytes as u64) {
                    history::allocated(served, bytes as u64);
                }
                then(life, served);
                return CuResult::SUCCESS;
            }
            Err(CuResult::NOT_SUPPORTED) => {}
            Err(code) => return code,
        }
    }
    // Nothing to pool in: no context, or one that cannot be pooled. What the driver gives is counted all the same.
    // SAFETY: the caller's arguments.
    unsafe { counted(address, bytes as u64, ExternalKind::Other, || real::cuMemAlloc_v2(address, bytes)) }
}

/// `cuMemFree_v2`: the block's own pool takes it back, whatever context is current.
///
/// # Safety
/// As the driver's.
#[inline(always)]
pub unsafe fn free(thread: &Thread, address: DevicePtr) -> CuResult {
    // SAFETY: the caller's argument, or one that the driver refuses.
    free_or(thread, address, |address| unsafe { real::cuMemFree_v2(address) })
}

/// Frees a pooled block; leaves every other address to `call`. A free that is wrong is the driver's to answer: not only the
/// address may be the cause, but also a failed context or a capture. It is asked about memory that it knows nothing of.
///
/// A pooled address never reaches the driver, whatever goes wrong here: at a region's start the driver would free all
/// blocks of the region. After an internal fault the pool's own state is not trusted, and its memory stays where it is.
#[inline(always)]
pub fn free_or(thread: &Thread, address: DevicePtr, call: impl FnOnce(DevicePtr) -> CuResult) -> CuResult {
    if process::is_degraded() && shield(|| contexts::index().owner_of(address)) != Some(None) {
        return CuResult::SUCCESS;
    }
    // Apart from what nearly every free answers, which then comes through the shield in a register.
    let mut otherwise = None;
    let taken = shield(|| match give(thread, address) {
        Given::Taken(standing) => Some(standing),
        given => {
            otherwise = Some(given);
            None
        }
    });
    match taken {
        Some(Some(standing)) => standing,
        _ => not_taken(otherwise.as_ref(), address, call),
    }
}

#[cold]
fn not_taken(
    given: Option<&Given>,
    address: DevicePtr,
    call: impl FnOnce(DevicePtr) -> CuResult,
) -> CuResult {
    match given {
        Some(Given::Invalid(life)) => {
            shield(|| life.server.count_invalid_free());
            match call(UNKNOWN) {
                CuResult::SUCCESS => CuResult::INVALID_VALUE,
                code => code,
            }
        }
        Some(Given::Foreign) => released(address, || call(address)),
        Some(Given::Taken(_)) | None => CuResult::SUCCESS,
    }
}

/// What came of an address that is to be freed.
pub enum Given {
    /// A live block, now the pool's again. The answer is the error that its context has failed with, if it has.
    Taken(CuResult),
    /// Memory of this pool at which no live block starts.
    Invalid(&'static Life),
    /// Not the pool's.
    Foreign,
}

/// Gives the block at `address` to its pool: into the calling thread's cache where that has room.
#[inline(always)]
pub fn give(thread: &Thread, address: DevicePtr) -> Given {
    if sites::is_on() { give_sampled(thread, address) } else { give_plain(thread, address) }
}

#[cold]
#[inline(never)]
fn give_sampled(thread: &Thread, address: DevicePtr) -> Given {
    // Before the free: from then on the address may be another's.
    sites::freed_pooled(address);
    give_plain(thread, address)
}

#[inline(always)]
fn give_plain(thread: &Thread, address: DevicePtr) -> Given {
    match contexts::index().keep(address, |owner| thread.get(owner)) {
        Freed::Kept(kept) => match contexts::by_owner(kept.owner()) {
            // Told at the end of this function or nowhere: a call in its middle would cost every free.
            Some(life) if history::wants(kept.sizes().1) => give_told(life, address, kept),
            Some(life) => Given::Taken(life.server.keep(kept)),
            None => Given::Foreign,
        },
        Freed::Claimed(claimed) => give_claimed(thread, claimed),
        Freed::No => give_locked(thread, address),
    }
}

/// The same of a block that is already claimed for the thread's cache, and whose free is an event.
#[cold]
#[inline(never)]
fn give_told(life: &Life, address: DevicePtr, kept: Kept<'_>) -> Given {
    let (size, requested) = kept.sizes();
    history::freed(kept.owner(), address, requested, size);
    Given::Taken(life.server.keep(kept))
}

#[inline(never)]
fn give_claimed(thread: &Thread, claimed: Claimed) -> Given {
    let Some(life) = contexts::by_owner(claimed.owner()) else { return Given::Foreign };
    if history::wants(claimed.requested()) {
        history::freed(claimed.owner(), claimed.addr(), claimed.requested(), claimed.size());
    }
    Given::Taken(life.server.free(thread, claimed))
}

#[inline(never)]
fn give_locked(thread: &Thread, address: DevicePtr) -> Given {
    let claim = match contexts::index().claim(address) {
        Claim::Ask { owner } => {
            contexts::by_owner(owner).map_or(Claim::Foreign, |life| life.server.claim(address))
        }
        decided => decided,
    };
    match claim {
        Claim::Claimed(claimed) => give_claimed(thread, claimed),
        Claim::NotLive { owner } | Claim::Interior { owner, .. } | Claim::Ask { owner } => {
            contexts::by_owner(owner).map_or(Given::Foreign, Given::Invalid)
        }
        Claim::Foreign => Given::Foreign,
    }
}

/// Makes an allocation outside the pool by `call`, which writes `address`; charges it to the current device.
///
/// # Safety
/// `address` is what `call` writes on success.
pub unsafe fn counted(
    address: *mut DevicePtr,
    bytes: u64,
    kind: ExternalKind,
    call: impl FnMut() -> CuResult,
) -> CuResult {
    // SAFETY: as the caller promises.
    unsafe { counted_on(contexts::current_books(), address, bytes, kind, call) }
}

/// The same, charged to a device that is not the current one.
///
/// # Safety
/// `address` is what `call` writes on success.
pub unsafe fn counted_on(
    books: Option<&'static DeviceBooks>,
    address: *mut DevicePtr,
    bytes: u64,
    kind: ExternalKind,
    call: impl FnMut() -> CuResult,
) -> CuResult {
    counted_as(books, bytes, kind, call, || {
        // SAFETY: written by the successful call.
        let address = unsafe { *address };
        contexts::await_end_at(address);
        address
    })
}

/// Makes an allocation of any kind outside the pool by `call`, and charges it under the `key` that its end will name.
pub fn counted_as(
    books: Option<&'static DeviceBooks>,
    bytes: u64,
    kind: ExternalKind,
    mut call: impl FnMut() -> CuResult,
    key: impl FnOnce() -> u64,
) -> CuResult {
    let Some(books) = books.filter(|_| process::is_active()) else { return call() };
    match charged(books, kind, bytes, call) {
        Ok(()) => {
            let (key, ctx) = (key(), contexts::ends_with(kind));
            write_down(key, Entry { device: books.device, kind, bytes, ctx });
            if sites::is_on() {
                sites::allocated(books.device, ctx, key, bytes);
            }
            if kind == ExternalKind::Other {
                books.counts.bump(|counts| &counts.forwarded);
            }
            CuResult::SUCCESS
        }
        Err(code) => code,
    }
}

/// Frees memory outside the pool by `call`. It leaves the books before the call, so that the address can come back at
/// once, and returns to them if the call fails. A graph's memory stays: the driver keeps it for the next run.
pub fn released(key: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    // Not around the call: a fault of ours must not make it twice.
    let taken = shield(|| {
        let entry = LEDGER.remove_unless(key, ExternalKind::Graph)?;
        Some((entry, if sites::is_on() { sites::freed(key) } else { None }))
    });
    let result = call();
    if let Some((entry, sample)) = taken.flatten() {
        shield(|| {
            if result == CuResult::SUCCESS {
                give_up(entry);
            } else {
                write_down(key, entry);
                sites::not_freed(key, sample);
            }
        });
    }
    result
}

/// What every device so far has aligned rows to, in bytes.
const PITCH_ALIGNMENT: u64 = 512;

/// `cuMemAllocPitch_v2`: counted as the returned pitch × height.
///
/// # Safety
/// As the driver's.
pub unsafe fn alloc_pitch(
    address: *mut DevicePtr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::cuMemAllocPitch_v2(address, pitch, width, height, element) };
    if address.is_null() || pitch.is_null() || width == 0 || height == 0 {
        return call();
    }
    // The pitch is the driver's to choose.
    let rows = (width as u64).saturating_add(PITCH_ALIGNMENT - 1) / PITCH_ALIGNMENT * PITCH_ALIGNMENT;
    let rows = rows.saturating_mul(height as u64);
    // SAFETY: `address` is what the call writes.
    let result = unsafe { counted(address, rows, ExternalKind::Pitched, call) };
    if result == CuResult::SUCCESS && process::is_active() {
        // SAFETY: both written by the successful call.
        unsafe { settle_pitch(*address, (*pitch as u64).saturating_mul(height as u64), rows) };
    }
    result
}

/// Corrects the charge to what the driver's pitch makes of it.
fn settle_pitch(address: u64, bytes: u64, charged: u64) {
    if bytes == charged {
        return;
    }
    let Some(entry) = LEDGER.remove(address) else { return };
    if let Some(books) = contexts::books(entry.device) {
        // In this order: no other thread may be admitted in between.
        books.account.charge_external(entry.kind, bytes);
        books.account.release_external(entry.kind, charged);
    }
    write_down(address, Entry { bytes, ..entry });
}

/// `cuMemAllocManaged`
///
/// # Safety
/// As the driver's.
pub unsafe fn alloc_managed(address: *mut DevicePtr, bytes: usize, flags: c_uint) -> CuResult {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::cuMemAllocManaged(address, bytes, flags) };
    if address.is_null() || bytes == 0 {
        return call();
    }
    // SAFETY: `address` is what the call writes.
    unsafe { counted(address, bytes as u64, ExternalKind::Managed, call) }
}
