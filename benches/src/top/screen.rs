//! The view in a terminal. Figures are fetched on a thread of their own, so that keys are heard while an endpoint
//! is silent.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use cinnamon_core::{Clock, Instant, MonotonicClock};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::TERM_SIGNALS;

use super::draw::{self, Choice, Next};
use super::model::Model;
use super::pace::{Answer, Pace};
use super::source::Source;
use super::text::Scrape;

/// How long a key is waited for before answers are looked for again, and ages are drawn anew.
const LOOK: Duration = Duration::from_millis(50);

/// An answer: when it was asked for, when it came, and what it was.
type Fetched = (Instant, Instant, Result<BTreeMap<String, Scrape>, String>);

/// Shows until `q` or a signal to end, and leaves the terminal as it was; also when something panics.
pub(super) fn run(source: Source, clock: &MonotonicClock, choice: Choice) -> io::Result<()> {
    let model = Model::new(source.url());
    let (ask, questions) = channel();
    let (tell, answers) = channel();
    let fetching = clock.clone();
    // It ends with the screen; while an endpoint is silent it is left behind, for two seconds at most.
    thread::Builder::new()
        .name("lab-top-fetch".to_owned())
        .spawn(move || fetch(&source, &fetching, &questions, &tell))?;
    let told_to_end = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        signal_hook::flag::register(signal, Arc::clone(&told_to_end))?;
    }
    let mut terminal = ratatui::try_init()?;
    let shown = Screen {
        model,
        frozen: None,
        choice,
        pace: Pace::default(),
        ask,
        answers,
        due: Some(clock.now()),
    }
    .show(&mut terminal, clock, &told_to_end);
    let restored = ratatui::try_restore();
    shown.and(restored)
}

fn fetch(
    source: &Source,
    clock: &MonotonicClock,
    questions: &Receiver<()>,
    tell: &Sender<Fetched>,
) {
    while questions.recv().is_ok() {
        let asked = clock.now();
        let answer = source.fetch().map_err(|error| error.to_string());
        if tell.send((asked, clock.now(), answer)).is_err() {
            return;
        }
    }
}

struct Screen {
    model: Model,
    /// What is shown while paused, and since when.
    frozen: Option<(Model, Instant)>,
    choice: Choice,
    pace: Pace,
    ask: Sender<()>,
    answers: Receiver<Fetched>,
    /// When to ask next; `None` while an answer is out.
    due: Option<Instant>,
}

impl Screen {
    fn show(
        mut self,
        terminal: &mut DefaultTerminal,
        clock: &MonotonicClock,
        told_to_end: &AtomicBool,
    ) -> io::Result<()> {
        while !told_to_end.load(Ordering::Relaxed) {
            self.exchange(clock.now());
            let (model, now) = match &self.frozen {
                Some((model, since)) => (model, *since),
                None => (&self.model, clock.now()),
            };
            terminal.draw(|frame| draw::draw(frame, model, &self.choice, now))?;
            let until_due = self.due.map(|due| due.since(clock.now()));
            if event::poll(until_due.map_or(LOOK, |due| due.min(LOOK)))?
                && let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !self.press(key, clock.now())
            {
                break;
            }
        }
        Ok(())
    }

    /// Takes an answer in if one has come, and asks if it is time.
    fn exchange(&mut self, now: Instant) {
        if let Ok((asked, at, answer)) = self.answers.try_recv() {
            let failed = answer.is_err();
            self.model.take(at, answer);
            let shown = self.model.track(self.choice.controller.as_deref());
            let is_news = shown.is_some_and(|of| self.model.is_news(&of.view().name, at));
            let answer = match (failed, is_news) {
                (true, _) => Answer::Failed,
                (false, true) => Answer::News,
                (false, false) => Answer::Same,
            };
            self.due = Some(self.pace.next(asked, answer));
        }
        if self.due.is_some_and(|due| due <= now) {
            // Without the other end there is nothing to ask, and the last figures stay.
            let _ended = self.ask.send(());
            self.due = None;
        }
    }

    /// Does what a key says; `false` is the end.
    fn press(&mut self, key: KeyEvent, now: Instant) -> bool {
        let model = self.frozen.as_ref().map_or(&self.model, |(model, _)| model);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('q') => return false,
            KeyCode::Esc if self.choice.help => self.choice.help = false,
            KeyCode::Char('?' | 'h') => self.choice.help = !self.choice.help,
            KeyCode::Char('l') => self.choice = draw::next(model, &self.choice, Next::Lane),
            KeyCode::Char('c') => self.choice = draw::next(model, &self.choice, Next::Controller),
            KeyCode::Char('p') => {
                self.choice.paused = !self.choice.paused;
                self.frozen = self.choice.paused.then(|| (self.model.clone(), now));
            }
            _ => {}
        }
        true
    }
}
