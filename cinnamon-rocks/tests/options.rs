//! The configuration as a file: the commented example says every setting, and says the truth; what does not go
//! together is refused with both names.

use cinnamon_core::{
    Authority, ClassSettings, LaneSettings, Limit, Mode, ShareSettings, SignalSettings,
    TenantSettings, Tier, TierBudget,
};
use cinnamon_rocks::{
    FOUND_LIMIT_MAX, FamilyOptions, OptionsError, SloOptions, StallTriggers, Store, StoreOptions,
    WRITE_STALL,
};

const EXAMPLE: &str = include_str!("../examples/store.toml");

/// The example with the settings in its comments in force. A line of prose is none: it has no `key =`.
fn uncommented() -> String {
    let line = |line: &str| {
        let bare = line.trim_start_matches("# ");
        let key = bare.split([' ', '=']).next().unwrap_or_default();
        let is_key = !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit());
        if bare.starts_with('[') || (is_key && bare.starts_with(&format!("{key} = "))) {
            bare.to_owned()
        } else {
            line.to_owned()
        }
    };
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_says_the_defaults() {
    assert_eq!(
        StoreOptions::from_toml(EXAMPLE).unwrap(),
        StoreOptions::default()
    );
    assert_eq!(
        StoreOptions::from_toml("").unwrap(),
        StoreOptions::default()
    );
}

#[test]
fn the_example_names_every_setting_and_its_comments_are_settings() {
    let mut all = StoreOptions::default();
    let read_limit = Limit::auto().initial(32).at_least(32);
    all.read_limit = read_limit.at_most(FOUND_LIMIT_MAX);
    all.memory_bytes_max = Some(1 << 30);
    all.background_bytes_per_s = Some(100 << 20);
    let mut orders = FamilyOptions::new("orders");
    orders.write_buffer_bytes = Some(32 << 20);
    let mut triggers = StallTriggers::default();
    triggers.l0_slowdown = 12;
    orders.triggers = Some(triggers);
    let [mut reads, mut writes] = [SloOptions::default(); 2];
    (all.read_slo, all.write_slo) = (Some(reads), Some(writes));
    (reads.target_us, writes.max_us) = (2_000, 250_000);
    (orders.read_slo, orders.write_slo) = (Some(reads), Some(writes));
    all.families.push(orders);
    let mut write = LaneSettings::auto("write").scope("store");
    write.queue_len_max = Some(320);
    write.codel_target_us = Some(5_000);
    write.codel_interval_us = Some(100_000);
    write.shares = vec![ShareSettings::stealable(Tier::T4, 0.1)];
    all.control.lanes.push(write);
    let batch = TenantSettings::new("batch/*")
        .cap(8)
        .ceiling(Tier::T3)
        .budget(TierBudget::share(Tier::T3, 0.2));
    all.control.tenants.push(batch);
    let mut scan = ClassSettings::default();
    scan.name = "scan".to_owned();
    scan.default_tier = Some(Tier::T4);
    all.control.classes = vec![scan];
    let mut signal = SignalSettings::new(WRITE_STALL);
    signal.mode = Mode::Monitor;
    signal.authority = Some(Authority::Measuring);
    signal.period_ms = Some(100);
    signal.horizon_ms = Some(60_000);
    all.control.signals.push(signal);
    assert_eq!(StoreOptions::from_toml(&uncommented()).unwrap(), all);
    // What is set above is everything there is: nothing is left out when it is written.
    let written = toml::to_string(&all).unwrap();
    for line in written.lines().filter(|line| line.contains(" = ")) {
        let key = line.split(" = ").next().unwrap_or_default();
        assert!(EXAMPLE.contains(&format!("{key} = ")), "{key}");
    }
    assert_eq!(StoreOptions::from_toml(&written).unwrap(), all);
    // And a store opens with it, with the settings of its lanes and classes in force.
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), all).unwrap();
    let config = store.controller().config();
    assert_eq!(config.lanes[1].queue_len_max, Some(320));
    assert_eq!(config.classes[1].default_tier, Some(Tier::T4));
    assert_eq!((config.lanes.len(), config.classes.len()), (2, 6));
}

#[test]
fn a_misspelt_setting_is_named_with_its_line() {
    for (text, expected) in [
        ("write_limmit = 2", "unknown field `write_limmit`"),
        ("[triggers]\nl0_slow = 2", "unknown field `l0_slow`"),
        (
            "[[families]]\nname = \"a\"\nsize = 1",
            "unknown field `size`",
        ),
        ("[control]\nkpp = 1.0", "unknown field `kpp`"),
        ("[read_slo]\ntarget_ms = 5", "unknown field `target_ms`"),
        (
            "[[families]]\nname = \"a\"\n[families.write_slo]\nmax = 5",
            "unknown field `max`",
        ),
        ("sync_writes = 1", "expected a boolean"),
        (
            "[[families]]\nwrite_buffer_bytes = 1",
            "missing field `name`",
        ),
        ("write_limit = -1", "expected a number of slots"),
    ] {
        let error = StoreOptions::from_toml(text).unwrap_err();
        assert!(matches!(error, OptionsError::Toml(_)));
        let error = error.to_string();
        assert!(
            error.contains(expected) && error.contains("line "),
            "{error}"
        );
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused_with_both_names() {
    for (text, expected) in [
        (
            "memory_bytes_max = 268435456\n[[families]]\nname = \"a\"\nwrite_buffer_bytes = 67108864",
            "`memory_bytes_max` is 268435456 but must be at least 335544320: `block_cache_bytes` (67108864) and the \
             memtables of 2 column families, `write_buffer_bytes` times `triggers.write_buffers_max` of each \
             (268435456)",
        ),
        (
            "write_stall_sheds_reads = true\nwrite_stall = false",
            "`write_stall_sheds_reads` is true but must be false while `write_stall` is false: nothing would shed them",
        ),
        (
            "no_slowdown = true\nwrite_stall = false",
            "`no_slowdown` is true but must be false while `write_stall` is false: nothing would shed low tiers \
             before RocksDB refuses writes of all tiers alike",
        ),
        (
            "[triggers]\nl0_slowdown = 20\nl0_stop = 10",
            "`triggers.l0_stop` is 10 but must be between 20 and 2147483647",
        ),
        (
            "[[families]]\nname = \"a\"\n[families.triggers]\nl0_slowdown = 2",
            "`families[0].triggers.l0_slowdown` is 2 but must be between 5 and 2147483647",
        ),
        (
            "[triggers]\nsoft_pending_compaction_bytes = 1000",
            "`triggers.soft_pending_compaction_bytes` is 1000 but must be at least 268435456: \
             `triggers.l0_compaction` (4) files of `write_buffer_bytes` (67108864)",
        ),
        (
            "[[families]]\nname = \"a\"\nwrite_buffer_bytes = 1000",
            "`families[0].write_buffer_bytes` is 1000 but must be between 65536 and 68719476736",
        ),
        (
            "[[control.signals]]\nname = \"memory\"",
            "`control.signals[0].name` is \"memory\" but there are only [\"write-stall\"]",
        ),
        (
            "write_stall = false\n[[control.signals]]\nname = \"write-stall\"",
            "`control.signals[0].name` is \"write-stall\" but there are only []",
        ),
        (
            "[[control.lanes]]\nname = \"write\"\nlimit = 3",
            "`control.lanes[0].limit` is 3 but must be auto from 32 within 32 and 256, which `write_limit` is",
        ),
        (
            "[[control.lanes]]\nname = \"disk\"\nlimit = 3",
            "`control.lanes[0].name` is \"disk\" but there are only [\"read\", \"write\"]",
        ),
        (
            "[[control.lanes]]\nname = \"write\"\nscope = \"disk\"",
            "`control.lanes[0].scope` is \"disk\" but must be \"store\", the scope of both lanes of a store",
        ),
        (
            "[[control.lanes]]\nname = \"write\"\n[[control.lanes]]\nname = \"write\"",
            "`control.lanes[1].name` is \"write\" but an earlier one has that name",
        ),
        (
            "[[control.classes]]\nname = \"read\"",
            "`control.classes[0].name` is \"read\" but there are only [\"get\", \"scan\", \"put\", \"delete\", \
             \"multi-get\", \"batch\"]",
        ),
        (
            "[[control.classes]]\nname = \"get\"\n[[control.classes]]\nname = \"get\"",
            "`control.classes[1].name` is \"get\" but an earlier one has that name",
        ),
        (
            "[control]\nkp = 7.5",
            "`control.kp` is 7.5 but must be between 0 and 5",
        ),
        (
            "[read_slo]\ntarget_us = 0",
            "`read_slo.target_us` is 0 but must be between 1 and 3599999999",
        ),
        (
            "[read_slo]\ntarget_us = 500000",
            "`read_slo.max_us` is 500000 but must be between 500001 and 3600000000",
        ),
        (
            "[[families]]\nname = \"a\"\n[families.write_slo]\nmax_us = 3600000001",
            "`families[0].write_slo.max_us` is 3600000001 but must be between 10001 and 3600000000",
        ),
        (
            "[write_slo]\ntarget_us = 5000\n[[control.lanes]]\nname = \"read\"\n[[control.lanes]]\nname = \"write\"\n\
             codel_target_us = 5000",
            "`write_slo.target_us` is 5000 but must be over 5000, `control.lanes[1].codel_target_us`: its least \
             important calls may wait for that long before the lane `write` takes it for an overload",
        ),
        (
            "background_jobs_max = 1",
            "`background_jobs_max` is 1 but must be between 2 and 2147483647",
        ),
    ] {
        let error = StoreOptions::from_toml(text).unwrap_err();
        assert!(matches!(error, OptionsError::Config(_)), "{error}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn the_limit_of_each_lane_is_found_and_may_be_said_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    for lane in store.controller().snapshot().lanes {
        assert_eq!(lane.limit_rule, "auto");
        // Where it begins, lower than which no trial leads it.
        assert_eq!(lane.limit_min, lane.limit);
        assert_eq!(lane.limit_max, FOUND_LIMIT_MAX);
    }
    let text = "read_limit = 8\nwrite_limit = { rule = \"auto\", initial = 4, max = 32 }";
    let options = StoreOptions::from_toml(text).unwrap();
    assert_eq!(options.read_limit, Limit::fixed(8));
    assert_eq!(options.write_limit, Limit::auto().initial(4).at_most(32));
    let error = StoreOptions::from_toml("read_limit = { max = 0 }").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`read_limit.max` is 0 but must be between 1 and 1048576"
    );
}
