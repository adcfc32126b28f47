//! The table: figures beside the bars they are to meet, as text, Markdown and JSON.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use serde::Serialize;

use super::ours::names;
use super::rounds::Figures;

/// What all figures are divided by.
pub const SEMAPHORE: &str = "tokio Semaphore try_acquire+drop";
/// … and what an owned permit is.
pub const SEMAPHORE_OWNED: &str = "tokio Semaphore try_acquire_owned+drop";
/// A controller that nobody asks anything; its figures are shares of a core.
pub const IDLE: &str = "cinnamon idle controller, of a core";

/// What a bar is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// So many times what this other subject takes.
    Times(&'static str, f64),
    /// So many nanoseconds.
    Ns(f64),
    /// So much of a core.
    Share(f64),
}

/// What a median must not exceed, and what it is to come to one day.
#[derive(Clone, Copy, Debug)]
struct Bar {
    of: &'static str,
    bar: Limit,
    moonshot: Option<Limit>,
}

/// What a refusal may take, and the semaphore beside which that was asked for, ns.
const SHED_NS: f64 = 10.0;
const SEMAPHORE_NS: f64 = 11.0;

/// The bars of the design. The first three are ratios, for they are to hold on any machine; the others are of steps so
/// rare that what matters is their own length.
const BARS: [Bar; 5] = [
    Bar {
        of: names::ADMIT,
        bar: Limit::Times(SEMAPHORE, 4.0),
        moonshot: Some(Limit::Times(SEMAPHORE, 2.5)),
    },
    Bar {
        of: names::OWNED,
        bar: Limit::Times(SEMAPHORE_OWNED, 4.0),
        moonshot: Some(Limit::Times(SEMAPHORE_OWNED, 2.5)),
    },
    // Less than the semaphore's admission: a refusal is to be as good as free. 10 ns were asked for on a machine whose
    // semaphore takes 11. Its moonshot is no time: one load and one add.
    Bar {
        of: names::SHED,
        bar: Limit::Times(SEMAPHORE, SHED_NS / SEMAPHORE_NS),
        moonshot: None,
    },
    // 20 µs at the shortest tick of 5 ms are 0.4 % of a core.
    Bar {
        of: names::TICK,
        bar: Limit::Ns(20_000.0),
        moonshot: Some(Limit::Ns(5_000.0)),
    },
    Bar {
        of: IDLE,
        bar: Limit::Share(0.001),
        moonshot: Some(Limit::Share(0.0002)),
    },
];

/// A line of the JSON file.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    name: &'a str,
    ns_min: f64,
    ns_median: f64,
    ratio_to_semaphore: f64,
}

/// A line of the table.
struct Row {
    name: String,
    least: String,
    median: String,
    ratio_least: String,
    ratio: String,
    bar: String,
    verdict: &'static str,
}

const HEAD: [&str; 7] = [
    "subject",
    "min",
    "median",
    "x semaphore, min",
    "x semaphore, median",
    "bar (moonshot)",
    "verdict",
];

/// Everything measured in one run.
#[derive(Debug)]
pub struct Report {
    figures: Vec<Figures>,
    /// Shares of a core, in place of nanoseconds.
    idle: Vec<Figures>,
    rounds: usize,
}

impl Report {
    /// The figures in the order of the table; `idle` are shares of a core.
    #[must_use]
    pub const fn new(figures: Vec<Figures>, idle: Vec<Figures>, rounds: usize) -> Self {
        Self {
            figures,
            idle,
            rounds,
        }
    }

    /// Whether every bar was met.
    #[must_use]
    pub fn all_met(&self) -> bool {
        let met = |bar: &Bar| self.value(bar, bar.bar).is_some_and(|met| met);
        BARS.iter().all(met)
    }

    /// The table for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let rows = self.cells();
        let widths: Vec<usize> = (0..HEAD.len())
            .map(|column| {
                let width = |row: &[String; 7]| row[column].chars().count();
                rows.iter().map(width).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &rows {
            for (column, cell) in row.iter().enumerate() {
                let gap = " ".repeat(widths[column] - cell.chars().count());
                // Names to the left, figures to the right.
                let _infallible = match column {
                    0 => write!(text, "{cell}{gap}"),
                    _ => write!(text, "  {gap}{cell}"),
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// The same for the book, under the machine it was measured on.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "{}.\n\nMinimum and median of {} interleaved rounds; a figure of two threads is what each of them waits \
             for one operation.\n\n",
            machine(),
            self.rounds
        );
        for (number, row) in self.cells().iter().enumerate() {
            // A type's parameter would be taken for a tag of HTML.
            let row = row.join(" | ").replace('<', "&lt;");
            let _infallible = writeln!(text, "| {row} |");
            if number == 0 {
                text.push_str("|---|--:|--:|--:|--:|--:|---|\n");
            }
        }
        text
    }

    /// Name, least, median and ratio of the medians, one object a subject.
    ///
    /// # Errors
    ///
    /// Never, in practice: plain data can be written.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let semaphore = self.of(SEMAPHORE).map_or(f64::NAN, Figures::median);
        let entries = self.figures.iter().map(|figures| Entry {
            name: &figures.name,
            ns_min: rounded(figures.least()),
            ns_median: rounded(figures.median()),
            ratio_to_semaphore: rounded(figures.median() / semaphore),
        });
        let mut text = serde_json::to_string_pretty(&entries.collect::<Vec<_>>())?;
        text.push('\n');
        Ok(text)
    }

    fn cells(&self) -> Vec<[String; 7]> {
        let head = HEAD.map(str::to_owned);
        let rows = self.rows().into_iter().map(|row| {
            [
                row.name,
                row.least,
                row.median,
                row.ratio_least,
                row.ratio,
                row.bar,
                row.verdict.to_owned(),
            ]
        });
        std::iter::once(head).chain(rows).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let semaphore = self.of(SEMAPHORE);
        let ratio = |of: f64, by: Option<f64>| match by.map(|by| of / by) {
            Some(nothing) if nothing.is_nan() => String::new(),
            Some(little) if little < 1.0 => format!("{little:.2}"),
            Some(ratio) => format!("{ratio:.1}"),
            None => String::new(),
        };
        let timed = self.figures.iter().map(|figures| Row {
            least: time(figures.least()),
            median: time(figures.median()),
            ratio_least: ratio(figures.least(), semaphore.map(Figures::least)),
            ratio: ratio(figures.median(), semaphore.map(Figures::median)),
            ..self.row(&figures.name)
        });
        let idle = self.idle.iter().map(|figures| Row {
            least: share(figures.least()),
            median: share(figures.median()),
            ..self.row(&figures.name)
        });
        timed.chain(idle).collect()
    }

    /// The row of this name without its figures.
    fn row(&self, name: &str) -> Row {
        let bar = BARS.iter().find(|bar| bar.of == name);
        let verdict = bar.map_or("", |bar| {
            let within = |limit| self.value(bar, limit).unwrap_or(false);
            match (bar.moonshot.is_some_and(within), within(bar.bar)) {
                (true, _) => "met, moonshot too",
                (_, true) => "met",
                _ => "MISSED",
            }
        });
        Row {
            name: name.to_owned(),
            least: String::new(),
            median: String::new(),
            ratio_least: String::new(),
            ratio: String::new(),
            bar: bar.map_or(String::new(), |bar| self.bar(bar)),
            verdict,
        }
    }

    /// Whether the median is within this limit; `None` when something was not measured.
    fn value(&self, bar: &Bar, limit: Limit) -> Option<bool> {
        match limit {
            Limit::Times(base, most) => {
                Some(self.of(bar.of)?.median() <= most * self.of(base)?.median())
            }
            Limit::Ns(most) => Some(self.of(bar.of)?.median() <= most),
            Limit::Share(most) => Some(self.of(bar.of)?.median() <= most),
        }
    }

    /// A bar in words, with what its limits come to on this machine.
    fn bar(&self, bar: &Bar) -> String {
        let words = |limit| match limit {
            Limit::Times(base, most) => {
                let owned = if base == SEMAPHORE_OWNED {
                    " owned"
                } else {
                    ""
                };
                let ns = self.of(base).map_or(f64::NAN, |base| most * base.median());
                format!("{}x{owned} = {}", (100.0 * most).round() / 100.0, time(ns))
            }
            Limit::Ns(most) => time(most),
            Limit::Share(most) => share(most),
        };
        let moonshot = bar.moonshot.map(words);
        let moonshot = moonshot.map_or(String::new(), |limit| format!(" ({limit})"));
        format!("{}{moonshot}", words(bar.bar))
    }

    fn of(&self, name: &str) -> Option<&Figures> {
        let mut all = self.figures.iter().chain(&self.idle);
        all.find(|figures| figures.name == name)
    }
}

/// A time with three digits that mean something.
fn time(ns: f64) -> String {
    match ns {
        _ if ns.is_nan() => "none".to_owned(),
        _ if ns < 100.0 => format!("{ns:.1} ns"),
        _ if ns < 10_000.0 => format!("{ns:.0} ns"),
        _ => format!("{:.1} µs", ns / 1e3),
    }
}

fn share(of_a_core: f64) -> String {
    format!("{:.3} %", of_a_core * 100.0)
}

/// Two decimals are more than any run repeats.
fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

/// The processor, how many of it, and the compiler.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    };
    let model = cpuinfo.lines().find_map(named);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    // Without the date of the compiler: its number says all.
    let version = rustc
        .as_deref()
        .ok()
        .and_then(|said| said.split(" (").next());
    format!(
        "{}, {cores} cores, {}",
        model.as_deref().unwrap_or(std::env::consts::ARCH),
        version
            .filter(|said| !said.is_empty())
            .unwrap_or("rustc of an unknown version"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(name: &str, ns: &[f64]) -> Figures {
        Figures {
            name: name.to_owned(),
            ns: ns.to_vec(),
        }
    }

    fn report(admit_ns: f64, idle: f64) -> Report {
        let measured = vec![
            figures(names::ADMIT, &[admit_ns, admit_ns, admit_ns]),
            figures(names::OWNED, &[100.0, 120.0, 300.0]),
            figures(names::SHED, &[6.0, 10.0, 11.0]),
            figures(names::TICK, &[3_000.0, 4_000.0, 90_000.0]),
            figures(SEMAPHORE, &[10.0, 20.0, 30.0]),
            figures(SEMAPHORE_OWNED, &[15.0, 25.0, 35.0]),
            figures("other<Kind>", &[50.0, 50.0, 50.0]),
        ];
        Report::new(measured, vec![figures(IDLE, &[idle])], 3)
    }

    #[test]
    fn bars_are_judged_by_medians_of_the_same_run() {
        let verdict = |report: &Report, name: &str| {
            let row = report.rows().into_iter().find(|row| row.name == name);
            row.unwrap().verdict
        };
        let good = report(80.0, 0.0005);
        assert_eq!(verdict(&good, names::ADMIT), "met");
        assert_eq!(verdict(&good, names::OWNED), "MISSED");
        assert_eq!(verdict(&good, names::SHED), "met");
        assert_eq!(verdict(&good, names::TICK), "met, moonshot too");
        assert_eq!(verdict(&good, IDLE), "met");
        assert!(!good.all_met());
        assert_eq!(verdict(&report(81.0, 0.002), names::ADMIT), "MISSED");
        assert_eq!(verdict(&report(50.0, 0.002), IDLE), "MISSED");
        // Beside a semaphore of 20 ns a refusal may take 18.
        let shed = |ns| {
            let measured = vec![
                figures(names::SHED, &[ns]),
                figures(SEMAPHORE, &[10.0, 20.0, 30.0]),
            ];
            verdict(&Report::new(measured, Vec::new(), 1), names::SHED)
        };
        assert_eq!((shed(18.0), shed(18.5)), ("met", "MISSED"));
    }

    #[test]
    fn what_was_not_measured_meets_no_bar() {
        let nothing = Report::new(Vec::new(), Vec::new(), 0);
        assert!(!nothing.all_met());
    }

    #[test]
    fn the_json_file_is_a_list_of_names_times_and_ratios() {
        let json = report(80.0, 0.0).json().unwrap();
        let list: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 7);
        assert_eq!(list[1]["name"], "cinnamon admit+finish owned");
        assert_eq!(list[1]["ns_min"], 100.0);
        assert_eq!(list[1]["ns_median"], 120.0);
        assert_eq!(list[1]["ratio_to_semaphore"], 6.0);
        assert_eq!(list[1].as_object().unwrap().len(), 4);
    }

    #[test]
    fn the_table_has_a_line_for_each_subject_and_the_idle_controller() {
        let report = report(80.0, 0.0005);
        assert_eq!(report.text().lines().count(), 1 + 7 + 1);
        let markdown = report.markdown();
        assert!(
            markdown.contains("| other&lt;Kind> | 50.0 ns |"),
            "{markdown}"
        );
        assert!(
            markdown.contains("| cinnamon idle controller, of a core | 0.050 % |"),
            "{markdown}"
        );
        assert!(
            markdown.contains("| 4.0 | 4x = 80.0 ns (2.5x = 50.0 ns) | met |"),
            "{markdown}"
        );
    }
}
