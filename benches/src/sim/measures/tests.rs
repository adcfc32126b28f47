use super::*;
use cinnamon_core::Reason;
use cinnamon_core::simulation::{End, Phase, View};

fn scenario() -> Scenario {
    Scenario {
        phases: vec![Phase::new("all", 30.0, 2.0)],
        ..Scenario::default()
    }
}

fn trial(request: u32, tier: u16, end: End) -> Trial {
    Trial {
        arrived_s: f64::from(request) * 0.001,
        ended_s: 0.0,
        work_s: 0.02,
        allowed_s: 1.0,
        waited_s: 0.1,
        request,
        level: tier * 128,
        phase: 0,
        lane: 0,
        attempt: 0,
        end,
    }
}

fn measured(trials: Vec<Trial>, oracle: &[bool]) -> Figures {
    let mut record = Record {
        trials,
        ..Record::default()
    };
    record.finish();
    let oracle = Oracle {
        answered: oracle.to_vec(),
        afresh: oracle.to_vec(),
    };
    figures(&scenario(), &record, &oracle).remove(0)
}

#[test]
fn lost_above_while_served_below_is_an_inversion_and_nothing_else_is() {
    let shed = End::Refused(Reason::Shed);
    let right = vec![trial(0, 1, End::Good), trial(1, 4, shed)];
    assert_eq!(measured(right, &[true, true]).inversions, 0.0);
    let wrong = vec![
        trial(0, 1, shed),
        trial(1, 4, End::Good),
        trial(2, 5, End::Good),
    ];
    let figures = measured(wrong, &[true, true, true]);
    assert_eq!(
        figures.served_instead[4], figures.inversions,
        "the t4, not the t5"
    );
    assert!(
        (figures.inversions - 0.02 / (20.0 * 29.0)).abs() < 1e-9,
        "{figures:?}"
    );
    assert!((figures.regret[1] - 0.02 / (20.0 * 29.0)).abs() < 1e-9);
}

#[test]
fn a_retry_that_succeeds_is_a_success_and_an_attempt_more() {
    let mut again = trial(0, 1, End::Good);
    again.attempt = 1;
    let figures = measured(
        vec![again, trial(0, 1, End::Refused(Reason::Shed))],
        &[true],
    );
    assert_eq!((figures.good[1], figures.offered[1]), (1, 1));
    assert_eq!((figures.refused, figures.amplification), (1, 2.0));
    assert_eq!(figures.goodput, 1.0);
}

#[test]
fn no_ratio_exceeds_one_but_the_excess_is_kept() {
    let good = vec![trial(0, 1, End::Good), trial(1, 1, End::Good)];
    let figures = measured(good, &[true, false]);
    assert_eq!((figures.goodput, figures.protected), (1.0, 1.0));
    assert!((figures.excess - 1.0).abs() < 1e-6);
}

fn stand(at_s: f64, threshold: f64) -> Stand {
    let view = View {
        threshold,
        engaged: threshold < 768.0,
        ..View::default()
    };
    Stand { at_s, view }
}

#[test]
fn a_threshold_that_swings_flips_the_keys_between_its_ends() {
    let swing = |i: u32| {
        stand(
            f64::from(i) * 0.1,
            if i.is_multiple_of(2) { 300.0 } else { 376.8 },
        )
    };
    let stands: Vec<Stand> = (0..=400).map(swing).collect();
    assert!(
        (flipping(&stands) - 0.1).abs() < 0.001,
        "{}",
        flipping(&stands)
    );
    let still: Vec<Stand> = (0..=400)
        .map(|i| stand(f64::from(i) * 0.1, 300.0))
        .collect();
    assert_eq!(flipping(&still), 0.0);
    assert!(flipping(&still[..50]).is_nan(), "too short to say");
}

#[test]
fn engagement_release_and_steps_are_read_off_the_gate() {
    let mut stands = vec![stand(0.0, 768.0), stand(1.0, 768.0), stand(2.0, 400.0)];
    stands.extend([stand(3.0, 410.0), stand(4.0, 768.0), stand(5.0, 768.0)]);
    let mut figures = Figures {
        seconds: 5.0,
        ..Figures::default()
    };
    gate_figures(&mut figures, 0.0, &stands);
    assert_eq!((figures.engage_s, figures.release_s), (2.0, 4.0));
    // Settled from 1 s on: 368, 10 and 358 levels; the last pair is open.
    assert!(
        (figures.step - (368.0 + 10.0 + 358.0) / 3.0).abs() < 1e-9,
        "{}",
        figures.step
    );
}
