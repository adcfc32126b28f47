//! A configuration file.

use std::time::Duration;

use cinnamon_core::{Clock, Completion, Config, Controller, ManualClock, Request, Settings, Tier};

/// No text panics. What is accepted is the same when it is written and read again, and a controller is built from
/// it, runs and takes it over once more.
///
/// # Panics
///
/// When that does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let config: Config = match toml::from_str(text) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let written = toml::to_string(&config).expect("what was read can be written");
    let again: Config = toml::from_str(&written).expect("what was written can be read");
    assert_eq!(again, config, "{written}");
    runs(config);
}

fn runs(config: Config) {
    // Which signals there are only the embedder knows, and nothing outside of memory is touched here.
    let mut settings = Settings::from(config);
    settings.signals.clear();
    settings.override_file = None;
    let config = Config::new(settings).expect("fewer settings are as good");
    let clock = ManualClock::new();
    let controller = Controller::builder(config.clone())
        .build_manual(clock.shared())
        .expect("what was accepted can be built");
    for lane in &config.lanes {
        let lane = controller.lane(&lane.name).expect("it was configured");
        for (n, tier) in Tier::ALL.into_iter().enumerate() {
            let tenant = controller.tenant(["batch/a", "b", "c"][n % 3]);
            let request = Request::new(tier).key(n as u64).tenant(tenant);
            if let Ok(permit) = lane.try_admit(&request) {
                clock.advance(Duration::from_millis(1));
                permit.finish(Completion::success());
            }
        }
    }
    for _ in 0..4 {
        clock.advance(Duration::from_millis(config.tick_max_ms));
        controller.tick(clock.now());
    }
    controller
        .reconfigure(config)
        .expect("the same again is no change");
    for lane in controller.snapshot().lanes {
        assert_eq!((lane.in_use, lane.waiting), (0, 0));
        assert_eq!(lane.verdicts.sum(), lane.offered);
    }
}
