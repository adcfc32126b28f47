//! The text form of Prometheus, as far as it concerns us: samples whose names begin with `cinnamon_`.
//!
//! The parser that there is as a crate takes dates, regular expressions and iterators along for a form of one line,
//! and sorts samples into kinds that are not asked for here.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use cinnamon_core::export::METRICS;

/// What the names of our metrics begin with. A process may export thousands of others.
const PREFIX: &str = "cinnamon_";
/// The label that tells the controllers of a process apart, and what it says if it is not there.
const CONTROLLER: &str = "controller";
const UNNAMED: &str = "default";

/// One sample: its labels without that of the controller, and its value.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
}

/// What one controller exported at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    samples: BTreeMap<String, Vec<Sample>>,
}

/// A line is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no sample in the text form of Prometheus: {what}")]
pub struct TextError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// What every controller exported, by its name.
///
/// # Errors
///
/// When a line that begins with one of our names is not of the form. Others are passed by.
pub fn parse(text: &str) -> Result<BTreeMap<String, Scrape>, TextError> {
    let mut samples = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if !line.starts_with(PREFIX) {
            continue;
        }
        let line_of = |what| TextError {
            line: number + 1,
            what,
        };
        samples.push(sample(line).map_err(line_of)?);
    }
    let added = added(&samples);
    let mut controllers: BTreeMap<String, Scrape> = BTreeMap::new();
    for (name, mut sample) in samples {
        let mut controller = sample.remove(CONTROLLER).unwrap_or(UNNAMED.to_owned());
        for (key, differs) in &added {
            if let (Some(value), true) = (sample.remove(key), *differs) {
                controller.push_str(&format!(" {key}={value}"));
            }
        }
        let scrape = controllers.entry(controller).or_default();
        scrape.samples.entry(name).or_default().push(sample);
    }
    Ok(controllers)
}

/// The labels that whoever exports adds to all samples, such as the node's name, and whether they say different
/// things: then the page is one of several processes.
fn added(samples: &[(String, Sample)]) -> Vec<(String, bool)> {
    let is_ours =
        |key: &str| key == CONTROLLER || METRICS.iter().any(|of| of.labels.contains(&key));
    let mut all = samples.iter().map(|(_, sample)| sample);
    let Some(first) = all.next() else {
        return Vec::new();
    };
    let added = first.labels.iter().filter(|(key, _)| !is_ours(key));
    let differs = |(key, value): &(String, String)| {
        let says = samples.iter().map(|(_, sample)| sample.label(key));
        let says: Option<Vec<&str>> = says.collect();
        Some((key.clone(), says?.iter().any(|says| says != value)))
    };
    added.filter_map(differs).collect()
}

impl Scrape {
    /// The value of the sample with these labels, and no others.
    #[must_use]
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let samples = self.samples.get(name)?.iter();
        let mut same = samples.filter(|sample| sample.is(labels, labels.len()));
        same.next().map(|sample| sample.value)
    }

    /// For the samples with these labels and one more, `key`: what that says, and the value.
    pub fn by<'a>(
        &'a self,
        name: &str,
        labels: &'a [(&str, &str)],
        key: &'a str,
    ) -> impl Iterator<Item = (&'a str, f64)> {
        let samples = self.samples.get(name).into_iter().flatten();
        let same = samples.filter(|sample| sample.is(labels, labels.len() + 1));
        same.filter_map(move |sample| Some((sample.label(key)?, sample.value)))
    }

    /// Of the samples with these labels and `key`: what the one says that is not 0.
    #[must_use]
    pub fn state(&self, name: &str, labels: &[(&str, &str)], key: &str) -> Option<String> {
        let mut on = self.by(name, labels, key).filter(|(_, value)| *value > 0.0);
        on.next().map(|(state, _)| state.to_owned())
    }

    /// For all samples of a metric: what two labels say, and the value.
    pub fn pairs<'a>(
        &'a self,
        name: &str,
        keys: [&'a str; 2],
    ) -> impl Iterator<Item = (&'a str, &'a str, f64)> {
        let samples = self.samples.get(name).into_iter().flatten();
        samples.filter_map(move |sample| {
            let [first, second] = keys.map(|key| sample.label(key));
            Some((first?, second?, sample.value))
        })
    }

    /// Everything that a label of a metric says, sorted, each once.
    #[must_use]
    pub fn names(&self, name: &str, key: &str) -> Vec<String> {
        let samples = self.samples.get(name).into_iter().flatten();
        let names = samples.filter_map(|sample| sample.label(key));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Sample {
    fn label(&self, key: &str) -> Option<&str> {
        let mut labels = self.labels.iter().filter(|(known, _)| known == key);
        labels.next().map(|(_, value)| value.as_str())
    }

    fn remove(&mut self, key: &str) -> Option<String> {
        let at = self.labels.iter().position(|(known, _)| known == key)?;
        Some(self.labels.remove(at).1)
    }

    fn is(&self, labels: &[(&str, &str)], count: usize) -> bool {
        let has = |(key, value): &(&str, &str)| self.label(key) == Some(*value);
        self.labels.len() == count && labels.iter().all(has)
    }
}

/// `name{label="value",…} value timestamp`; labels and timestamp may be missing.
fn sample(line: &str) -> Result<(String, Sample), &'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = line.find(|c: char| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let mut chars = rest.trim_start().chars().peekable();
    let labels = if chars.next_if_eq(&'{').is_some() {
        labels(&mut chars)?
    } else {
        Vec::new()
    };
    let rest: String = chars.collect();
    // What may follow is a timestamp, or an exemplar.
    let value = rest.split_whitespace().next().ok_or("it has no value")?;
    let value = value.parse().map_err(|_| "its value is not a number")?;
    Ok((name.to_owned(), Sample { labels, value }))
}

fn labels(chars: &mut Peekable<Chars<'_>>) -> Result<Vec<(String, String)>, &'static str> {
    const OPEN: &str = "its labels do not end";
    let skip_blanks = |chars: &mut Peekable<Chars<'_>>| {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
    };
    let mut labels = Vec::new();
    loop {
        skip_blanks(chars);
        if chars.next_if_eq(&'}').is_some() {
            return Ok(labels);
        }
        let mut key = String::new();
        while let Some(c) = chars.next_if(|&c| c.is_ascii_alphanumeric() || c == '_') {
            key.push(c);
        }
        skip_blanks(chars);
        if key.is_empty() || chars.next_if_eq(&'=').is_none() {
            return Err(if chars.peek().is_none() {
                OPEN
            } else {
                "a label has no name"
            });
        }
        skip_blanks(chars);
        if chars.next_if_eq(&'"').is_none() {
            return Err("a label has no value in quotes");
        }
        labels.push((key, quoted(chars).ok_or(OPEN)?));
        skip_blanks(chars);
        if chars.next_if_eq(&',').is_none() && chars.peek() != Some(&'}') {
            return Err("after a label comes neither a comma nor a brace");
        }
    }
}

/// Up to the closing quote, which is taken too.
fn quoted(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut value = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                c @ ('\\' | '"') => value.push(c),
                other => value.extend(['\\', other]),
            },
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Scrape {
        let mut all = parse(text).unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        all.pop_first().unwrap().1
    }

    #[test]
    fn samples_are_read_with_and_without_labels_and_the_rest_is_passed_by() {
        let scrape = one("# HELP cinnamon_limit slots of the lane (slots)\n\
             # TYPE cinnamon_limit gauge\n\
             cinnamon_limit{controller=\"a\",lane=\"read\"} 20\n\
             \n\
             other_metric{lane=\"read\"} what is this\n\
             \u{20} cinnamon_ticks_total{controller=\"a\"} 17 1712345678901\n\
             cinnamon_in_use { controller = \"a\" , lane = \"read\" , kind = \"slot\" , }\t3e0 # {trace=\"x\"} 1\n\
             # EOF");
        assert_eq!(
            scrape.get("cinnamon_limit", &[("lane", "read")]),
            Some(20.0)
        );
        assert_eq!(scrape.get("cinnamon_limit", &[("lane", "write")]), None);
        assert_eq!(scrape.get("cinnamon_ticks_total", &[]), Some(17.0));
        let kinds: Vec<_> = scrape
            .by("cinnamon_in_use", &[("lane", "read")], "kind")
            .collect();
        assert_eq!(kinds, [("slot", 3.0)]);
        assert_eq!(scrape.get("other_metric", &[("lane", "read")]), None);
    }

    #[test]
    fn escapes_in_labels_are_undone() {
        let scrape = one(r#"cinnamon_limit{lane="a \"b\" \\ c, d} \n e \x"} 1"#);
        let names = scrape.names("cinnamon_limit", "lane");
        assert_eq!(names, ["a \"b\" \\ c, d} \n e \\x"]);
    }

    #[test]
    fn values_that_are_no_finite_numbers_are_read() {
        let scrape = one(
            "cinnamon_a NaN\ncinnamon_b +Inf\ncinnamon_c -Inf\ncinnamon_d 1e-9\ncinnamon_e -0.5",
        );
        assert!(scrape.get("cinnamon_a", &[]).unwrap().is_nan());
        assert_eq!(scrape.get("cinnamon_b", &[]), Some(f64::INFINITY));
        assert_eq!(scrape.get("cinnamon_c", &[]), Some(f64::NEG_INFINITY));
        assert_eq!(scrape.get("cinnamon_d", &[]), Some(1e-9));
        assert_eq!(scrape.get("cinnamon_e", &[]), Some(-0.5));
    }

    #[test]
    fn controllers_are_told_apart_and_one_without_a_name_has_the_default_name() {
        let all = parse("cinnamon_failed{controller=\"b\"} 1\ncinnamon_failed 0").unwrap();
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["b", "default"]);
        assert_eq!(all["b"].get("cinnamon_failed", &[]), Some(1.0));
        assert_eq!(all["default"].get("cinnamon_failed", &[]), Some(0.0));
        assert_eq!(parse("<html>").unwrap(), BTreeMap::new());
    }

    #[test]
    fn labels_that_an_exporter_adds_are_passed_by_and_tell_processes_apart() {
        let page = |nodes: [&str; 2]| {
            let of = |node: &str| {
                format!(
                    "cinnamon_failed{{node=\"{node}\",controller=\"a\"}} 1\n\
                     cinnamon_limit{{node=\"{node}\",controller=\"a\",lane=\"read\",zone=\"z\"}} 4\n"
                )
            };
            parse(&nodes.map(of).concat()).unwrap()
        };
        let one = page(["n1", "n1"]);
        assert_eq!(one["a"].get("cinnamon_failed", &[]), Some(1.0));
        // Which is not on all of them is of a metric, and not known here.
        let zone = [("lane", "read"), ("zone", "z")];
        assert_eq!(one["a"].get("cinnamon_limit", &zone), Some(4.0));
        let names: Vec<String> = page(["n1", "n2"]).into_keys().collect();
        assert_eq!(names, ["a node=n1", "a node=n2"]);
        // A label of ours is none that was added, be it on all samples.
        let lane = parse("cinnamon_limit{lane=\"read\"} 4").unwrap();
        assert_eq!(
            lane["default"].get("cinnamon_limit", &[("lane", "read")]),
            Some(4.0)
        );
    }

    #[test]
    fn a_line_that_is_no_sample_is_named() {
        for (line, what) in [
            ("cinnamon_a", "it has no value"),
            ("cinnamon_a{x=\"1\"}", "it has no value"),
            ("cinnamon_a two", "its value is not a number"),
            (
                "cinnamon_a{x=\"1\" 1",
                "after a label comes neither a comma nor a brace",
            ),
            ("cinnamon_a{x=\"1", "its labels do not end"),
            ("cinnamon_a{x", "its labels do not end"),
            ("cinnamon_a{=\"1\"} 1", "a label has no name"),
            ("cinnamon_a{x=1} 1", "a label has no value in quotes"),
            ("cinnamon_a-b 1", "its value is not a number"),
        ] {
            let error = parse(&format!("cinnamon_b 1\n{line}\n")).unwrap_err();
            assert_eq!(error, TextError { line: 2, what }, "{line}");
        }
    }

    #[test]
    fn the_state_is_the_one_that_is_not_zero() {
        let scrape = one("cinnamon_mode{mode=\"off\"} 0\ncinnamon_mode{mode=\"enforce\"} 1");
        assert_eq!(
            scrape.state("cinnamon_mode", &[], "mode").as_deref(),
            Some("enforce")
        );
        assert_eq!(scrape.state("cinnamon_health", &[], "state"), None);
    }
}
