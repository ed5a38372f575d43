//! Which cached memory goes back to the driver before the cap is reached: `PyTorch`'s garbage-collection rule, on plain
//! data. It is meant to give back what a program has stopped using without giving back what it is about to use again.

/// A region of the pool without any block in use: only such can be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeRegion {
    /// Whatever the caller recognises the region by.
    pub id: u64,
    /// Size of the region.
    pub bytes: u64,
    /// Allocations that the pool has served since the region was last in use.
    pub age: u64,
}

/// The ids of the regions to give back, in the order of `regions`; empty while `reserved` is at or below
/// `threshold * cap`.
///
/// `cap` is the limit on the device, or its total memory where there is no limit: `PyTorch` collects nothing without a
/// cap, here the setting holds in both cases. Regions at least as old as the mean go back, all of them, even if fewer
/// would do, so that the next allocations do not collect again; the round repeats with the rest until `reserved` is back
/// at the threshold or nothing is left.
pub fn collect(regions: &[FreeRegion], reserved: u64, threshold: f64, cap: u64) -> Vec<u64> {
    let allowed = (threshold * cap as f64) as u64;
    let target = reserved.saturating_sub(allowed);
    let mut chosen = vec![false; regions.len()];
    let mut left = regions.len();
    let mut ages: u128 = regions.iter().map(|region| u128::from(region.age)).sum();
    let mut reclaimed: u64 = 0;
    while reclaimed < target && left > 0 {
        let mean = ages as f64 / left as f64;
        let before = left;
        for (region, chosen) in regions.iter().zip(&mut chosen) {
            if !*chosen && region.age as f64 >= mean {
                *chosen = true;
                left -= 1;
                ages -= u128::from(region.age);
                reclaimed = reclaimed.saturating_add(region.bytes);
            }
        }
        if left == before {
            // Rounding put the mean above the oldest region; another round would find the same.
            break;
        }
    }
    regions.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(region, _)| region.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn regions(list: &[(u64, u64)]) -> Vec<FreeRegion> {
        list.iter().zip(1..).map(|(&(bytes, age), id)| FreeRegion { id, bytes, age }).collect()
    }

    #[test]
    fn nothing_goes_back_at_or_below_the_threshold() {
        let list = regions(&[(100, 9), (100, 1)]);
        assert_eq!(collect(&list, 800, 0.8, 1000), [0; 0]);
        assert_eq!(collect(&list, 801, 0.8, 1000), [1]);
    }

    #[test]
    fn all_regions_at_least_as_old_as_the_mean_go_even_if_one_would_do() {
        // Mean age 5: the first two go, though the first alone reclaims enough.
        let list = regions(&[(100, 9), (100, 9), (100, 1), (100, 1)]);
        assert_eq!(collect(&list, 810, 0.8, 1000), [1, 2]);
    }

    #[test]
    fn a_region_exactly_as_old_as_the_mean_goes() {
        assert_eq!(collect(&regions(&[(100, 4), (100, 4)]), 900, 0.8, 1000), [1, 2]);
        assert_eq!(collect(&regions(&[(100, 0), (100, 0)]), 900, 0.8, 1000), [1, 2]);
    }

    #[test]
    fn rounds_repeat_with_the_rest_until_enough_is_reclaimed() {
        // Means: 30/3 = 10 takes the 26; 4/2 = 2 takes the 3; then 150 are reclaimed and the youngest stays.
        let list = regions(&[(50, 1), (50, 26), (100, 3)]);
        assert_eq!(collect(&list, 900, 0.75, 1000), [2, 3]);
        // With 100 to reclaim fewer rounds do; with 200 everything goes.
        assert_eq!(collect(&list, 790, 0.75, 1000), [2]);
        assert_eq!(collect(&list, 950, 0.75, 1000), [1, 2, 3]);
    }

    #[test]
    fn nothing_to_give_back_is_no_fault() {
        assert_eq!(collect(&[], 1000, 0.5, 1000), [0; 0]);
    }

    proptest! {
        #[test]
        fn reclaims_enough_or_everything(
            list in proptest::collection::vec((1_u64..1 << 40, any::<u64>()), 0..20),
            threshold in 0.01_f64..0.99,
            reserved in 0_u64..1 << 45,
        ) {
            let list = regions(&list);
            let ids = collect(&list, reserved, threshold, 1 << 44);
            let reclaimed: u64 = list.iter().filter(|r| ids.contains(&r.id)).map(|r| r.bytes).sum();
            let allowed = (threshold * (1_u64 << 44) as f64) as u64;
            prop_assert!(reserved.saturating_sub(reclaimed) <= allowed || ids.len() == list.len());
            prop_assert!(reserved > allowed || ids.is_empty());
        }
    }
}
