//! Memory that graphs allocate when they run: charged when the node is added, which is when the driver fixes its address.

use super::memory::{counted, released};
use super::table::real;
use super::types::{CuResult, DevicePtr, Graph, GraphNode, MemAllocNodeHead};
use crate::stats::ExternalKind;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Addresses whose nodes a graph still holds without a free of its own.
static OPEN: Mutex<Option<HashMap<usize, Vec<DevicePtr>>>> = Mutex::new(None);

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
    let call = move || unsafe { real::cuGraphAddMemAllocNode(node, graph, dependencies, count, params) };
    if params.is_null() {
        return call();
    }
    // SAFETY: parameters, by the driver's contract.
    let (address, bytes) = unsafe { (&raw mut (*params).address, (*params).bytes as u64) };
    // SAFETY: the address in the parameters is what the call writes.
    let result = unsafe { counted(address, bytes, ExternalKind::Graph, call) };
    if result == CuResult::SUCCESS {
        // SAFETY: as above.
        let address = unsafe { (*params).address };
        OPEN.lock().get_or_insert_default().entry(graph as usize).or_default().push(address);
    }
    result
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
