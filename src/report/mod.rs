//! The report: one model of what is worth saying about a process's device memory, and the ways to show it. Nothing here
//! measures; the model is filled by those who do, so any renderer can be tested with made-up figures, and a file written
//! by one process can be shown by another.
#![deny(unsafe_code)]

pub mod advice;
pub mod cap;
pub mod counts;
pub mod failure;
pub mod file;
pub mod history;
pub mod holders;
pub mod json;
pub mod model;
pub mod prom;
#[cfg(test)]
pub(crate) mod sample;
pub mod sites;
pub mod symbols;
pub mod template;
pub mod text;
pub mod units;

pub use file::write_atomically;
pub use json::{from_json, to_json};
pub use model::Report;
pub use prom::to_prometheus;
pub use template::Template;
pub use text::{to_text, to_text_with};
