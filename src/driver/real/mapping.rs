//! [`Mapping`] over the real driver: cuMemCreate and its kin.

use super::{RealGpu, Within, relaxed};
use crate::driver::mapping::Mapping;
use crate::driver::{Ctx, CuResult};
use crate::pool;
use std::ffi::{c_int, c_uint, c_ulonglong};

/// Addresses of the driver's functions for virtual memory management, all of which came with CUDA 10.2.
#[derive(Clone, Copy)]
pub struct Calls {
    /// `cuDeviceGetAttribute`
    pub attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> CuResult,
    /// `cuMemGetAllocationGranularity`
    pub granularity: unsafe extern "C" fn(*mut usize, *const Prop, c_uint) -> CuResult,
    /// `cuMemAddressReserve`
    pub reserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, c_ulonglong) -> CuResult,
    /// `cuMemAddressFree`
    pub free: unsafe extern "C" fn(u64, usize) -> CuResult,
    /// `cuMemCreate`
    pub create: unsafe extern "C" fn(*mut u64, usize, *const Prop, c_ulonglong) -> CuResult,
    /// `cuMemRelease`
    pub release: unsafe extern "C" fn(u64) -> CuResult,
    /// `cuMemMap`
    pub map: unsafe extern "C" fn(u64, usize, usize, u64, c_ulonglong) -> CuResult,
    /// `cuMemUnmap`
    pub unmap: unsafe extern "C" fn(u64, usize) -> CuResult,
    /// `cuMemSetAccess`
    pub set_access: unsafe extern "C" fn(u64, usize, *const Access, usize) -> CuResult,
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub struct Prop {
    kind: c_uint,
    handle_types: c_uint,
    location_kind: c_uint,
    location: c_int,
    win32: usize,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub struct Access {
    location_kind: c_uint,
    location: c_int,
    flags: c_uint,
}

const PINNED: c_uint = 1;
const ON_DEVICE: c_uint = 1;
const READ_WRITE: c_uint = 3;
const GRANULARITY_MINIMUM: c_uint = 0;
const HAS_MAPPING: c_int = 102;
const HAS_MAPPED_RDMA: c_int = 110;

/// What `cuMemAlloc` rounds to, and the unit of the pool's pieces.
const PAGE: usize = pool::PAGE as usize;

impl Calls {
    fn has(&self, attribute: c_int, device: u32) -> bool {
        let mut value = 0;
        // SAFETY: writes one integer to our local.
        let result = unsafe { (self.attribute)(&raw mut value, attribute, device as c_int) };
        result == CuResult::SUCCESS && value != 0
    }

    fn prop(&self, device: u32) -> Prop {
        Prop {
            kind: PINNED,
            handle_types: 0,
            location_kind: ON_DEVICE,
            location: device as c_int,
            win32: 0,
            compression: 0,
            // As memory of cuMemAlloc is: other devices may read and write it.
            rdma: u8::from(self.has(HAS_MAPPED_RDMA, device)),
            usage: 0,
            reserved: [0; 4],
        }
    }
}

impl RealGpu {
    fn mapping(&self) -> Result<&'static Calls, CuResult> {
        self.calls.mapping.as_ref().ok_or(CuResult::NOT_SUPPORTED)
    }
}

impl Mapping for RealGpu {
    fn can_map(&self, device: u32) -> Result<(), &'static str> {
        let _within = Within::enter();
        let calls = self.mapping().map_err(|_| "the driver is too old")?;
        if !calls.has(HAS_MAPPING, device) {
            return Err("the device cannot do it");
        }
        let (mut unit, prop) = (0, calls.prop(device));
        // SAFETY: reads and writes our locals.
        let asked = unsafe { (calls.granularity)(&raw mut unit, &raw const prop, GRANULARITY_MINIMUM) };
        if asked != CuResult::SUCCESS || unit == 0 || !PAGE.is_multiple_of(unit) {
            return Err("the driver maps in other units than 2 MiB");
        }
        Ok(())
    }

    fn reserve_addresses(&self, ctx: Ctx, bytes: u64) -> Result<u64, CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        let mut address = 0;
        // SAFETY: writes one address to our local.
        let call = || unsafe { (calls.reserve)(&raw mut address, bytes as usize, PAGE, 0, 0) }.ok();
        self.with(ctx, || relaxed(call))?;
        Ok(address)
    }

    fn free_addresses(&self, address: u64, bytes: u64) -> Result<(), CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        // SAFETY: a reservation of ours, with nothing mapped in it.
        relaxed(|| unsafe { (calls.free)(address, bytes as usize) }).ok()
    }

    fn create(&self, ctx: Ctx, device: u32, bytes: u64) -> Result<u64, CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        let (mut handle, prop) = (0, calls.prop(device));
        // SAFETY: reads and writes our locals.
        let call = || unsafe { (calls.create)(&raw mut handle, bytes as usize, &raw const prop, 0) }.ok();
        self.with(ctx, || relaxed(call))?;
        Ok(handle)
    }

    fn release(&self, handle: u64) -> Result<(), CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        // SAFETY: a handle from `create` that is mapped nowhere.
        relaxed(|| unsafe { (calls.release)(handle) }).ok()
    }

    fn map(&self, ctx: Ctx, address: u64, bytes: u64, handle: u64) -> Result<(), CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        // SAFETY: addresses of our reservation at which nothing is mapped, and a whole handle of that size.
        let call = || unsafe { (calls.map)(address, bytes as usize, 0, handle, 0) }.ok();
        self.with(ctx, || relaxed(call))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        // SAFETY: a whole mapping of ours in which nothing is live, with which the GPU is done.
        relaxed(|| unsafe { (calls.unmap)(address, bytes as usize) }).ok()
    }

    fn set_access(
        &self,
        ctx: Ctx,
        address: u64,
        bytes: u64,
        devices: &[u32],
        access: bool,
    ) -> Result<(), CuResult> {
        let (_within, calls) = (Within::enter(), self.mapping()?);
        let flags = if access { READ_WRITE } else { 0 };
        let one = |device: &u32| Access { location_kind: ON_DEVICE, location: *device as c_int, flags };
        let all: Vec<Access> = devices.iter().map(one).collect();
        // SAFETY: whole mappings of ours; reads our list.
        let call = || unsafe { (calls.set_access)(address, bytes as usize, all.as_ptr(), all.len()) }.ok();
        self.with(ctx, || relaxed(call))
    }
}
