//! The parts of the frame, from the top.

mod table;

use cinnamon_core::Instant;
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};

use super::figures::{amount, bytes, count, maybe_time, ratio, short, time};
use super::{Choice, WIDTH, alarm, bars, bold, coloured};
use crate::top::model::{Model, PAST_S, Past, Track, seconds};
use crate::top::view::{ControllerView, LaneView, OPEN_LEVELS, SignalView, Times};

/// Characters of a curve: the frame's width less a name before it and figures after it.
const CURVE_WIDTH: usize = 54;
/// Characters of a name of a lane or a signal.
const NAME_WIDTH: usize = 13;
/// Overrides that get a line each; of more, their number.
const OVERRIDES_MAX: usize = 3;

/// The title, that there is no answer, and why: all else is old then, alarms too.
pub(super) const TROUBLE_ROWS: usize = 3;

/// Whose figures these are, how it goes, and whatever must not be missed.
pub(super) fn head(
    model: &Model,
    track: &Track,
    choice: &Choice,
    now: Instant,
) -> Vec<Line<'static>> {
    let view = track.view();
    let names: Vec<&str> = model.controllers().map(|of| of.name.as_str()).collect();
    let at = names.iter().position(|name| *name == view.name);
    let of = match (at, names.len()) {
        (Some(at), 2..) => format!(" ({} of {})", at + 1, names.len()),
        _ => String::new(),
    };
    let mut title = vec![bold(format!("cinnamon {}{of}", view.name)), Span::raw("  ")];
    title.push(mode(view.mode.as_deref()));
    title.extend(late(view));
    if choice.paused {
        title.push(Span::styled("  PAUSED", alarm()));
    }
    let used: usize = title.iter().map(Span::width).sum();
    let url = short(model.url(), usize::from(WIDTH).saturating_sub(used + 2));
    let gap = usize::from(WIDTH).saturating_sub(used + url.chars().count());
    title.push(Span::raw(format!("{}{url}", " ".repeat(gap))));
    let mut lines = vec![Line::from(title)];
    lines.extend(alarms(model, track, choice, now));
    lines.push(health(view));
    lines
}

/// Nothing here can be missed; most of the time there is nothing.
fn alarms(model: &Model, track: &Track, choice: &Choice, now: Instant) -> Vec<Line<'static>> {
    let view = track.view();
    let mut lines = Vec::new();
    let mut say = |text: String| {
        let text = short(&format!("!! {text}"), usize::from(WIDTH));
        let width = usize::from(WIDTH);
        lines.push(Line::styled(format!("{text:<width$}"), alarm()));
    };
    if let Some((error, age_s)) = model.trouble(now) {
        let age = age_s.map_or("none".to_owned(), time);
        say(format!("NO ANSWER: figures are {age} old; trying on"));
        say(error.to_owned());
    } else if let Some(silent_s) = track.silent_s(now) {
        say(format!(
            "NO TICK for {}: the control thread stands still, or has ended",
            time(silent_s)
        ));
    }
    if let Some(name) = choice.controller.as_ref().filter(|of| **of != view.name) {
        say(format!("NO CONTROLLER {name} there; this is another"));
    }
    let is_there = |name: &&String| view.lanes.iter().any(|lane| lane.name == **name);
    if let Some(name) = choice.lane.as_ref().filter(|name| !is_there(name)) {
        say(format!("NO LANE {name} there; this is another"));
    }
    if view.failed {
        say("FAILED: something panicked inside, and everything is admitted".to_owned());
    }
    if view.closed {
        say("CLOSED: no more work is taken".to_owned());
    }
    for of in view.overrides.iter().take(OVERRIDES_MAX) {
        let left = time(of.left_s);
        say(format!(
            "OVERRIDE {}: {}, {left} left",
            of.target, of.action
        ));
    }
    if let Some(more @ 1..) = view.overrides.len().checked_sub(OVERRIDES_MAX) {
        say(format!("OVERRIDES: {more} more"));
    }
    if view.override_file_error {
        say("OVERRIDE FILE is not understood; its overrides do not count".to_owned());
    }
    if let Some(ago_s) = track.restarted_s(now) {
        say(format!("RESTARTED {} ago", time(ago_s)));
    }
    lines
}

fn health(view: &ControllerView) -> Line<'static> {
    let state = match view.health.as_deref() {
        Some("healthy") => coloured("healthy", Color::Green),
        Some("stressed") => coloured("STRESSED", Color::Yellow).bold(),
        Some(other) => Span::styled(other.to_uppercase(), alarm()),
        None => Span::raw("health -"),
    };
    let refused = view.protected_refused.map(|share| 100.0 * share);
    let figures = format!(
        "  headroom {}  weight {}  demand {}  t0+t1 refused {} %",
        ratio(view.headroom),
        count(view.weight),
        ratio(view.demand),
        refused.map_or("-".to_owned(), |percent| format!("{percent:.1}")),
    );
    Line::from(vec![state, Span::raw(figures)])
}

/// The control thread does not keep up, or did not at some time.
fn late(view: &ControllerView) -> Option<Span<'static>> {
    let late = view.ticks_late.filter(|late| *late > 0.0)?;
    let text = format!("  late ticks {late:.0}");
    Some(match view.ticks_late_per_s {
        Some(per_s) if per_s > 0.0 => {
            coloured(format!("{text} +{}/s", amount(Some(per_s))), Color::Yellow)
        }
        _ => Span::raw(text),
    })
}

/// All lanes in a line, if there are several.
pub(super) fn lanes(track: &Track, choice: &Choice) -> Option<Line<'static>> {
    let lanes = &track.view().lanes;
    let shown = super::shown_lane(track, choice).filter(|_| lanes.len() > 1)?;
    let mut spans = vec![Span::raw("lanes ")];
    for lane in lanes {
        let threshold = lane.threshold.as_deref().unwrap_or("-");
        let text = format!("{} {threshold}", lane.name);
        spans.push(if lane.name == shown.name {
            let reversed = Style::new().add_modifier(Modifier::REVERSED);
            Span::styled(format!("[{text}]"), reversed)
        } else {
            Span::raw(format!(" {text} "))
        });
        spans.push(Span::raw(" "));
    }
    Some(Line::from(spans))
}

/// One lane: its gate, its slots, its waits, its load, its verdicts.
pub(super) fn lane(lane: &LaneView) -> Vec<Line<'static>> {
    let mut lines = vec![
        gate(lane),
        threshold(lane),
        slots(lane),
        waits(lane),
        load(lane),
    ];
    lines.extend(table::verdicts(lane));
    lines
}

/// The quantile lies in a bucket up to this bound.
fn quantile(times: Option<Times>, of: fn(&Times) -> f64) -> String {
    match times.as_ref() {
        None => "-".to_owned(),
        Some(times) if of(times).is_finite() => format!("<={}", time(of(times))),
        Some(times) => format!(">{}", time(times.bound_max_s)),
    }
}

fn gate(lane: &LaneView) -> Line<'static> {
    let held = match lane.bound_by.as_deref() {
        None => Span::raw("held by -"),
        Some("nothing") => coloured("held by nothing", Color::Green),
        Some("override") => Span::styled("held by an OVERRIDE", alarm()),
        Some(cause) => coloured(
            format!("held by {}", short(cause, NAME_WIDTH)),
            Color::Yellow,
        ),
    };
    let rest = format!(
        "  {}  W {} of {}",
        if lane.engaged { "engaged" } else { "dormant" },
        maybe_time(lane.wait_s),
        maybe_time(lane.wait_target_s),
    );
    Line::from(vec![
        bold(format!("lane {}", short(&lane.name, NAME_WIDTH))),
        Span::raw("  "),
        mode(lane.mode.as_deref()),
        Span::raw("  "),
        held,
        Span::raw(rest),
    ])
}

fn threshold(lane: &LaneView) -> Line<'static> {
    let text = lane.threshold.clone().unwrap_or("-".to_owned());
    let levels = lane.threshold_levels.unwrap_or(OPEN_LEVELS);
    let color = if levels < OPEN_LEVELS {
        Color::Yellow
    } else {
        Color::Green
    };
    Line::from(vec![
        Span::raw("threshold "),
        bold(format!("{text:<8}")),
        coloured(bars::threshold(levels), color),
    ])
}

fn slots(lane: &LaneView) -> Line<'static> {
    let moves = match (lane.limit_min, lane.limit_max) {
        (Some(min), Some(max)) if min < max => format!(" ({min:.0} to {max:.0})"),
        _ => String::new(),
    };
    let held = match lane.waiting_bytes {
        Some(held) if held > 0.0 => format!(" ({})", bytes(held)),
        _ => String::new(),
    };
    let mut without = String::new();
    for (requests, what) in [(lane.exempt_in_use, "exempt"), (lane.open_in_use, "open")] {
        if requests.is_some_and(|requests| requests > 0.0) {
            without.push_str(&format!("  {what} {}", count(requests)));
        }
    }
    Line::raw(format!(
        "slots {}/{}{moves}{without}  waiting {}{held}  service p50 {} p99 {}",
        count(lane.in_use),
        count(lane.limit),
        count(lane.waiting()),
        quantile(lane.served, |times| times.p50_s),
        quantile(lane.served, |times| times.p99_s),
    ))
}

fn waits(lane: &LaneView) -> Line<'static> {
    Line::raw(format!(
        "waits p50 {} p99 {}  timeout {}  CoDel {}  {} first",
        quantile(lane.waited, |times| times.p50_s),
        quantile(lane.waited, |times| times.p99_s),
        maybe_time(lane.timeout_s),
        lane.codel.as_deref().unwrap_or("-"),
        if lane.newest_first {
            "newest"
        } else {
            "oldest"
        },
    ))
}

fn load(lane: &LaneView) -> Line<'static> {
    let demand = format!("demand {}", ratio(lane.demand));
    let demand = match lane.demand {
        Some(demand_of) if demand_of > 1.0 => coloured(demand, Color::Yellow),
        _ => Span::raw(demand),
    };
    let untagged = match lane.untagged_per_s {
        Some(per_s) if per_s > 0.0 => format!(" (untagged {})", amount(Some(per_s))),
        _ => String::new(),
    };
    let budget = lane
        .budget_cost_per_s
        .map_or("none".to_owned(), |budget| amount(Some(budget)));
    Line::from(vec![
        Span::raw(format!(
            "offered {}/s{untagged}  ",
            amount(lane.offered_per_s)
        )),
        demand,
        Span::raw(format!(
            "  cost/s {} of C {}, budget {budget}",
            amount(lane.offered_cost_per_s),
            amount(lane.capacity_cost_per_s),
        )),
    ])
}

/// A header and a line each; those that bind first, then by pressure.
pub(super) fn signals(view: &ControllerView) -> Vec<Line<'static>> {
    if view.signals.is_empty() {
        return Vec::new();
    }
    let mut signals: Vec<&SignalView> = view.signals.iter().collect();
    let urgency = |signal: &SignalView| (signal.binding, signal.pressure.unwrap_or(0.0));
    signals.sort_by(|a, b| {
        let (a, b) = (urgency(a), urgency(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    let underlined = Style::new().add_modifier(Modifier::UNDERLINED);
    let scale = "0         1.0       2.0";
    let titles = ["signal", "press", scale, "budget", "auth", "state"];
    let header = columns_of(titles.map(str::to_owned)).join(" ");
    let header = Line::styled(format!("{header:<0$}", usize::from(WIDTH)), underlined);
    let lines = signals.into_iter().map(signal);
    std::iter::once(header).chain(lines).collect()
}

fn columns_of([name, pressure, bar, budget, authority, state]: [String; 6]) -> [String; 6] {
    [
        format!("{:<NAME_WIDTH$}", short(&name, NAME_WIDTH)),
        format!("{pressure:>5}"),
        bar,
        format!("{budget:>6}"),
        format!("{authority:>5}"),
        format!(" {state}"),
    ]
}

fn signal(signal: &SignalView) -> Line<'static> {
    let color = match signal.pressure {
        Some(1.0..) => Color::Red,
        Some(0.8..) => Color::Yellow,
        _ => Color::Green,
    };
    let budget = signal.budget_cost_per_s;
    let mut state = signal.state.clone().unwrap_or("-".to_owned());
    if signal.mode.as_deref() == Some("monitor") {
        state.push_str(" monitor");
    }
    let [name, pressure, bar, budget, authority, state] = columns_of([
        signal.name.clone(),
        ratio(signal.pressure),
        bars::pressure(signal.pressure),
        budget.map_or("none".to_owned(), |budget| amount(Some(budget))),
        ratio(signal.authority),
        state,
    ]);
    let mut spans = vec![
        bold(name),
        Span::raw(format!(" {pressure} ")),
        coloured(bar, color),
        Span::raw(format!(" {budget} {authority} {state}")),
    ];
    if signal.binding {
        spans.push(coloured(" BINDS", Color::Yellow).bold());
    }
    if signal.unresponsive {
        spans.push(coloured(" unresp.", Color::Red));
    }
    if !signal.faults.is_empty() {
        let faults = signal.faults.join(" ");
        spans.push(coloured(format!(" {faults}"), Color::Red));
    }
    Line::from(spans)
}

/// The last two minutes: the threshold, what was offered, what was admitted.
pub(super) fn past(
    track: &Track,
    lane: &LaneView,
    choice: &Choice,
    now: Instant,
) -> Vec<Line<'static>> {
    let curve = |name: &str, of: fn(&Past) -> Option<f64>, pick: fn(f64, f64) -> f64| {
        let values = columns(track, &lane.name, now, of, pick);
        (format!("{name:<10}"), values)
    };
    let (name, values) = curve("threshold", |past| past.threshold_levels, f64::min);
    let text = bars::curve(&values, OPEN_LEVELS, choice.ascii);
    let threshold = lane.threshold.as_deref().unwrap_or("-");
    let mut lines = vec![line_of(name, text, format!("{threshold}, 2 min"))];
    let offered = curve("offered", |past| past.offered_per_s, f64::max);
    let admitted = curve("admitted", |past| past.admitted_per_s, f64::max);
    let all = offered.1.iter().chain(&admitted.1).flatten();
    let most = all.copied().fold(0.0, f64::max);
    for ((name, values), last) in [
        (offered, lane.offered_per_s),
        (admitted, lane.admitted_per_s),
    ] {
        let text = bars::curve(&values, most, choice.ascii);
        let figures = format!("{}/s", amount(last));
        lines.push(line_of(name, text, figures));
    }
    if let Some(last) = lines.last_mut() {
        last.push_span(Span::raw(format!(" of {}", amount(Some(most)))));
    }
    lines
}

fn line_of(name: String, curve: String, figures: String) -> Line<'static> {
    Line::from(vec![
        Span::raw(name),
        coloured(curve, Color::Cyan),
        Span::raw(format!(" {figures}")),
    ])
}

/// The past in as many columns as a curve has; of several values in one, what `pick` picks.
fn columns(
    track: &Track,
    lane: &str,
    now: Instant,
    of: fn(&Past) -> Option<f64>,
    pick: fn(f64, f64) -> f64,
) -> Vec<Option<f64>> {
    let mut columns = vec![None; CURVE_WIDTH];
    for past in track.past(lane) {
        let age = seconds(now, past.at) / PAST_S;
        let from_end = (age * CURVE_WIDTH as f64) as usize;
        if let (Some(value), Some(at)) = (of(past), (CURVE_WIDTH - 1).checked_sub(from_end)) {
            let column: &mut Option<f64> = &mut columns[at];
            *column = Some(column.map_or(value, |other| pick(other, value)));
        }
    }
    columns
}

pub(super) fn footer(choice: &Choice) -> Line<'static> {
    let pause = if choice.paused { "go on" } else { "pause" };
    let help = if choice.help { "back" } else { "help" };
    let text = format!("q quit   l next lane   c next controller   p {pause}   ? {help}");
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

fn mode(mode: Option<&str>) -> Span<'static> {
    match mode {
        None => Span::raw("mode -"),
        Some("enforce") => Span::raw("enforce"),
        // Nobody is refused: whoever looks on must know.
        Some(other) => Span::styled(other.to_uppercase(), alarm()),
    }
}
