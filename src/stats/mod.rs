//! Counters, gauges, histograms and the fragmentation figure: what the running process keeps so that its report can be
//! made without asking the driver anything.
//!
//! The plain types are the report's own ([`Gauge`], [`Counts`]); what they can do is defined here, beside twins that
//! many threads update at once without a lock ([`SharedGauge`], [`AtomicCounts`]). Every
//! operation is total: a wrong figure in a report is a nuisance, a panic in somebody's process is not acceptable.
#![deny(unsafe_code)]

mod counts;
mod fragmentation;
mod gauge;
mod histogram;
pub mod history;
mod kind;
pub mod live;
pub mod sites;
mod together;

pub use counts::AtomicCounts;
pub use fragmentation::fragmentation;
pub use gauge::SharedGauge;
pub use histogram::{OwnedHistogram, SizeHistogram};
pub use kind::ExternalKind;
pub use together::{Span, peak_together};

pub use crate::report::model::{Counts, Gauge, SizeBucket};
