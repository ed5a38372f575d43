//! Maps of the pool, where the report has them: how the memory lay at the high-water mark, at out of memory, at the end. Each
//! segment is a bar of its own length, and what lies in it is drawn where it lies.

use super::bars::share;
use crate::report::history::{ALLOCATED, Block, PENDING, Segment};
use crate::report::model::DeviceReport;
use crate::report::units::{counted, duration, human};

/// How the memory of one device lay at one moment.
pub struct Map {
    pub title: String,
    /// Sums of it.
    pub about: String,
    pub segments: Vec<Drawn>,
    /// Segments that are not drawn.
    pub more: u64,
}

/// A segment and how it is filled.
pub struct Drawn {
    pub bytes: String,
    /// Its length against the largest, in thousandths.
    pub length: f64,
    /// Style, place and width in thousandths of the largest, and what to say about it.
    pub blocks: Vec<(&'static str, f64, f64, String)>,
}

/// As many are drawn: a page must stay one that a browser opens.
const SEGMENTS_DRAWN: usize = 200;
const BLOCKS_DRAWN: usize = 5000;
/// What is narrower than this joins its neighbours: one would not see it, and there may be thousands.
const NARROW: f64 = 0.5;

/// The maps of one device; `end` is the moment of the last figures.
pub fn of_device(device: &DeviceReport, end: &str) -> Vec<Map> {
    let mut maps = Vec::new();
    let mut add = |title: String, segments: &[Segment], left_out: u64| {
        if !segments.is_empty() {
            maps.push(map(title, segments, left_out));
        }
    };
    if let Some(map) = &device.map_at_peak {
        add("at the high-water mark".to_owned(), &map.segments, map.left_out);
    }
    for (number, oom) in device.fragmentation.at_oom.iter().enumerate() {
        if let Some(map) = &oom.map {
            let (asked, at) = (human(oom.requested_bytes), duration(map.at_s));
            add(
                format!("at out of memory {}: {asked} asked, after {at}", number + 1),
                &map.segments,
                map.left_out,
            );
        }
    }
    add(end.to_owned(), &device.segments, 0);
    maps
}

fn map(title: String, segments: &[Segment], left_out: u64) -> Map {
    let mut sorted: Vec<&Segment> = segments.iter().collect();
    sorted.sort_by_key(|segment| (std::cmp::Reverse(segment.bytes), segment.address));
    let largest = sorted.first().map_or(1, |segment| segment.bytes).max(1);
    let mut room = BLOCKS_DRAWN;
    let mut drawn = Vec::new();
    for segment in sorted.iter().take(SEGMENTS_DRAWN) {
        let blocks = blocks(segment, largest);
        if blocks.len() > room {
            break;
        }
        room -= blocks.len();
        let length = share(segment.bytes as f64, largest as f64);
        drawn.push(Drawn { bytes: human(segment.bytes), length, blocks });
    }
    let sum = |state: &str| -> u64 {
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state == state).map(|block| block.bytes).sum()
    };
    let reserved: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let about = format!(
        "{}, {}: {} allocated",
        counted(segments.len() as u64, "segment"),
        human(reserved),
        human(sum(ALLOCATED))
    );
    let more = left_out + (segments.len() - drawn.len()) as u64;
    Map { title, about, segments: drawn, more }
}

fn style(state: &str) -> (&'static str, &'static str) {
    match state {
        ALLOCATED => ("used", "allocated"),
        PENDING => ("rounding", "pending"),
        _ => ("cached", "free"),
    }
}

fn blocks(segment: &Segment, largest: u64) -> Vec<(&'static str, f64, f64, String)> {
    let mut drawn = Vec::new();
    let mut narrow: Vec<&Block> = Vec::new();
    let place = |bytes: u64| share(bytes as f64, largest as f64);
    for block in &segment.blocks {
        if place(block.bytes) < NARROW {
            narrow.push(block);
            if place(narrow.iter().map(|block| block.bytes).sum()) >= NARROW {
                drawn.extend(joined(&narrow, &place));
                narrow.clear();
            }
            continue;
        }
        drawn.extend(joined(&narrow, &place));
        narrow.clear();
        let (class, state) = style(&block.state);
        let text = match block.count {
            1 => format!("{state}, {}", human(block.bytes)),
            count => format!("{state}, {} in {count} blocks", human(block.bytes)),
        };
        drawn.push((class, place(block.offset), place(block.bytes), text));
    }
    drawn.extend(joined(&narrow, &place));
    drawn
}

/// Narrow blocks that lie side by side, in the colour of what most of them are.
fn joined(blocks: &[&Block], place: &dyn Fn(u64) -> f64) -> Option<(&'static str, f64, f64, String)> {
    let first = blocks.first()?;
    let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
    let used: u64 = blocks.iter().filter(|block| block.state == ALLOCATED).map(|block| block.bytes).sum();
    let count: u64 = blocks.iter().map(|block| block.count).sum();
    let (class, _) = style(if used * 2 > bytes { ALLOCATED } else { "" });
    let text = format!("{}, {} of {} allocated", counted(count, "small block"), human(used), human(bytes));
    Some((class, place(first.offset), place(bytes), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn maps(report: &Report) -> Vec<Map> {
        report.devices.iter().flat_map(|device| of_device(device, "at the end")).collect()
    }
    use crate::report::history::FREE;
    use crate::report::sample;

    fn segment(address: u64, blocks: &[(u64, &'static str, u64)]) -> Segment {
        let mut segment = Segment { address, ..Segment::default() };
        for &(bytes, state, count) in blocks {
            let offset = segment.bytes;
            segment.blocks.push(Block { offset, bytes, state: state.into(), requested: 0, count });
            segment.bytes += bytes;
        }
        segment
    }

    #[test]
    fn blocks_lie_where_they_lie() {
        let mut report = sample::failure();
        report.devices[0].segments =
            vec![segment(7, &[(512, FREE, 1)]), segment(1, &[(512, ALLOCATED, 1), (512, FREE, 1)])];
        let maps = maps(&report);
        assert_eq!((maps.len(), &*maps[0].title, maps[0].more), (1, "at the end", 0));
        assert_eq!(maps[0].about, "2 segments, 1.50 KiB: 512 B allocated");
        assert_eq!(maps[0].segments[0].blocks[1], ("cached", 500.0, 500.0, "free, 512 B".to_owned()));
        assert!((maps[0].segments[1].length - 500.0).abs() < 1e-9, "the largest first");
    }

    #[test]
    fn what_one_would_not_see_is_joined() {
        let small: Vec<_> = (0..3000).map(|at| (1, if at % 3 == 0 { FREE } else { ALLOCATED }, 1)).collect();
        let mut report = sample::failure();
        report.devices[0].segments = vec![segment(1, &[&small[..], &[(3000, PENDING, 6)]].concat())];
        let blocks = &maps(&report)[0].segments[0].blocks;
        assert!((900..=1001).contains(&blocks.len()), "{}", blocks.len());
        assert_eq!(blocks[0].3, "3 small blocks, 2 B of 3 B allocated");
        assert_eq!(blocks.last().unwrap().3, "pending, 2.93 KiB in 6 blocks");
        let covered: f64 = blocks.iter().map(|block| block.2).sum();
        assert!((covered - 1000.0).abs() < 0.01, "{covered}");
    }

    #[test]
    fn no_segments_are_no_map() {
        assert!(maps(&sample::training()).is_empty() && maps(&sample::failure()).is_empty());
    }
}
