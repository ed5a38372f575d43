//! The pool: which address serves which request. Knows addresses as numbers and never calls CUDA.
//!
//! ```text
//!  region                 one driver allocation; blocks never span two
//!  ├──────────────────────────────────────────────────────────────────┤
//!  │ live block │ slab │ pending block │ clean block │ live block     │   blocks tile it, joined by address
//!               ╱      ╲
//!              ├o┬o┬o┬o┬┤   objects: small blocks, all of one size class
//!  cells  ├────┼────┼────┼────┼────┼────┼────┼────┼────┼────┤          32 KiB each, the grain of the index
//! ```
//!
//! | term | meaning |
//! |---|---|
//! | **region** | what the driver gave in one allocation (`PyTorch`: segment) |
//! | **block** | a stretch of a region, a multiple of 512 B: live, pending, clean, or a slab |
//! | **slab** | a block carved into **objects** of one **size class**, for requests of at most 32 KiB |
//! | **record** | 64 B of host memory that describe a block or an object; its **word** holds address and state |
//! | **cell** | a slot of the [`Index`] per 32 KiB: which record to try for an address there |
//! | **epoch** | a number that grows with time. A block freed under an epoch may still be in use by the GPU until that epoch is over (**retired**) |
//! | **pending**, **clean** | freed before and after its epoch's end. Only clean memory is handed out |
//! | **claim** | the compare-exchange by which one free of a block wins: [`Index::claim`] needs no lock, the heap does |
//! | **cache** | what one thread has freed of one heap and takes again without a lock, in **rings** of one size each |
//! | **depot** | where a thread puts batches of blocks away, for itself or for other threads |
//! | **range** | reserved addresses that one region grows over; **pieces**, a handle of physical memory each, are mapped into it, and what is not mapped is a **gap** |
//!
//! One [`Heap`] with its [`Caches`] per context; one [`epochs::Epochs`] and one [`Index`] for the process. The heap is the caller's
//! to lock; [`Index::claim`], [`Index::keep`] and the threads' [`Cache`]s run beside it.

#![deny(unsafe_code)]

mod arena;
mod bins;
mod cache;
mod cached;
mod caches;
mod check;
mod choice;
mod classes;
mod depot;
pub mod epochs;
mod gauges;
mod heap;
mod index;
mod kept;
mod lists;
pub mod local;
mod loose;
#[cfg(any(test, fuzzing))]
pub mod model;
mod pending;
mod range;
mod record;
mod region;
mod ring;
mod room;
mod runs;
mod slab;
mod tally;
#[cfg(test)]
mod tests;
pub mod trade;
mod view;

pub use cache::{CACHED_MAX, Cache, Popped};
pub use caches::{Caches, Drain, cached_need};
pub use choice::{Best, Fits};
pub use classes::{GRANULE, SMALL_MAX};
pub use depot::Batch;
pub use gauges::{Gauge, Usage};
pub use heap::{Fit, Heap, Rules};
pub use index::{ADDRESS_BITS, Claim, Claimed, Index};
pub use kept::{Freed, Kept};
pub use range::{Piece, RangeUsage};
pub use region::{Growth, Idle, PAGE};
pub use room::Plan;
pub use trade::{Purse, Trade};
pub use view::{BlockState, BlockView, RegionView};

/// Number of a stretch of time: memory freed under an epoch is reusable when the epoch is over. 0 comes before all.
pub type Epoch = u64;
