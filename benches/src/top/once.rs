//! One frame, as text or as JSON, for a script, a ticket, or a machine without a terminal.

use std::thread;
use std::time::Duration;

use cinnamon_core::{Clock, Instant, MonotonicClock};
use ratatui::text::Line;
use serde::Serialize;

use super::draw::Choice;
use super::model::Model;
use super::pace::{PERIOD, RETRIES_MAX, RETRY};
use super::source::{FetchError, Source};
use super::view::ControllerView;

/// There are no figures to print.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// There are none to be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// There are, but of others.
    #[error("{url} exports {exported}, and no {wanted}")]
    NotThere {
        /// The address.
        url: String,
        /// What was asked for.
        wanted: String,
        /// What there is.
        exported: String,
    },
}

/// Leaves nothing but the controller and the lane that were chosen, if any were.
///
/// # Errors
///
/// When there is none of these names.
pub fn only(mut model: Model, choice: &Choice) -> Result<Model, OnceError> {
    let (controller, lane) = (choice.controller.as_deref(), choice.lane.as_deref());
    let of = |of: &ControllerView| {
        let lanes: Vec<_> = of
            .lanes
            .iter()
            .map(|lane| format!("`{}`", lane.name))
            .collect();
        format!(
            "controller `{}` with the lanes {}",
            of.name,
            lanes.join(", ")
        )
    };
    let exported: Vec<_> = model.controllers().map(of).collect();
    if model.keep(controller, lane) {
        return Ok(model);
    }
    let wanted = [("controller", controller), ("lane", lane)];
    let wanted = wanted.map(|(what, name)| name.map(|name| format!("{what} `{name}`")));
    let wanted: Vec<String> = wanted.into_iter().flatten().collect();
    Err(OnceError::NotThere {
        url: model.url().to_owned(),
        wanted: wanted.join(" with a "),
        exported: exported.join(" and "),
    })
}

/// Looks twice, a second apart or until there is news, so that there are rates.
pub(super) fn watch(
    source: &Source,
    clock: &MonotonicClock,
) -> Result<(Model, Instant), FetchError> {
    let mut model = Model::new(source.url());
    model.take(clock.now(), Ok(source.fetch()?));
    let mut wait = PERIOD;
    for _ in 0..=RETRIES_MAX {
        pause(wait);
        let scrapes = source.fetch()?;
        let now = clock.now();
        model.take(now, Ok(scrapes));
        if model.controllers().any(|of| model.is_news(&of.name, now)) {
            break;
        }
        wait = RETRY;
    }
    Ok((model, clock.now()))
}

/// Lines without their colours.
#[must_use]
pub fn plain(lines: &[Line<'_>]) -> String {
    let line = |line: &Line<'_>| {
        let text: String = line.iter().map(|span| span.content.as_ref()).collect();
        text.trim_end().to_owned()
    };
    let lines: Vec<String> = lines.iter().map(line).collect();
    lines.join("\n")
}

/// Everything that is known, as JSON. What is not known, and what is infinite, is null.
#[must_use]
pub fn json(model: &Model, now: Instant) -> String {
    #[derive(Serialize)]
    struct Outcome<'a> {
        url: &'a str,
        /// Why there is no answer, if there is none.
        error: Option<&'a str>,
        controllers: Vec<&'a ControllerView>,
    }
    let outcome = Outcome {
        url: model.url(),
        error: model.trouble(now).map(|(error, _)| error),
        controllers: model.controllers().collect(),
    };
    // Plain data with names for keys: there is nothing that JSON could not say.
    serde_json::to_string_pretty(&outcome).unwrap_or_default()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a rate is of real time, and there are no keys to wait for"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}
