//! The verdicts of a lane, a row a tier.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::top::draw::figures::{amount, count};
use crate::top::view::{LaneView, TierView};

/// A verdict's column: its title, its width, its colour when there is any of it.
struct Column {
    title: &'static str,
    width: usize,
    color: Color,
}

const fn column(title: &'static str, width: usize, color: Color) -> Column {
    Column {
        title,
        width,
        color,
    }
}

const COLUMNS: [Column; 9] = [
    column("admit", 8, Color::Green),
    column("shed", 8, Color::Yellow),
    column("busy", 7, Color::Yellow),
    column("evict", 7, Color::Red),
    column("expire", 7, Color::Red),
    column("hopeless", 9, Color::Magenta),
    column("cancel", 7, Color::Magenta),
    column("capped", 7, Color::Yellow),
    column("close", 6, Color::Red),
];

/// A header, the tiers, and their sums.
pub(super) fn verdicts(lane: &LaneView) -> Vec<Line<'static>> {
    let underlined = Style::new().add_modifier(Modifier::UNDERLINED);
    let mut header = format!("{:<6}{:>8}", "per s", "waiting");
    for column in &COLUMNS {
        header.push_str(&format!("{:>1$}", column.title, column.width));
    }
    let known = lane.offered_per_s.is_some();
    let mut lines = vec![Line::styled(header, underlined)];
    for tier in &lane.tiers {
        let of = |column: &Column| known.then(|| per_s(tier, column.title));
        lines.push(row(&tier.tier, tier.waiting, of));
    }
    let sum = |column: &Column| {
        let all = lane.tiers.iter().map(|tier| per_s(tier, column.title));
        known.then(|| all.sum())
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    lines.push(row("all", lane.waiting(), sum).patch_style(bold));
    lines
}

/// To admit has kinds, which run alike.
fn per_s(tier: &TierView, verdict: &str) -> f64 {
    if verdict == "admit" {
        return tier.admitted_per_s();
    }
    tier.verdicts_per_s.get(verdict).copied().unwrap_or(0.0)
}

fn row(name: &str, waiting: Option<f64>, of: impl Fn(&Column) -> Option<f64>) -> Line<'static> {
    let waits = match waiting {
        Some(0.0) => ".".to_owned(),
        other => count(other),
    };
    let mut spans = vec![Span::raw(format!("{name:<6}{waits:>8}"))];
    for column in &COLUMNS {
        let value = of(column);
        let text = format!("{:>1$}", amount(value), column.width);
        let any = value.is_some_and(|value| value > 0.0);
        let style = if any {
            Style::new().fg(column.color)
        } else {
            Style::new()
        };
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}
