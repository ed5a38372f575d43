//! Which allocations are looked at, and what each of them stands for.
//!
//! Points lie on the bytes that a thread allocates, at random, one in `mean` bytes on average and independent of each other
//! (a Poisson process). An allocation is looked at if a point falls into it: one of `s` bytes with the probability
//! `p = 1 - exp(-s / mean)`. It then stands for `1 / p` allocations, and `s / p` bytes. The expectation of such sums is
//! the truth, whatever the sizes are and in whatever order they come.

/// A thread's position between two points.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// Of the random numbers; 0 before the first.
    state: u64,
    /// Bytes to the next point.
    left: i64,
}

/// What sampled allocations stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scaled {
    /// Bytes.
    pub bytes: u64,
    /// Allocations, in units of 1/1024, so that sums are exact and go back to zero.
    pub blocks: u64,
}

/// [`Scaled::blocks`] of one allocation.
const ONE: u64 = 1024;

impl Scaled {
    /// Adds.
    pub fn add(&mut self, other: Scaled) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }

    /// Takes away.
    pub fn sub(&mut self, other: Scaled) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.blocks = self.blocks.saturating_sub(other.blocks);
    }

    /// Allocations, to the nearest whole number, but at least one where there are any.
    pub fn count(self) -> u64 {
        ((self.blocks + ONE / 2) / ONE).max(u64::from(self.blocks > 0))
    }
}

impl Sampler {
    /// One that no thread has used.
    pub const fn new() -> Sampler {
        Sampler { state: 0, left: 0 }
    }

    /// Whether it has a sequence of random numbers yet.
    pub fn is_seeded(&self) -> bool {
        self.state != 0
    }

    /// Starts a sequence; another seed makes another one.
    pub fn seed(&mut self, seed: u64, mean: u64) {
        // One step of splitmix64, so that seeds that are alike lead to sequences that are not.
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.state = (mixed ^ (mixed >> 31)) | 1;
        self.left = self.gap(mean);
    }

    /// Whether a point falls into the next `bytes`. A mean of 1 has a point in every allocation.
    #[inline]
    pub fn meets(&mut self, bytes: u64, mean: u64) -> bool {
        self.left = self.left.saturating_sub(bytes.min(i64::MAX as u64) as i64);
        if self.left >= 0 && mean > 1 {
            return false;
        }
        // The distance from any place to the next point is distributed like the one between two of them.
        self.left = self.gap(mean);
        true
    }

    /// A random distance to the next point.
    fn gap(&mut self, mean: u64) -> i64 {
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let random = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D);
        // In (0, 1].
        let uniform = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-libm::log(uniform) * mean as f64) as i64
    }
}

/// What an allocation of `bytes` that was met by a point stands for.
pub fn scale(bytes: u64, mean: u64) -> Scaled {
    if mean <= 1 || bytes == 0 {
        return Scaled { bytes, blocks: ONE };
    }
    // 1 - exp(-x), exact where x is small.
    let chance = -libm::expm1(-(bytes as f64) / mean as f64);
    Scaled { bytes: (bytes as f64 / chance).round() as u64, blocks: (ONE as f64 / chance).round() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of what is met of `count` allocations of `bytes`, and how many that were.
    fn estimate(sampler: &mut Sampler, bytes: u64, count: u64, mean: u64) -> (Scaled, u64) {
        let (mut sum, mut met) = (Scaled::default(), 0);
        for _ in 0..count {
            if sampler.meets(bytes, mean) {
                sum.add(scale(bytes, mean));
                met += 1;
            }
        }
        (sum, met)
    }

    #[test]
    fn estimates_are_right_on_average_for_every_size() {
        let mean = 1 << 20;
        for bytes in [512, 8 << 10, 256 << 10, 1 << 20, 3 << 20, 40 << 20] {
            // So many that about 20,000 are met: the relative error of the sum is then about 1/141.
            let chance = 1.0 - (-(bytes as f64) / mean as f64).exp();
            let count = (20_000.0 / chance) as u64;
            let mut sampler = Sampler::new();
            sampler.seed(bytes, mean);
            let (sum, met) = estimate(&mut sampler, bytes, count, mean);
            let truth = (bytes * count) as f64;
            let bound = 4.0 * ((1.0 - chance) / met as f64).sqrt() + 1e-3;
            let (bytes_off, count_off) =
                (sum.bytes as f64 / truth - 1.0, sum.count() as f64 / count as f64 - 1.0);
            assert!(bytes_off.abs() < bound, "{bytes}: off by {bytes_off}, {met} met");
            assert!(count_off.abs() < bound, "{bytes}: off by {count_off}, {met} met");
        }
    }

    #[test]
    fn sizes_that_alternate_are_told_apart_without_bias() {
        let (mean, rounds) = (1 << 20, 400_000u64);
        let sizes = [4096u64, 96 << 10, 2 << 20];
        let mut sums = [Scaled::default(); 3];
        let mut sampler = Sampler::new();
        sampler.seed(7, mean);
        for _ in 0..rounds {
            for (sum, bytes) in sums.iter_mut().zip(sizes) {
                if sampler.meets(bytes, mean) {
                    sum.add(scale(bytes, mean));
                }
            }
        }
        for (sum, bytes) in sums.iter().zip(sizes) {
            let met = rounds as f64 * -(-(bytes as f64) / mean as f64).exp_m1();
            let off = sum.bytes as f64 / (bytes * rounds) as f64 - 1.0;
            assert!(off.abs() < 4.0 / met.sqrt() + 1e-3, "{bytes}: off by {off}");
        }
    }

    #[test]
    fn few_allocations_are_estimated_without_bias_too() {
        // The mean over many threads that each allocate little: a first gap that is not random would show.
        let (mean, bytes, count, threads) = (1 << 20, 100 << 10, 5, 40_000u64);
        let mut sum = Scaled::default();
        for thread in 0..threads {
            let mut sampler = Sampler::new();
            sampler.seed(thread, mean);
            sum.add(estimate(&mut sampler, bytes, count, mean).0);
        }
        let off = sum.bytes as f64 / (bytes * count * threads) as f64 - 1.0;
        assert!(off.abs() < 0.03, "off by {off}");
    }

    #[test]
    fn a_mean_of_one_meets_everything_and_scales_nothing() {
        let mut sampler = Sampler::new();
        sampler.seed(3, 1);
        assert!((0..1000).all(|_| sampler.meets(1, 1)));
        let one = scale(512, 1);
        assert_eq!((one.bytes, one.count()), (512, 1));
    }

    #[test]
    fn sums_go_back_to_zero() {
        let mut sum = Scaled::default();
        let of = |at: u64| scale(1 + at * 7919, 1 << 20);
        (0..1000).for_each(|at| sum.add(of(at)));
        (0..1000).for_each(|at| sum.sub(of(at)));
        assert_eq!(sum, Scaled::default());
    }
}
