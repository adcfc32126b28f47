//! Overrides as text: `[lane NAME | signal NAME | tenant ID] (mode off|monitor|enforce | shed tN) for TIME`.

use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use super::{Action, Override, Target};
use crate::config::ConfigError;
use crate::priority::Tier;
use crate::request::Tenant;
use crate::signal::Mode;

/// Units of time, the largest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A line of an override file that says something: its number from 1, and what it says.
pub(crate) type Line = (usize, Result<Override, ConfigError>);

/// The lines of a file. Empty ones and what follows a `#` say nothing.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line> {
    let numbered = text.lines().enumerate();
    numbered.filter_map(|(index, line)| {
        let line = line.split('#').next().unwrap_or("").trim();
        (!line.is_empty()).then(|| (index + 1, line.parse()))
    })
}

/// In the largest unit that leaves no rest.
pub(super) fn duration(time: Duration) -> String {
    let ms = time.as_millis() as u64;
    let whole = |&&(_, unit): &&(&str, u64)| ms.is_multiple_of(unit);
    match UNITS.iter().find(whole) {
        Some((word, unit)) if ms > 0 => format!("{}{word}", ms / unit),
        _ => format!("{ms}ms"),
    }
}

impl FromStr for Override {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut words = text.split_whitespace();
        let mut word = words.next().unwrap_or("");
        let target = match word {
            "lane" => Target::Lane(name(text, &mut words)?),
            "signal" => Target::Signal(name(text, &mut words)?),
            "tenant" => match name(text, &mut words)?.parse() {
                Ok(id) => Target::Tenant(Tenant(id)),
                Err(_) => return refuse(text, "a tenant's number after `tenant`"),
            },
            _ => Target::Controller,
        };
        if target != Target::Controller {
            word = words.next().unwrap_or("");
        }
        let what = words.next().unwrap_or("");
        let action = match word {
            "mode" => match mode(what) {
                Some(mode) => Action::Mode(mode),
                None => return refuse(text, "`off`, `monitor` or `enforce` after `mode`"),
            },
            "shed" => match tier(what) {
                Some(tier) => Action::Shed(tier),
                None => return refuse(text, "`t0` to `t5` after `shed`"),
            },
            _ => {
                return refuse(
                    text,
                    "`[lane NAME | signal NAME | tenant ID] (mode off|monitor|enforce | shed tN) for TIME`",
                );
            }
        };
        let ttl = match (words.next(), words.next().and_then(time), words.next()) {
            (Some("for"), Some(ttl), None) => ttl,
            _ => {
                return refuse(
                    text,
                    "ended by `for` and a time such as `90s`, `10m` or `1h`",
                );
            }
        };
        let parsed = Self::new(target, action, ttl);
        super::check(&parsed)?;
        Ok(parsed)
    }
}

fn name(text: &str, words: &mut SplitWhitespace<'_>) -> Result<String, ConfigError> {
    match words.next() {
        Some(name) => Ok(name.to_owned()),
        None => refuse(text, "a name after the word for its kind"),
    }
}

fn mode(word: &str) -> Option<Mode> {
    let modes = [Mode::Off, Mode::Monitor, Mode::Enforce];
    modes.into_iter().find(|mode| mode.as_str() == word)
}

fn tier(word: &str) -> Option<Tier> {
    Tier::ALL.into_iter().find(|tier| tier.to_string() == word)
}

fn time(word: &str) -> Option<Duration> {
    let digits = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = word.split_at(digits);
    let (_, unit_ms) = UNITS.iter().find(|(known, _)| *known == unit)?;
    let ms = number.parse::<u64>().ok()?.checked_mul(*unit_ms)?;
    Some(Duration::from_millis(ms))
}

fn refuse<T>(text: &str, bound: &str) -> Result<T, ConfigError> {
    Err(ConfigError::OutOfBounds {
        setting: "override".to_owned(),
        value: format!("{text:?}"),
        bound: bound.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "shed t4 for 10m",
            "shed t0 for 1ms",
            "mode off for 7d",
            "mode enforce for 1h",
            "lane write mode monitor for 1500ms",
            "lane a-b shed t5 for 90s",
            "signal follower-lag mode off for 30m",
            "tenant 4294967295 shed t3 for 1d",
            "tenant 0 mode off for 5m",
        ] {
            let parsed: Override = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn what_is_not_understood_is_quoted_with_what_was_expected() {
        for (text, expected) in [
            ("", "must be `[lane NAME"),
            ("shed", "`t0` to `t5`"),
            ("shed t6 for 10m", "`t0` to `t5`"),
            ("mode on for 10m", "`off`, `monitor` or `enforce`"),
            ("lane", "a name after"),
            ("lane write", "must be `[lane NAME"),
            ("tenant x shed t4 for 1m", "a tenant's number"),
            ("tenant -1 shed t4 for 1m", "a tenant's number"),
            ("shed t4", "`for` and a time"),
            ("shed t4 for", "`for` and a time"),
            ("shed t4 for 10", "`for` and a time"),
            ("shed t4 for m", "`for` and a time"),
            ("shed t4 for 10 m", "`for` and a time"),
            ("shed t4 for 99999999999999999999s", "`for` and a time"),
            ("shed t4 for 10m please", "`for` and a time"),
            ("shed t4 for 0s", "between 1 and 604800000"),
            ("shed t4 for 8d", "between 1 and 604800000"),
            ("signal memory shed t4 for 1m", "a mode"),
        ] {
            let error = text.parse::<Override>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_may_have_comments_and_each_line_stands_for_itself() {
        let text = "# a bad night\n\nshed t4 for 10m # the batch\n  bad line \nlane write mode off for 5m\n";
        let read: Vec<(usize, bool)> = lines(text).map(|(n, line)| (n, line.is_ok())).collect();
        assert_eq!(read, [(3, true), (4, false), (5, true)]);
    }
}
