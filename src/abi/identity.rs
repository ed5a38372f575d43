//! What a pooled address says of itself: its range, its attributes, its handle for other processes. All agree, and all
//! are the block's own, not those of the region that it lies in.
//!
//! **Handles.** The driver gives every address in a region the handle of the region, and an importer the region's
//! start: for a block further in, silently the wrong memory. So the handle of such a block carries its offset in bytes
//! that the driver ignores (56 to 63), and a change in bytes that it checks (52 to 55): an importer with this library
//! restores the one and adds the other, an importer without it gets an error and never other data. (Which bytes are
//! ignored and checked was read off driver 580.)

use super::table::real;
use super::types::{CuResult, DevicePtr, IpcHandle, Opaque};
use crate::life::{contexts, notes, process, say};
use crate::pool::{BlockState, BlockView};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::Once;

const CONTEXT: c_uint = 1;
const HOST_POINTER: c_uint = 4;
const BUFFER_ID: c_uint = 7;
const RANGE_START: c_uint = 11;
const RANGE_SIZE: c_uint = 12;

/// What the pool knows of an address.
enum Known {
    /// In a live block of the heap of this number.
    Block(u32, BlockView),
    /// In a region of the pool, but in no live block: to the program, memory that is not allocated.
    Free,
    /// Nothing.
    Foreign,
}

fn look_up(address: DevicePtr) -> Known {
    let owner = if process::is_active() { contexts::index().owner_of(address) } else { None };
    let Some(owner) = owner else { return Known::Foreign };
    let view = contexts::by_owner(owner).and_then(|life| life.server.with_heap(|heap| heap.find(address)));
    match view {
        Some(block) if block.state == BlockState::Live => Known::Block(owner, block),
        Some(_) => Known::Free,
        None => Known::Foreign,
    }
}

/// An address that the driver knows nothing of. It is asked about this one in the place of an address that is free to the
/// program but lies in a region of the pool: then its answer is the one that it has for freed memory, in every version.
/// (Not null, so that a default which is the address itself can be told from one which is zero.)
pub const UNKNOWN: DevicePtr = 1;
/// The same where only a page's address is accepted.
const UNKNOWN_PAGE: DevicePtr = 1 << 16;

/// The id of a block's allocation. The driver's own ids count up from small numbers and never have the top bit.
fn buffer_id(owner: u32, block: &BlockView) -> u64 {
    1 << 63 | u64::from(owner) << 48 | block.serial & ((1 << 48) - 1)
}

/// `cuMemGetAddressRange_v2`
///
/// # Safety
/// As the driver's; either pointer may be null.
pub unsafe fn address_range(base: *mut DevicePtr, size: *mut usize, address: DevicePtr) -> CuResult {
    let known = look_up(address);
    if matches!(known, Known::Free) {
        return CuResult::NOT_FOUND;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuMemGetAddressRange_v2(base, size, address) };
    if result == CuResult::SUCCESS
        && let Known::Block(_, block) = known
    {
        // SAFETY: each is the caller's to write unless null.
        unsafe {
            if let Some(base) = base.as_mut() {
                *base = block.start;
            }
            if let Some(size) = size.as_mut() {
                *size = block.requested as usize;
            }
        }
    }
    result
}

/// Puts the block's own answer in place of the region's.
unsafe fn correct(attribute: c_uint, data: Opaque, owner: u32, block: &BlockView) {
    // SAFETY: the driver has accepted the attribute and written its value, of these types, to the same place.
    unsafe {
        match attribute {
            BUFFER_ID => *data.cast::<u64>() = buffer_id(owner, block),
            RANGE_START => *data.cast::<DevicePtr>() = block.start,
            RANGE_SIZE => *data.cast::<usize>() = block.requested as usize,
            // Mapped memory belongs to no context; memory of cuMemAlloc to the one that it was allocated in.
            CONTEXT => {
                if let Some(life) = contexts::by_owner(owner) {
                    *data.cast::<usize>() = life.server.ctx().0;
                }
            }
            _ => {}
        }
    }
}

/// `cuPointerGetAttribute`
///
/// # Safety
/// As the driver's.
pub unsafe fn attribute(data: Opaque, attribute: c_uint, address: DevicePtr) -> CuResult {
    let known = look_up(address);
    let asked = if matches!(known, Known::Free) { UNKNOWN } else { address };
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuPointerGetAttribute(data, attribute, asked) };
    if result == CuResult::SUCCESS
        && let Known::Block(owner, block) = known
    {
        // SAFETY: as `correct` demands.
        unsafe { correct(attribute, data, owner, &block) };
    }
    result
}

/// `cuPointerGetAttributes`. Of an address that is not allocated the driver tells a default for each attribute, and
/// succeeds; the host pointer's is the address itself (read off driver 580).
///
/// # Safety
/// As the driver's.
pub unsafe fn attributes(
    count: c_uint,
    attributes: *const c_uint,
    data: *mut Opaque,
    address: DevicePtr,
) -> CuResult {
    let known = look_up(address);
    let asked = if matches!(known, Known::Free) { UNKNOWN } else { address };
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuPointerGetAttributes(count, attributes, data, asked) };
    if result != CuResult::SUCCESS {
        return result;
    }
    for at in 0..count as usize {
        // SAFETY: arrays of `count` elements, by the driver's contract.
        let (attribute, value) = unsafe { (*attributes.add(at), *data.add(at)) };
        if value.is_null() {
            continue;
        }
        // SAFETY: the driver has just written this attribute's value there.
        unsafe {
            match &known {
                Known::Block(owner, block) => correct(attribute, value, *owner, block),
                Known::Free if attribute == HOST_POINTER => {
                    let default = value.cast::<DevicePtr>();
                    if *default == UNKNOWN {
                        *default = address;
                    }
                }
                _ => {}
            }
        }
    }
    result
}

/// Marks a handle whose bytes 56 to 61 are a block's offset in its region.
const MARK: [u8; 2] = *b"gc";
/// What bytes 52 to 55 are changed by, so that the driver refuses the handle as it stands.
const SEAL: [u8; 4] = [0x67, 0x70, 0x75, 0x63];

fn seal(handle: &mut IpcHandle) {
    for (byte, change) in handle.0[52..56].iter_mut().zip(SEAL) {
        *byte ^= change;
    }
}

/// Writes `offset` into `handle`.
fn mark(handle: &mut IpcHandle, offset: u64) {
    seal(handle);
    handle.0[56..62].copy_from_slice(&offset.to_le_bytes()[..6]);
    handle.0[62..64].copy_from_slice(&MARK);
}

/// The driver's own handle and the offset, from a handle that was [`mark`]ed.
fn unmark(handle: &IpcHandle) -> Option<(IpcHandle, u64)> {
    if handle.0[62..64] != MARK {
        return None;
    }
    let mut plain = *handle;
    seal(&mut plain);
    let mut offset = [0; 8];
    offset[..6].copy_from_slice(&handle.0[56..62]);
    plain.0[56..64].fill(0);
    Some((plain, u64::from_le_bytes(offset)))
}

/// The driver exports no mapped memory by these handles, and answers as for any pointer that it cannot export. The user is
/// told why, once.
fn refuse_export() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let text = "a block cannot be shared with another process (cuIpcGetMemHandle) under expandable_segments:True; \
                    for a program that shares memory, leave that setting out of GPUCACHE_CONF";
        say::line(text);
        notes::add(text.to_owned());
    });
}

/// `cuIpcGetMemHandle`
///
/// # Safety
/// As the driver's.
pub unsafe fn ipc_export(handle: *mut IpcHandle, address: DevicePtr) -> CuResult {
    let known = look_up(address);
    let asked = if matches!(known, Known::Free) { UNKNOWN } else { address };
    if let Known::Block(owner, _) = known
        && contexts::by_owner(owner).is_some_and(|life| life.server.is_mapped(address))
    {
        refuse_export();
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::cuIpcGetMemHandle(handle, asked) };
    if result == CuResult::SUCCESS
        && let Known::Block(_, block) = known
        && block.start > block.region_start
    {
        // SAFETY: written by the successful call.
        mark(unsafe { &mut *handle }, block.start - block.region_start);
    }
    result
}

/// Addresses given out for imported blocks, with the imported region's start and how often each is open.
static IMPORTS: Mutex<Option<HashMap<DevicePtr, (DevicePtr, u64)>>> = Mutex::new(None);

/// `cuIpcOpenMemHandle`, of before CUDA 11
///
/// # Safety
/// As the driver's.
pub unsafe fn ipc_open_v1(address: *mut DevicePtr, handle: IpcHandle, flags: c_uint) -> CuResult {
    // SAFETY: the caller's arguments go to the function that was called.
    unsafe { open(address, handle, |to, handle| real::cuIpcOpenMemHandle(to, handle, flags)) }
}

/// `cuIpcOpenMemHandle_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn ipc_open(address: *mut DevicePtr, handle: IpcHandle, flags: c_uint) -> CuResult {
    // SAFETY: the caller's arguments go to the function that was called.
    unsafe { open(address, handle, |to, handle| real::cuIpcOpenMemHandle_v2(to, handle, flags)) }
}

/// Opens the region that a handle leads to by `call`, and gives out the block in it.
///
/// # Safety
/// `call` must write to `address` when it succeeds.
unsafe fn open(
    address: *mut DevicePtr,
    handle: IpcHandle,
    call: impl FnOnce(*mut DevicePtr, IpcHandle) -> CuResult,
) -> CuResult {
    let Some((plain, offset)) = unmark(&handle) else { return call(address, handle) };
    let result = call(address, plain);
    if result == CuResult::SUCCESS {
        // SAFETY: written by the successful call.
        unsafe {
            let region = *address;
            *address = region + offset;
            IMPORTS.lock().get_or_insert_default().entry(*address).or_insert((region, 0)).1 += 1;
        }
    }
    result
}

/// Whether a range lies in regions of the pool and touches nothing that is the program's.
fn is_free(address: DevicePtr, size: usize) -> bool {
    let end = address.saturating_add(size as u64);
    let mut at = address;
    while at < end {
        let Some(life) = contexts::index().owner_of(at).and_then(contexts::by_owner) else { return false };
        let view = life.server.with_heap(|heap| heap.find(at));
        match view {
            Some(block) if block.state != BlockState::Live => at = block.start + block.size,
            _ => return false,
        }
    }
    size > 0
}

/// `cuMemGetHandleForAddressRange`
///
/// The driver wants whole pages of a range, so callers round theirs outwards, and it looks at what is mapped and not at
/// where allocations end: a range passes that reaches into a neighbour (seen on driver 580). So every range passes that
/// touches a block of the program's, and one that touches none is answered like freed memory.
///
/// # Safety
/// As the driver's.
pub unsafe fn handle_for_range(
    handle: Opaque,
    address: DevicePtr,
    size: usize,
    kind: c_uint,
    flags: c_ulonglong,
) -> CuResult {
    let freed = process::is_active() && is_free(address, size);
    // The place of freed memory is taken by a page that the driver does not know.
    let asked = if freed { UNKNOWN_PAGE } else { address };
    // SAFETY: the caller's arguments.
    unsafe { real::cuMemGetHandleForAddressRange(handle, asked, size, kind, flags) }
}

/// `cuIpcCloseMemHandle`
///
/// # Safety
/// As the driver's.
pub unsafe fn ipc_close(address: DevicePtr) -> CuResult {
    let region = IMPORTS.lock().as_ref().and_then(|imports| imports.get(&address).map(|(region, _)| *region));
    // SAFETY: the caller's argument, or the region that it was derived from.
    let result = unsafe { real::cuIpcCloseMemHandle(region.unwrap_or(address)) };
    if result == CuResult::SUCCESS
        && let Some(imports) = IMPORTS.lock().as_mut()
        && let Some((_, open)) = imports.get_mut(&address)
    {
        *open -= 1;
        if *open == 0 {
            imports.remove(&address);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_handle_gives_back_handle_and_offset_and_differs_where_the_driver_looks() {
        let mut plain = IpcHandle([0; 64]);
        for (at, byte) in plain.0[..56].iter_mut().enumerate() {
            *byte = at as u8;
        }
        let mut marked = plain;
        mark(&mut marked, 0x1234_5678_9a00);
        assert_ne!(marked.0[52..56], plain.0[52..56]);
        let (restored, offset) = unmark(&marked).expect("marked");
        assert_eq!((restored.0, offset), (plain.0, 0x1234_5678_9a00));
        assert!(unmark(&plain).is_none(), "the driver's own handles pass as they are");
    }
}
