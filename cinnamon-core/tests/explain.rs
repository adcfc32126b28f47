//! Decisions explain themselves, and say the truth.

mod support;

use std::time::Duration;

use cinnamon_core::simulation::Rng;
use cinnamon_core::{
    Binding, Clock, Completion, DECISIONS_KEPT, Expected, Instant, Mode, OwnedPermit, Reason,
    Request, Settings, Tier,
};
use support::*;

/// What `explain` says is what then happens, under a random load of 0.5x to 3x, whatever the request.
#[test]
fn an_explanation_is_what_happens_and_changes_nothing() {
    let seed = 11;
    let mut rng = Rng::new(seed);
    let (controller, lane, clock) = manual_with(Settings::one_lane("main", 4));
    let (_, waker) = CountingWaker::new();
    let mut running: Vec<(Instant, OwnedPermit)> = Vec::new();
    let mut waiting = Vec::new();
    let mut seen = [0u32; 6];
    for step in 0..20_000u64 {
        let load = 1 + step / 4_000 % 3;
        let now = clock.advance(Duration::from_micros(4_000 / load));
        let (done, still): (Vec<_>, Vec<_>) = running.into_iter().partition(|(end, _)| *end <= now);
        running = still;
        done.into_iter()
            .for_each(|(_, permit)| permit.finish(Completion::success()));
        let mut request = Request::new(Tier::ALL[(rng.bits() % 6) as usize]).key(rng.bits());
        request = match rng.bits() % 12 {
            0 => request.deadline(Instant::ZERO),
            1 => request.max_wait(Duration::ZERO),
            2 => Request::exempt(),
            _ => request,
        };
        let before = lane.snapshot();
        let explanation = lane.explain(&request).unwrap();
        assert_eq!(lane.snapshot(), before, "seed {seed}, step {step}");
        let mut admit = lane.admit_owned(&request);
        let happens = match admit.poll_admit(&waker) {
            std::task::Poll::Ready(Ok(permit)) => {
                running.push((now.after(Duration::from_millis(10)), permit));
                Expected::Runs
            }
            std::task::Poll::Ready(Err(rejected)) => {
                assert_eq!(rejected.rank(), explanation.rank);
                assert_eq!(rejected.binding(), explanation.binding);
                Expected::Refused(rejected.reason())
            }
            std::task::Poll::Pending => {
                waiting.push(admit);
                Expected::Waits
            }
        };
        assert_eq!(explanation.answer, happens, "seed {seed}, step {step}");
        seen[match happens {
            Expected::Runs => 0,
            Expected::Waits => 1,
            Expected::Refused(Reason::Shed) => 2,
            Expected::Refused(Reason::Busy) => 3,
            Expected::Refused(Reason::Hopeless) => 4,
            Expected::Refused(_) => 5,
        }] += 1;
        waiting.retain_mut(|admit| match admit.poll_admit(&waker) {
            std::task::Poll::Ready(Ok(permit)) => {
                running.push((now.after(Duration::from_millis(10)), permit));
                false
            }
            std::task::Poll::Ready(Err(_)) => false,
            std::task::Poll::Pending => true,
        });
        if step % 5 == 0 {
            controller.tick(clock.now());
        }
    }
    assert!(seen[..5].iter().all(|&count| count > 50), "{seen:?}");
}

#[test]
fn an_explanation_reads_as_a_sentence() {
    let (controller, lane, _) = manual(1);
    let request = Request::new(Tier::T3).key(7);
    let _held = lane.try_admit(&request).unwrap();
    let waits = lane.explain(&request).unwrap();
    let text = waits.to_string();
    assert!(text.starts_with("t3."), "{text}");
    assert!(
        text.ends_with(
            "would wait, with 0 others; the threshold is open (nothing), 0 slots are free"
        ),
        "{text}"
    );
    controller.set_mode(Mode::Monitor);
    let text = lane.explain(&request).unwrap().to_string();
    assert!(
        text.ends_with("; mode monitor, so it would run all the same"),
        "{text}"
    );
    controller.close();
    let closed = lane.explain(&request).unwrap();
    assert_eq!(closed.answer, Expected::Refused(Reason::Closed));
}

#[test]
fn the_last_ticks_are_on_record() {
    let (controller, lane, clock) = manual(2);
    let mut refused = None;
    let mut running = Vec::new();
    for n in 0..3_000u64 {
        let now = clock.advance(Duration::from_millis(1));
        running.retain(|(end, _): &(Instant, OwnedPermit)| *end > now);
        let request = Request::new(Tier::ALL[(n % 6) as usize]).key(n);
        match lane.try_admit_owned(&request) {
            Ok(permit) => running.push((now.after(Duration::from_millis(10)), permit)),
            Err(rejected) if rejected.reason() == Reason::Shed => refused = Some((now, rejected)),
            Err(_) => {}
        }
        if n % 10 == 9 {
            controller.tick(clock.now());
        }
    }
    let decisions = controller.decisions();
    assert_eq!(decisions.len(), 300.min(DECISIONS_KEPT));
    assert!(
        decisions
            .windows(2)
            .all(|pair| pair[0].tick + 1 == pair[1].tick)
    );
    // Who was refused finds the tick that set the threshold, and what it was made of.
    let (at, rejected) = refused.unwrap();
    let at_s = at.as_nanos() as f64 * 1e-9;
    let decision = decisions.iter().rfind(|d| d.at_s < at_s - 1e-9).unwrap();
    let of = &decision.lanes[0];
    assert_eq!(of.threshold_levels, rejected.threshold().levels());
    assert_eq!(of.binding, Binding::Backlog { lane: 0 });
    assert!(
        of.offered_per_s > 900.0 && of.capacity_per_s < 250.0,
        "{of:?}"
    );
    assert!(of.budget_per_s.unwrap() < of.offered_per_s);
    let line = serde_json::to_string(decision).unwrap();
    assert!(line.starts_with("{\"tick\":") && !line.contains('\n'));
}
