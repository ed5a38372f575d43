//! The one table of hooked driver functions.
//!
//! Each row makes three things: the exported symbol, a slot with the address of the real function, and an entry by
//! which [`super::resolve`] recognises the real function when a resolver hands it out. A row is
//! `symbol ["name" @ version flag] (parameters) => implementation`, where name, version and flag are the query to
//! `cuGetProcAddress` that selects exactly this function: the version is the CUDA version (1000 × major + 10 × minor)
//! that introduced its parameters, the flag is `legacy` or, for the entry points that use per-thread default streams,
//! `per_thread`. `(thread)` before an implementation hands it the calling thread's variables.

use super::types::{
    Array, Array3dDescriptor, ArrayDescriptor, Context, CuResult, Device, DevicePtr, Graph, GraphExec,
    GraphNode, GraphNodeHead, IpcHandle, MemAllocNodeHead, MemAllocationProp, MemHandle, MemLocation,
    MemPool, MipmappedArray, Opaque, Stream,
};
use super::{
    arrays, captures, contexts, graphs, identity, memory, peers, pools, procaddress, query, streams, vmm,
};
use crate::driver::real::thread;
use crate::life::process::{Admission, admit, admit_on};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One hooked function: how it is found, and what replaces it.
pub struct Hook {
    /// The exported symbol, for example `cuMemAlloc_v2`.
    pub symbol: &'static CStr,
    /// The name in a `cuGetProcAddress` query, for example `cuMemAlloc`.
    pub query: &'static CStr,
    /// The version in that query.
    pub version: c_int,
    /// The flags in that query: 1 legacy, 2 per-thread default streams.
    pub flags: c_ulonglong,
    /// Our function of the same parameters.
    pub replacement: *const c_void,
    /// Where the address of the real function is kept; null until resolved, and for ever if the driver lacks it.
    pub real: &'static AtomicPtr<c_void>,
}

// SAFETY: the pointers are addresses of code and never written through.
unsafe impl Sync for Hook {}

const fn is_resolver(symbol: &str) -> bool {
    matches!(symbol.as_bytes(), b"cuGetProcAddress" | b"cuGetProcAddress_v2" | b"cuGetProcAddress_v2_ptsz")
}

macro_rules! flag {
    (legacy) => {
        1
    };
    (per_thread) => {
        2
    };
}

/// What a hook does.
macro_rules! serve {
    ($symbol:ident ($($arg:ident),*) [] $body:path) => {
        match admit() {
            // The resolvers go on: what they hand out fails in a place where the program looks.
            Admission::Refuse if !is_resolver(stringify!($symbol)) => CuResult::INVALID_VALUE,
            // SAFETY: the arguments are the caller's, under the driver's own contract.
            Admission::Forward => unsafe { super::real::$symbol($($arg),*) },
            _ => super::super::guard::shield(|| {
                // SAFETY: as above.
                unsafe { $body($($arg),*) }
            })
            // SAFETY: as above; after a fault of our own the driver still gives the right answer.
            .unwrap_or_else(|| unsafe { super::real::$symbol($($arg),*) }),
        }
    };
    // What every program calls all the time gets the thread's variables, which are looked up once, and guards itself.
    ($symbol:ident ($($arg:ident),*) [$thread:ident] $body:path) => {
        thread::with(|$thread| match admit_on($thread) {
            Admission::Refuse => CuResult::INVALID_VALUE,
            // SAFETY: the arguments are the caller's, under the driver's own contract.
            Admission::Forward => unsafe { super::real::$symbol($($arg),*) },
            // SAFETY: as above.
            Admission::Serve => unsafe { $body($thread, $($arg),*) },
        })
    };
}

macro_rules! hooks {
    ($( $symbol:ident [$query:literal @ $version:literal $flag:ident] ( $($arg:ident : $ty:ty),* $(,)? ) => $(($thread:ident))? $body:path; )*) => {
        /// The exported symbols.
        #[allow(non_snake_case, clippy::missing_safety_doc, missing_docs)]
        pub mod export {
            use super::*;
            $(
                #[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
                pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> CuResult {
                    serve!($symbol ($($arg),*) [$($thread)?] $body)
                }
            )*
        }

        /// The real functions. One that the driver lacks answers `CUDA_ERROR_NOT_FOUND`, or
        /// `CUDA_ERROR_NOT_INITIALIZED` while the process has no driver.
        #[allow(non_snake_case, clippy::missing_safety_doc, missing_docs)]
        pub mod real {
            use super::*;
            $(
                #[inline]
                pub unsafe fn $symbol($($arg: $ty),*) -> CuResult {
                    let mut address = super::slot::$symbol.load(Ordering::Acquire);
                    if address.is_null() {
                        if !super::super::resolve::ensure() {
                            return CuResult::NOT_INITIALIZED;
                        }
                        address = super::slot::$symbol.load(Ordering::Acquire);
                        if address.is_null() {
                            return CuResult::NOT_FOUND;
                        }
                    }
                    // SAFETY: the slot holds the driver's function of this name, whose parameters these are.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> CuResult>(address)($($arg),*)
                    }
                }
            )*
        }

        /// Addresses of the real functions.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod slot {
            use super::{AtomicPtr, c_void};
            $( pub static $symbol: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut()); )*
        }

        /// All hooked driver functions.
        pub static HOOKS: &[Hook] = &[
            $( Hook {
                symbol: match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) { Ok(s) => s, Err(_) => unreachable!() },
                query: match CStr::from_bytes_with_nul(concat!($query, "\0").as_bytes()) { Ok(s) => s, Err(_) => unreachable!() },
                version: $version,
                flags: flag!($flag),
                replacement: export::$symbol as *const c_void,
                real: &slot::$symbol,
            }, )*
        ];
    };
}

hooks! {
    // resolvers
    cuGetProcAddress ["cuGetProcAddress" @ 11030 legacy] (symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: c_ulonglong) => procaddress::get;
    cuGetProcAddress_v2 ["cuGetProcAddress" @ 12000 legacy] (symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int) => procaddress::get_v2;
    cuGetProcAddress_v2_ptsz ["cuGetProcAddress" @ 12000 per_thread] (symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int) => procaddress::get_v2_ptsz;

    // lifetimes
    cuInit ["cuInit" @ 2000 legacy] (flags: c_uint) => contexts::init;
    cuDevicePrimaryCtxRetain ["cuDevicePrimaryCtxRetain" @ 7000 legacy] (context: *mut Context, device: Device) => contexts::primary_retain;
    cuDevicePrimaryCtxRelease ["cuDevicePrimaryCtxRelease" @ 7000 legacy] (device: Device) => contexts::primary_release_v1;
    cuDevicePrimaryCtxRelease_v2 ["cuDevicePrimaryCtxRelease" @ 11000 legacy] (device: Device) => contexts::primary_release;
    cuDevicePrimaryCtxReset ["cuDevicePrimaryCtxReset" @ 7000 legacy] (device: Device) => contexts::primary_reset_v1;
    cuDevicePrimaryCtxReset_v2 ["cuDevicePrimaryCtxReset" @ 11000 legacy] (device: Device) => contexts::primary_reset;
    cuCtxCreate_v2 ["cuCtxCreate" @ 3020 legacy] (context: *mut Context, flags: c_uint, device: Device) => contexts::create_v2;
    cuCtxCreate_v3 ["cuCtxCreate" @ 11040 legacy] (context: *mut Context, params: Opaque, count: c_int, flags: c_uint, device: Device) => contexts::create_v3;
    cuCtxCreate_v4 ["cuCtxCreate" @ 12050 legacy] (context: *mut Context, params: Opaque, flags: c_uint, device: Device) => contexts::create_v4;
    cuCtxDestroy_v2 ["cuCtxDestroy" @ 4000 legacy] (context: Context) => contexts::destroy;
    cuCtxDestroy ["cuCtxDestroy" @ 2000 legacy] (context: Context) => contexts::destroy_v1;
    cuCtxDetach ["cuCtxDetach" @ 2000 legacy] (context: Context) => contexts::detach;
    cuGreenCtxCreate ["cuGreenCtxCreate" @ 12040 legacy] (green: *mut Opaque, description: Opaque, device: Device, flags: c_uint) => contexts::green_create;
    cuCtxFromGreenCtx ["cuCtxFromGreenCtx" @ 12040 legacy] (context: *mut Context, green: Opaque) => contexts::from_green;
    cuGreenCtxDestroy ["cuGreenCtxDestroy" @ 12040 legacy] (green: Opaque) => contexts::green_destroy;
    cuCtxEnablePeerAccess ["cuCtxEnablePeerAccess" @ 4000 legacy] (peer: Context, flags: c_uint) => peers::enable;
    cuCtxDisablePeerAccess ["cuCtxDisablePeerAccess" @ 4000 legacy] (peer: Context) => peers::disable;
    cuCtxSynchronize ["cuCtxSynchronize" @ 2000 legacy] () => streams::context_synchronize;
    cuCtxSynchronize_v2 ["cuCtxSynchronize" @ 13000 legacy] (context: Context) => streams::context_synchronize_v2;

    // served from the pool
    cuMemAlloc_v2 ["cuMemAlloc" @ 3020 legacy] (address: *mut DevicePtr, bytes: usize) => (thread) memory::alloc;
    cuMemFree_v2 ["cuMemFree" @ 3020 legacy] (address: DevicePtr) => (thread) memory::free;

    // counted and held under the cap
    cuMemAllocPitch_v2 ["cuMemAllocPitch" @ 3020 legacy] (address: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: c_uint) => memory::alloc_pitch;
    cuMemAllocManaged ["cuMemAllocManaged" @ 6000 legacy] (address: *mut DevicePtr, bytes: usize, flags: c_uint) => memory::alloc_managed;
    cuMemAllocAsync ["cuMemAllocAsync" @ 11020 legacy] (address: *mut DevicePtr, bytes: usize, stream: Stream) => streams::alloc_async;
    cuMemAllocAsync_ptsz ["cuMemAllocAsync" @ 11020 per_thread] (address: *mut DevicePtr, bytes: usize, stream: Stream) => streams::alloc_async_ptsz;
    cuMemAllocFromPoolAsync ["cuMemAllocFromPoolAsync" @ 11020 legacy] (address: *mut DevicePtr, bytes: usize, pool: MemPool, stream: Stream) => streams::alloc_from_pool_async;
    cuMemAllocFromPoolAsync_ptsz ["cuMemAllocFromPoolAsync" @ 11020 per_thread] (address: *mut DevicePtr, bytes: usize, pool: MemPool, stream: Stream) => streams::alloc_from_pool_async_ptsz;
    cuMemFreeAsync ["cuMemFreeAsync" @ 11020 legacy] (address: DevicePtr, stream: Stream) => streams::free_async;
    cuMemFreeAsync_ptsz ["cuMemFreeAsync" @ 11020 per_thread] (address: DevicePtr, stream: Stream) => streams::free_async_ptsz;
    cuMemPoolCreate ["cuMemPoolCreate" @ 11020 legacy] (pool: *mut MemPool, props: *const MemAllocationProp) => pools::create;
    cuMemPoolDestroy ["cuMemPoolDestroy" @ 11020 legacy] (pool: MemPool) => pools::destroy;
    cuDeviceGetDefaultMemPool ["cuDeviceGetDefaultMemPool" @ 11020 legacy] (pool: *mut MemPool, device: Device) => pools::device_default;
    cuDeviceGetMemPool ["cuDeviceGetMemPool" @ 11020 legacy] (pool: *mut MemPool, device: Device) => pools::device_current;
    cuMemGetDefaultMemPool ["cuMemGetDefaultMemPool" @ 13000 legacy] (pool: *mut MemPool, location: *mut MemLocation, kind: c_uint) => pools::location_default;
    cuMemGetMemPool ["cuMemGetMemPool" @ 13000 legacy] (pool: *mut MemPool, location: *mut MemLocation, kind: c_uint) => pools::location_current;
    cuMemCreate ["cuMemCreate" @ 10020 legacy] (handle: *mut MemHandle, bytes: usize, prop: *const MemAllocationProp, flags: c_ulonglong) => vmm::create;
    cuMemRelease ["cuMemRelease" @ 10020 legacy] (handle: MemHandle) => vmm::release;
    cuMemMap ["cuMemMap" @ 10020 legacy] (address: DevicePtr, bytes: usize, offset: usize, handle: MemHandle, flags: c_ulonglong) => vmm::map;
    cuMemUnmap ["cuMemUnmap" @ 10020 legacy] (address: DevicePtr, bytes: usize) => vmm::unmap;
    cuMemRetainAllocationHandle ["cuMemRetainAllocationHandle" @ 11000 legacy] (handle: *mut MemHandle, address: Opaque) => vmm::retain;
    cuMemImportFromShareableHandle ["cuMemImportFromShareableHandle" @ 10020 legacy] (handle: *mut MemHandle, shared: Opaque, kind: c_uint) => vmm::import;
    cuArrayCreate_v2 ["cuArrayCreate" @ 3020 legacy] (array: *mut Array, descriptor: *const ArrayDescriptor) => arrays::create;
    cuArray3DCreate_v2 ["cuArray3DCreate" @ 3020 legacy] (array: *mut Array, descriptor: *const Array3dDescriptor) => arrays::create_3d;
    cuArrayDestroy ["cuArrayDestroy" @ 2000 legacy] (array: Array) => arrays::destroy;
    cuMipmappedArrayCreate ["cuMipmappedArrayCreate" @ 5000 legacy] (array: *mut MipmappedArray, descriptor: *const Array3dDescriptor, levels: c_uint) => arrays::create_mipmapped;
    cuMipmappedArrayDestroy ["cuMipmappedArrayDestroy" @ 5000 legacy] (array: MipmappedArray) => arrays::destroy_mipmapped;
    cuGraphAddMemAllocNode ["cuGraphAddMemAllocNode" @ 11040 legacy] (node: *mut GraphNode, graph: Graph, dependencies: *const GraphNode, count: usize, params: *mut MemAllocNodeHead) => graphs::add_alloc_node;
    cuGraphAddNode ["cuGraphAddNode" @ 12020 legacy] (node: *mut GraphNode, graph: Graph, dependencies: *const GraphNode, count: usize, params: *mut GraphNodeHead) => graphs::add_node;
    cuGraphAddNode_v2 ["cuGraphAddNode" @ 12030 legacy] (node: *mut GraphNode, graph: Graph, dependencies: *const GraphNode, edges: *const c_void, count: usize, params: *mut GraphNodeHead) => graphs::add_node_v2;
    cuGraphAddNode_v3 ["cuGraphAddNode" @ 13040 legacy] (node: *mut GraphNode, graph: Graph, dependencies: *const GraphNode, edges: *const c_void, count: usize, params: *mut GraphNodeHead) => graphs::add_node_v3;
    cuGraphInstantiate ["cuGraphInstantiate" @ 10000 legacy] (exec: *mut GraphExec, graph: Graph, node: *mut GraphNode, log: *mut c_char, size: usize) => graphs::instantiate_v1;
    cuGraphInstantiate_v2 ["cuGraphInstantiate" @ 11000 legacy] (exec: *mut GraphExec, graph: Graph, node: *mut GraphNode, log: *mut c_char, size: usize) => graphs::instantiate_v2;
    cuGraphInstantiateWithFlags ["cuGraphInstantiateWithFlags" @ 11040 legacy] (exec: *mut GraphExec, graph: Graph, flags: c_ulonglong) => graphs::instantiate_with_flags;
    cuGraphInstantiateWithParams ["cuGraphInstantiateWithParams" @ 12000 legacy] (exec: *mut GraphExec, graph: Graph, params: Opaque) => graphs::instantiate_with_params;
    cuGraphInstantiateWithParams_ptsz ["cuGraphInstantiateWithParams" @ 12000 per_thread] (exec: *mut GraphExec, graph: Graph, params: Opaque) => graphs::instantiate_with_params_ptsz;
    cuGraphExecDestroy ["cuGraphExecDestroy" @ 10000 legacy] (exec: GraphExec) => graphs::exec_destroy;
    cuGraphDestroy ["cuGraphDestroy" @ 10000 legacy] (graph: Graph) => graphs::destroy;

    // answers that must agree with the above
    cuMemGetInfo_v2 ["cuMemGetInfo" @ 3020 legacy] (free: *mut usize, total: *mut usize) => query::mem_info;
    cuDeviceTotalMem_v2 ["cuDeviceTotalMem" @ 3020 legacy] (bytes: *mut usize, device: Device) => query::total_mem;
    cuMemGetAddressRange_v2 ["cuMemGetAddressRange" @ 3020 legacy] (base: *mut DevicePtr, size: *mut usize, address: DevicePtr) => identity::address_range;
    cuPointerGetAttribute ["cuPointerGetAttribute" @ 4000 legacy] (data: Opaque, attribute: c_uint, address: DevicePtr) => identity::attribute;
    cuPointerGetAttributes ["cuPointerGetAttributes" @ 7000 legacy] (count: c_uint, attributes: *const c_uint, data: *mut Opaque, address: DevicePtr) => identity::attributes;
    cuIpcGetMemHandle ["cuIpcGetMemHandle" @ 4010 legacy] (handle: *mut IpcHandle, address: DevicePtr) => identity::ipc_export;
    cuIpcOpenMemHandle ["cuIpcOpenMemHandle" @ 4010 legacy] (address: *mut DevicePtr, handle: IpcHandle, flags: c_uint) => identity::ipc_open_v1;
    cuIpcOpenMemHandle_v2 ["cuIpcOpenMemHandle" @ 11000 legacy] (address: *mut DevicePtr, handle: IpcHandle, flags: c_uint) => identity::ipc_open;
    cuMemGetHandleForAddressRange ["cuMemGetHandleForAddressRange" @ 11070 legacy] (handle: Opaque, address: DevicePtr, size: usize, kind: c_uint, flags: c_ulonglong) => identity::handle_for_range;
    cuIpcCloseMemHandle ["cuIpcCloseMemHandle" @ 4010 legacy] (address: DevicePtr) => identity::ipc_close;

    // captures
    cuStreamBeginCapture ["cuStreamBeginCapture" @ 10000 legacy] (stream: Stream) => captures::begin_v1;
    cuStreamBeginCapture_ptsz ["cuStreamBeginCapture" @ 10000 per_thread] (stream: Stream) => captures::begin_v1_ptsz;
    cuStreamBeginCapture_v2 ["cuStreamBeginCapture" @ 10010 legacy] (stream: Stream, mode: c_uint) => captures::begin;
    cuStreamBeginCapture_v2_ptsz ["cuStreamBeginCapture" @ 10010 per_thread] (stream: Stream, mode: c_uint) => captures::begin_ptsz;
    cuStreamBeginCaptureToGraph ["cuStreamBeginCaptureToGraph" @ 12030 legacy] (stream: Stream, graph: Graph, dependencies: *const GraphNode, edges: *const c_void, count: usize, mode: c_uint) => captures::begin_to_graph;
    cuStreamBeginCaptureToGraph_ptsz ["cuStreamBeginCaptureToGraph" @ 12030 per_thread] (stream: Stream, graph: Graph, dependencies: *const GraphNode, edges: *const c_void, count: usize, mode: c_uint) => captures::begin_to_graph_ptsz;
    cuStreamBeginRecaptureToGraph ["cuStreamBeginRecaptureToGraph" @ 13030 legacy] (stream: Stream, mode: c_uint, graph: Graph, callback: Opaque, data: Opaque) => captures::begin_again;
    cuStreamBeginRecaptureToGraph_ptsz ["cuStreamBeginRecaptureToGraph" @ 13030 per_thread] (stream: Stream, mode: c_uint, graph: Graph, callback: Opaque, data: Opaque) => captures::begin_again_ptsz;
    cuStreamBeginCaptureToCig ["cuStreamBeginCaptureToCig" @ 13010 legacy] (stream: Stream, params: Opaque) => captures::begin_to_cig;
    cuStreamBeginCaptureToCig_ptsz ["cuStreamBeginCaptureToCig" @ 13010 per_thread] (stream: Stream, params: Opaque) => captures::begin_to_cig_ptsz;
    cuStreamEndCaptureToCig ["cuStreamEndCaptureToCig" @ 13010 legacy] (stream: Stream) => captures::end_to_cig;
    cuStreamEndCaptureToCig_ptsz ["cuStreamEndCaptureToCig" @ 13010 per_thread] (stream: Stream) => captures::end_to_cig_ptsz;
    cuStreamEndCapture ["cuStreamEndCapture" @ 10000 legacy] (stream: Stream, graph: *mut Graph) => captures::end;
    cuStreamEndCapture_ptsz ["cuStreamEndCapture" @ 10000 per_thread] (stream: Stream, graph: *mut Graph) => captures::end_ptsz;
    cuStreamDestroy_v2 ["cuStreamDestroy" @ 4000 legacy] (stream: Stream) => captures::stream_destroy;
}

/// Whether this library exports `name`.
pub fn exports(name: &CStr) -> bool {
    HOOKS.iter().any(|hook| hook.symbol == name)
        || super::runtime::EXPORTS.iter().any(|(symbol, _)| *symbol == name)
}

/// Whether `address` is one of this library's exports.
pub fn is_export(address: *mut c_void) -> bool {
    HOOKS.iter().any(|hook| std::ptr::eq(hook.replacement, address))
        || super::runtime::EXPORTS.iter().any(|(_, export)| std::ptr::eq(export.0, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every function of the driver headers, names only.
    const KNOWN: &str = include_str!("../../tests/data/driver-functions.tsv");

    /// Functions that look as if they mattered and do not, each with the reason.
    const EXCUSED: [(&str, &str); 30] = [
        ("cuArrayGetMemoryRequirements", "asks"),
        ("cuCtxCreate_v2", "the header's name of a form that is hooked as cuCtxCreate"),
        ("cuCtxResetPersistingL2Cache", "caches, no memory"),
        ("cuCtxFromGreenCtx", "hooked by its own name"),
        (
            "cuDeviceGraphMemTrim",
            "returns what no node needs; nodes are charged, not the driver's cache of their memory",
        ),
        ("cuDestroyExternalMemory", "another API's memory"),
        ("cuDestroyExternalSemaphore", "no memory"),
        ("cuExternalMemoryGetMappedBuffer", "another API's memory"),
        ("cuExternalMemoryGetMappedMipmappedArray", "another API's memory"),
        ("cuGraphAddMemFreeNode", "the memory stays in use whenever the graph runs"),
        ("cuGraphMemAllocNodeGetParams", "asks"),
        ("cuGraphMemFreeNodeGetParams", "asks"),
        ("cuGreenCtxStreamCreate", "a stream, no memory"),
        ("cuImportExternalMemory", "another API's memory"),
        ("cuImportExternalSemaphore", "no memory"),
        ("cuIpcGetEventHandle", "no memory"),
        ("cuIpcOpenEventHandle", "no memory"),
        ("cuMemAddressFree", "addresses, no memory"),
        ("cuMemAddressReserve", "addresses, no memory"),
        ("cuMemAllocHost", "the host's memory"),
        ("cuMemFreeHost", "the host's memory"),
        ("cuMemGetAllocationGranularity", "asks"),
        ("cuMemGetAllocationPropertiesFromHandle", "asks"),
        ("cuMemHostAlloc", "the host's memory"),
        ("cuMemPoolImportFromShareableHandle", "another process's memory"),
        ("cuMemPoolImportPointer", "another process's memory"),
        ("cuMemPoolTrimTo", "returns memory that nothing is charged for"),
        ("cuMulticastCreate", "addresses, no memory"),
        ("cuStreamGetCaptureInfo", "asks"),
        ("cuThreadExchangeStreamCaptureMode", "called, not hooked"),
    ];

    fn matters(name: &str) -> bool {
        let about = [
            "cuMem",
            "cuArray",
            "cuMipmappedArray",
            "cuGraphAdd",
            "cuGraphMem",
            "cuStreamBegin",
            "cuStreamEnd",
        ];
        let about_more =
            ["cuCtx", "cuDevicePrimaryCtx", "cuGreenCtx", "cuIpc", "cuMulticast", "cuExternalMemory"];
        let verbs = [
            "Alloc",
            "Create",
            "Free",
            "Destroy",
            "Release",
            "Reset",
            "Import",
            "Trim",
            "Capture",
            "MemHandle",
        ];
        let subject = about.iter().chain(&about_more).any(|start| name.starts_with(start));
        subject && verbs.iter().any(|verb| name.contains(verb)) || name == "cuGraphAddNode"
    }

    #[test]
    fn every_function_of_the_headers_that_allocates_frees_or_captures_is_hooked_or_excused() {
        let missing: Vec<&str> = KNOWN
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split('\t').next())
            .filter(|name| matters(name))
            .filter(|name| !EXCUSED.iter().any(|(excused, _)| excused == name))
            .filter(|name| {
                !HOOKS.iter().any(|hook| {
                    hook.query.to_bytes() == name.as_bytes() || hook.symbol.to_bytes() == name.as_bytes()
                })
            })
            .collect();
        assert!(missing.is_empty(), "neither hooked nor excused: {missing:?}");
    }

    #[test]
    fn no_excuse_is_left_over() {
        for (name, _) in EXCUSED {
            let known = KNOWN.lines().any(|line| line.split('\t').next() == Some(name));
            assert!(known, "{name} is in no header");
        }
    }

    #[test]
    fn the_table_names_each_function_once_and_each_version_of_a_query_once() {
        for (at, hook) in HOOKS.iter().enumerate() {
            for other in &HOOKS[..at] {
                assert_ne!(hook.symbol, other.symbol);
                let same =
                    hook.query == other.query && hook.version == other.version && hook.flags == other.flags;
                assert!(!same, "{:?} and {:?} are found by the same query", hook.symbol, other.symbol);
            }
            assert!(hook.symbol.to_bytes().starts_with(hook.query.to_bytes()), "{:?}", hook.symbol);
        }
    }
}
