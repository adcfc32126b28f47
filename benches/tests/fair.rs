//! Nobody pays for what another caller does, in the cases of `lab fair`; and without what is made for it somebody does.

use cinnamon_lab::fair::case::CASES;
use cinnamon_lab::fair::measure;

const SEEDS: u64 = 3;

#[test]
fn every_case_holds_and_its_control_does_not() {
    for case in CASES {
        let outcome = measure(case, SEEDS).unwrap();
        assert!(
            outcome.held(),
            "{}, seeds 1 to {SEEDS}: {outcome:#?}",
            case.name
        );
    }
}
