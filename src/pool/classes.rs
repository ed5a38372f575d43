//! Size classes of small requests, and the size of the slabs that hold them.
//!
//! Small requests are most of the requests and little of the memory. Classes let blocks of one size share a slab, where
//! finding, freeing and looking up a block are a few array steps. Eight classes per doubling waste at most 12.5 %.

/// Every block starts at, and is as large as, a multiple of this many bytes.
pub const GRANULE: u64 = 512;
/// Requests of at most this many bytes are served from slabs.
pub const SMALL_MAX: u64 = 32 << 10;
/// The grain of the address index, and the alignment of slabs, so that a slab shares no cell with anything else.
pub const CELL: u64 = 32 << 10;

/// Classes at every granule up to here, then eight per doubling.
const LINEAR_MAX: u64 = 8 << 10;
const LINEAR: usize = (LINEAR_MAX / GRANULE) as usize;
/// Number of size classes.
pub const CLASSES: usize = LINEAR + 8 * (SMALL_MAX.ilog2() - LINEAR_MAX.ilog2()) as usize;

/// Objects that a slab should hold, where its size stays within the bounds below.
const OBJECTS: u64 = 16;
const SLAB_MIN: u64 = 2 * CELL;
const SLAB_MAX: u64 = 8 * CELL;

/// What a size class fixes.
#[derive(Clone, Copy)]
pub struct Class {
    /// Size of its objects in bytes.
    pub size: u32,
    /// Size of its slabs in bytes, a multiple of [`CELL`].
    pub slab: u32,
    /// Objects in a full-size slab.
    pub capacity: u32,
    /// `2^20 / granules of an object`, rounded up: turns the division of a lookup into a multiplication.
    inverse: u32,
}

impl Class {
    const fn new(class: usize) -> Class {
        let size = if class < LINEAR {
            (class as u64 + 1) * GRANULE
        } else {
            let doubling = (class - LINEAR) / 8;
            let step = (class - LINEAR) % 8 + 1;
            (LINEAR_MAX << doubling) / 8 * (8 + step as u64)
        };
        let wanted = (size * OBJECTS).next_power_of_two();
        let slab = if wanted < SLAB_MIN {
            SLAB_MIN
        } else if wanted > SLAB_MAX {
            SLAB_MAX
        } else {
            wanted
        };
        let granules = (size / GRANULE) as u32;
        Class {
            size: size as u32,
            slab: slab as u32,
            capacity: (slab / size) as u32,
            inverse: (1u32 << 20).div_ceil(granules),
        }
    }

    /// Number of the object that covers byte `offset` of a slab.
    pub fn object_at(self, offset: u64) -> u32 {
        ((offset / GRANULE * u64::from(self.inverse)) >> 20) as u32
    }
}

const fn table() -> [Class; CLASSES] {
    let mut classes = [Class::new(0); CLASSES];
    let mut class = 1;
    while class < CLASSES {
        classes[class] = Class::new(class);
        class += 1;
    }
    classes
}

static TABLE: [Class; CLASSES] = table();

const _: () = assert!(CLASSES.is_power_of_two(), "a number is masked, not checked");

/// The class numbered `class`, which must be below [`CLASSES`].
#[inline(always)]
pub fn class(class: usize) -> Class {
    debug_assert!(class < CLASSES);
    TABLE[class % CLASSES]
}

/// Of so many granules, the smallest class that holds them.
static BY_GRANULES: [u8; 2 * GRANULES] = {
    let mut classes = [0; 2 * GRANULES];
    let mut granules = 1;
    while granules <= GRANULES {
        classes[granules] = compute(granules as u64 * GRANULE) as u8;
        granules += 1;
    }
    classes
};
const GRANULES: usize = (SMALL_MAX / GRANULE) as usize;

/// The smallest class whose objects hold `bytes` (1 to [`SMALL_MAX`]).
#[inline(always)]
pub fn class_of(bytes: u64) -> usize {
    BY_GRANULES[bytes.div_ceil(GRANULE) as usize % BY_GRANULES.len()] as usize
}

const fn compute(bytes: u64) -> usize {
    if bytes <= LINEAR_MAX {
        return (bytes - 1) as usize / GRANULE as usize;
    }
    let last = bytes - 1;
    let doubling = last.ilog2() - LINEAR_MAX.ilog2();
    let eighth = (last >> (last.ilog2() - 3)) as usize & 7;
    LINEAR + 8 * doubling as usize + eighth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_sufficient_class_is_chosen_and_wastes_an_eighth_at_most() {
        for granules in 1..=SMALL_MAX / GRANULE {
            for bytes in [granules * GRANULE - 1, granules * GRANULE] {
                let chosen = class_of(bytes);
                let size = u64::from(class(chosen).size);
                assert!(size >= bytes, "{bytes} does not fit into {size}");
                assert!(
                    chosen == 0 || u64::from(class(chosen - 1).size) < bytes,
                    "{bytes} fits a smaller class"
                );
                assert!((size - granules * GRANULE) * 8 <= size, "{bytes} in {size} wastes too much");
            }
        }
    }

    #[test]
    fn objects_of_every_class_are_found_by_every_byte() {
        for number in 0..CLASSES {
            let class = class(number);
            assert_eq!(u64::from(class.size) % GRANULE, 0);
            assert_eq!(u64::from(class.slab) % CELL, 0);
            for offset in (0..u64::from(class.slab)).step_by(256) {
                assert_eq!(
                    u64::from(class.object_at(offset)),
                    offset / u64::from(class.size),
                    "class {number}"
                );
            }
        }
    }
}
