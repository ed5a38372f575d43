//! How a heap's memory lies, drawn and measured: for the moments that a report tells more about. Each goes once through all
//! blocks, under the heap's lock, so none of it is for the ordinary course of things.

use super::Gpu;
use super::server::Server;
use crate::pool::{BlockState, BlockView, Heap, PAGE, SMALL_MAX};
use crate::report::failure::{Circumstances, SizeCount};
use crate::report::history::{ALLOCATED, Block, FREE, Map, PENDING, Segment};
use std::collections::HashMap;

/// Sizes that are told of what was live.
const SIZES_TOLD: usize = 8;

/// What a moment's blocks add up to.
#[derive(Default)]
pub struct Survey {
    live: HashMap<u64, u64>,
    live_blocks: u64,
    free_pieces: u64,
    free_page_bytes: u64,
}

impl Survey {
    /// Adds the blocks of a heap.
    fn add(&mut self, heap: &Heap) {
        // The stretch of free memory that the walk is in.
        let (mut from, mut to, mut region) = (0, 0, u64::MAX);
        heap.visit(|block| {
            let free = matches!(block.state, BlockState::Pending | BlockState::Clean);
            if !free || block.region_start != region || block.start != to {
                self.close(from, to);
                (from, region) = (block.start, block.region_start);
            }
            if free {
                to = block.start + block.size;
            } else {
                (from, to) = (block.start + block.size, block.start + block.size);
            }
            if block.state == BlockState::Live {
                *self.live.entry(block.requested).or_default() += 1;
                self.live_blocks += 1;
            }
        });
        self.close(from, to);
    }

    /// A stretch of free memory ends.
    fn close(&mut self, from: u64, to: u64) {
        if to > from {
            self.free_pieces += 1;
            self.free_page_bytes += (to / PAGE * PAGE).saturating_sub(from.next_multiple_of(PAGE));
        }
    }

    /// Fills in what was found.
    pub fn tell(self, told: &mut Circumstances) {
        let mut sizes: Vec<SizeCount> =
            self.live.into_iter().map(|(bytes, count)| SizeCount { bytes, count }).collect();
        sizes.sort_unstable_by_key(|size| {
            std::cmp::Reverse((size.bytes.saturating_mul(size.count), size.bytes))
        });
        sizes.truncate(SIZES_TOLD);
        told.live_sizes = sizes;
        told.live_blocks = self.live_blocks;
        told.free_pieces = self.free_pieces;
        told.free_page_bytes = self.free_page_bytes;
    }
}

impl<G: Gpu> Server<G> {
    /// Adds this pool to a survey, and draws it where a map is wanted, of at most so many blocks.
    pub fn survey(&self, survey: &mut Survey, map: Option<(usize, &mut Map)>) {
        let inner = self.locked();
        survey.add(&inner.heap);
        if let Some((most, map)) = map {
            draw(&inner.heap, most, map);
        }
    }

    /// Draws the pool, of at most so many blocks, if its lock can be had in time.
    pub fn draw(&self, most: usize, map: &mut Map) {
        if let Some(inner) = crate::sync::patiently(&self.inner) {
            draw(&inner.heap, most, map);
        }
    }
}

/// Adds the heap's segments to a map. With more than `most` blocks, small ones of a kind that lie beside each other become
/// one; segments that do not fit even so are only counted. With none, segments are empty.
pub(super) fn draw(heap: &Heap, most: usize, map: &mut Map) {
    let blocks = {
        let mut blocks = 0;
        heap.visit(|_| blocks += 1);
        blocks
    };
    let range = heap.range().map(|(base, _)| base);
    let mut drawing = Drawing { range, most, merge: blocks > most, drawn: 0, open: None, map };
    heap.visit(|block| drawing.add(block));
    drawing.close();
}

struct Drawing<'a> {
    range: Option<u64>,
    most: usize,
    merge: bool,
    drawn: usize,
    /// The segment that is being drawn, and the region that it is in.
    open: Option<(Segment, u64)>,
    map: &'a mut Map,
}

impl Drawing<'_> {
    fn add(&mut self, block: &BlockView) {
        let ended = self.open.as_ref().is_some_and(|(segment, region)| {
            *region != block.region_start || segment.address + segment.bytes != block.start
        });
        if ended || block.state == BlockState::Gap {
            self.close();
        }
        let state = match block.state {
            BlockState::Gap => return,
            BlockState::Live => ALLOCATED,
            BlockState::Pending => PENDING,
            BlockState::Clean => FREE,
        };
        let expandable = self.range == Some(block.region_start);
        let (segment, _) = self.open.get_or_insert_with(|| {
            (Segment { address: block.start, bytes: 0, expandable, blocks: Vec::new() }, block.region_start)
        });
        let offset = segment.bytes;
        segment.bytes += block.size;
        if self.most == 0 {
            return;
        }
        if let Some(last) = segment.blocks.last_mut()
            && self.merge
            && last.state == state
            && last.bytes / last.count <= SMALL_MAX
            && block.size <= SMALL_MAX
        {
            last.bytes += block.size;
            last.requested += block.requested;
            last.count += 1;
        } else if self.drawn + segment.blocks.len() <= self.most {
            let block = Block {
                offset,
                bytes: block.size,
                state: state.into(),
                requested: block.requested,
                count: 1,
            };
            segment.blocks.push(block);
        }
    }

    fn close(&mut self) {
        let Some((segment, _)) = self.open.take() else { return };
        if self.drawn + segment.blocks.len() > self.most {
            self.map.left_out += 1;
            return;
        }
        self.drawn += segment.blocks.len();
        self.map.segments.push(segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Caches, Fit, Index, Rules};

    fn heap() -> Heap {
        let index: &'static Index = Box::leak(Box::new(Index::new()));
        let _ = Caches::new(0, index);
        Heap::new(0, index, Rules::default())
    }

    const BASE: u64 = 1 << 40;

    #[test]
    fn a_map_tiles_each_segment() {
        let mut heap = heap();
        assert!(heap.add_region(BASE, 64 << 20) && heap.add_region(BASE + (1 << 30), 32 << 20));
        for bytes in [512, 512, 4096, 3 << 20, 5 << 20, 20 << 20] {
            heap.alloc(bytes, bytes, Fit::Any, 0).unwrap();
        }
        for most in [10_000, 9] {
            let mut map = Map::default();
            draw(&heap, most, &mut map);
            assert_eq!(map.segments.len(), 2, "{map:?}");
            for segment in &map.segments {
                let mut at = 0;
                for block in &segment.blocks {
                    assert_eq!(block.offset, at, "{segment:?}");
                    at += block.bytes;
                }
                assert_eq!(at, segment.bytes, "{segment:?}");
            }
            let requested: u64 = map.segments.iter().flat_map(|s| &s.blocks).map(|b| b.requested).sum();
            let large = map.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.bytes == 20 << 20);
            assert_eq!(large.count(), 1, "what is large stands for itself: {map:?}");
            assert_eq!(requested, 512 + 512 + 4096 + (28 << 20), "{map:?}");
        }
        let mut map = Map::default();
        draw(&heap, 2, &mut map);
        assert_eq!((map.segments.len(), map.left_out), (1, 1), "what does not fit is counted");
    }

    #[test]
    fn only_small_blocks_of_a_kind_become_one() {
        let mut map = Map::default();
        let mut drawing = Drawing { range: None, most: 10, merge: true, drawn: 0, open: None, map: &mut map };
        let mut start = BASE;
        for (size, state) in [
            (20 << 20, BlockState::Live),
            (512, BlockState::Live),
            (1024, BlockState::Live),
            (512, BlockState::Clean),
            (20 << 20, BlockState::Clean),
        ] {
            let (region_start, region_size) = (BASE, 64 << 20);
            drawing.add(&BlockView {
                start,
                size,
                requested: 0,
                serial: 0,
                region_start,
                region_size,
                state,
            });
            start += size;
        }
        drawing.close();
        let drawn: Vec<_> = map.segments[0].blocks.iter().map(|block| (block.bytes, block.count)).collect();
        assert_eq!(drawn, [(20 << 20, 1), (1536, 2), (512, 1), (20 << 20, 1)]);
    }

    #[test]
    fn a_survey_finds_sizes_pieces_and_pages() {
        let mut heap = heap();
        assert!(heap.add_region(BASE, 32 << 20));
        let blocks: Vec<u64> = (0..4).map(|_| heap.alloc(7 << 20, 7 << 20, Fit::Any, 0).unwrap()).collect();
        for at in [1, 3] {
            let crate::pool::Claim::Claimed(claimed) = heap.claim(blocks[at]) else { panic!() };
            heap.free(claimed, 0);
        }
        let mut survey = Survey::default();
        survey.add(&heap);
        let mut told = Circumstances::default();
        survey.tell(&mut told);
        assert_eq!(told.live_sizes, [SizeCount { bytes: 7 << 20, count: 2 }]);
        assert_eq!((told.live_blocks, told.free_pieces), (2, 2));
        // 7 to 14 and 21 to 32 MiB are free: pages begin at even ones.
        assert_eq!(told.free_page_bytes, (6 + 10) << 20);
    }
}
