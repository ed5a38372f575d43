//! **libgpucache**: preload it into any CUDA process and its device memory is served from a caching pool, held under a
//! cap, and explained at exit.
//!
//! The layers, top to bottom; each uses only those below it (`scripts/check-layers.sh` holds them to it):
//!
//! | module | what lives there |
//! |---|---|
//! | [`abi`] | exported symbols, symbol resolution, the real function table, C types |
//! | [`life`] | lifetimes: of the process, of contexts, of captures |
//! | [`driver`] | the few GPU operations that the pool needs, and the ladder that serves a request with them |
//! | [`pool`] | size classes, blocks, heap, ranges, epochs, caches of threads; knows addresses as numbers, never calls CUDA |
//! | [`policy`] | configuration grammar, limits, garbage collection |
//! | [`stats`] | counters, histograms, fragmentation |
//! | [`report`] | one model of the report, several renderers |
//!
//! `sync.rs` stands below all of them: the primitives that the model checker replaces.

pub mod abi;
pub mod driver;
pub mod life;
pub mod policy;
pub mod pool;
pub mod report;
pub mod stats;
mod sync;
