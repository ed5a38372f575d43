//! Random runs against the model: proptest for short ones that shrink, a seeded loop for long ones.

use proptest::prelude::*;

use super::super::Rules;
use super::super::model::{Action, Model, play};
use super::MIB;

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..1024u64,
        4 => 1..40_000u64,
        3 => 30_000..600_000u64,
        2 => 1..3 * MIB,
        1 => MIB..40 * MIB,
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (bytes(), prop::bool::weighted(0.2)).prop_map(|(bytes, tight)| Action::Alloc { bytes, tight }),
        9 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, late)| Action::Free { which, late }),
        1 => Just(Action::Deliver),
        1 => any::<usize>().prop_map(|which| Action::FreeAgain { which }),
        1 => (any::<usize>(), any::<u64>()).prop_map(|(which, offset)| Action::FreeInside { which, offset }),
        1 => (0..0x1000_0000_0000u64).prop_map(|addr| Action::FreeForeign { addr }),
        3 => Just(Action::Seal),
        3 => (0..4u64).prop_map(|lag| Action::Retire { lag }),
        1 => Just(Action::GiveBack),
        1 => any::<usize>().prop_map(|which| Action::Refuse { which }),
        1 => Just(Action::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_actions_breaks_the_heap(actions in prop::collection::vec(action(), 1..200)) {
        let mut model = Model::new(Rules::default());
        for action in &actions {
            model.step(action);
        }
        model.finish();
    }

    #[test]
    fn nor_does_what_a_fuzzer_may_write(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        play(&bytes);
    }

    #[test]
    fn nor_under_max_split(actions in prop::collection::vec(action(), 1..120)) {
        let mut model = Model::new(Rules { max_split: 20 * MIB, max_non_split_rounding: 3 * MIB });
        for action in &actions {
            model.step(action);
        }
        model.finish();
    }
}

/// A small generator of our own: the same run on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

#[test]
fn long_runs_that_swell_and_shrink_keep_every_invariant() {
    for seed in 1..=6u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut model = Model::new(Rules::default());
        for step in 0..1_500u64 {
            let swell = step / 250 % 2 == 0;
            let which = random.next(u64::MAX) as usize;
            let action = match random.next(100) {
                pick if pick < if swell { 55 } else { 25 } => {
                    let top = [900, 9_000, 33_000, 200_000, 3 * MIB, 30 * MIB][random.next(6) as usize];
                    Action::Alloc { bytes: 1 + random.next(top), tight: random.next(5) == 0 }
                }
                pick if pick < 78 => Action::Free { which, late: random.next(8) == 0 },
                78..80 => Action::Deliver,
                80..82 => Action::FreeAgain { which },
                82..84 => Action::FreeInside { which, offset: random.next(u64::MAX) },
                84..89 => Action::Seal,
                89..96 => Action::Retire { lag: random.next(5) },
                96 => Action::GiveBack,
                97 => Action::Refuse { which },
                98 => Action::Flush,
                _ if step % 500 == 499 => Action::Clear,
                _ => Action::FreeForeign { addr: random.next(1 << 49) >> 4 },
            };
            model.step(&action);
        }
        model.finish();
    }
}
