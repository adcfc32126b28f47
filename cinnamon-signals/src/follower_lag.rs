//! How far followers are behind: [`FollowerLag`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cinnamon_core::{Authority, DEFAULT_PRESSURE_MAX, Dynamics, Instant, Reading, Signal, View};

use crate::common::{Common, common_answers, common_setters};
use crate::setting::{SettingError, time_within, within};

/// Lag at pressure 1.0: what a reader of a follower may find stale for an hour without harm, and what a new leader has to
/// catch up with before it serves.
pub const DEFAULT_LAG_TARGET: Duration = Duration::from_secs(2);
/// How late a report is: half of a second between two of them.
pub const DEFAULT_LAG_DELAY: Duration = Duration::from_millis(500);
/// A follower that has said nothing for so long leaves the statistic: it is down, or cut off, and letting in less does not
/// bring it back.
pub const DEFAULT_LAG_SILENT_AFTER: Duration = Duration::from_secs(5);

/// Bounds of targets: less is the network's scatter, more is no replication.
const TARGETS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3_600);
const SILENCES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3_600);

/// Which follower's lag counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LagStatistic {
    /// That of the follower which completes a majority of leader and followers: what a commit waits for. Silent followers
    /// cannot complete it, but belong to those of whom it is the majority; when too many are silent the lag is not known.
    #[default]
    Majority,
    /// The greatest of all that report.
    Slowest,
    /// The greatest but for so many: one sick replica must not throttle the cluster, as FoundationDB has it.
    ButSlowest(usize),
}

/// What a follower reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a report says nothing until it is given to a follower's handle"]
pub struct LagReport {
    time: Option<Duration>,
    entries: Option<u64>,
}

impl LagReport {
    /// So far behind in time: the age of the oldest entry it has not applied.
    pub const fn time(time: Duration) -> Self {
        Self {
            time: Some(time),
            entries: None,
        }
    }

    /// So many entries behind. They count only where [`FollowerLag::entries_target`] says how many are too many.
    pub const fn entries(entries: u64) -> Self {
        Self {
            time: None,
            entries: Some(entries),
        }
    }

    /// And so many entries behind.
    pub const fn and_entries(mut self, entries: u64) -> Self {
        self.entries = Some(entries);
        self
    }
}

/// How far the followers of this leader are behind, as the replication layer tells it.
///
/// - **Measures** the lag of each follower in time, seconds, against [`DEFAULT_LAG_TARGET`], and, where that is set, in
///   entries against [`entries_target`](Self::entries_target); the greater of the two counts. Of all followers one counts, by
///   [`LagStatistic`]. One that was removed (its handle was dropped), has been silent for [`DEFAULT_LAG_SILENT_AFTER`], or
///   says what cannot be (a thousand times the target) leaves the statistic.
/// - **A sample costs** a lock and a sort of as many numbers as there are followers, below a microsecond; a report a lock.
/// - **Lies** when a leader without writes cannot tell a follower that is caught up from one that has stopped, or
///   when clocks differ and the time is taken from both. Count entries then.
/// - **Dynamics** are integrating, with the target, and late by [`delay`](Self::delay).
/// - **Authority** is [`Authority::Measuring`]: a healthy leader shows nothing that could confirm it.
///
/// Without followers its pressure is 0. When those that are there are all silent, or too few for a majority report, it is
/// unavailable.
///
/// ```
/// use cinnamon_core::Scope;
/// use cinnamon_signals::{FollowerLag, LagReport};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), cinnamon_signals::SettingError> {
/// let (lag, followers) = FollowerLag::new();
/// let lag = lag.target(Duration::from_secs(1))?.scope(Scope::Lane("write".to_owned()));
/// // When a follower joins:
/// let b = followers.follower("b");
/// // Whenever it answers:
/// b.report(LagReport::time(Duration::from_millis(40)).and_entries(312));
/// // When it is removed:
/// drop(b);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct FollowerLag {
    common: Common,
    target: Duration,
    entries_target: Option<f64>,
    delay: Duration,
    silent_after: Duration,
    statistic: LagStatistic,
    group: Arc<Mutex<Group>>,
}

/// Registers the followers of a [`FollowerLag`]. Clones register with the same one.
#[derive(Clone, Debug)]
pub struct Followers {
    group: Arc<Mutex<Group>>,
}

/// One follower of a [`FollowerLag`], for as long as this lives.
#[derive(Debug)]
#[must_use = "dropping it removes the follower"]
pub struct Follower {
    group: Arc<Mutex<Group>>,
    id: u64,
}

#[derive(Debug, Default)]
struct Group {
    next_id: u64,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    name: String,
    report: Option<LagReport>,
    /// Counts reports: the same lag reported again is another one.
    reports: u64,
    /// The number of the last report that was seen, and when that was.
    seen: u64,
    seen_at: Instant,
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    // Nothing here panics while it holds the lock.
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Followers {
    /// A follower of this name has joined. It counts from its first report on.
    pub fn follower(&self, name: &str) -> Follower {
        let mut group = lock(&self.group);
        let id = group.next_id;
        group.next_id += 1;
        group.members.push(Member {
            id,
            name: name.to_owned(),
            report: None,
            reports: 0,
            seen: 0,
            seen_at: Instant::ZERO,
        });
        Follower {
            group: Arc::clone(&self.group),
            id,
        }
    }
}

impl Follower {
    /// It stands so now. Report at least once a second, changed or not.
    pub fn report(&self, report: LagReport) {
        let mut group = lock(&self.group);
        let own = group.members.iter_mut().find(|member| member.id == self.id);
        if let Some(member) = own {
            member.report = Some(report);
            member.reports += 1;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        lock(&self.group)
            .members
            .retain(|member| member.id != self.id);
    }
}

impl FollowerLag {
    /// A signal called `follower-lag`, and the handle that followers register with.
    pub fn new() -> (Self, Followers) {
        let group = Arc::<Mutex<Group>>::default();
        let signal = Self {
            common: Common::new("follower-lag", Authority::Measuring),
            target: DEFAULT_LAG_TARGET,
            entries_target: None,
            delay: DEFAULT_LAG_DELAY,
            silent_after: DEFAULT_LAG_SILENT_AFTER,
            statistic: LagStatistic::default(),
            group: Arc::clone(&group),
        };
        (signal, Followers { group })
    }

    common_setters!();

    /// The lag in time at pressure 1.0. Default [`DEFAULT_LAG_TARGET`].
    ///
    /// # Errors
    ///
    /// Unless it is from 10 ms to an hour.
    pub fn target(mut self, target: Duration) -> Result<Self, SettingError> {
        let bound = "from 0.01 to 3600 seconds";
        self.target = time_within("follower_lag.target", target, TARGETS, bound)?;
        Ok(self)
    }

    /// The lag in entries at pressure 1.0. Default: none, entries do not count. How many are a second of work depends on the
    /// machine, so prefer time where followers can tell it.
    ///
    /// # Errors
    ///
    /// When it is 0.
    pub fn entries_target(mut self, entries: u64) -> Result<Self, SettingError> {
        let entries = entries as f64;
        let bound = "at least 1";
        let entries = within(
            "follower_lag.entries_target",
            entries,
            1.0..=f64::MAX,
            bound,
        )?;
        self.entries_target = Some(entries);
        Ok(self)
    }

    /// How late reports are: half of the time between two of them, and what they travel. Default [`DEFAULT_LAG_DELAY`]. Too
    /// short a one makes the gate swing.
    ///
    /// # Errors
    ///
    /// When it is longer than an hour.
    pub fn delay(mut self, delay: Duration) -> Result<Self, SettingError> {
        let bounds = Duration::ZERO..=*TARGETS.end();
        self.delay = time_within("follower_lag.delay", delay, bounds, "at most 3600 seconds")?;
        Ok(self)
    }

    /// After how long a silent follower leaves the statistic. Default [`DEFAULT_LAG_SILENT_AFTER`]. Too short a time
    /// forgets followers that are merely slow to answer.
    ///
    /// # Errors
    ///
    /// Unless it is from 0.1 s to an hour.
    pub fn silent_after(mut self, time: Duration) -> Result<Self, SettingError> {
        let bound = "from 0.1 to 3600 seconds";
        self.silent_after = time_within("follower_lag.silent_after", time, SILENCES, bound)?;
        Ok(self)
    }

    /// Which follower counts. Default [`LagStatistic::Majority`].
    pub const fn statistic(mut self, statistic: LagStatistic) -> Self {
        self.statistic = statistic;
        self
    }

    /// What this report comes to; nothing when it says nothing, or what cannot be.
    fn pressure(&self, report: LagReport) -> Option<f64> {
        let by_time = report
            .time
            .map(|time| time.as_secs_f64() / self.target.as_secs_f64());
        let by_entries = report.entries.zip(self.entries_target);
        let by_entries = by_entries.map(|(entries, target)| entries as f64 / target);
        let pressure = match (by_time, by_entries) {
            (Some(time), Some(entries)) => time.max(entries),
            (time, entries) => time.or(entries)?,
        };
        (pressure <= DEFAULT_PRESSURE_MAX).then_some(pressure)
    }

    /// Of the pressures of those that report, in order, the one that counts.
    fn pick(&self, count: usize, members: usize) -> Result<Option<usize>, &'static str> {
        match self.statistic {
            LagStatistic::Slowest => Ok(count.checked_sub(1)),
            LagStatistic::ButSlowest(but) => Ok(count.checked_sub(but.saturating_add(1))),
            // With the leader there is one more.
            LagStatistic::Majority => match members.div_ceil(2) {
                acks if acks > count => Err("too few followers report for a majority"),
                acks => Ok(acks.checked_sub(1)),
            },
        }
    }
}

impl Signal for FollowerLag {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::integrating(self.target).delayed(self.delay)
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let mut group = lock(&self.group);
        if group.members.is_empty() {
            return Reading::pressure(0.0).note("no followers");
        }
        let mut heard: Vec<(f64, &str)> = Vec::with_capacity(group.members.len());
        let mut latest = Instant::ZERO;
        let count = group.members.len();
        for member in &mut group.members {
            let Some(report) = member.report else {
                continue;
            };
            if member.reports != member.seen {
                member.seen = member.reports;
                member.seen_at = now;
            }
            // Not in the future, when the clock was set back.
            member.seen_at = member.seen_at.min(now);
            if now.since(member.seen_at) < self.silent_after
                && let Some(pressure) = self.pressure(report)
            {
                latest = latest.max(member.seen_at);
                heard.push((pressure, &member.name));
            }
        }
        if heard.is_empty() {
            return Reading::unavailable("no follower reports");
        }
        heard.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        match self.pick(heard.len(), count) {
            Ok(Some(index)) => {
                let (pressure, name) = heard[index];
                let silent = count - heard.len();
                let note = format!("{name}; {silent} of {count} silent");
                Reading::pressure(pressure).taken_at(latest).note(note)
            }
            Ok(None) => Reading::pressure(0.0).taken_at(latest),
            Err(why) => Reading::unavailable(why),
        }
    }
}

#[cfg(test)]
mod tests;
