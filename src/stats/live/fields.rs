//! The fields of a device in the live file. One list serves writing and reading, so that the two cannot drift apart.

use super::{OOMS, Refusal};
use crate::report::cap::SetBy;
use crate::report::counts::with_count_fields;
use crate::report::model::{
    CapFrom, Counts, DeviceReport, DriverTime, Gauge, Mapped, OomMoment, POOL, Peak, SizeBucket,
};
use crate::stats::ExternalKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a device's name.
const NAME_WORDS: usize = 16;
/// Buckets of the histogram.
const BUCKETS: usize = 65;

type Done = Result<(), Refusal>;

/// Writes a number, or reads one into its place.
pub(super) trait Fields {
    /// One word.
    fn number(&mut self, value: &mut u64) -> Done;
    /// Whether numbers come in: then they are to be checked.
    fn reads(&self) -> bool;
}

/// Writes.
pub(super) struct Writer<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
}

impl<'a> Writer<'a> {
    pub fn new(words: &'a [AtomicU64]) -> Writer<'a> {
        Writer { words: words.iter() }
    }
}

impl Fields for Writer<'_> {
    fn number(&mut self, value: &mut u64) -> Done {
        let word = self.words.next().ok_or(Refusal::Damaged("too many figures"))?;
        word.store(*value, Ordering::Relaxed);
        Ok(())
    }

    fn reads(&self) -> bool {
        false
    }
}

/// Reads.
pub(super) struct Reader<'a>(pub std::slice::Iter<'a, u64>);

impl Fields for Reader<'_> {
    fn number(&mut self, value: &mut u64) -> Done {
        *value = *self.0.next().ok_or(Refusal::Damaged("figures are missing"))?;
        Ok(())
    }

    fn reads(&self) -> bool {
        true
    }
}

/// A number that must hold `good` when it was read.
fn checked(f: &mut impl Fields, value: &mut u64, good: impl Fn(u64) -> bool, what: &'static str) -> Done {
    f.number(value)?;
    if f.reads() && !good(*value) { Err(Refusal::Damaged(what)) } else { Ok(()) }
}

fn text(f: &mut impl Fields, value: &mut String) -> Done {
    let mut end = value.len().min(NAME_WORDS * 8);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let mut length = end as u64;
    checked(f, &mut length, |length| length <= NAME_WORDS as u64 * 8, "a name is too long")?;
    let mut bytes = [0_u8; NAME_WORDS * 8];
    if !f.reads() {
        bytes[..end].copy_from_slice(&value.as_bytes()[..end]);
    }
    for chunk in bytes.chunks_exact_mut(8) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        let mut number = u64::from_ne_bytes(word);
        f.number(&mut number)?;
        chunk.copy_from_slice(&number.to_ne_bytes());
    }
    if f.reads() {
        *value = String::from_utf8_lossy(&bytes[..length as usize]).into_owned();
    }
    Ok(())
}

fn share(f: &mut impl Fields, value: &mut f64) -> Done {
    let mut bits = value.to_bits();
    let good = |bits| (0.0..=1.0).contains(&f64::from_bits(bits));
    checked(f, &mut bits, good, "a share is not between 0 and 1")?;
    *value = f64::from_bits(bits);
    Ok(())
}

fn gauge(f: &mut impl Fields, gauge: &mut Gauge) -> Done {
    f.number(&mut gauge.current)?;
    let (current, most) = (gauge.current, u64::MAX);
    checked(f, &mut gauge.peak, |peak| (current..=most).contains(&peak), "a peak is below its figure")?;
    f.number(&mut gauge.total_allocated)?;
    f.number(&mut gauge.total_freed)
}

/// What is there or not.
fn option<F: Fields, T: Default>(f: &mut F, value: &mut Option<T>, item: fn(&mut F, &mut T) -> Done) -> Done {
    let mut there = u64::from(value.is_some());
    checked(f, &mut there, |there| there <= 1, "a mark is neither 0 nor 1")?;
    if f.reads() {
        *value = (there == 1).then(T::default);
    }
    value.as_mut().map_or(Ok(()), |value| item(f, value))
}

/// At most so many.
fn list<F: Fields, T: Default>(
    f: &mut F,
    most: usize,
    values: &mut Vec<T>,
    item: fn(&mut F, &mut T) -> Done,
) -> Done {
    let mut count = values.len().min(most) as u64;
    checked(f, &mut count, |count| count <= most as u64, "a list is too long")?;
    if f.reads() {
        *values = (0..count).map(|_| T::default()).collect();
    }
    values.iter_mut().take(count as usize).try_for_each(|value| item(f, value))
}

fn peak<F: Fields>(f: &mut F, peak: &mut Peak) -> Done {
    f.number(&mut peak.requested_bytes)?;
    f.number(&mut peak.allocated_bytes)?;
    f.number(&mut peak.reserved_bytes)?;
    f.number(&mut peak.cached_bytes)?;
    f.number(&mut peak.external_bytes)?;
    f.number(&mut peak.largest_free_block_bytes)
}

fn driver_time<F: Fields>(f: &mut F, time: &mut DriverTime) -> Done {
    f.number(&mut time.alloc_ns)?;
    f.number(&mut time.allocs)?;
    f.number(&mut time.free_ns)?;
    f.number(&mut time.frees)
}

fn mapped<F: Fields>(f: &mut F, mapped: &mut Mapped) -> Done {
    f.number(&mut mapped.mapped_bytes)?;
    f.number(&mut mapped.loose_bytes)?;
    f.number(&mut mapped.spanned_bytes)?;
    f.number(&mut mapped.handles)?;
    f.number(&mut mapped.remaps)?;
    f.number(&mut mapped.moved_handles)?;
    f.number(&mut mapped.moved_bytes)?;
    f.number(&mut mapped.map_ns)
}

fn cap_from<F: Fields>(f: &mut F, from: &mut CapFrom) -> Done {
    option(f, &mut from.memory_fraction_bytes, F::number)?;
    option(f, &mut from.memory_limit_bytes, F::number)?;
    let mut by = SetBy::code(from.set_by);
    f.number(&mut by)?;
    from.set_by = SetBy::from_code(by);
    Ok(())
}

fn bucket<F: Fields>(f: &mut F, bucket: &mut SizeBucket) -> Done {
    f.number(&mut bucket.min_bytes)?;
    let least = bucket.min_bytes;
    checked(f, &mut bucket.max_bytes, |most| most >= least, "a bucket ends before it begins")?;
    f.number(&mut bucket.count)?;
    f.number(&mut bucket.bytes)
}

fn oom<F: Fields>(f: &mut F, oom: &mut OomMoment) -> Done {
    let known = |kind: &ExternalKind| kind.as_str() == oom.kind;
    let mut kind = ExternalKind::ALL.iter().position(known).map_or(0, |at| at as u64 + 1);
    checked(f, &mut kind, |kind| kind <= ExternalKind::ALL.len() as u64, "a kind is not known")?;
    if f.reads() {
        let outside = (kind as usize).checked_sub(1).map(|at| ExternalKind::ALL[at].as_str());
        outside.unwrap_or(POOL).clone_into(&mut oom.kind);
    }
    f.number(&mut oom.requested_bytes)?;
    f.number(&mut oom.free_bytes)?;
    f.number(&mut oom.largest_free_block_bytes)?;
    share(f, &mut oom.fragmentation)?;
    f.number(&mut oom.reserved_bytes)?;
    f.number(&mut oom.allocated_bytes)?;
    f.number(&mut oom.external_bytes)?;
    f.number(&mut oom.limit_bytes)?;
    option(f, &mut oom.driver_free_bytes, F::number)?;
    f.number(&mut oom.sufficient_limit_bytes)
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        fn counts(f: &mut impl Fields, counts: &mut Counts) -> Done {
            $(f.number(&mut counts.$name)?;)*
            Ok(())
        }
    };
}
with_count_fields!(counts);

/// All fields of a device.
pub(super) fn device<F: Fields>(f: &mut F, device: &mut DeviceReport) -> Done {
    let mut ordinal = u64::from(device.ordinal);
    checked(f, &mut ordinal, |ordinal| ordinal < super::DEVICES as u64, "a device's number is too high")?;
    device.ordinal = ordinal as u32;
    text(f, &mut device.name)?;
    f.number(&mut device.total_bytes)?;
    f.number(&mut device.limit_bytes)?;
    f.number(&mut device.headroom_bytes)?;
    f.number(&mut device.largest_free_block_bytes)?;
    gauge(f, &mut device.requested_bytes)?;
    gauge(f, &mut device.allocated_bytes)?;
    gauge(f, &mut device.reserved_bytes)?;
    gauge(f, &mut device.external_bytes)?;
    for kind in ExternalKind::ALL {
        let mut of_kind = device.external_by_kind.get(kind.as_str()).copied().unwrap_or_default();
        gauge(f, &mut of_kind)?;
        if f.reads() && of_kind != Gauge::default() {
            device.external_by_kind.insert(kind.as_str().to_owned(), of_kind);
        }
    }
    option(f, &mut device.peak, peak)?;
    f.number(&mut device.live_at_exit.blocks)?;
    f.number(&mut device.live_at_exit.bytes)?;
    counts(f, &mut device.counts)?;
    option(f, &mut device.driver_time, driver_time)?;
    option(f, &mut device.mapped, mapped)?;
    share(f, &mut device.fragmentation.at_peak)?;
    share(f, &mut device.fragmentation.at_exit)?;
    list(f, BUCKETS, &mut device.size_histogram, bucket)?;
    list(f, OOMS, &mut device.fragmentation.at_oom, oom)?;
    // Last, where an earlier version's file has zeros: then it is not there.
    option(f, &mut device.cap_from, cap_from)
}
