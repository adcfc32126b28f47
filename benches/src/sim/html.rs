//! The report: one page that shows who each arm drops, and whether the bars held.
//!
//! It stands alone: no script, and nothing to fetch.

mod arm;
mod charts;
mod colour;
mod plot;
mod series;
mod style;
mod tables;
mod text;

use std::fmt::Write as _;

use self::series::Scales;
use self::text::escape;
use super::outcome::{Chart, Row};

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HtmlError {
    /// A chart could not be drawn. Leave this chart out.
    #[error("cannot draw the chart of {arm} in {scenario}: {cause}; leave it out of the report")]
    Draw {
        /// The scenario's name.
        scenario: String,
        /// The arm's name.
        arm: &'static str,
        /// What plotters says.
        cause: String,
    },
}

/// The page: verdicts, then the arms side by side for each scenario and service, then every judged
/// figure.
///
/// Groups and arms stand in the order in which `charts` first names them.
///
/// # Errors
///
/// A chart cannot be drawn.
pub fn render(
    title: &str,
    command: &str,
    seeds_note: &str,
    rows: &[Row],
    charts: &[Chart],
) -> Result<String, HtmlError> {
    let groups = groups(charts);
    let mut out = String::new();
    let title = escape(title);
    let _ = write!(
        out,
        "<!doctype html><html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{}</style></head><body><header><h1>{title}</h1>\
         <p><code>{}</code></p><p class=note>{}</p></header><main>",
        style::CSS,
        escape(command),
        escape(seeds_note)
    );
    tables::summary(&mut out, rows);
    tables::who_fails_what(&mut out, rows);
    contents(&mut out, rows, &groups);
    for (i, group) in groups.iter().enumerate() {
        scenario(&mut out, i, rows, group)?;
    }
    tables::all_judged(&mut out, rows);
    out.push_str("</main></body></html>\n");
    Ok(out)
}

/// The charts of one scenario at one service.
type Group<'a> = Vec<&'a Chart>;

/// In order of first appearance.
fn groups(charts: &[Chart]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for chart in charts {
        let same = |group: &&mut Group<'_>| {
            group.first().is_some_and(|first| {
                (&first.scenario, first.service) == (&chart.scenario, chart.service)
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(chart),
            None => groups.push(vec![chart]),
        }
    }
    groups
}

/// Where to find each group; red where the product missed a bar.
fn contents(out: &mut String, rows: &[Row], groups: &[Group<'_>]) {
    if groups.is_empty() {
        out.push_str("<p class=note>No charts were kept.</p>");
        return;
    }
    out.push_str("<nav aria-label=Scenarios>");
    for (i, chart) in groups.iter().filter_map(|group| group.first()).enumerate() {
        let (_, missed) = product_bars(rows, chart);
        let class = if missed > 0 { " class=bad" } else { "" };
        let _ = write!(
            out,
            "<a href=\"#g{i}\"{class}>{} · {}</a> ",
            escape(&chart.scenario),
            escape(chart.service)
        );
    }
    out.push_str("</nav>");
}

fn scenario(out: &mut String, i: usize, rows: &[Row], group: &Group<'_>) -> Result<(), HtmlError> {
    let Some(first) = group.first() else {
        return Ok(());
    };
    let _ = write!(
        out,
        "<section class=scenario id=g{i}><h2>{} · {}</h2><p>{}</p>",
        escape(&first.scenario),
        escape(first.service),
        escape(&first.about)
    );
    let (judged, missed) = product_bars(rows, first);
    if judged > 0 {
        let class = if missed == 0 { "good" } else { "bad" };
        let _ = write!(
            out,
            "<p class={class}>{} holds {} of {judged} bars here.</p>",
            tables::PRODUCT,
            judged - missed
        );
    }
    out.push_str("<div class=arms>");
    let scales = Scales::of(group);
    for chart in group {
        arm::column(out, chart, &scales)?;
    }
    out.push_str("</div></section>");
    Ok(())
}

/// Bars that the product was held to in the chart's scenario at its service, and how many it missed.
fn product_bars(rows: &[Row], chart: &Chart) -> (usize, usize) {
    let here = |row: &&Row| {
        row.arm == tables::PRODUCT && row.scenario == chart.scenario && row.service == chart.service
    };
    let verdicts = || rows.iter().filter(here).filter_map(|row| row.pass);
    (verdicts().count(), verdicts().filter(|held| !held).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnamon_core::{CodelState, TIERS};

    use crate::sim::outcome::Bin;

    /// Two phases of 20 s: calm, then twice what the store can do.
    pub(super) fn chart(arm: &'static str) -> Chart {
        let bins = (0..40).map(|i| {
            let busy = i >= 20;
            Bin {
                pressure: [1.0, 0.0],
                offered: [20, 280, 200, 200, 150, 150].map(|n| if busy { 2 * n } else { n }),
                good: [20, 280, 200, 200, 100, 0].map(|n| if busy { n } else { n / 2 }),
                oracle: 700,
                speed: 1.0,
                wait_s: [0.001, 0.02],
                threshold: if busy { [300.0, 320.0] } else { [768.0; 2] },
                limit: [20; 3],
                backlog_s: [0.004, 0.008],
                codel: if busy {
                    CodelState::Standing
                } else {
                    CodelState::Calm
                },
                newest_first: busy,
                binding: if busy { "backlog" } else { "nothing" },
            }
        });
        Chart {
            scenario: "step <12x>".to_owned(),
            about: "Load & more load.".to_owned(),
            service: "1000rps",
            arm,
            phases: vec![
                ("calm".to_owned(), 0.0, 20.0),
                ("<double>".to_owned(), 20.0, 40.0),
            ],
            bins: bins.collect(),
            bin_s: 1.0,
            capacity_per_s: 1000.0,
            tiers: vec![
                [(100, 100); TIERS],
                [(100, 50), (100, 0), (0, 0), (3, 3), (9, 1), (7, 7)],
            ],
            oracle: vec![[100; TIERS]; 2],
            verdicts: vec![("admit", 28_000), ("shed", 12_345)],
            plants: vec!["follower".to_owned()],
        }
    }

    fn row(arm: &'static str, bar: &'static str, value: f64, pass: Option<bool>) -> Row {
        Row {
            scenario: "step <12x>".to_owned(),
            service: "1000rps",
            arm,
            phase: "<double>".to_owned(),
            bar,
            value,
            bound: pass.map(|_| 0.99),
            pass,
            seeds: 20,
            min: value,
            median: value,
            max: value,
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            row("cinnamon", "goodput", 0.995, Some(true)),
            row("cinnamon", "t0_success", 0.9896, Some(false)),
            row("cinnamon", "only_reported", 3.0, None),
            row("nothing", "goodput", 0.1, Some(false)),
            row("nothing", "t0_success", 0.2, Some(false)),
        ]
    }

    fn page(rows: &[Row], charts: &[Chart]) -> String {
        render(
            "Lab <1>",
            "lab sim --json 'x'",
            "20 seeds & one drawn",
            rows,
            charts,
        )
        .unwrap()
    }

    #[test]
    fn html_has_every_section() {
        let mut open = chart("nothing");
        for bin in &mut open.bins {
            bin.threshold = [768.0; 2];
        }
        let page = page(&rows(), &[chart("cinnamon"), open]);
        for part in [
            "<h1>Lab &lt;1&gt;</h1>",
            "lab sim --json &#39;x&#39;",
            "20 seeds &amp; one drawn",
            "<b>1</b>bar held",
            "<b>1</b>bar missed",
            "Who fails what",
            "2 of 2",
            "step &lt;12x&gt; · 1000rps",
            "Load &amp; more load.",
            "cinnamon holds 1 of 2 bars here.",
            "<b>Who it drops</b>: share answered in time",
            "<b>Load and goodput</b>",
            "<b>Threshold</b>",
            "No threshold: the gate stayed open to every tier.",
            "<b>Success per tier</b>",
            "<b>Pressure</b>",
            "<b>Wait in the queue</b>",
            "<b>shed</b> 12,345 (31\u{202f}%)",
            "<b>backlog</b> 50\u{202f}%",
            "<details>",
            "All 4 judged figures",
        ] {
            assert!(page.contains(part), "missing: {part}");
        }
        // Five pictures for cinnamon, four for the arm without a threshold.
        assert_eq!(9, page.matches("<svg ").count());
        assert!(!page.contains("only_reported"));
    }

    #[test]
    fn html_stands_alone_and_escapes_names() {
        let page = page(&rows(), &[chart("cinnamon")]);
        let without_namespace = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for foreign in [
            "http", "<script", "<link", "@import", "url(", "src=", "<12x>", "<double>",
        ] {
            assert!(!without_namespace.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn html_survives_empty_input() {
        let nothing = page(&[], &[]);
        assert!(nothing.contains("No bar was judged for cinnamon"));
        assert!(nothing.ends_with("</html>\n"));
        let mut empty = chart("cinnamon");
        empty.bins.clear();
        assert!(page(&[], &[empty.clone()]).contains("Nothing was recorded"));
        empty.phases.clear();
        empty.tiers.clear();
        empty.oracle.clear();
        empty.verdicts.clear();
        assert!(page(&[], &[empty]).ends_with("</html>\n"));
    }

    #[test]
    fn html_draws_one_bin() {
        let mut one = chart("cinnamon");
        one.bins = vec![one.bins[39].clone()];
        one.phases.truncate(1);
        assert_eq!(5, page(&[], &[one]).matches("<svg ").count());
    }

    #[test]
    fn html_draws_the_slots_where_they_change() {
        let mut moves = chart("cinnamon");
        moves.bins[0].limit = [0; 3];
        assert!(!page(&[], &[moves.clone()]).contains("Slots"));
        moves.bins[7].limit = [20, 20, 80];
        let page = page(&[], &[moves]);
        assert_eq!(6, page.matches("<svg ").count());
        assert!(page.contains("Slots over time"));
    }

    #[test]
    fn html_shows_no_number_that_is_none() {
        let mut odd = chart("cinnamon");
        odd.capacity_per_s = 0.0;
        odd.bins[3].speed = f64::NAN;
        odd.bins[4].wait_s = [f64::INFINITY, f64::NAN];
        odd.bins[5].threshold = [f64::NAN; 2];
        odd.bins[6].backlog_s = [0.0, f64::NEG_INFINITY];
        let rows = [
            row("cinnamon", "goodput", f64::NAN, Some(false)),
            row("nothing", "goodput", f64::INFINITY, Some(true)),
        ];
        let page = page(&rows, &[odd.clone()]);
        odd.bin_s = f64::NAN;
        let page = page + &super::tests::page(&rows, &[odd]);
        for none in ["NaN", "inf<", "-2147483648", "2147483647"] {
            assert!(!page.contains(none), "{none}");
        }
    }
}
