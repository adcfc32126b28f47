use super::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO.after(Duration::from_millis(ms))
}

fn ms(ms: u64) -> LagReport {
    LagReport::time(Duration::from_millis(ms))
}

fn sample(signal: &mut FollowerLag, ms: u64) -> Option<f64> {
    signal.sample(at(ms), &View::default()).value()
}

/// Followers with these lags, and the pressure at a target of a second.
fn with(statistic: LagStatistic, lags_ms: &[u64], silent: usize) -> Option<f64> {
    let (signal, followers) = FollowerLag::new();
    let signal = signal.statistic(statistic).target(Duration::from_secs(1));
    let mut signal = signal.unwrap();
    let members: Vec<Follower> = (0..lags_ms.len() + silent)
        .map(|i| followers.follower(&format!("f{i}")))
        .collect();
    for (member, lag_ms) in members.iter().zip(lags_ms) {
        member.report(ms(*lag_ms));
    }
    sample(&mut signal, 0)
}

#[test]
fn a_majority_is_of_all_members_and_completed_by_those_that_report() {
    let majority = LagStatistic::Majority;
    assert_eq!(with(majority, &[], 0), Some(0.0), "no followers");
    assert_eq!(with(majority, &[700], 0), Some(0.7), "one of two");
    assert_eq!(with(majority, &[700, 9_000], 0), Some(0.7), "two of three");
    assert_eq!(
        with(majority, &[9_000, 300, 700, 8_000], 0),
        Some(0.7),
        "three of five"
    );
    assert_eq!(
        with(majority, &[300, 700, 8_000], 0),
        Some(0.7),
        "three of four"
    );
    assert_eq!(
        with(majority, &[9_000], 1),
        Some(9.0),
        "the silent one cannot complete it"
    );
    assert_eq!(with(majority, &[300, 700], 2), Some(0.7));
    assert_eq!(with(majority, &[300], 3), None, "no majority");
    assert_eq!(with(majority, &[], 2), None);
}

#[test]
fn other_statistics_are_of_those_that_report() {
    assert_eq!(with(LagStatistic::Slowest, &[300, 9_000], 5), Some(9.0));
    let but_one = LagStatistic::ButSlowest(1);
    assert_eq!(with(but_one, &[300, 9_000, 700], 0), Some(0.7));
    assert_eq!(with(but_one, &[9_000], 0), Some(0.0), "one sick replica");
    assert_eq!(
        with(LagStatistic::ButSlowest(usize::MAX), &[1], 0),
        Some(0.0)
    );
}

#[test]
fn the_removed_and_the_silent_leave() {
    let (signal, followers) = FollowerLag::new();
    let mut signal = signal.statistic(LagStatistic::Slowest);
    let (a, b) = (followers.follower("a"), followers.clone().follower("b"));
    a.report(ms(6_000));
    b.report(ms(1_000));
    assert_eq!(sample(&mut signal, 0), Some(3.0));
    drop(a);
    assert_eq!(sample(&mut signal, 100), Some(0.5));
    assert_eq!(sample(&mut signal, 4_900), Some(0.5));
    assert_eq!(sample(&mut signal, 5_100), None, "silent for five seconds");
    b.report(ms(1_000));
    assert_eq!(sample(&mut signal, 5_200), Some(0.5));
    drop(b);
    assert_eq!(sample(&mut signal, 5_300), Some(0.0), "nobody is left");
}

#[test]
fn a_report_is_as_old_as_the_first_look_at_it() {
    let (mut signal, followers) = FollowerLag::new();
    let a = followers.follower("a");
    a.report(ms(1_000));
    let mut reading = |ms| signal.sample(at(ms), &View::default());
    let first = Reading::pressure(0.5)
        .taken_at(at(100))
        .note("a; 0 of 1 silent");
    assert_eq!(reading(100), first);
    assert_eq!(reading(200), first, "the same reading");
    a.report(ms(1_000));
    assert_eq!(reading(300), first.clone().taken_at(at(300)));
    assert_eq!(
        reading(50),
        first.taken_at(at(50)),
        "the clock was set back"
    );
}

#[test]
fn entries_count_where_a_target_is_set_and_the_greater_of_both() {
    let (signal, followers) = FollowerLag::new();
    let a = followers.follower("a");
    let mut by_time = signal;
    a.report(LagReport::entries(5_000));
    assert_eq!(
        sample(&mut by_time, 0),
        None,
        "nobody said how many are too many"
    );
    let mut both = by_time.entries_target(1_000).unwrap();
    assert_eq!(sample(&mut both, 0), Some(5.0));
    a.report(ms(1_000).and_entries(100));
    assert_eq!(sample(&mut both, 0), Some(0.5));
    a.report(ms(0).and_entries(3_000));
    assert_eq!(sample(&mut both, 0), Some(3.0));
}

#[test]
fn what_cannot_be_is_left_out() {
    let (signal, followers) = FollowerLag::new();
    let mut signal = signal
        .statistic(LagStatistic::Slowest)
        .entries_target(10)
        .unwrap();
    let (a, b) = (followers.follower("a"), followers.follower("b"));
    a.report(ms(1_000));
    for lie in [LagReport::time(Duration::MAX), LagReport::entries(u64::MAX)] {
        b.report(lie);
        assert_eq!(sample(&mut signal, 0), Some(0.5), "{lie:?}");
    }
    b.report(LagReport::default());
    assert_eq!(sample(&mut signal, 0), Some(0.5));
}

#[test]
fn it_says_how_it_answers_and_refuses_what_cannot_be() {
    let (signal, _followers) = FollowerLag::new();
    let dynamics = Dynamics::integrating(DEFAULT_LAG_TARGET).delayed(DEFAULT_LAG_DELAY);
    assert_eq!(signal.dynamics(), dynamics);
    assert_eq!(Signal::authority(&signal), Authority::Measuring);
    let error = signal.target(Duration::ZERO).unwrap_err().to_string();
    let text = "`follower_lag.target` is 0 but must be from 0.01 to 3600 seconds";
    assert_eq!(error, text);
    assert!(FollowerLag::new().0.entries_target(0).is_err());
    assert!(FollowerLag::new().0.delay(Duration::MAX).is_err());
    assert!(FollowerLag::new().0.silent_after(Duration::ZERO).is_err());
}
