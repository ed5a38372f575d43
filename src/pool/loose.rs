//! Handles of the range that are in no block: made and not yet mapped, taken out, or left over by a failed call. They count
//! as reserved, for the driver has given them.

use super::heap::Heap;
use super::range::Piece;

impl Heap {
    /// Counts a new handle of the driver's, of `bytes`: loose until it is [attached](Heap::attach).
    pub fn gain(&mut self, bytes: u64) {
        let Some(range) = &mut self.range else { return };
        range.detached += bytes;
        self.gauges.reserved.add(bytes);
    }

    /// Counts off a handle that is not attached and that the driver has taken back.
    pub fn lose(&mut self, bytes: u64) {
        let Some(range) = &mut self.range else { return };
        range.detached -= bytes;
        self.gauges.reserved.sub(bytes);
    }

    /// Keeps a handle that is mapped nowhere, to be used or given back later.
    pub fn keep_loose(&mut self, piece: Piece) {
        if let Some(range) = &mut self.range {
            range.loose.push(piece);
        }
    }

    /// Takes all loose handles.
    pub fn take_loose(&mut self) -> Vec<Piece> {
        self.range.as_mut().map(|range| std::mem::take(&mut range.loose)).unwrap_or_default()
    }

    /// Remembers a handle that is mapped in a gap and could not be unmapped.
    pub fn keep_stuck(&mut self, piece: Piece) {
        if let Some(range) = &mut self.range {
            range.stuck.push(piece);
        }
    }

    /// Takes the list of handles that could not be unmapped, to try again.
    pub fn take_stuck(&mut self) -> Vec<Piece> {
        self.range.as_mut().map(|range| std::mem::take(&mut range.stuck)).unwrap_or_default()
    }
}
