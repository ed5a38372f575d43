//! The one definition of fragmentation that the report uses. Several are in use elsewhere and none is comparable with
//! another, so a figure is worth nothing without its formula.

/// `1 - largest / total` of the free memory, from 0 to 1.
///
/// 0 means that all free memory is one piece, or that nothing is free; 0.75 means that a request for a quarter of the
/// free memory is the largest that it can serve, once work that still uses freed memory is done. The same figure as in RMM's arena and in XLA's best-fit allocator. A
/// `largest_free` above `total_free`, which can only be a reading taken while threads allocate, counts as one piece.
///
/// ```
/// assert_eq!(gpucache::stats::fragmentation(100, 25), 0.75);
/// assert_eq!(gpucache::stats::fragmentation(0, 0), 0.0);
/// ```
pub fn fragmentation(total_free: u64, largest_free: u64) -> f64 {
    if largest_free >= total_free {
        return 0.0;
    }
    1.0 - largest_free as f64 / total_free as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp)] // The values are exact in binary.
    fn is_one_less_the_largest_share() {
        assert_eq!(fragmentation(0, 0), 0.0);
        assert_eq!(fragmentation(100, 100), 0.0);
        assert_eq!(fragmentation(100, 25), 0.75);
        assert_eq!(fragmentation(100, 0), 1.0);
        assert_eq!(fragmentation(10, 20), 0.0);
        assert_eq!(fragmentation(0, 20), 0.0);
    }
}
