//! How large a block serves a request: multiples of 512 bytes, or, with `roundup_power2_divisions`, one of a few sizes
//! between two powers of two, so that requests of slightly different sizes can reuse each other's blocks. Table and
//! arithmetic are `PyTorch`'s, so that the setting means the same in both.

/// Sizes of blocks are multiples of this, in bytes.
pub const GRANULE: u64 = 512;

/// Sizes are told apart by their power of two from 1 MiB on; smaller ones share the first interval, larger ones the last.
const INTERVALS: usize = 16;
const FIRST_INTERVAL_LOG2: usize = 20;

/// Divisions of each power-of-two interval of sizes; 0 and 1 mean none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rounding {
    divisions: [u64; INTERVALS],
}

/// One pair of the list form of `roundup_power2_divisions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Sizes from this many MiB, a power of two, up to twice as many.
    From(u64),
    /// `>`: all sizes above the interval named before.
    Rest,
}

impl Rounding {
    /// Multiples of 512 bytes and nothing more.
    pub const fn none() -> Self {
        Self { divisions: [0; INTERVALS] }
    }

    /// The same divisions for every size: `roundup_power2_divisions:4`.
    pub const fn uniform(divisions: u64) -> Self {
        Self { divisions: [divisions; INTERVALS] }
    }

    /// Divisions by interval: `roundup_power2_divisions:[256:1,512:2,>:8]`.
    ///
    /// The first pair also holds for everything below its interval, `>` for everything above the one named last;
    /// intervals between two named ones that are not named themselves get none. Pairs take effect in their order.
    pub fn from_intervals(pairs: impl IntoIterator<Item = (Interval, u64)>) -> Self {
        let mut divisions = [0; INTERVALS];
        let mut last = 0;
        let mut first = true;
        for (interval, count) in pairs {
            match interval {
                Interval::From(mib) => {
                    let index = (mib.max(1).ilog2() as usize).min(INTERVALS - 1);
                    if first {
                        divisions[..index].fill(count);
                        first = false;
                    }
                    divisions[index] = count;
                    last = index;
                }
                Interval::Rest => divisions[last + 1..].fill(count),
            }
        }
        Self { divisions }
    }

    /// Divisions that apply to a request of `size` bytes.
    pub fn divisions_for(&self, size: u64) -> u64 {
        let log2 = size.max(1).ilog2() as usize;
        self.divisions[log2.saturating_sub(FIRST_INTERVAL_LOG2).min(INTERVALS - 1)]
    }

    /// Whether any size is rounded to more than the next multiple of 512.
    pub fn is_none(&self) -> bool {
        self.divisions.iter().all(|&divisions| divisions <= 1)
    }

    /// Bytes of the block that serves a request of `size` bytes: at least `size`, at least 512, a multiple of 512. None
    /// if that is more than 64 bits hold.
    pub fn round(&self, size: u64) -> Option<u64> {
        if size < GRANULE {
            return Some(GRANULE);
        }
        let divisions = self.divisions_for(size);
        if divisions > 1 && size > GRANULE.saturating_mul(divisions) {
            next_division(size, divisions)
        } else {
            size.checked_next_multiple_of(GRANULE)
        }
    }
}

/// The next size up that divides the interval between two powers of two evenly: with 4 divisions, 1200 is between 1024,
/// 1280, 1536, 1792 and 2048, and becomes 1280. A size above 512 times the divisions has steps of at least 512.
fn next_division(size: u64, divisions: u64) -> Option<u64> {
    let floor = 1_u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    size.checked_next_multiple_of(step.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn without_divisions_sizes_are_multiples_of_512() {
        for (size, block) in [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)] {
            assert_eq!(Rounding::none().round(size), Some(block), "{size}");
            assert_eq!(Rounding::uniform(1).round(size), Some(block), "{size}");
        }
    }

    #[test]
    fn the_documented_example_of_1200_in_four_divisions() {
        assert_eq!(next_division(1200, 4), Some(1280));
        assert_eq!(next_division(1280, 4), Some(1280));
        assert_eq!(next_division(1281, 4), Some(1536));
        assert_eq!(next_division(1793, 4), Some(2048));
        assert_eq!(next_division(2048, 4), Some(2048));
        // Below 512 times the divisions the setting has no effect: a whole block would be lost to a finer step.
        assert_eq!(Rounding::uniform(4).round(1200), Some(1536));
        assert_eq!(Rounding::uniform(4).round(1200 * KIB), Some(1280 * KIB));
        assert_eq!(Rounding::uniform(4).round(2048), Some(2048));
        assert_eq!(Rounding::uniform(4).round(2049), Some(2560));
    }

    #[test]
    fn the_documented_list_fills_the_table() {
        // 1 division up to the interval of 256 MiB, 2 for that of 512 MiB, 4 for 1 GiB, 8 above.
        let rounding = Rounding::from_intervals([
            (Interval::From(256), 1),
            (Interval::From(512), 2),
            (Interval::From(1024), 4),
            (Interval::Rest, 8),
        ]);
        assert_eq!(rounding.divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(rounding.round(300 * MIB + 1), Some(300 * MIB + 512));
        assert_eq!(rounding.round(600 * MIB), Some(768 * MIB));
        assert_eq!(rounding.round(1100 * MIB), Some(1280 * MIB));
        assert_eq!(rounding.round(2100 * MIB), Some(2304 * MIB));
    }

    #[test]
    fn unnamed_intervals_between_named_ones_get_none_and_out_of_range_ones_the_last() {
        let rounding = Rounding::from_intervals([(Interval::From(64), 8), (Interval::From(256), 4)]);
        assert_eq!(rounding.divisions, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        let far = Rounding::from_intervals([(Interval::From(1 << 40), 2), (Interval::Rest, 4)]);
        assert_eq!(far, Rounding::uniform(2));
        let only_rest = Rounding::from_intervals([(Interval::Rest, 2)]);
        assert_eq!(only_rest.divisions_for(MIB), 0);
        assert_eq!(only_rest.divisions_for(2 * MIB), 2);
    }

    #[test]
    fn sizes_below_and_above_the_table_use_its_ends() {
        let rounding = Rounding::from_intervals([(Interval::From(1), 2), (Interval::Rest, 4)]);
        assert_eq!(rounding.divisions_for(1), 2);
        assert_eq!(rounding.divisions_for(2 * MIB - 1), 2);
        assert_eq!(rounding.divisions_for(2 * MIB), 4);
        assert_eq!(rounding.divisions_for(u64::MAX), 4);
        let top = Rounding::from_intervals([(Interval::From(16 << 10), 2), (Interval::From(32 << 10), 8)]);
        assert_eq!(top.divisions_for((32 << 30) - 1), 2);
        assert_eq!(top.divisions_for(32 << 30), 8);
        assert_eq!(top.divisions_for(1 << 40), 8);
    }

    #[test]
    fn sizes_that_no_block_can_have_are_none() {
        assert_eq!(Rounding::none().round(u64::MAX), None);
        assert_eq!(Rounding::uniform(4).round(u64::MAX - 5), None);
    }

    proptest! {
        #[test]
        fn a_block_holds_its_request_and_wastes_at_most_one_division(
            bits in 0_u32..62, size in any::<u64>(), log2 in 0_u32..12
        ) {
            let size = size >> bits >> 2;
            let divisions = 1_u64 << log2;
            let block = Rounding::uniform(divisions).round(size).unwrap();
            prop_assert!(block >= size && block.is_multiple_of(GRANULE));
            prop_assert!(block - size < GRANULE.max(size / divisions + 1) || size < GRANULE);
        }
    }
}
