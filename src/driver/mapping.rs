//! What the pool asks of a GPU to map physical memory where it wants it: virtual memory management.
//!
//! None of these calls waits for device work, on a real driver: whoever unmaps has seen to it that the GPU is done with
//! the memory. None fails for a capture, nor kills one.

use super::{Ctx, CuResult};

/// Physical memory by handle, and addresses to map it at. Sizes and addresses are multiples of 2 MiB.
pub trait Mapping {
    /// Whether `device` and driver can do all of this, in units of 2 MiB.
    ///
    /// # Errors
    /// What is missing.
    fn can_map(&self, device: u32) -> Result<(), &'static str>;

    /// Reserves addresses.
    ///
    /// # Errors
    /// The driver's own code.
    fn reserve_addresses(&self, ctx: Ctx, bytes: u64) -> Result<u64, CuResult>;

    /// Gives reserved addresses back, at which nothing is mapped.
    ///
    /// # Errors
    /// The driver's own code.
    fn free_addresses(&self, address: u64, bytes: u64) -> Result<(), CuResult>;

    /// Takes physical memory of `device`.
    ///
    /// # Errors
    /// The driver's own code, `CUDA_ERROR_OUT_OF_MEMORY` among them.
    fn create(&self, ctx: Ctx, device: u32, bytes: u64) -> Result<u64, CuResult>;

    /// Gives physical memory back that is mapped nowhere.
    ///
    /// # Errors
    /// The driver's own code; the memory is then still there.
    fn release(&self, handle: u64) -> Result<(), CuResult>;

    /// Maps a whole handle of `bytes` at reserved addresses. No device has access yet.
    ///
    /// # Errors
    /// The driver's own code; nothing is mapped then.
    fn map(&self, ctx: Ctx, address: u64, bytes: u64, handle: u64) -> Result<(), CuResult>;

    /// Takes a whole mapping away, at once: work that still uses it faults.
    ///
    /// # Errors
    /// The driver's own code; the memory is still mapped then.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CuResult>;

    /// Gives `devices` access to neighbouring whole mappings, or takes it from them.
    ///
    /// # Errors
    /// The driver's own code.
    fn set_access(
        &self,
        ctx: Ctx,
        address: u64,
        bytes: u64,
        devices: &[u32],
        access: bool,
    ) -> Result<(), CuResult>;
}
