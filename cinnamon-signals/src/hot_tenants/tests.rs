use cinnamon_core::LaneView;

use super::*;
use crate::calm::Rng;
use crate::combine::HELD_BACK;

struct Bench {
    signal: HotTenants,
    handle: HotTenantsHandle,
    view: View,
    tenths: u64,
    rng: Rng,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let (signal, handle) = HotTenants::new();
        let mut lane = LaneView::new("main", "main");
        (lane.limit, lane.in_use) = (16, 16);
        Self {
            signal,
            handle,
            view: View::of(vec![lane]),
            tenths: 0,
            rng: Rng(seed),
        }
    }

    /// A tenth of a second with so many requests of these tenants, by their weights.
    fn tenth(&mut self, requests: u64, weights: &[f64]) -> Reading {
        let total: f64 = weights.iter().sum();
        for _ in 0..requests {
            let mut at = self.rng.unit() * total;
            let tenant = weights.iter().position(|weight| {
                at -= weight;
                at < 0.0
            });
            self.handle.tenant(Tenant(tenant.unwrap() as u32), 1);
        }
        self.tenths += 1;
        let now = Instant::ZERO.after(Duration::from_millis(100 * self.tenths));
        self.signal.sample(now, &self.view)
    }

    fn run(&mut self, tenths: u64, weights: &[f64]) -> Reading {
        (1..tenths).for_each(|_| drop(self.tenth(150, weights)));
        self.tenth(150, weights)
    }
}

fn culprits(reading: &Reading) -> Vec<u32> {
    let of = |one: &Culprit| match one.who {
        Who::Tenant(tenant) => tenant.0,
        other => panic!("{other:?}"),
    };
    reading.get_culprits().iter().map(of).collect()
}

#[test]
fn ten_times_its_share_is_named_within_a_second_and_nobody_else() {
    for seed in 1..=20 {
        let (mut bench, equal) = (Bench::new(seed), [1.0; 21]);
        let _ = bench.run(30, &equal);
        let mut hot = equal;
        hot[4] = 10.0;
        let mut named_after = None;
        for tenth in 1..=30 {
            let reading = bench.tenth(150, &hot);
            let named = culprits(&reading);
            assert!(
                named.iter().all(|tenant| *tenant == 4),
                "seed {seed}: {named:?}"
            );
            if !named.is_empty() {
                named_after.get_or_insert(tenth);
                assert!(reading.value().unwrap() >= 1.0, "seed {seed}: {reading:?}");
            }
        }
        let after = named_after.unwrap();
        assert!(after <= 10, "seed {seed}: {after} tenths");
        let share = bench.tenth(150, &hot).get_culprits()[0].share;
        assert!((share - 1.0 / 3.0).abs() < 0.06, "seed {seed}: {share}");
    }
}

#[test]
fn equal_tenants_are_nobodys_culprits_however_few() {
    for tenants in [2, 3, 5, 10, 50] {
        for seed in 1..=4 {
            let mut bench = Bench::new(seed);
            let weights = vec![1.0; tenants];
            for _ in 0..300 {
                let reading = bench.tenth(40, &weights);
                assert_eq!(reading, Reading::pressure(0.0), "{tenants}, seed {seed}");
            }
        }
    }
}

#[test]
fn one_alone_has_no_peers_and_beside_next_to_nobody_it_is_held_back() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.run(50, &[1.0]), Reading::pressure(0.0));
    // What has no tenant is no peer.
    bench.handle.told.rings.push_nameless(300);
    assert_eq!(bench.run(5, &[1.0]), Reading::pressure(0.0));
    let reading = bench.run(20, &[1.0, 0.003]);
    assert_eq!(culprits(&reading), [0]);
    assert_eq!(
        (reading.value(), reading.get_note()),
        (Some(HELD_BACK), "nobody else comes")
    );
}

#[test]
fn lanes_that_are_not_busy_hold_it_back() {
    let mut bench = Bench::new(2);
    bench.view.lanes[0].in_use = 15;
    let reading = bench.run(30, &[10.0, 1.0, 1.0, 1.0]);
    assert_eq!(culprits(&reading), [0]);
    let note = "the lanes are not busy";
    assert_eq!(
        (reading.value(), reading.get_note()),
        (Some(HELD_BACK), note)
    );
}

#[test]
fn it_should_have_what_a_peer_has_or_a_tenth() {
    // Chance is taken off: of a fifth of 750 requests a fifth.
    let near = |reading: &Reading, expected: f64| {
        let pressure = reading.value().unwrap();
        let near = (0.75 * expected..=1.05 * expected).contains(&pressure);
        assert!(near, "{pressure}, not {expected}");
    };
    // Beside three with a tenth each: a quarter.
    near(&Bench::new(3).run(30, &[7.0, 1.0, 1.0, 1.0]), 0.7 / 0.25);
    // Beside forty with a fiftieth each: a tenth.
    let mut weights = vec![1.0; 41];
    weights[0] = 10.0;
    near(&Bench::new(3).run(30, &weights), 0.2 / 0.1);
}

#[test]
fn a_tenant_that_counts_as_several_may_ask_for_as_much() {
    let of_weight = |weight: f64, asks: f64| {
        let mut bench = Bench::new(6);
        let signal = std::mem::replace(&mut bench.signal, HotTenants::new().0);
        bench.signal = signal.weight(Tenant(0), weight).unwrap();
        bench.run(30, &[asks, 1.0, 1.0, 1.0, 1.0, 1.0])
    };
    assert_eq!(culprits(&of_weight(1.0, 10.0)), [0]);
    assert_eq!(of_weight(5.0, 10.0), Reading::pressure(0.0));
    // It has six sevenths, and with what five have it would have a half.
    let pressure = of_weight(5.0, 30.0).value().unwrap();
    assert!((1.5..=1.75).contains(&pressure), "{pressure}");
}

#[test]
fn cost_counts_and_not_the_number_of_requests() {
    let mut bench = Bench::new(5);
    let (mut busiest, mut dearest) = (Vec::new(), 0.0);
    for _ in 0..30 {
        // One comes half as often as all others together, another seldom and dear.
        (0..50).for_each(|_| bench.handle.tenant(Tenant(100), 1));
        (0..10).for_each(|_| bench.handle.tenant(Tenant(101), 60));
        (0..20).for_each(|tenant| (0..5).for_each(|_| bench.handle.tenant(Tenant(tenant), 10)));
        let reading = bench.tenth(0, &[1.0]);
        busiest = culprits(&reading);
        dearest = reading.get_culprits().first().map_or(0.0, |one| one.share);
    }
    assert_eq!(busiest, [101]);
    assert!((dearest - 600.0 / 1_650.0).abs() < 1e-9, "{dearest}");
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let error = HotTenants::new().0.target_share(2.0).unwrap_err();
    let text = "`hot_tenants.target_share` is 2 but must be from 0.01 to 1";
    assert_eq!(error.to_string(), text);
    assert!(HotTenants::new().0.weight(Tenant(0), 0.0).is_err());
    let signal = HotTenants::new().0.target_share(0.2).unwrap();
    assert_eq!(
        (signal.range(), signal.remedy()),
        (0.0..=5.0, Remedy::Precise)
    );
}
