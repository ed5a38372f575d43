//! What happened on one device, so that it can be taken back step by step from how it lay at the end: which is what
//! `PyTorch`'s viewer does. A history may have gaps: its first events were not kept, blocks too small to be events lie
//! between others, a context took its blocks along when it ended. An event that does not fit would break the viewer, so it
//! is left out here, and frees that nobody made are added.

use crate::report::history::{ALLOCATED, Event, Segment, What};
use std::collections::{BTreeMap, BTreeSet};

/// An event that fits what comes after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<'a> {
    pub what: What,
    pub address: u64,
    pub bytes: u64,
    /// The event that it comes from; that of the end of a segment for frees that were added.
    pub from: &'a Event,
}

/// The steps that lead to these segments.
pub fn steps<'a>(events: &[&'a Event], segments: &[Segment]) -> Vec<Step<'a>> {
    let told = with_missing_frees(events);
    let mut now = State::of(segments);
    let mut kept: Vec<Step> = told.into_iter().rev().filter(|step| now.take_back(step)).collect();
    kept.reverse();
    kept
}

/// The events as steps, with a free before the end of the segment that a block was in, and before another allocation at its
/// address.
fn with_missing_frees<'a>(events: &[&'a Event]) -> Vec<Step<'a>> {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut steps = Vec::new();
    for &event in events {
        let Some(what) = What::named(&event.kind) else { continue };
        let (address, bytes) = (event.address, event.bytes);
        let gone: Vec<u64> = match what {
            What::SegmentFree | What::SegmentUnmap => {
                live.range(address..address.saturating_add(bytes)).map(|(at, _)| *at).collect()
            }
            What::Alloc => live.get(&address).map(|_| address).into_iter().collect(),
            _ => Vec::new(),
        };
        for at in gone {
            let bytes = live.remove(&at).unwrap_or(0);
            steps.push(Step { what: What::Free, address: at, bytes, from: event });
        }
        match what {
            What::Alloc => _ = live.insert(address, bytes),
            What::Free => _ = live.remove(&address),
            _ => {}
        }
        steps.push(Step { what, address, bytes, from: event });
    }
    steps
}

/// What is there at one moment.
struct State {
    /// End and kind of what is at an address: a segment, or what is mapped of a range without a gap.
    segments: BTreeMap<u64, (u64, bool)>,
    live: BTreeSet<u64>,
}

impl State {
    fn of(segments: &[Segment]) -> State {
        let mut state = State { segments: BTreeMap::new(), live: BTreeSet::new() };
        for segment in segments {
            state.segments.insert(segment.address, (segment.address + segment.bytes, segment.expandable));
            let live = segment.blocks.iter().filter(|block| block.state == ALLOCATED && block.count == 1);
            state.live.extend(live.map(|block| segment.address + block.offset));
        }
        state
    }

    /// The segment that these addresses are in.
    fn around(&self, address: u64, end: u64) -> Option<(u64, u64, bool)> {
        let (start, (to, expandable)) = self.segments.range(..=address).next_back()?;
        (end <= *to).then_some((*start, *to, *expandable))
    }

    /// Whether anything is at these addresses.
    fn meets(&self, address: u64, end: u64) -> bool {
        self.segments.range(..end).next_back().is_some_and(|(_, (to, _))| *to > address)
    }

    /// Takes a step back, if it can have been the last.
    fn take_back(&mut self, step: &Step) -> bool {
        let (address, end) = (step.address, step.address.saturating_add(step.bytes));
        match step.what {
            What::Alloc => self.live.remove(&address),
            What::Free => self.around(address, end).is_some() && self.live.insert(address),
            What::SegmentAlloc => {
                let there =
                    self.segments.get(&address) == Some(&(end, false)) && !self.has_live(address, end);
                there && self.segments.remove(&address).is_some()
            }
            What::SegmentFree => {
                let free = step.bytes > 0 && !self.meets(address, end);
                if free {
                    self.segments.insert(address, (end, false));
                }
                free
            }
            What::SegmentMap => {
                let Some((start, to, true)) = self.around(address, end) else { return false };
                if step.bytes == 0 || self.has_live(address, end) {
                    return false;
                }
                self.segments.remove(&start);
                if start < address {
                    self.segments.insert(start, (address, true));
                }
                if end < to {
                    self.segments.insert(end, (to, true));
                }
                true
            }
            What::SegmentUnmap => {
                if step.bytes == 0 || self.meets(address, end) {
                    return false;
                }
                let (mut from, mut to) = (address, end);
                if let Some((start, (upto, true))) = self.segments.range(..address).next_back()
                    && *upto == address
                {
                    from = *start;
                }
                if let Some((upto, true)) = self.segments.get(&end).copied() {
                    self.segments.remove(&end);
                    to = upto;
                }
                self.segments.insert(from, (to, true));
                true
            }
            _ => true,
        }
    }

    fn has_live(&self, address: u64, end: u64) -> bool {
        self.live.range(address..end).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::history::Block;

    const M: u64 = 1 << 20;

    fn event(what: What, address: u64, bytes: u64) -> Event {
        Event {
            at_s: 0.0,
            kind: what.as_str().into(),
            device: 0,
            bytes: bytes * M,
            address: address * M,
            reserved_bytes: 0,
            allocated_bytes: 0,
            external_bytes: 0,
            phase: 0,
            pool: 0,
        }
    }

    /// A segment with live blocks of 1 MiB at these addresses.
    fn segment(address: u64, bytes: u64, expandable: bool, live: &[u64]) -> Segment {
        let block = |at: &u64| Block {
            offset: (at - address) * M,
            bytes: M,
            state: ALLOCATED.into(),
            requested: M,
            count: 1,
        };
        let blocks = live.iter().map(block).collect();
        Segment { address: address * M, bytes: bytes * M, expandable, blocks }
    }

    fn kept(events: &[Event], segments: &[Segment]) -> Vec<(What, u64)> {
        let events: Vec<&Event> = events.iter().collect();
        steps(&events, segments).iter().map(|step| (step.what, step.address / M)).collect()
    }

    #[test]
    fn what_fits_is_kept() {
        use What::{Alloc, Free, SegmentAlloc, SegmentFree};
        let events = [
            event(SegmentAlloc, 10, 4),
            event(Alloc, 10, 1),
            event(Alloc, 11, 1),
            event(Free, 10, 1),
            event(SegmentAlloc, 20, 4),
            event(SegmentFree, 20, 4),
        ];
        let whole: Vec<_> = events.iter().map(|e| (What::named(&e.kind).unwrap(), e.address / M)).collect();
        assert_eq!(kept(&events, &[segment(10, 4, false, &[11])]), whole);
    }

    #[test]
    fn blocks_end_with_their_segment_and_with_another_in_their_place() {
        use What::{Alloc, Free, SegmentAlloc, SegmentFree};
        let events =
            [event(SegmentAlloc, 10, 4), event(Alloc, 10, 1), event(Alloc, 10, 2), event(SegmentFree, 10, 4)];
        let whole = [(SegmentAlloc, 10), (Alloc, 10), (Free, 10), (Alloc, 10), (Free, 10), (SegmentFree, 10)];
        assert_eq!(kept(&events, &[]), whole);
    }

    #[test]
    fn what_would_break_a_viewer_is_left_out() {
        use What::{Alloc, Free, Oom, SegmentAlloc, SegmentFree, SegmentMap};
        assert_eq!(kept(&[event(Free, 10, 1)], &[]), [], "in no segment");
        assert_eq!(
            kept(&[event(Free, 10, 1)], &[segment(10, 4, false, &[])]),
            [(Free, 10)],
            "its allocation was not kept"
        );
        assert_eq!(
            kept(&[event(Alloc, 10, 1)], &[segment(10, 4, false, &[])]),
            [],
            "nothing there at the end"
        );
        assert_eq!(kept(&[event(SegmentAlloc, 10, 2)], &[segment(10, 4, false, &[])]), [], "another segment");
        assert_eq!(
            kept(&[event(SegmentFree, 11, 1)], &[segment(10, 4, false, &[])]),
            [],
            "it is still there"
        );
        assert_eq!(kept(&[event(SegmentMap, 10, 1)], &[segment(10, 4, false, &[])]), [], "no range");
        assert_eq!(kept(&[event(Oom, 0, 1)], &[]), [(Oom, 0)]);
    }

    #[test]
    fn pieces_of_a_range_join_and_part() {
        use What::{Alloc, SegmentMap, SegmentUnmap};
        let events = [
            event(SegmentMap, 10, 2),
            event(SegmentMap, 12, 2),
            event(SegmentMap, 14, 2),
            event(SegmentUnmap, 12, 2),
            event(SegmentMap, 16, 2),
            event(Alloc, 16, 1),
        ];
        let whole: Vec<_> = events.iter().map(|e| (What::named(&e.kind).unwrap(), e.address / M)).collect();
        let segments = [segment(10, 2, true, &[]), segment(14, 4, true, &[16])];
        assert_eq!(kept(&events, &segments), whole);
    }
}
