//! What has been seen so far: [`Model`]. Time is an argument, and nothing is fetched here.

use std::collections::{BTreeMap, VecDeque};

use cinnamon_core::Instant;

use super::text::Scrape;
use super::view::{Between, ControllerView, LaneView};

/// The past that is shown, seconds.
pub(super) const PAST_S: f64 = 120.0;
/// Between two emissions of a controller lies a second, by its own clock. What was seen sooner after another was
/// seen too late the time before.
const EMITTED_EVERY_S: f64 = 1.0;
/// Quantiles are of this time, seconds: at 10 requests a second a 99th percentile needs all of it.
const TIMES_OVER_S: f64 = 10.0;
/// A controller ticks every quarter of a second when it has nothing to do, and shows that once a second. Silence
/// for so long, in seconds, is a control thread that is dead or starved.
const SILENT_S: f64 = 5.0;
/// A restart is told for so long, seconds.
const RESTART_TOLD_S: f64 = 60.0;

/// Everything that was seen at one address.
#[derive(Clone, Debug)]
pub struct Model {
    url: String,
    tracks: BTreeMap<String, Track>,
    answered_at: Option<Instant>,
    error: Option<String>,
}

/// What was seen of one controller.
#[derive(Clone, Debug)]
pub(super) struct Track {
    /// Those that brought news, oldest first, no further back than quantiles need.
    scrapes: VecDeque<(Instant, Scrape)>,
    view: ControllerView,
    past: BTreeMap<String, VecDeque<Past>>,
    restarted_at: Option<Instant>,
}

/// How a lane was at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Past {
    pub(super) at: Instant,
    pub(super) threshold_levels: Option<f64>,
    pub(super) offered_per_s: Option<f64>,
    pub(super) admitted_per_s: Option<f64>,
}

impl Model {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            tracks: BTreeMap::new(),
            answered_at: None,
            error: None,
        }
    }

    /// Takes an answer in that came at `now`: what every controller exports, or why there is none. After an error
    /// the last figures stay.
    ///
    /// A controller emits once a second, by its own clock. An answer without a new tick is the one before, and
    /// rates go from news to news.
    pub fn take(&mut self, now: Instant, answer: Result<BTreeMap<String, Scrape>, String>) {
        let scrapes = match answer {
            Ok(scrapes) => scrapes,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.error = None;
        self.answered_at = Some(now);
        self.tracks.retain(|name, _| scrapes.contains_key(name));
        for (name, scrape) in scrapes {
            match self.tracks.get_mut(&name) {
                Some(track) => track.take(&name, now, scrape),
                None => {
                    let track = Track::new(&name, now, scrape);
                    self.tracks.insert(name, track);
                }
            }
        }
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Every controller, by name.
    pub fn controllers(&self) -> impl Iterator<Item = &ControllerView> {
        self.tracks.values().map(|track| &track.view)
    }

    /// Whether the answer taken at `now` brought news of this controller.
    pub(super) fn is_news(&self, name: &str, now: Instant) -> bool {
        self.tracks
            .get(name)
            .is_some_and(|track| track.seen_at() == Some(now))
    }

    /// The controller of this name, or else the first that lives: of a process that built one after the other, those
    /// that have ended are exported for a while.
    pub(super) fn track(&self, name: Option<&str>) -> Option<&Track> {
        let named = name.and_then(|name| self.tracks.get(name));
        let lives = |track: &&Track| {
            let last = self.answered_at.zip(track.seen_at());
            last.is_some_and(|(answered, seen)| seconds(answered, seen) < SILENT_S)
        };
        named
            .or_else(|| self.tracks.values().find(lives))
            .or_else(|| self.tracks.values().next())
    }

    /// Forgets all but this controller and this lane. `false` if nothing is left.
    pub(super) fn keep(&mut self, controller: Option<&str>, lane: Option<&str>) -> bool {
        self.tracks.retain(|name, track| {
            let lanes = &mut track.view.lanes;
            lanes.retain(|of| lane.is_none_or(|lane| lane == of.name));
            let has_lane = lane.is_none() || !lanes.is_empty();
            has_lane && controller.is_none_or(|controller| controller == name)
        });
        !self.tracks.is_empty()
    }

    /// Why there is no answer, and how old the last one is, seconds.
    pub(super) fn trouble(&self, now: Instant) -> Option<(&str, Option<f64>)> {
        let age_s = self.answered_at.map(|at| seconds(now, at));
        self.error.as_deref().map(|error| (error, age_s))
    }
}

impl Track {
    fn new(name: &str, now: Instant, scrape: Scrape) -> Self {
        let between = Between::new(&scrape, None);
        let view = ControllerView::new(name, &between, &between);
        let mut track = Self {
            view,
            scrapes: VecDeque::from([(now, scrape)]),
            past: BTreeMap::new(),
            restarted_at: None,
        };
        track.remember(now);
        track
    }

    fn take(&mut self, name: &str, now: Instant, scrape: Scrape) {
        let ticks = scrape.get("cinnamon_ticks_total", &[]);
        if ticks.is_some() && ticks == self.view.ticks {
            return;
        }
        if ticks < self.view.ticks {
            // What it counted before is gone, and nobody knows since when it counts.
            self.scrapes.clear();
            self.restarted_at = Some(now);
        }
        while self.scrapes.len() > 1 && seconds(now, self.scrapes[1].0) >= TIMES_OVER_S {
            self.scrapes.pop_front();
        }
        let since = |at: Instant| seconds(now, at).max(EMITTED_EVERY_S);
        let last = self.scrapes.back();
        let last = last.map(|(at, before)| (before, since(*at)));
        let first = self.scrapes.front();
        let first = first.map(|(at, before)| (before, since(*at)));
        let between = Between::new(&scrape, last);
        let long = Between::new(&scrape, first);
        self.view = ControllerView::new(name, &between, &long);
        self.scrapes.push_back((now, scrape));
        self.remember(now);
    }

    fn remember(&mut self, now: Instant) {
        for lane in &self.view.lanes {
            let past = self.past.entry(lane.name.clone()).or_default();
            while past
                .front()
                .is_some_and(|past| seconds(now, past.at) > PAST_S)
            {
                past.pop_front();
            }
            past.push_back(Past {
                at: now,
                threshold_levels: lane.threshold_levels,
                offered_per_s: lane.offered_per_s,
                admitted_per_s: lane.admitted_per_s,
            });
        }
    }

    pub(super) const fn view(&self) -> &ControllerView {
        &self.view
    }

    /// The lane of this name, or else the first.
    pub(super) fn lane(&self, name: Option<&str>) -> Option<&LaneView> {
        let lanes = &self.view.lanes;
        let named = lanes.iter().find(|lane| Some(lane.name.as_str()) == name);
        named.or_else(|| lanes.first())
    }

    pub(super) fn past(&self, lane: &str) -> impl Iterator<Item = &Past> {
        self.past.get(lane).into_iter().flatten()
    }

    fn seen_at(&self) -> Option<Instant> {
        self.scrapes.back().map(|(at, _)| *at)
    }

    /// For how long it has not ticked, seconds, if that is too long.
    pub(super) fn silent_s(&self, now: Instant) -> Option<f64> {
        let silent_s = seconds(now, self.seen_at()?);
        (silent_s >= SILENT_S).then_some(silent_s)
    }

    /// How long ago it began anew, seconds, if that is news.
    pub(super) fn restarted_s(&self, now: Instant) -> Option<f64> {
        let ago_s = seconds(now, self.restarted_at?);
        (ago_s <= RESTART_TOLD_S).then_some(ago_s)
    }
}

pub(super) fn seconds(now: Instant, then: Instant) -> f64 {
    now.since(then).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::text::parse;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn answer(
        controller: &str,
        ticks: u64,
        offered: u64,
    ) -> Result<BTreeMap<String, Scrape>, String> {
        let of = format!("controller=\"{controller}\"");
        let text = format!(
            "cinnamon_ticks_total{{{of}}} {ticks}\n\
             cinnamon_limit{{{of},lane=\"read\"}} 4\n\
             cinnamon_offered_total{{{of},lane=\"read\"}} {offered}\n"
        );
        parse(&text).map_err(|error| error.to_string())
    }

    fn offered_per_s(model: &Model) -> Option<f64> {
        model.track(None).unwrap().lane(None).unwrap().offered_per_s
    }

    #[test]
    fn rates_go_from_news_to_news() {
        let mut model = Model::new("u");
        model.take(at(0), answer("a", 10, 100));
        assert_eq!(offered_per_s(&model), None);
        model.take(at(1_000), answer("a", 20, 300));
        assert_eq!(offered_per_s(&model), Some(200.0));
        assert!(model.is_news("a", at(1_000)));
        // Seen sooner than it can have been emitted: the one before was seen late.
        let mut late = model.clone();
        late.take(at(1_900), answer("a", 30, 500));
        assert_eq!(offered_per_s(&late), Some(200.0));
        // Nothing was emitted since; the next news came two seconds after the last.
        model.take(at(2_000), answer("a", 20, 300));
        assert_eq!(offered_per_s(&model), Some(200.0));
        assert!(!model.is_news("a", at(2_000)));
        model.take(at(3_000), answer("a", 30, 500));
        assert_eq!(offered_per_s(&model), Some(100.0));
        let past = model.track(None).unwrap().past("read");
        assert_eq!(past.count(), 3);
    }

    #[test]
    fn a_restart_is_told_and_makes_no_rate() {
        let mut model = Model::new("u");
        model.take(at(0), answer("a", 1_000, 100));
        model.take(at(1_000), answer("a", 5, 900));
        assert_eq!(offered_per_s(&model), None);
        let track = model.track(None).unwrap();
        assert_eq!(track.restarted_s(at(3_000)), Some(2.0));
        assert_eq!(track.restarted_s(at(90_000)), None);
        model.take(at(2_000), answer("a", 10, 950));
        assert_eq!(offered_per_s(&model), Some(50.0));
    }

    #[test]
    fn after_an_error_the_last_figures_stay_with_their_age() {
        let mut model = Model::new("u");
        model.take(at(0), Err("refused".to_owned()));
        assert_eq!(model.trouble(at(500)), Some(("refused", None)));
        model.take(at(1_000), answer("a", 1, 100));
        model.take(at(2_000), answer("a", 2, 200));
        assert_eq!(model.trouble(at(2_000)), None);
        model.take(at(3_000), Err("gone".to_owned()));
        assert_eq!(model.trouble(at(14_000)), Some(("gone", Some(12.0))));
        assert_eq!(offered_per_s(&model), Some(100.0));
        model.take(at(15_000), answer("a", 3, 1_500));
        assert_eq!(model.trouble(at(15_000)), None);
        assert_eq!(offered_per_s(&model), Some(100.0));
    }

    #[test]
    fn a_controller_that_ticks_no_more_is_silent() {
        let mut model = Model::new("u");
        model.take(at(0), answer("a", 1, 100));
        model.take(at(9_000), answer("a", 1, 100));
        let track = model.track(None).unwrap();
        assert_eq!(track.silent_s(at(4_000)), None);
        assert_eq!(track.silent_s(at(9_000)), Some(9.0));
    }

    #[test]
    fn the_first_controller_that_lives_is_shown_and_one_that_is_gone_is_not() {
        let both = |a, b| {
            let mut all = answer("a", a, 0).unwrap();
            all.append(&mut answer("b", b, 0).unwrap());
            Ok(all)
        };
        let shown = |model: &Model, name| model.track(name).unwrap().view().name.clone();
        let mut model = Model::new("u");
        model.take(at(0), both(1, 1));
        assert_eq!(shown(&model, None), "a");
        assert_eq!(shown(&model, Some("b")), "b");
        // One that is a little later than the other has not ended.
        model.take(at(1_000), both(1, 2));
        assert_eq!(shown(&model, None), "a");
        model.take(at(6_000), both(1, 3));
        assert_eq!(shown(&model, None), "b");
        model.take(at(7_000), answer("a", 2, 0));
        assert_eq!(shown(&model, Some("b")), "a");
    }

    #[test]
    fn one_controller_and_one_lane_are_kept_if_they_are_there() {
        let mut all = answer("a", 1, 0).unwrap();
        all.append(&mut answer("b", 1, 0).unwrap());
        let mut model = Model::new("u");
        model.take(at(0), Ok(all));
        let kept = |controller, lane| {
            let mut model = model.clone();
            let any = model.keep(controller, lane);
            let names = model.controllers().map(|of| of.name.clone());
            (any, names.collect::<Vec<_>>().concat())
        };
        assert_eq!(kept(None, None), (true, "ab".to_owned()));
        assert_eq!(kept(Some("b"), Some("read")), (true, "b".to_owned()));
        assert_eq!(kept(Some("c"), None), (false, String::new()));
        assert_eq!(kept(None, Some("write")), (false, String::new()));
    }

    #[test]
    fn the_past_is_two_minutes() {
        let mut model = Model::new("u");
        for second in 0..300 {
            model.take(at(second * 1_000), answer("a", second, second));
        }
        let track = model.track(None).unwrap();
        assert_eq!(track.past("read").count(), PAST_S as usize + 1);
        assert_eq!(track.view().times_over_s, Some(TIMES_OVER_S));
    }
}
