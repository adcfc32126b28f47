//! Keys are made once: an emission names the same metrics with the same labels in the same order as the one before it.

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, with_recorder};

use super::{METRICS, MetricKind};

/// What a recorder may filter by.
pub(super) static METADATA: Metadata<'static> =
    Metadata::new("cinnamon_core", Level::INFO, Some("cinnamon_core"));

/// The label that all metrics have.
const CONTROLLER: &str = "controller";

/// The keys of the last emission, in its order. Where one names something else they are made anew; made each time, the 600
/// keys of two lanes and eight signals took two thirds of an emission.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: Vec<Key>,
    at: usize,
    /// Where the recorder lies that was told what the metrics are; 0 before there was one.
    described: usize,
}

impl Keys {
    /// A new emission begins.
    pub(super) fn begin(&mut self) {
        self.at = 0;
        // One that was installed late wants to know it, too; told each second, the exporter for Prometheus has something to
        // publish at each scrape.
        with_recorder(|recorder| {
            let address = std::ptr::from_ref(recorder).addr();
            if address != self.described {
                self.described = address;
                describe(recorder);
            }
        });
    }

    /// The key of what is emitted next.
    pub(super) fn next(
        &mut self,
        metric: &'static str,
        controller: &str,
        labels: &[(&'static str, &str)],
    ) -> &Key {
        let at = self.at;
        self.at += 1;
        match self.keys.get(at) {
            Some(key) if is(key, metric, controller, labels) => {}
            Some(_) => self.keys[at] = key(metric, controller, labels),
            None => self.keys.push(key(metric, controller, labels)),
        }
        &self.keys[at]
    }
}

fn is(key: &Key, metric: &str, controller: &str, labels: &[(&str, &str)]) -> bool {
    let all = [(CONTROLLER, controller)].into_iter();
    let all = all.chain(labels.iter().copied());
    key.name() == metric
        && key
            .labels()
            .map(|label| (label.key(), label.value()))
            .eq(all)
}

fn key(metric: &'static str, controller: &str, labels: &[(&'static str, &str)]) -> Key {
    let all = [(CONTROLLER, controller)].into_iter();
    let all = all.chain(labels.iter().copied());
    let shared = |text: &str| SharedString::from_shared(text.into());
    let labels: Vec<Label> = all
        .map(|(key, value)| Label::new(key, shared(value)))
        .collect();
    Key::from_parts(metric, labels)
}

fn describe(recorder: &dyn Recorder) {
    for metric in METRICS {
        let name = KeyName::from_const_str(metric.name);
        let about = format!("{} ({})", metric.about, metric.unit).into();
        match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, None, about),
            MetricKind::Gauge => recorder.describe_gauge(name, None, about),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(key: &Key) -> String {
        let labels = key.labels().map(|label| format!("{label:?}"));
        format!("{} {:?}", key.name(), labels.collect::<Vec<_>>())
    }

    #[test]
    fn what_stands_elsewhere_is_made_anew() {
        let mut keys = Keys::default();
        let named: [&[(&str, &str, &str)]; 3] = [
            &[("a", "lane", "read"), ("b", "tier", "t0")],
            &[
                ("c", "lane", "read"),
                ("a", "lane", "read"),
                ("b", "tier", "t1"),
            ],
            &[("a", "lane", "read")],
        ];
        for emission in named {
            keys.begin();
            for &(metric, label, value) in emission {
                let labels = [(label, value)];
                let made = text(&key(metric, "store", &labels));
                assert_eq!(text(keys.next(metric, "store", &labels)), made);
            }
        }
        // Another controller, or one label more, is another key.
        let known = key("a", "store", &[("lane", "read")]);
        assert!(is(&known, "a", "store", &[("lane", "read")]));
        assert!(!is(&known, "a", "other", &[("lane", "read")]));
        assert!(!is(&known, "a", "store", &[]));
        assert!(!is(
            &known,
            "a",
            "store",
            &[("lane", "read"), ("tier", "t0")]
        ));
    }
}
