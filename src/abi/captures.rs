//! What opens and closes a stream capture.

use super::table::real;
use super::types::{CuResult, Graph, GraphNode, Opaque, Stream};
use crate::life::captures::{self, StreamKey};
use std::ffi::{c_uint, c_void};

macro_rules! captures {
    ($( $name:ident => $edge:ident $real:ident, $per_thread:literal ( $($arg:ident : $ty:ty),* ); )*) => {$(
        #[doc = concat!("`", stringify!($real), "`")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $name(stream: Stream, $($arg: $ty),*) -> CuResult {
            // SAFETY: the caller's arguments.
            captures::$edge(StreamKey::new(stream as usize, $per_thread), || unsafe { real::$real(stream, $($arg),*) })
        }
    )*};
}

captures! {
    begin_v1 => begin cuStreamBeginCapture, false ();
    begin_v1_ptsz => begin cuStreamBeginCapture_ptsz, true ();
    begin => begin cuStreamBeginCapture_v2, false (mode: c_uint);
    begin_ptsz => begin cuStreamBeginCapture_v2_ptsz, true (mode: c_uint);
    begin_to_graph => begin_into cuStreamBeginCaptureToGraph, false
        (graph: Graph, dependencies: *const GraphNode, edges: *const c_void, count: usize, mode: c_uint);
    begin_to_graph_ptsz => begin_into cuStreamBeginCaptureToGraph_ptsz, true
        (graph: Graph, dependencies: *const GraphNode, edges: *const c_void, count: usize, mode: c_uint);
    begin_again => begin_into cuStreamBeginRecaptureToGraph, false (mode: c_uint, graph: Graph, callback: Opaque, data: Opaque);
    begin_again_ptsz => begin_into cuStreamBeginRecaptureToGraph_ptsz, true
        (mode: c_uint, graph: Graph, callback: Opaque, data: Opaque);
    begin_to_cig => begin_into cuStreamBeginCaptureToCig, false (params: Opaque);
    begin_to_cig_ptsz => begin_into cuStreamBeginCaptureToCig_ptsz, true (params: Opaque);
    end_to_cig => end cuStreamEndCaptureToCig, false ();
    end_to_cig_ptsz => end cuStreamEndCaptureToCig_ptsz, true ();
    end => end cuStreamEndCapture, false (graph: *mut Graph);
    end_ptsz => end cuStreamEndCapture_ptsz, true (graph: *mut Graph);
}

/// `cuStreamDestroy_v2`
///
/// # Safety
/// As the driver's.
pub unsafe fn stream_destroy(stream: Stream) -> CuResult {
    // SAFETY: the caller's argument.
    captures::while_destroying(stream as usize, || unsafe { real::cuStreamDestroy_v2(stream) })
}
