//! The configuration as a file: the commented example says every setting, and says the truth.

use cinnamon_core::{
    Authority, Config, LaneSettings, Mode, Settings, ShareSettings, SignalSettings, TenantSettings,
    Tier, TierBudget,
};

const EXAMPLE: &str = include_str!("../../examples/cinnamon.toml");

fn expected() -> Settings {
    Settings::default()
        .lane(LaneSettings::new("read", 16).scope("store"))
        .lane(LaneSettings::new("write", 2).scope("store"))
}

/// The example with the settings in its comments in force. A line of prose is none: it has no `key =`.
fn uncommented() -> String {
    let line = |line: &str| {
        let bare = line.trim_start_matches("# ");
        let key = bare.split([' ', '=']).next().unwrap_or_default();
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if ["[[signals]]", "[[tenants]]"].contains(&bare)
            || (is_key && bare.starts_with(&format!("{key} = ")))
        {
            bare.to_owned()
        } else {
            line.to_owned()
        }
    };
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_says_the_defaults() {
    let config: Config = toml::from_str(EXAMPLE).unwrap();
    assert_eq!(*config, expected());
}

#[test]
fn the_example_names_every_setting_and_its_comments_are_settings() {
    let mut all = expected();
    all.override_file = Some("/run/mydb/cinnamon.override".into());
    all.lanes[0].queue_len_max = Some(320);
    all.lanes[0].codel_target_us = Some(5_000);
    all.lanes[0].codel_interval_us = Some(100_000);
    all.lanes[0].shares = vec![ShareSettings::stealable(Tier::T4, 0.1)];
    all.classes[0].default_tier = Some(Tier::T4);
    let mut tenants = TenantSettings::new("batch/*")
        .cap(8)
        .ceiling(Tier::T3)
        .budget(TierBudget::share(Tier::T3, 0.2))
        .budget(TierBudget::per_s(Tier::T4, 500.0));
    tenants.cap_share = Some(0.25);
    tenants.lane_caps.insert("write".to_owned(), 2);
    tenants.default_tier = Some(Tier::T5);
    all.tenants.push(tenants);
    let mut signal = SignalSettings::new("memory");
    signal.mode = Mode::Monitor;
    signal.authority = Some(Authority::Measuring);
    signal.period_ms = Some(100);
    signal.horizon_ms = Some(2_000);
    all.signals.push(signal);
    let config: Config = toml::from_str(&uncommented()).unwrap();
    assert_eq!(*config, all);
    // What is set above is everything there is: nothing is left out when it is written.
    let written = toml::to_string(&all).unwrap();
    for line in written.lines().filter(|line| line.contains(" = ")) {
        let key = line.split(" = ").next().unwrap_or_default();
        assert!(EXAMPLE.contains(&format!("{key} = ")), "{key}");
    }
    let again: Config = toml::from_str(&written).unwrap();
    assert_eq!(*again, all);
}

#[test]
fn a_bad_file_says_setting_value_and_bound() {
    let bad = |text: &str| toml::from_str::<Config>(text).unwrap_err().to_string();
    let lane = "[[lanes]]\nname = \"main\"\nlimit = 4\n";
    for (text, expected) in [
        (
            "[[lanes]]\nname = \"main\"\nlimit = 0".to_owned(),
            "`lanes[0].limit` is 0 but must be between 1 and 1048576",
        ),
        (
            format!("kp = 7.5\n{lane}"),
            "`kp` is 7.5 but must be between 0 and 5",
        ),
        (
            format!("{lane}[[signals]]\nname = \"a\"\nperiod_ms = 0"),
            "`signals[0].period_ms` is 0 but must be between 1 and 60000",
        ),
        (
            format!("{lane}[[signals]]\nname = \"a\"\n[[signals]]\nname = \"a\""),
            "`signals[1].name` is \"a\" but an earlier one has that name",
        ),
        (format!("gain = 1\n{lane}"), "unknown field `gain`"),
        (format!("mode = \"loud\"\n{lane}"), "unknown variant `loud`"),
    ] {
        let error = bad(&text);
        assert!(error.contains(expected), "{error}");
    }
}
