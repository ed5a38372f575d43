//! Which exported function a name means at a given CUDA version, for `cuGetProcAddress`.
//!
//! Programs ask for names without suffixes; the version that they pass selects the parameters and the meaning. The
//! versions are those at which the CUDA headers introduced each form.

use crate::codes::{NOT_FOUND, R};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Names that have had several forms: since which version each form is the one meant. Forms under 3.2 take 32-bit
/// sizes and pointers.
const FORMS: &[(&str, &[(u32, &str)])] = &[
    ("cuGetProcAddress", &[(11_030, "cuGetProcAddress"), (12_000, "cuGetProcAddress_v2")]),
    ("cuDeviceTotalMem", &[(2_000, "cuDeviceTotalMem"), (3_020, "cuDeviceTotalMem_v2")]),
    ("cuDeviceGetUuid", &[(9_020, "cuDeviceGetUuid"), (11_040, "cuDeviceGetUuid_v2")]),
    (
        "cuCtxCreate",
        &[
            (2_000, "cuCtxCreate"),
            (3_020, "cuCtxCreate_v2"),
            (11_040, "cuCtxCreate_v3"),
            (12_050, "cuCtxCreate_v4"),
        ],
    ),
    ("cuCtxDestroy", &[(2_000, "cuCtxDestroy"), (4_000, "cuCtxDestroy_v2")]),
    ("cuCtxPushCurrent", &[(2_000, "cuCtxPushCurrent"), (4_000, "cuCtxPushCurrent_v2")]),
    ("cuCtxPopCurrent", &[(2_000, "cuCtxPopCurrent"), (4_000, "cuCtxPopCurrent_v2")]),
    ("cuCtxGetDevice", &[(2_000, "cuCtxGetDevice"), (13_000, "cuCtxGetDevice_v2")]),
    ("cuCtxSynchronize", &[(2_000, "cuCtxSynchronize"), (13_000, "cuCtxSynchronize_v2")]),
    (
        "cuDevicePrimaryCtxRelease",
        &[(7_000, "cuDevicePrimaryCtxRelease"), (11_000, "cuDevicePrimaryCtxRelease_v2")],
    ),
    (
        "cuDevicePrimaryCtxReset",
        &[(7_000, "cuDevicePrimaryCtxReset"), (11_000, "cuDevicePrimaryCtxReset_v2")],
    ),
    (
        "cuDevicePrimaryCtxSetFlags",
        &[(7_000, "cuDevicePrimaryCtxSetFlags"), (11_000, "cuDevicePrimaryCtxSetFlags_v2")],
    ),
    ("cuMemAlloc", &[(2_000, "cuMemAlloc"), (3_020, "cuMemAlloc_v2")]),
    ("cuMemFree", &[(2_000, "cuMemFree"), (3_020, "cuMemFree_v2")]),
    ("cuMemAllocPitch", &[(2_000, "cuMemAllocPitch"), (3_020, "cuMemAllocPitch_v2")]),
    ("cuMemAllocHost", &[(2_000, "cuMemAllocHost"), (3_020, "cuMemAllocHost_v2")]),
    ("cuMemGetInfo", &[(2_000, "cuMemGetInfo"), (3_020, "cuMemGetInfo_v2")]),
    ("cuMemGetAddressRange", &[(2_000, "cuMemGetAddressRange"), (3_020, "cuMemGetAddressRange_v2")]),
    ("cuMemHostRegister", &[(6_050, "cuMemHostRegister_v2")]),
    ("cuMemHostGetDevicePointer", &[(3_020, "cuMemHostGetDevicePointer_v2")]),
    ("cuIpcOpenMemHandle", &[(4_010, "cuIpcOpenMemHandle"), (11_000, "cuIpcOpenMemHandle_v2")]),
    ("cuArrayCreate", &[(2_000, "cuArrayCreate"), (3_020, "cuArrayCreate_v2")]),
    ("cuArray3DCreate", &[(2_000, "cuArray3DCreate"), (3_020, "cuArray3DCreate_v2")]),
    ("cuStreamDestroy", &[(2_000, "cuStreamDestroy"), (4_000, "cuStreamDestroy_v2")]),
    ("cuEventDestroy", &[(2_000, "cuEventDestroy"), (4_000, "cuEventDestroy_v2")]),
    ("cuEventElapsedTime", &[(2_000, "cuEventElapsedTime"), (12_080, "cuEventElapsedTime_v2")]),
    ("cuMemcpyHtoD", &[(2_000, "cuMemcpyHtoD"), (3_020, "cuMemcpyHtoD_v2")]),
    ("cuMemcpyDtoH", &[(2_000, "cuMemcpyDtoH"), (3_020, "cuMemcpyDtoH_v2")]),
    ("cuMemcpyDtoD", &[(2_000, "cuMemcpyDtoD"), (3_020, "cuMemcpyDtoD_v2")]),
    ("cuMemcpyHtoDAsync", &[(2_000, "cuMemcpyHtoDAsync"), (3_020, "cuMemcpyHtoDAsync_v2")]),
    ("cuMemcpyDtoHAsync", &[(2_000, "cuMemcpyDtoHAsync"), (3_020, "cuMemcpyDtoHAsync_v2")]),
    ("cuMemcpyDtoDAsync", &[(2_000, "cuMemcpyDtoDAsync"), (3_020, "cuMemcpyDtoDAsync_v2")]),
    ("cuMemcpy2D", &[(3_020, "cuMemcpy2D_v2")]),
    ("cuMemcpy2DUnaligned", &[(3_020, "cuMemcpy2DUnaligned_v2")]),
    ("cuMemcpy2DAsync", &[(3_020, "cuMemcpy2DAsync_v2")]),
    ("cuMemPrefetchAsync", &[(8_000, "cuMemPrefetchAsync"), (12_020, "cuMemPrefetchAsync_v2")]),
    ("cuMemAdvise", &[(8_000, "cuMemAdvise"), (12_020, "cuMemAdvise_v2")]),
    ("cuMemsetD8", &[(2_000, "cuMemsetD8"), (3_020, "cuMemsetD8_v2")]),
    ("cuMemsetD16", &[(2_000, "cuMemsetD16"), (3_020, "cuMemsetD16_v2")]),
    ("cuMemsetD32", &[(2_000, "cuMemsetD32"), (3_020, "cuMemsetD32_v2")]),
    ("cuMemsetD2D8", &[(2_000, "cuMemsetD2D8"), (3_020, "cuMemsetD2D8_v2")]),
    ("cuStreamBeginCapture", &[(10_000, "cuStreamBeginCapture"), (10_010, "cuStreamBeginCapture_v2")]),
    (
        "cuStreamGetCaptureInfo",
        &[
            (10_010, "cuStreamGetCaptureInfo"),
            (11_030, "cuStreamGetCaptureInfo_v2"),
            (12_030, "cuStreamGetCaptureInfo_v3"),
        ],
    ),
    (
        "cuGraphInstantiate",
        &[
            (10_000, "cuGraphInstantiate"),
            (11_000, "cuGraphInstantiate_v2"),
            (11_040, "cuGraphInstantiateWithFlags"),
        ],
    ),
];

/// Names with one form that came later than CUDA 2.0.
const SINCE: &[(&str, u32)] = &[
    ("cuGetErrorName", 6_000),
    ("cuGetErrorString", 6_000),
    ("cuGetExportTable", 3_000),
    ("cuCtxGetCurrent", 4_000),
    ("cuCtxSetCurrent", 4_000),
    ("cuCtxGetId", 12_000),
    ("cuCtxGetApiVersion", 3_020),
    ("cuCtxGetFlags", 7_000),
    ("cuCtxGetStreamPriorityRange", 5_050),
    ("cuCtxRecordEvent", 12_050),
    ("cuCtxWaitEvent", 12_050),
    ("cuCtxEnablePeerAccess", 4_000),
    ("cuCtxDisablePeerAccess", 4_000),
    ("cuDeviceCanAccessPeer", 4_000),
    ("cuDevicePrimaryCtxRetain", 7_000),
    ("cuDevicePrimaryCtxGetState", 7_000),
    ("cuDeviceGetDevResource", 12_040),
    ("cuDevResourceGenerateDesc", 12_040),
    ("cuGreenCtxCreate", 12_040),
    ("cuGreenCtxDestroy", 12_040),
    ("cuCtxFromGreenCtx", 12_040),
    ("cuMemAllocManaged", 6_000),
    ("cuMemHostAlloc", 2_020),
    ("cuMemHostUnregister", 4_000),
    ("cuMemAllocAsync", 11_020),
    ("cuMemFreeAsync", 11_020),
    ("cuMemAllocFromPoolAsync", 11_020),
    ("cuDeviceGetDefaultMemPool", 11_020),
    ("cuDeviceGetMemPool", 11_020),
    ("cuDeviceSetMemPool", 11_020),
    ("cuMemPoolCreate", 11_020),
    ("cuMemPoolDestroy", 11_020),
    ("cuMemPoolTrimTo", 11_020),
    ("cuMemPoolSetAttribute", 11_020),
    ("cuMemPoolGetAttribute", 11_020),
    ("cuMemPoolSetAccess", 11_020),
    ("cuMemAddressReserve", 10_020),
    ("cuMemAddressFree", 10_020),
    ("cuMemCreate", 10_020),
    ("cuMemRelease", 10_020),
    ("cuMemMap", 10_020),
    ("cuMemUnmap", 10_020),
    ("cuMemSetAccess", 10_020),
    ("cuMemGetAccess", 10_020),
    ("cuMemGetAllocationGranularity", 10_020),
    ("cuMemGetAllocationPropertiesFromHandle", 10_020),
    ("cuMemExportToShareableHandle", 10_020),
    ("cuMemImportFromShareableHandle", 10_020),
    ("cuMemRetainAllocationHandle", 11_000),
    ("cuMemGetHandleForAddressRange", 11_070),
    ("cuPointerGetAttribute", 4_000),
    ("cuPointerGetAttributes", 7_000),
    ("cuPointerSetAttribute", 6_000),
    ("cuIpcGetMemHandle", 4_010),
    ("cuIpcCloseMemHandle", 4_010),
    ("cuMipmappedArrayCreate", 5_000),
    ("cuMipmappedArrayDestroy", 5_000),
    ("cuStreamCreateWithPriority", 5_050),
    ("cuStreamGetPriority", 5_050),
    ("cuStreamGetFlags", 5_050),
    ("cuStreamWaitEvent", 3_020),
    ("cuStreamGetCtx", 9_020),
    ("cuStreamGetId", 12_000),
    ("cuStreamAddCallback", 5_000),
    ("cuLaunchHostFunc", 10_000),
    ("cuLaunchKernel", 4_000),
    ("cuLaunchKernelEx", 11_060),
    ("cuModuleGetLoadingMode", 11_070),
    ("cuLibraryLoadData", 12_000),
    ("cuLibraryUnload", 12_000),
    ("cuLibraryGetKernel", 12_000),
    ("cuKernelGetFunction", 12_000),
    ("cuEventRecordWithFlags", 11_010),
    ("cuMemcpy", 4_000),
    ("cuMemcpyAsync", 4_000),
    ("cuMemcpyPeer", 4_000),
    ("cuMemcpyPeerAsync", 4_000),
    ("cuMemsetD8Async", 3_020),
    ("cuMemsetD16Async", 3_020),
    ("cuMemsetD32Async", 3_020),
    ("cuMemsetD2D8Async", 3_020),
    ("cuStreamBeginCaptureToGraph", 12_030),
    ("cuStreamEndCapture", 10_000),
    ("cuStreamIsCapturing", 10_000),
    ("cuThreadExchangeStreamCaptureMode", 10_010),
    ("cuGraphCreate", 10_000),
    ("cuGraphDestroy", 10_000),
    ("cuGraphExecDestroy", 10_000),
    ("cuGraphLaunch", 10_000),
    ("cuGraphGetNodes", 10_000),
    ("cuGraphInstantiateWithFlags", 11_040),
    ("cuGraphAddMemAllocNode", 11_040),
    ("cuGraphAddMemFreeNode", 11_040),
    ("cuDeviceGraphMemTrim", 11_040),
];

/// What a query found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The function.
    Address(usize),
    /// No function has this name.
    Unknown,
    /// The version asked for is older than the function, or newer than the driver.
    Version,
}

/// Strips the suffixes that tell forms and stream variants apart.
fn plain(symbol: &str) -> &str {
    let s = symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    let cut = s.rfind("_v").filter(|i| s[i + 2..].bytes().all(|b| b.is_ascii_digit()) && s.len() > i + 2);
    cut.map_or(s, |i| &s[..i])
}

/// The version at which an exported function came.
pub fn introduced(symbol: &str) -> u32 {
    let base = symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    let form = FORMS.iter().flat_map(|(_, forms)| forms.iter()).find(|(_, s)| *s == base);
    let own = SINCE.iter().find(|(n, _)| *n == base).map(|(_, v)| *v);
    let name = || SINCE.iter().find(|(n, _)| *n == plain(base)).map(|(_, v)| *v);
    form.map(|(v, _)| *v).or(own).or_else(name).unwrap_or(2_000)
}

/// All exported functions by symbol.
pub fn exports() -> &'static HashMap<&'static str, usize> {
    static MAP: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    MAP.get_or_init(|| crate::api::table().into_iter().collect())
}

/// Finds what `name` means at `version` on a driver of version `driver`.
pub fn find(name: &str, version: i32, per_thread: bool, driver: i32) -> Found {
    let form = FORMS.iter().find(|(n, _)| *n == name);
    let only = [(introduced(name), name)];
    let forms: &[(u32, &str)] = match form {
        Some((_, forms)) => forms,
        // Names with suffixes are symbols, not names to ask for.
        None if plain(name) == name && exports().contains_key(name) => &only,
        None => return Found::Unknown,
    };
    let old = |since: u32| since as i32 <= driver;
    let known: Vec<_> = forms.iter().filter(|(v, s)| old(*v) && exports().contains_key(s)).collect();
    if known.is_empty() {
        return Found::Unknown;
    }
    let fit = known.iter().rev().find(|(v, _)| *v as i32 <= version);
    let Some((_, symbol)) = fit.filter(|_| version <= driver) else { return Found::Version };
    let variants = [format!("{symbol}_ptsz"), format!("{symbol}_ptds")];
    let variant = variants.iter().filter(|_| per_thread).find_map(|s| exports().get(s.as_str()));
    Found::Address(*variant.unwrap_or_else(|| &exports()[symbol]))
}

/// As [`find`], with the result code of `cuGetProcAddress`.
pub fn address(name: &str, version: i32, flags: u64, driver: i32) -> (R<usize>, i32) {
    match find(name, version, flags & 2 != 0, driver) {
        Found::Address(a) => (Ok(a), 0),
        Found::Unknown => (Err(NOT_FOUND), 1),
        Found::Version => (Err(NOT_FOUND), 2),
    }
}

/// Every symbol that the tables speak of, for the test that holds them against the exports.
#[cfg(all(test, not(feature = "old-driver")))]
pub fn listed() -> Vec<&'static str> {
    let forms = FORMS.iter().flat_map(|(_, forms)| forms.iter().map(|(_, s)| *s));
    forms.chain(SINCE.iter().map(|(s, _)| *s)).collect()
}
