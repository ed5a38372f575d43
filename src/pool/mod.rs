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
//!
//! One [`Heap`] per context, [`epochs::Epochs`] for the process, one [`Index`] for the process. The heap is the caller's to lock; [`Index::claim`] may run
//! beside it.

#![deny(unsafe_code)]

mod bins;
mod check;
mod classes;
pub mod epochs;
mod gauges;
mod heap;
mod index;
mod lists;
mod loose;
mod pending;
mod range;
mod record;
mod region;
mod room;
mod runs;
mod slab;
#[cfg(test)]
mod tests;
mod view;

pub use classes::{GRANULE, SMALL_MAX};
pub use gauges::{Gauge, Usage};
pub use heap::{Fit, Heap, Rules};
pub use index::{ADDRESS_BITS, Claim, Claimed, Index};
pub use range::{Piece, RangeUsage};
pub use region::{Growth, Idle, PAGE};
pub use room::Plan;
pub use view::{BlockState, BlockView, RegionView};

/// Number of a stretch of time: memory freed under an epoch is reusable when the epoch is over. 0 comes before all.
pub type Epoch = u64;
