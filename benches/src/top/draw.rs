//! The frame, line by line: a pure function of what was seen, what was chosen, and the time.
//!
//! Nothing is said by colour alone.

mod bars;
mod figures;
mod parts;
#[cfg(test)]
mod tests;

use cinnamon_core::Instant;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::model::{Model, Track};
use super::view::LaneView;

/// What there should be room for.
pub const WIDTH: u16 = 80;

/// What of it all is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// This controller; or else the first that lives.
    pub controller: Option<String>,
    /// This lane; or else the first.
    pub lane: Option<String>,
    /// The frame stands still.
    pub paused: bool,
    /// The keys are explained.
    pub help: bool,
    /// Nothing but ASCII is written.
    pub ascii: bool,
}

const HELP: &[&str] = &[
    "q  quit              l  next lane          c  next controller of the process",
    "p  pause, go on      ?  this page, and back",
    "",
    "threshold  the first priority that is not admitted; t0 is the most important.",
    "           In the bar # is admitted, . is refused.",
    "held by    what holds it there: the backlog of a lane, a signal, an override.",
    "W          the backlog in seconds of work, and its target.",
    "slots      what runs, of the limit (what the limit moves between, if it does);",
    "           exempt and open requests run without one.",
    "waits      and service: bounds of the p50 and p99 of the last 10 s.",
    "demand     what is offered over what can be served.",
    "cost/s     offered, of the capacity C; budget: what the backlog's law lets in.",
    "per s      verdicts. shed: refused by the gate; busy: would not wait; evict: the",
    "           queue was full or swept; expire: waited too long; hopeless: its",
    "           deadline had passed; capped: its tenant may not run that now.",
    "press      a signal's pressure; its target is 1.0, the middle of the bar.",
    "auth       the share of C that it may take; budget: what it lets in.",
];

/// Draws the frame.
pub fn draw(frame: &mut Frame<'_>, model: &Model, choice: &Choice, now: Instant) {
    let area = frame.area();
    let lines = lines(model, choice, now, area.height);
    for (line, y) in lines.into_iter().zip(area.y..area.bottom()) {
        frame.render_widget(
            line,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
    }
}

/// The frame for so many rows. The past and then signals are left out where there is no room.
#[must_use]
pub fn lines(model: &Model, choice: &Choice, now: Instant, rows: u16) -> Vec<Line<'static>> {
    let Some(track) = model.track(choice.controller.as_deref()) else {
        return nothing(model, choice, now);
    };
    let mut head = parts::head(model, track, choice, now);
    let footer = parts::footer(choice);
    if choice.help {
        head.extend(HELP.iter().map(|line| Line::raw(*line)));
        head.truncate(usize::from(rows).saturating_sub(1));
        head.push(footer);
        return head;
    }
    head.extend(parts::lanes(track, choice));
    if let Some(lane) = track.lane(choice.lane.as_deref()) {
        head.extend(parts::lane(lane));
    }
    let mut signals = parts::signals(track.view());
    let mut past = track
        .lane(choice.lane.as_deref())
        .map_or_else(Vec::new, |lane| parts::past(track, lane, choice, now));
    let mut room = usize::from(rows).saturating_sub(head.len() + 1);
    if room < past.len() + signals.len().min(SIGNAL_ROWS_MIN) {
        past.clear();
    }
    room = room.saturating_sub(past.len());
    shorten(&mut signals, room);
    head.append(&mut signals);
    head.append(&mut past);
    head.truncate(usize::from(rows).saturating_sub(1));
    if model.trouble(now).is_some() {
        let old = Style::new().fg(Color::DarkGray).add_modifier(Modifier::DIM);
        let lines = head.iter_mut().skip(parts::TROUBLE_ROWS);
        lines.for_each(|line| grey(line, old));
    }
    head.push(footer);
    head
}

/// Everything there is to say, one controller after the other, with all lanes and signals and without a past.
#[must_use]
pub fn all(model: &Model, choice: &Choice, now: Instant) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for view in model.controllers() {
        let Some(track) = model.track(Some(&view.name)) else {
            continue;
        };
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(parts::head(model, track, choice, now));
        for lane in &view.lanes {
            lines.push(Line::default());
            lines.extend(parts::lane(lane));
        }
        if !view.signals.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(parts::signals(view));
    }
    lines
}

/// The lanes and controllers that may be chosen, as the keys go through them.
#[must_use]
pub fn next(model: &Model, choice: &Choice, key: Next) -> Choice {
    let mut choice = choice.clone();
    let Some(track) = model.track(choice.controller.as_deref()) else {
        return choice;
    };
    let after = |names: Vec<&str>, shown: &str| {
        let at = names.iter().position(|name| *name == shown);
        let next = at.map_or(0, |at| (at + 1) % names.len());
        names.get(next).map(|name| (*name).to_owned())
    };
    match key {
        Next::Lane => {
            let names = track.view().lanes.iter().map(|lane| lane.name.as_str());
            let shown = shown_lane(track, &choice).map_or("", |lane| &lane.name);
            choice.lane = after(names.collect(), shown);
        }
        Next::Controller => {
            let names = model.controllers().map(|of| of.name.as_str());
            choice.controller = after(names.collect(), &track.view().name);
            // A lane that was chosen is one of the controller before.
            choice.lane = None;
        }
    }
    choice
}

/// What a key goes on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next lane of the controller.
    Lane,
    /// The next controller.
    Controller,
}

fn shown_lane<'a>(track: &'a Track, choice: &Choice) -> Option<&'a LaneView> {
    track.lane(choice.lane.as_deref())
}

/// Header, and two signals.
const SIGNAL_ROWS_MIN: usize = 3;

/// Keeps what there is room for, and says what was left out. The header is no signal.
fn shorten(signals: &mut Vec<Line<'static>>, room: usize) {
    if signals.len() <= room {
        return;
    }
    let rows = room.saturating_sub(1);
    let kept = if rows < 2 { 0 } else { rows };
    let left_out = signals.len() - kept.max(1);
    let more = if kept > 0 { "more " } else { "" };
    signals.truncate(kept);
    if room > 0 {
        let said = format!("{left_out} {more}signals: a taller window shows them");
        signals.push(Line::raw(said));
    }
}

fn grey(line: &mut Line<'static>, old: Style) {
    line.style = old;
    line.spans.iter_mut().for_each(|span| span.style = old);
}

/// Before the first answer.
fn nothing(model: &Model, choice: &Choice, now: Instant) -> Vec<Line<'static>> {
    let said = match model.trouble(now) {
        Some((error, _)) => Line::styled(format!("{error}; trying on"), alarm()),
        None => Line::raw(format!("asking {} ...", model.url())),
    };
    vec![said, Line::default(), parts::footer(choice)]
}

/// For what must not be missed: seen without colours, too.
fn alarm() -> Style {
    let bold = Modifier::BOLD | Modifier::REVERSED;
    Style::new().fg(Color::Red).add_modifier(bold)
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().add_modifier(Modifier::BOLD))
}

fn coloured(text: impl Into<String>, color: Color) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(color))
}
