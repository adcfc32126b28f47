//! `lab top`: a live view of a running controller, through the metrics that its process exports.
//!
//! | module | what it is |
//! |---|---|
//! | `text` | the text form of Prometheus |
//! | `source` | an address that is fetched again and again |
//! | `view` | a controller as plain data, made of two scrapes of it |
//! | `model` | what has been seen so far |
//! | `pace` | when to ask next |
//! | `draw` | the frame, a pure function of these |
//! | `once` | one frame as text or JSON |
//! | `screen` | the terminal: keys, and a thread that fetches |

mod draw;
mod model;
mod once;
mod pace;
mod screen;
mod source;
mod text;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use cinnamon_core::MonotonicClock;
use clap::Args;

pub use draw::{Choice, Next, WIDTH, all, draw, lines, next};
pub use model::Model;
pub use once::{OnceError, json, only, plain};
pub use source::{FetchError, Source, UrlError};
pub use text::{Scrape, TextError, parse};
pub use view::{ControllerView, LaneView, OverrideView, SignalView, TierView, Times};

/// Options of `lab top`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Where the process exports its metrics: http://HOST:PORT/metrics, or HOST:PORT for short.
    url: String,
    /// Show this lane first; with --once no other.
    #[arg(long)]
    lane: Option<String>,
    /// Show this controller first, of several in the process; with --once no other.
    #[arg(long)]
    controller: Option<String>,
    /// Print everything once, as text, and end. Takes a second or two, for rates. Needs no terminal.
    #[arg(long)]
    once: bool,
    /// With --once: as JSON.
    #[arg(long, requires = "once")]
    json: bool,
    /// Write nothing but ASCII.
    #[arg(long)]
    ascii: bool,
}

/// Runs the view until it is left.
#[must_use]
pub fn main(options: &Options) -> ExitCode {
    let source = match Source::new(&options.url) {
        Ok(source) => source,
        Err(error) => return fail(&error.to_string()),
    };
    let choice = Choice {
        controller: options.controller.clone(),
        lane: options.lane.clone(),
        ascii: options.ascii,
        ..Choice::default()
    };
    let clock = MonotonicClock::new();
    if options.once {
        let watched = once::watch(&source, &clock).map_err(OnceError::from);
        let chosen = watched.and_then(|(model, now)| Ok((only(model, &choice)?, now)));
        return match chosen {
            Ok((model, now)) if options.json => print(&json(&model, now)),
            Ok((model, now)) => print(&plain(&all(&model, &choice, now))),
            Err(error) => fail(&error.to_string()),
        };
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return fail("this is no terminal: use --once, or --once --json");
    }
    match screen::run(source, &clock, choice) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("the terminal cannot be used: {error}")),
    }
}

/// Whoever reads may have had enough.
fn print(text: &str) -> ExitCode {
    use io::Write as _;
    let _closed = writeln!(io::stdout().lock(), "{text}");
    ExitCode::SUCCESS
}

fn fail(error: &str) -> ExitCode {
    eprintln!("lab top: {error}");
    ExitCode::from(2)
}
