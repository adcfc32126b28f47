//! The endpoint serves what the controller is, and `lab top` shows what the endpoint serves.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper of tests may end the test that calls it"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use cinnamon_core::{
    Authority, Completion, Config, Controller, Dynamics, Instant, Lane, ManualClock, Override,
    Reading, Request, Settings, Signal, Snapshot, Tier, View,
};
use cinnamon_lab::endpoint::{Endpoint, EndpointError};
use cinnamon_lab::top::{Choice, FetchError, Model, Scrape, Source, all, json, only, plain};

/// Always a half over its target.
struct Debt;

impl Signal for Debt {
    fn name(&self) -> &str {
        "debt"
    }

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(Duration::from_secs(1))
    }

    fn authority(&self) -> Authority {
        Authority::Measuring
    }

    fn sample(&mut self, _now: Instant, _view: &View) -> Reading {
        Reading::pressure(1.5)
    }
}

const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// A controller whose time is ours.
fn controller(name: &str) -> (Controller, Lane, ManualClock) {
    let clock = ManualClock::new();
    let mut settings = Settings::one_lane("read", 4);
    settings.name = name.to_owned();
    let builder = Controller::builder(Config::new(settings).unwrap()).signal(Debt);
    let controller = builder.build_manual(clock.shared()).unwrap();
    let lane = controller.lane("read").unwrap();
    (controller, lane, clock)
}

/// A second of 60 requests, 10 of each tier, of which the last ticks and emits.
fn one_second(controller: &Controller, lane: &Lane, clock: &ManualClock) {
    for n in 0..60u64 {
        let tier = Tier::ALL[(n % 6) as usize];
        if let Ok(permit) = lane.try_admit(&Request::new(tier).key(n)) {
            permit.finish(Completion::success());
        }
        controller.tick(clock.advance(Duration::from_millis(10)));
    }
    clock.advance(Duration::from_millis(390));
    controller.tick(clock.advance(Duration::from_millis(10)));
}

/// What this process exports of the controller of that name, as `lab top` fetches it.
fn fetched(endpoint: &Endpoint, name: &str) -> Scrape {
    let source = Source::new(&endpoint.url()).unwrap();
    source.fetch().unwrap().remove(name).unwrap()
}

#[test]
fn the_endpoint_serves_the_snapshot() {
    let endpoint = Endpoint::start(ANY.into()).unwrap();
    assert_ne!(endpoint.address().port(), 0);
    let (controller, lane, clock) = controller("served");
    for _ in 0..3 {
        one_second(&controller, &lane, &clock);
    }
    // The next one is due, and nothing happens after it.
    controller.tick(clock.advance(Duration::from_secs(1)));
    let Snapshot {
        lanes,
        signals,
        ticks,
        ..
    } = controller.snapshot();
    let (of, signal) = (&lanes[0], &signals[0]);
    let scrape = fetched(&endpoint, "served");
    let read = [("lane", "read")];
    assert_eq!(scrape.get("cinnamon_ticks_total", &[]), Some(ticks as f64));
    assert_eq!(scrape.get("cinnamon_offered_total", &read), Some(180.0));
    assert_eq!(scrape.get("cinnamon_limit", &read), Some(4.0));
    assert!(!of.threshold.contains("open"));
    for (metric, value) in [
        ("cinnamon_threshold_levels", of.threshold_levels),
        ("cinnamon_capacity_cost_per_second", of.capacity_per_s),
        ("cinnamon_timeout_seconds", of.timeout_s),
    ] {
        assert_eq!(scrape.get(metric, &read), Some(value), "{metric}");
    }
    assert!(of.verdicts.iter().any(|(_, verdict, _)| verdict == "shed"));
    for (tier, verdict, requests) in of.verdicts.iter() {
        let tier = tier.to_string();
        let labels = [read[0], ("tier", &*tier), ("verdict", verdict)];
        let served = scrape.get("cinnamon_verdicts_total", &labels);
        assert_eq!(served, Some(requests as f64), "{labels:?}");
    }
    let debt = [("signal", "debt")];
    assert_eq!(scrape.get("cinnamon_signal_pressure", &debt), Some(1.5));
    let budget = scrape.get("cinnamon_signal_budget_cost_per_second", &debt);
    assert_eq!(budget, signal.budget_per_s);
    let cause = scrape.state("cinnamon_bound_by", &read, "cause");
    assert_eq!(cause.as_deref(), Some("debt"));
}

#[test]
fn two_scrapes_make_a_view_and_the_view_a_frame() {
    let endpoint = Endpoint::start(ANY.into()).unwrap();
    let (controller, lane, clock) = controller("shown");
    let mut model = Model::new("http://node:9184/metrics");
    for _ in 0..3 {
        one_second(&controller, &lane, &clock);
        let scrape = fetched(&endpoint, "shown");
        let all = [("shown".to_owned(), scrape)].into();
        model.take(clock.advance(Duration::ZERO), Ok(all));
    }
    let forced: Override = "shed t5 for 90s".parse().unwrap();
    controller.set_override(forced).unwrap();
    one_second(&controller, &lane, &clock);
    let now = clock.advance(Duration::ZERO);
    let scrapes = [("shown".to_owned(), fetched(&endpoint, "shown"))].into();
    model.take(now, Ok(scrapes));

    let view = model.controllers().next().unwrap();
    let read = &view.lanes[0];
    assert_eq!(view.rates_over_s, Some(1.0));
    assert_eq!(read.offered_per_s, Some(60.0));
    let told: f64 = read
        .tiers
        .iter()
        .flat_map(|of| of.verdicts_per_s.values())
        .sum();
    assert_eq!(told, 60.0);
    assert_eq!(read.tiers[5].admitted_per_s(), 0.0);
    assert_eq!(read.tiers[5].verdicts_per_s["shed"], 10.0);
    assert_eq!(view.signals[0].pressure, Some(1.5));
    let forced = &view.overrides[0];
    assert_eq!(
        (&*forced.target, &*forced.action),
        ("controller", "shed t5")
    );

    let text = plain(&all(&model, &Choice::default(), now));
    for part in [
        "cinnamon shown  enforce",
        "!! OVERRIDE controller: shed t5, ",
        "lane read  enforce",
        "offered 60/s",
        "debt           1.50 [##########|#####     ]",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let other = Choice {
        lane: Some("scan".to_owned()),
        ..Choice::default()
    };
    let refused = only(model.clone(), &other).unwrap_err().to_string();
    assert_eq!(
        refused,
        "http://node:9184/metrics exports controller `shown` with the lanes `read`, and no lane `scan`"
    );
    let json: serde_json::Value = serde_json::from_str(&json(&model, now)).unwrap();
    let lane = &json["controllers"][0]["lanes"][0];
    assert_eq!(lane["offered_per_s"], 60.0);
    assert_eq!(lane["tiers"][5]["verdicts_per_s"]["shed"], 10.0);
    assert_eq!(lane["budget_cost_per_s"], serde_json::Value::Null);
}

#[test]
fn it_serves_this_machine_only_and_no_longer_than_it_lives() {
    let refused = Endpoint::start(([0, 0, 0, 0], 0).into()).unwrap_err();
    assert!(
        matches!(refused, EndpointError::NotLoopback { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("0.0.0.0:0"), "{refused}");
    let endpoint = Endpoint::start(ANY.into()).unwrap();
    let taken = Endpoint::start(endpoint.address()).unwrap_err();
    assert!(matches!(taken, EndpointError::Bind { .. }), "{taken}");
    let source = Source::new(&endpoint.url()).unwrap();
    drop(endpoint);
    let gone = source.fetch().unwrap_err();
    assert!(matches!(gone, FetchError::NoAnswer { .. }), "{gone}");
}

/// Answers one request with this.
fn answering(answer: &'static str) -> (Source, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind(std::net::SocketAddr::from(ANY)).unwrap();
    let source = Source::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (source, server)
}

#[test]
fn an_answer_that_is_none_of_a_controller_is_told_from_one_that_cannot_be_read() {
    let error = |answer| {
        let (source, server) = answering(answer);
        let error = source.fetch().unwrap_err();
        server.join().unwrap();
        assert!(error.to_string().contains(source.url()), "{error}");
        error
    };
    let other = error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n");
    assert!(matches!(other, FetchError::NoController { .. }), "{other}");
    let missing = error("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert!(
        matches!(missing, FetchError::Status { status: 404, .. }),
        "{missing}"
    );
    let broken = error("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\ncinnamon_a{x\n\n\n");
    assert!(matches!(broken, FetchError::Text { .. }), "{broken}");
}

#[test]
fn an_answer_in_chunks_is_read() {
    let (source, server) = answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         8\r\ncinnamon\r\nc\r\n_failed 1\n\n\n\r\n0\r\n\r\n",
    );
    let all = source.fetch().unwrap();
    server.join().unwrap();
    assert_eq!(all["default"].get("cinnamon_failed", &[]), Some(1.0));
}

#[test]
fn the_program_says_what_is_wrong_and_ends_with_2() {
    let lab = |arguments: &[&str]| {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
        let out = lab.arg("top").args(arguments).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        assert!(out.stdout.is_empty(), "{out:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let url = lab(&["https://node:9184", "--once"]);
    assert!(url.contains("`https://node:9184`"), "{url}");
    assert!(url.contains("http://HOST:PORT/metrics"), "{url}");
    let listener = TcpListener::bind(std::net::SocketAddr::from(ANY)).unwrap();
    let free = listener.local_addr().unwrap().to_string();
    drop(listener);
    let refused = lab(&[&free, "--once", "--json"]);
    assert!(
        refused.contains(&format!("http://{free}/metrics does not answer")),
        "{refused}"
    );
    let terminal = lab(&[&free]);
    assert!(terminal.contains("--once"), "{terminal}");
}
