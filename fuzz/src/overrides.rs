//! A line of an override file.

use std::time::Duration;

use cinnamon_core::{Clock, Config, Controller, LaneSettings, ManualClock, Override, Settings};

/// No text panics. What is accepted is the same when it is written and read again, and a controller puts it in force
/// or refuses it by name; when its time is over it is gone.
///
/// # Panics
///
/// When that does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let clock = ManualClock::new();
    let config = Settings::default()
        .lane(LaneSettings::new("read", 4))
        .lane(LaneSettings::new("write", 2));
    let config = Config::new(config).expect("in bounds");
    let controller = Controller::builder(config)
        .build_manual(clock.shared())
        .expect("no signals");
    let mut longest = Duration::ZERO;
    for line in text.lines() {
        let parsed: Override = match line.parse() {
            Ok(parsed) => parsed,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        let again: Override = parsed.to_string().parse().expect("it was written by us");
        assert_eq!(again, parsed);
        longest = longest.max(parsed.ttl);
        if let Err(error) = controller.set_override(parsed) {
            assert!(!error.to_string().is_empty());
        }
    }
    clock.advance(longest + Duration::from_millis(1));
    controller.tick(clock.now());
    assert!(controller.snapshot().overrides.is_empty());
}
