//! A memory snapshot as `torch.cuda.memory._dump_snapshot` writes it: a pickle of plain dicts and lists, which
//! `pytorch.org/memory_viz` and `torch/cuda/_memory_viz.py` read. Words that mean nothing here are there because its readers
//! ask for them: every stream is 0, and a frame names the program and its phase, for no call sites are known.

use super::history_of;
use super::replay::{Step, steps};
use crate::failure::Failure;
use crate::report::Report;
use crate::report::history::{ALLOCATED, Block, Event, History, Segment, What};
use crate::report::model::{DEFAULT_SOURCE, DeviceReport};
use crate::report::units::printable;
use serde::Serialize;
use std::collections::BTreeMap;

/// `PyTorch` keeps requests up to 1 MiB in segments of this size.
const SMALL_SEGMENT: u64 = 2 << 20;

#[derive(Serialize)]
struct Snapshot {
    segments: Vec<TorchSegment>,
    device_traces: Vec<Vec<Entry>>,
    allocator_settings: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct TorchSegment {
    device: u32,
    address: u64,
    total_size: u64,
    allocated_size: u64,
    active_size: u64,
    requested_size: u64,
    stream: u64,
    segment_type: &'static str,
    segment_pool_id: (u64, u64),
    is_expandable: bool,
    frames: Vec<Frame>,
    blocks: Vec<TorchBlock>,
}

#[derive(Serialize)]
struct TorchBlock {
    address: u64,
    size: u64,
    requested_size: u64,
    state: &'static str,
    frames: Vec<Frame>,
}

#[derive(Serialize, Clone)]
struct Frame {
    filename: String,
    line: u64,
    name: String,
}

#[derive(Serialize)]
struct Entry {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<u64>,
    /// In place of the address, where memory has run out.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_free: Option<u64>,
    size: u64,
    stream: u64,
    time_us: u64,
    frames: Vec<Frame>,
}

/// The snapshot of a report's history, as a pickle.
pub fn snapshot(report: &Report) -> Result<Vec<u8>, Failure> {
    let history = history_of(report)?;
    let most = report.devices.iter().map(|device| device.ordinal).max();
    let mut device_traces: Vec<Vec<Entry>> = Vec::new();
    device_traces.resize_with(most.map_or(0, |most| most as usize + 1), Vec::new);
    for device in &report.devices {
        device_traces[device.ordinal as usize] = entries(report, device, history);
    }
    let set = report.config.iter().filter(|setting| setting.source != DEFAULT_SOURCE);
    let snapshot = Snapshot {
        segments: report
            .devices
            .iter()
            .flat_map(|device| device.segments.iter().map(|segment| torch_segment(device.ordinal, segment)))
            .collect(),
        device_traces,
        allocator_settings: set.map(|setting| (setting.key.clone(), setting.value.clone())).collect(),
    };
    serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new())
        .map_err(|error| Failure::new(format!("--memory-viz: {error}")))
}

fn torch_segment(device: u32, segment: &Segment) -> TorchSegment {
    let live = segment.blocks.iter().filter(|block| block.state == ALLOCATED);
    let allocated_size: u64 = live.clone().map(|block| block.bytes).sum();
    TorchSegment {
        device,
        address: segment.address,
        total_size: segment.bytes,
        allocated_size,
        active_size: allocated_size,
        requested_size: live.map(|block| block.requested).sum(),
        stream: 0,
        segment_type: if segment.bytes <= SMALL_SEGMENT { "small" } else { "large" },
        segment_pool_id: (0, 0),
        is_expandable: segment.expandable,
        frames: Vec::new(),
        blocks: segment.blocks.iter().map(|block| torch_block(segment.address, block)).collect(),
    }
}

fn torch_block(segment: u64, block: &Block) -> TorchBlock {
    let live = block.state == ALLOCATED;
    TorchBlock {
        address: segment + block.offset,
        size: block.bytes,
        requested_size: if live { block.requested } else { block.bytes },
        // What is pending is in no trace as freed and not complete, so to the viewer it is free.
        state: if live { "active_allocated" } else { "inactive" },
        frames: Vec::new(),
    }
}

fn entries(report: &Report, device: &DeviceReport, history: &History) -> Vec<Entry> {
    let own: Vec<&Event> = history.events.iter().filter(|event| event.device == device.ordinal).collect();
    let program = printable(report.process.command.split(' ').next().unwrap_or_default());
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let mut entries = Vec::new();
    for step in steps(&own, &device.segments) {
        let phase = history.phases.get(step.from.phase as usize).map_or("", String::as_str);
        let name = if phase.is_empty() {
            "(call site not known)".to_owned()
        } else {
            format!("phase {}", printable(phase))
        };
        let frames = vec![Frame { filename: program.clone(), line: 0, name }];
        let entry = |action| Entry {
            action,
            addr: Some(step.address),
            device_free: None,
            size: step.bytes,
            stream: 0,
            time_us: (step.from.at_s * 1e6) as u64,
            frames: frames.clone(),
        };
        match step.what {
            What::Alloc | What::SegmentAlloc | What::SegmentFree | What::SegmentMap | What::SegmentUnmap => {
                entries.push(entry(step.what.as_str()));
            }
            What::Free => entries.extend([entry("free_requested"), entry("free_completed")]),
            What::Oom => {
                entries.push(Entry { addr: None, device_free: Some(free_at(device, &step)), ..entry("oom") });
            }
            What::Trim | What::Collect | What::Barrier | What::Peak | What::Phase => {}
        }
    }
    entries
}

/// What the device had free when memory ran out: as the driver told then, else what this process had not taken.
fn free_at(device: &DeviceReport, step: &Step) -> u64 {
    const SAME: f64 = 0.005; // seconds between the event and the look around
    let told = device.fragmentation.at_oom.iter().find(|oom| {
        let at = oom.circumstances.as_ref().map(|told| told.at_s);
        oom.requested_bytes == step.bytes && at.is_some_and(|at| (at - step.from.at_s).abs() < SAME)
    });
    let held = step.from.reserved_bytes + step.from.external_bytes;
    told.and_then(|oom| oom.driver_free_bytes).unwrap_or_else(|| device.total_bytes.saturating_sub(held))
}
