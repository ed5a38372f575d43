//! Arrays and mipmapped arrays: counted by their extents, and held under the cap.

use super::memory::{counted_as, released};
use super::table::real;
use super::types::{Array, Array3dDescriptor, ArrayDescriptor, CuResult, MipmappedArray, format_bytes};
use crate::life::contexts;
use crate::stats::ExternalKind;
use std::ffi::c_uint;

/// Bytes of an array of these extents in elements; 0 counts as 1, as in the driver's descriptors.
fn extent_bytes(width: usize, height: usize, depth: usize, format: u32, channels: u32) -> u64 {
    [width, height, depth]
        .iter()
        .map(|extent| (*extent).max(1) as u64)
        .chain([u64::from(channels.max(1)), format_bytes(format).max(1)])
        .fold(1, u64::saturating_mul)
}

/// Bytes of a mipmap chain: each level halves every extent.
fn mipmap_bytes(descriptor: &Array3dDescriptor, levels: u32) -> u64 {
    let level = |n: u32| {
        let half = |extent: usize| extent.checked_shr(n).unwrap_or(0);
        extent_bytes(
            half(descriptor.width),
            half(descriptor.height),
            half(descriptor.depth),
            descriptor.format,
            descriptor.channels,
        )
    };
    let most = usize::BITS - descriptor.width.max(descriptor.height).max(descriptor.depth).leading_zeros();
    (0..levels.clamp(1, most.max(1))).map(level).fold(0, u64::saturating_add)
}

/// `cuArrayCreate_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn create(array: *mut Array, descriptor: *const ArrayDescriptor) -> CuResult {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::cuArrayCreate_v2(array, descriptor) };
    // SAFETY: null or a descriptor, by the driver's contract.
    let Some(shape) = (unsafe { descriptor.as_ref() }).filter(|_| !array.is_null()) else { return call() };
    let bytes = extent_bytes(shape.width, shape.height, 1, shape.format, shape.channels);
    // SAFETY: `array` is what the successful call writes.
    counted_as(contexts::current_books(), bytes, ExternalKind::Array, call, || unsafe { *array } as u64)
}

/// Flags of arrays that have no memory of their own: `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// `cuArray3DCreate_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn create_3d(array: *mut Array, descriptor: *const Array3dDescriptor) -> CuResult {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::cuArray3DCreate_v2(array, descriptor) };
    // SAFETY: null or a descriptor, by the driver's contract.
    let shape = (unsafe { descriptor.as_ref() })
        .filter(|shape| !array.is_null() && shape.flags & WITHOUT_MEMORY == 0);
    let Some(shape) = shape else { return call() };
    let bytes = extent_bytes(shape.width, shape.height, shape.depth, shape.format, shape.channels);
    // SAFETY: `array` is what the successful call writes.
    counted_as(contexts::current_books(), bytes, ExternalKind::Array, call, || unsafe { *array } as u64)
}

/// `cuArrayDestroy`
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy(array: Array) -> CuResult {
    // SAFETY: the caller's argument.
    released(array as u64, || unsafe { real::cuArrayDestroy(array) })
}

/// `cuMipmappedArrayCreate`
///
/// # Safety
/// As the driver's.
pub unsafe fn create_mipmapped(
    array: *mut MipmappedArray,
    descriptor: *const Array3dDescriptor,
    levels: c_uint,
) -> CuResult {
    // SAFETY: the caller's arguments.
    let call = || unsafe { real::cuMipmappedArrayCreate(array, descriptor, levels) };
    // SAFETY: null or a descriptor, by the driver's contract.
    let shape = (unsafe { descriptor.as_ref() })
        .filter(|shape| !array.is_null() && shape.flags & WITHOUT_MEMORY == 0);
    let Some(shape) = shape else { return call() };
    let bytes = mipmap_bytes(shape, levels);
    // SAFETY: `array` is what the successful call writes.
    counted_as(contexts::current_books(), bytes, ExternalKind::Mipmap, call, || unsafe { *array } as u64)
}

/// `cuMipmappedArrayDestroy`
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy_mipmapped(array: MipmappedArray) -> CuResult {
    // SAFETY: the caller's argument.
    released(array as u64, || unsafe { real::cuMipmappedArrayDestroy(array) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_multiply_and_absent_ones_count_once() {
        assert_eq!(extent_bytes(100, 0, 0, 0x20, 4), 1600);
        assert_eq!(extent_bytes(100, 10, 2, 0x01, 1), 2000);
        assert_eq!(extent_bytes(usize::MAX, 2, 2, 0x20, 4), u64::MAX, "saturates");
    }

    #[test]
    fn a_mipmap_chain_sums_its_levels_and_ends_at_one_element() {
        let shape = Array3dDescriptor { width: 4, height: 4, depth: 0, format: 0x01, channels: 1, flags: 0 };
        assert_eq!(mipmap_bytes(&shape, 2), 16 + 4);
        assert_eq!(mipmap_bytes(&shape, 1000), 16 + 4 + 1);
    }
}
