//! What calls cost in virtual time, in ns. Read off an H200 (driver 580), host side, device idle; other machines
//! differ by tens of per cent, and only the ratios matter to tests.

/// An allocation that finds room in a chunk which the context already holds.
pub const ALLOC_SHARED: u64 = 1_800;
/// The free that belongs to it.
pub const FREE_SHARED: u64 = 2_100;

/// An allocation for which the driver takes new memory.
pub fn alloc(bytes: u64) -> u64 {
    line(
        bytes,
        &[(2 << 20, 37_000), (16 << 20, 38_000), (256 << 20, 48_000), (1 << 30, 140_000), (8 << 30, 647_000)],
    )
}

/// A free by which the driver gives memory back.
pub fn free(bytes: u64) -> u64 {
    line(
        bytes,
        &[
            (2 << 20, 32_000),
            (16 << 20, 40_000),
            (256 << 20, 120_000),
            (1 << 30, 355_000),
            (8 << 30, 2_991_000),
        ],
    )
}

/// `cuMemRelease` of a handle.
pub fn release(bytes: u64) -> u64 {
    line(bytes, &[(2 << 20, 11_000), (256 << 20, 85_000), (1 << 30, 335_000)])
}

/// `cuMemCreate`.
pub fn create(bytes: u64) -> u64 {
    line(bytes, &[(2 << 20, 9_400), (256 << 20, 11_000), (1 << 30, 24_000)])
}

/// Linear between the given points, flat below the first, in proportion above the last.
fn line(bytes: u64, points: &[(u64, u64)]) -> u64 {
    let (first, last) = (points[0], points[points.len() - 1]);
    if bytes <= first.0 {
        return first.1;
    }
    for pair in points.windows(2) {
        let ((b0, t0), (b1, t1)) = (pair[0], pair[1]);
        if bytes <= b1 {
            return t0 + (t1 - t0) * (bytes - b0) / (b1 - b0);
        }
    }
    (u128::from(last.1) * u128::from(bytes) / u128::from(last.0)) as u64
}

/// The flat cost of a call by exported name. Calls whose cost depends on their arguments are 0 here and add it
/// themselves.
pub fn flat(name: &str) -> u64 {
    let base = name.strip_suffix("_ptsz").or(name.strip_suffix("_ptds")).unwrap_or(name);
    match base {
        "cuMemAlloc_v2" | "cuMemAllocPitch_v2" | "cuMemFree_v2" | "cuMemCreate" | "cuMemRelease" => 0,
        "cuCtxGetCurrent" | "cuCtxSetCurrent" => 12,
        "cuCtxGetId" => 17,
        "cuMemMap" => 700,
        "cuMemSetAccess" => 46_000,
        "cuMemUnmap" => 23_000,
        "cuMemAddressReserve" | "cuMemAddressFree" => 3_000,
        "cuMemGetInfo_v2" => 5_200,
        "cuMemAllocAsync" | "cuMemAllocFromPoolAsync" => 350,
        "cuMemFreeAsync" => 490,
        "cuCtxSynchronize" | "cuCtxSynchronize_v2" | "cuStreamSynchronize" | "cuEventSynchronize" => 840,
        "cuStreamQuery" => 310,
        "cuEventQuery" => 160,
        "cuLaunchKernel" | "cuLaunchKernelEx" => 2_000,
        "cuMemAllocHost_v2" | "cuMemHostAlloc" | "cuMemFreeHost" | "cuMemAllocManaged" => 50_000,
        "cuCtxCreate_v2" | "cuCtxCreate_v3" | "cuCtxCreate_v4" => 475_000_000,
        "cuGetProcAddress"
        | "cuGetProcAddress_v2"
        | "cuDriverGetVersion"
        | "cuGetErrorName"
        | "cuGetErrorString" => 20,
        _ => 250,
    }
}

/// How long the device is busy with moving `bytes`; `host` when one side is host memory.
pub fn transfer(bytes: u64, host: bool) -> u64 {
    1_000 + if host { bytes / 25 } else { bytes / 2_000 }
}
