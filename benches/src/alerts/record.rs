//! What a scraper would have seen: every series, one value each 15 virtual seconds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Between two scrapes: Prometheus' own advice, and its default in many places.
pub const SCRAPE_S: u64 = 15;

/// Where metrics go: like an exporter it keeps what it was told last, for ever. Clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Exporter(Arc<Mutex<BTreeMap<String, Cell>>>);

/// A counter's count, or the bits of a gauge's value.
#[derive(Clone, Debug)]
enum Cell {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<AtomicU64>),
}

impl Cell {
    fn value(&self) -> f64 {
        match self {
            Self::Counter(count) => count.load(Ordering::Relaxed) as f64,
            Self::Gauge(bits) => f64::from_bits(bits.load(Ordering::Relaxed)),
        }
    }
}

impl Exporter {
    fn cells(&self) -> MutexGuard<'_, BTreeMap<String, Cell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self, key: &Key, new: fn(Arc<AtomicU64>) -> Cell) -> Arc<AtomicU64> {
        let labels = key.labels().map(|label| (label.key(), label.value()));
        let mut cells = self.cells();
        let cell = cells.entry(notation(key.name(), labels));
        match cell.or_insert_with(|| new(Arc::default())) {
            Cell::Counter(cell) | Cell::Gauge(cell) => Arc::clone(cell),
        }
    }
}

impl Recorder for Exporter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key, Cell::Counter))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key, Cell::Gauge))
    }

    /// The controller emits none.
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// The series of one scenario, by name and labels.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    series: BTreeMap<String, Vec<Option<f64>>>,
    scrapes: usize,
}

impl Recording {
    /// Takes one value of everything.
    pub(super) fn scrape(&mut self, exporter: &Exporter) {
        for (series, cell) in exporter.cells().iter() {
            if !self.series.contains_key(series) {
                let none_yet = vec![None; self.scrapes];
                self.series.insert(series.clone(), none_yet);
            }
            if let Some(values) = self.series.get_mut(series) {
                values.push(Some(cell.value()));
            }
        }
        self.scrapes += 1;
    }

    /// Says that this series was `value` all the time, whatever was recorded.
    pub(super) fn pretend(&mut self, series: &str, value: f64) {
        let values = vec![Some(value); self.scrapes];
        self.series.insert(series.to_owned(), values);
    }

    /// Every series, as `name{label="value"}`.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }

    /// When the last scrape was, seconds.
    #[must_use]
    pub const fn end_s(&self) -> u64 {
        (self.scrapes as u64).saturating_sub(1) * SCRAPE_S
    }

    /// Every series as it would be scraped from `instance`, with its first `scrapes` values in `promtool`'s notation:
    /// numbers with spaces between, `_` for none.
    pub(super) fn in_notation(
        &self,
        instance: &str,
        scrapes: usize,
    ) -> impl Iterator<Item = (String, String)> {
        self.series.iter().map(move |(series, values)| {
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let scraped = format!("{name}{{instance={instance:?},job=\"store\",{labels}");
            let mut text = String::new();
            for value in values.iter().take(scrapes) {
                match value {
                    None => text.push('_'),
                    Some(value) if value.is_infinite() => {
                        text.push_str(if *value > 0.0 { "+Inf" } else { "-Inf" });
                    }
                    Some(value) => {
                        let _ = write!(text, "{value}");
                    }
                }
                text.push(' ');
            }
            (scraped, text.trim_end().to_owned())
        })
    }

    /// How many times everything was scraped.
    pub(super) const fn scrapes(&self) -> usize {
        self.scrapes
    }
}

/// As Prometheus writes a series; labels in order.
fn notation<'a>(name: &str, labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut labels: Vec<_> = labels.collect();
    labels.sort_unstable();
    // Rust's escapes of a string are those of Prometheus, for what a lane, a signal or a cause may be called.
    let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v:?}")).collect();
    if labels.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", labels.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_repeats_what_nobody_emits_and_has_gaps_before_the_first() {
        let exporter = Exporter::default();
        let mut recording = Recording::default();
        metrics::with_local_recorder(&exporter, || {
            recording.scrape(&exporter);
            metrics::counter!("steps", "lane" => "a \"b\"").absolute(7);
            metrics::gauge!("level").set(f64::INFINITY);
            recording.scrape(&exporter);
            recording.scrape(&exporter);
            metrics::counter!("steps", "lane" => "a \"b\"").absolute(9);
            metrics::gauge!("level").set(0.5);
            recording.scrape(&exporter);
        });
        recording.pretend("bound", 3.0);
        let written: Vec<_> = recording.in_notation("a:1", 4).collect();
        let scraped = |name: &str, rest: &str, values: &str| {
            let series = format!("{name}{{instance=\"a:1\",job=\"store\",{rest}}}");
            (series, values.to_owned())
        };
        assert_eq!(
            written,
            [
                scraped("bound", "", "3 3 3 3"),
                scraped("level", "", "_ +Inf +Inf 0.5"),
                scraped("steps", "lane=\"a \\\"b\\\"\"", "_ 7 7 9"),
            ]
        );
        let begin: Vec<_> = recording.in_notation("a:1", 2).collect();
        assert_eq!(begin[2].1, "_ 7");
        assert_eq!(recording.end_s(), 45);
    }
}
