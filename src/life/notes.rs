//! What the report has to say besides figures: what the library could not do, and what it saw and does not know.

use crate::sync::patiently;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Rises with every note.
static VERSION: AtomicU64 = AtomicU64::new(0);
static UNHOOKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes kept at most: each is said once, and a process that never stops must not grow.
const KEPT: usize = 64;

/// Adds a note, once.
pub fn add(text: String) {
    let Some(mut notes) = patiently(&NOTES) else { return };
    if notes.len() < KEPT && !notes.contains(&text) {
        notes.push(text);
        VERSION.fetch_add(1, Ordering::Release);
    }
}

/// The process has resolved a function that allocates device memory and that this library does not know.
pub fn unhooked(name: &CStr) {
    let Some(mut names) = patiently(&UNHOOKED) else { return };
    if names.len() < KEPT {
        names.insert(name.to_string_lossy().into_owned());
        VERSION.fetch_add(1, Ordering::Release);
    }
}

/// A number that changes with the notes.
pub fn version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// All notes, for the report; those whose lock stays taken are missing.
pub fn all() -> Vec<String> {
    let mut all = patiently(&NOTES).map(|notes| notes.clone()).unwrap_or_default();
    if let Some(names) = patiently(&UNHOOKED).filter(|names| !names.is_empty()) {
        let list = names.iter().cloned().collect::<Vec<_>>().join(", ");
        all.push(format!(
            "not intercepted, and so neither counted nor capped, though the process looked it up: {list}"
        ));
    }
    all
}
