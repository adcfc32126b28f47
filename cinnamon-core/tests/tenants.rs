//! Tenants: their caps, ceilings and budgets, who claims what, and their turns in the queue.
#![allow(
    clippy::expect_used,
    reason = "helpers of tests, outside of a test function"
)]

mod support;

use std::task::Poll;
use std::time::Duration;

use cinnamon_core::{
    AdmitOwned, Binding, Clock, Completion, Config, Controller, Expected, Lane, ManualClock, Mode,
    Outcome, OwnedPermit, Reason, Request, Settings, Tenant, TenantSettings, TenantSnapshot, Tier,
    TierBudget,
};
use support::*;

const A: Tenant = Tenant(1);
const B: Tenant = Tenant(2);

fn of(tenant: Tenant) -> Request {
    T1.tenant(tenant)
}

fn with_rules(limit: u32, rules: Vec<TenantSettings>) -> (Controller, Lane, ManualClock) {
    let mut settings = Settings::one_lane("main", limit);
    settings.tenants = rules;
    manual_with(settings)
}

fn figures(controller: &Controller, tenant: Tenant) -> TenantSnapshot {
    let all = controller.tenants();
    let it = all.into_iter().find(|of| of.tenant == Some(tenant));
    it.expect("it was seen")
}

/// Polls each of them, and keeps those that wait.
fn poll_all(waiting: &mut Vec<AdmitOwned>) -> Vec<OwnedPermit> {
    let (_, waker) = CountingWaker::new();
    let mut running = Vec::new();
    waiting.retain_mut(|admit| match admit.poll_admit(&waker) {
        Poll::Ready(result) => {
            running.extend(result.ok());
            false
        }
        Poll::Pending => true,
    });
    running
}

#[test]
fn a_cap_counts_who_runs_and_who_waits_and_is_in_force_in_calm() {
    let (controller, lane, _) = with_rules(2, vec![TenantSettings::new("*").cap(3)]);
    let running: Vec<_> = (0..2).map(|_| lane.try_admit(&of(A)).unwrap()).collect();
    let mut waiting = vec![lane.admit_owned(&of(A))];
    assert!(poll_all(&mut waiting).is_empty());
    let refused = lane.try_admit(&of(A)).unwrap_err();
    assert_eq!(
        (refused.reason(), refused.binding()),
        (Reason::Capped, Binding::Tenant)
    );
    assert!(
        refused
            .to_string()
            .starts_with("capped: its tenant has as many running and waiting as it may"),
        "{refused}"
    );
    let explained = lane.explain(&of(A)).unwrap();
    assert_eq!(explained.answer, Expected::Refused(Reason::Capped));
    assert_eq!(explained.bound_by, "cap of its tenant");
    // Others are not concerned, nor is work without a tenant.
    assert_eq!(lane.try_admit(&of(B)).unwrap_err().reason(), Reason::Busy);
    assert_eq!(lane.try_admit(&T1).unwrap_err().reason(), Reason::Busy);
    let it = figures(&controller, A);
    assert_eq!(
        (it.running, it.waiting, it.capped, it.offered),
        (2, 1, 1, 4)
    );

    drop(waiting);
    assert_eq!(figures(&controller, A).waiting, 0, "it gave up");
    let mut waiting = vec![lane.admit_owned(&of(A))];
    assert!(poll_all(&mut waiting).is_empty());
    drop(running);
    let granted = poll_all(&mut waiting);
    assert_eq!(granted.len(), 1);
    let it = figures(&controller, A);
    assert_eq!((it.running, it.waiting), (1, 0));
    drop(granted);
    assert_eq!(figures(&controller, A).running, 0);
    assert_at_rest(&lane.snapshot());
}

#[test]
fn rules_go_by_name_and_prefix_and_hold_for_names_that_come_later() {
    let rules = vec![
        TenantSettings::new("batch/*").cap(1),
        TenantSettings::new("batch/vip").cap(2),
    ];
    let (controller, lane, clock) = with_rules(8, rules);
    let [nightly, vip, web] = ["batch/nightly", "batch/vip", "web"].map(|n| controller.tenant(n));
    assert_eq!(controller.tenant("web"), web);
    let most = |tenant: Tenant| {
        let admitted: Vec<_> = (0..8)
            .map_while(|_| lane.try_admit(&of(tenant)).ok())
            .collect();
        admitted.len()
    };
    assert_eq!([nightly, vip, web].map(most), [1, 2, 8]);

    // Another rule for the same names, while it runs.
    let mut settings = (**controller.config()).clone();
    settings.tenants = vec![TenantSettings::new("web").cap(3)];
    controller
        .reconfigure(Config::new(settings).unwrap())
        .unwrap();
    controller.tick(clock.now());
    assert_eq!([nightly, vip, web].map(most), [8, 8, 3]);
    let named = figures(&controller, web).name;
    assert_eq!(named.as_deref(), Some("web"));

    controller.forget_tenant(web);
    assert_eq!(figures(&controller, web).name, None);
    assert_ne!(
        controller.tenant("web"),
        web,
        "its number is not used again"
    );
    assert_eq!(most(web), 3, "what still comes under it stays capped");
}

#[test]
fn what_claims_too_much_runs_lower_and_it_can_be_seen_who_does() {
    let rules = vec![
        TenantSettings::new("#1").budget(TierBudget::per_s(Tier::T0, 10.0)),
        TenantSettings::new("#2").ceiling(Tier::T3),
    ];
    let (controller, lane, clock) = with_rules(64, rules);
    let offer = |tenant, tier: Tier| {
        let permit = lane.try_admit(&Request::new(tier).tenant(tenant)).unwrap();
        let tier = permit.priority().tier();
        permit.finish(Completion::new(Outcome::Success));
        tier
    };
    let mut at_t0 = 0;
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(10));
        at_t0 += u32::from(offer(A, Tier::T0) == Tier::T0);
    }
    assert_eq!(
        at_t0, 101,
        "ten a second, and a tenth of a second's worth at the start"
    );
    assert_eq!(offer(B, Tier::T0), Tier::T3);
    assert_eq!(offer(B, Tier::T5), Tier::T5);
    let it = figures(&controller, A);
    assert_eq!(
        (it.claimed_cost, it.demoted_cost),
        ([1_000, 0, 0, 0, 0, 0], 899)
    );
    assert_eq!(it.capped, 0, "demoted, not refused");
    assert_eq!(figures(&controller, B).claimed_cost, [1, 0, 0, 0, 0, 1]);
}

#[test]
fn untagged_work_takes_its_tenants_tier() {
    let mut rule = TenantSettings::new("*");
    rule.default_tier = Some(Tier::T5);
    let (_controller, lane, _) = with_rules(4, vec![rule]);
    let untagged = Request::untagged();
    let tier = |request: &Request| lane.try_admit(request).unwrap().priority().tier();
    assert_eq!(tier(&untagged.tenant(A)), Tier::T5);
    assert_eq!(tier(&untagged), Tier::T3);
}

#[test]
fn exempt_work_has_no_account() {
    let (controller, lane, _) = with_rules(1, vec![TenantSettings::new("*").cap(1)]);
    let _runs = lane.try_admit(&of(A)).unwrap();
    assert!(lane.try_admit(&Request::exempt().tenant(A)).is_ok());
    assert_eq!(figures(&controller, A).offered, 1);
}

#[test]
fn switching_off_and_on_again_loses_nobodys_count() {
    let (controller, lane, _) = with_rules(1, vec![TenantSettings::new("*").cap(2)]);
    let running = lane.try_admit(&of(A)).unwrap();
    let mut waiting = vec![lane.admit_owned(&of(A))];
    assert!(poll_all(&mut waiting).is_empty());
    lane.set_mode(Mode::Off);
    let let_in = poll_all(&mut waiting);
    assert_eq!(let_in.len(), 1, "off lets in who waits");
    lane.set_mode(Mode::Enforce);
    let it = figures(&controller, A);
    assert_eq!(
        (it.running, it.waiting),
        (1, 0),
        "who runs in the open is not counted"
    );
    drop(let_in);
    drop(running);
    assert_eq!(figures(&controller, A).running, 0);
}

#[test]
fn a_flood_by_one_tenant_pushes_nobody_else_out_of_the_queue() {
    let mut settings = Settings::one_lane("main", 1);
    settings.lanes[0].queue_len_max = Some(100);
    let (_controller, lane, _) = manual_with(settings);
    let first = lane.try_admit_owned(&of(A)).unwrap();
    let mut flood: Vec<_> = (0..100).map(|k| lane.admit_owned(&of(A).key(k))).collect();
    assert!(poll_all(&mut flood).is_empty() && flood.len() == 100);
    let mut modest: Vec<_> = (0..5).map(|k| lane.admit_owned(&of(B).key(k))).collect();
    poll_all(&mut modest);
    let mut more: Vec<_> = (100..300)
        .map(|k| lane.admit_owned(&of(A).key(k)))
        .collect();
    poll_all(&mut more);
    poll_all(&mut modest);
    assert_eq!(
        modest.len(),
        5,
        "everyone who was pushed out is of the flood"
    );
    assert_eq!(lane.snapshot().waiting, 100);

    // And they take turns: of the next ten slots five are the modest one's.
    let mut holder = first;
    let mut served = 0;
    for _ in 0..10 {
        holder.finish(Completion::success());
        let mut granted = poll_all(&mut modest);
        served += granted.len();
        granted.extend(poll_all(&mut flood));
        granted.extend(poll_all(&mut more));
        holder = granted.pop().expect("somebody has the slot");
        assert!(granted.is_empty());
    }
    assert_eq!(served, 5);
}
