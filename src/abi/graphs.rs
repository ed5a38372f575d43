//! Memory that graphs allocate when they run: charged when the node is added, which is when the driver fixes its address.

use super::memory::{counted, released};
use super::table::real;
use super::types::{CuResult, DevicePtr, Graph, GraphNode, GraphNodeHead, MemAllocNodeHead, NODE_MEM_ALLOC};
use crate::stats::ExternalKind;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::c_void;

/// Addresses whose nodes a graph still holds without a free of its own.
static OPEN: Mutex<Option<HashMap<usize, Vec<DevicePtr>>>> = Mutex::new(None);

/// Adds a node that allocates, by `call`.
///
/// # Safety
/// `params` is null or the parameters that `call` completes.
unsafe fn allocating(
    graph: Graph,
    params: *mut MemAllocNodeHead,
    call: impl FnMut() -> CuResult,
) -> CuResult {
    let mut call = call;
    if params.is_null() {
        return call();
    }
    // SAFETY: parameters, by the caller's promise.
    let (address, bytes) = unsafe { (&raw mut (*params).address, (*params).bytes as u64) };
    // SAFETY: the address in the parameters is what the call writes.
    let result = unsafe { counted(address, bytes, ExternalKind::Graph, call) };
    if result == CuResult::SUCCESS {
        // SAFETY: as above.
        let address = unsafe { *address };
        OPEN.lock().get_or_insert_default().entry(graph as usize).or_default().push(address);
    }
    result
}

/// `cuGraphAddMemAllocNode`
///
/// # Safety
/// As the driver's.
pub unsafe fn add_alloc_node(
    node: *mut GraphNode,
    graph: Graph,
    dependencies: *const GraphNode,
    count: usize,
    params: *mut MemAllocNodeHead,
) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe {
        allocating(graph, params, || real::cuGraphAddMemAllocNode(node, graph, dependencies, count, params))
    }
}

/// The allocation's parameters, if the node is one.
unsafe fn allocation(params: *mut GraphNodeHead) -> *mut MemAllocNodeHead {
    // SAFETY: null or parameters of a node, by the driver's contract.
    unsafe {
        if params.is_null() || (*params).kind != NODE_MEM_ALLOC {
            std::ptr::null_mut()
        } else {
            &raw mut (*params).alloc
        }
    }
}

/// `cuGraphAddNode`
///
/// # Safety
/// As the driver's.
pub unsafe fn add_node(
    node: *mut GraphNode,
    graph: Graph,
    dependencies: *const GraphNode,
    count: usize,
    params: *mut GraphNodeHead,
) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe {
        allocating(graph, allocation(params), || {
            real::cuGraphAddNode(node, graph, dependencies, count, params)
        })
    }
}

/// `cuGraphAddNode_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn add_node_v2(
    node: *mut GraphNode,
    graph: Graph,
    dependencies: *const GraphNode,
    edges: *const c_void,
    count: usize,
    params: *mut GraphNodeHead,
) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe {
        allocating(graph, allocation(params), || {
            real::cuGraphAddNode_v2(node, graph, dependencies, edges, count, params)
        })
    }
}

/// `cuGraphAddNode_v3`
///
/// # Safety
/// As the driver's.
pub unsafe fn add_node_v3(
    node: *mut GraphNode,
    graph: Graph,
    dependencies: *const GraphNode,
    edges: *const c_void,
    count: usize,
    params: *mut GraphNodeHead,
) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe {
        allocating(graph, allocation(params), || {
            real::cuGraphAddNode_v3(node, graph, dependencies, edges, count, params)
        })
    }
}

/// `cuGraphAddMemFreeNode`
///
/// # Safety
/// As the driver's.
pub unsafe fn add_free_node(
    node: *mut GraphNode,
    graph: Graph,
    dependencies: *const GraphNode,
    count: usize,
    address: DevicePtr,
) -> CuResult {
    // SAFETY: the caller's arguments. The memory stays charged: it is in use whenever the graph runs.
    unsafe { real::cuGraphAddMemFreeNode(node, graph, dependencies, count, address) }
}

/// `cuGraphDestroy`: the nodes' memory is no longer this graph's.
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy(graph: Graph) -> CuResult {
    let addresses = OPEN.lock().as_mut().and_then(|open| open.remove(&(graph as usize)));
    // SAFETY: the caller's argument.
    let result = unsafe { real::cuGraphDestroy(graph) };
    if result == CuResult::SUCCESS {
        for address in addresses.into_iter().flatten() {
            released(address, || CuResult::SUCCESS);
        }
    }
    result
}
