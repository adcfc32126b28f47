//! Text for people: escaped, and numbers with as many digits as they are worth.

use std::fmt::Write as _;

/// Binds a number to its unit: narrow, and no line breaks there.
const NARROW: char = '\u{202f}';
/// Significant digits of a figure.
const DIGITS: usize = 3;
/// Digits beyond which a figure and its bound are as good as equal.
const MOST_DIGITS: usize = 7;
/// Digits after the point of a number close to 0.
const MOST_DECIMALS: i32 = 9;

/// Safe between tags and within a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The number, or 0 for what is none: a chart with a gap is worth more than no page.
pub(super) fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

/// Three significant digits, thousands in groups.
pub(super) fn figure(x: f64) -> String {
    significant(x, DIGITS)
}

/// A figure beside its bound, with enough digits to tell them apart.
pub(super) fn figure_beside(x: f64, bound: f64) -> (String, String) {
    let at = |digits| (significant(x, digits), significant(bound, digits));
    (DIGITS..MOST_DIGITS)
        .map(at)
        .find(|(x_text, bound_text)| x == bound || x_text != bound_text)
        .unwrap_or_else(|| at(MOST_DIGITS))
}

fn significant(x: f64, digits: usize) -> String {
    if !x.is_finite() {
        return "none".to_owned();
    }
    // A share is 1 at most: beyond, a whole number is a count.
    if x == 0.0 || (x.fract() == 0.0 && x.abs() > 1.0) {
        let sign = if x < 0.0 { "−" } else { "" };
        return format!("{sign}{}", grouped(&format!("{:.0}", x.abs())));
    }
    let before_the_point = x.abs().log10().floor() as i32 + 1;
    let decimals = (digits as i32 - before_the_point).clamp(0, MOST_DECIMALS) as usize;
    let plain = format!("{:.decimals$}", x.abs());
    let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let sign = if x < 0.0 { "−" } else { "" };
    format!("{sign}{}{fraction}", grouped(whole))
}

/// A count, thousands in groups.
pub(super) fn count(n: u64) -> String {
    grouped(&n.to_string())
}

fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in percent. Only all is 100 %, only nothing is 0 %.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * finite(share);
    let mut out = if percent > 99.9 && percent < 100.0 {
        ">99.9".to_owned()
    } else if percent > 0.0 && percent < 0.1 {
        "<0.1".to_owned()
    } else if (percent > 99.0 && percent < 99.95) || (percent > 0.0 && percent < 0.95) {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    };
    out.push(NARROW);
    out.push('%');
    escape(&out)
}

/// A count against its whole, 0 when there is no whole.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// For the marks of an axis: `1.5k`, `320k`.
pub(super) fn short(x: f64) -> String {
    let (x, unit) = match x.abs() {
        big if big >= 1e6 => (x / 1e6, "M"),
        big if big >= 1e3 => (x / 1e3, "k"),
        _ => (x, ""),
    };
    // Marks are round numbers; the rounding only takes off what binary fractions add.
    format!("{}{unit}", (x * 1e3).round() / 1e3)
}

/// `a`, `a and b`, `a, b and 3 more`.
pub(super) fn first_two(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, two] => format!("{one} and {two}"),
        [one, two, more @ ..] => format!("{one}, {two} and {} more", more.len()),
    }
}

/// A coloured square and what it stands for.
pub(super) fn key(out: &mut String, colour: &str, what: &str) {
    let _ = write!(
        out,
        "<span class=key><i style=\"background:{colour}\"></i>{}</span> ",
        escape(what)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_numbers_have_three_digits() {
        for (x, text) in [
            (0.0, "0"),
            (0.98765, "0.988"),
            (1.0, "1.00"),
            (3.0, "3"),
            (-0.5, "−0.500"),
            (12.345, "12.3"),
            (1_234_567.0, "1,234,567"),
            (0.000_123_4, "0.000123"),
            (f64::NAN, "none"),
        ] {
            assert_eq!(text, figure(x));
        }
    }

    #[test]
    fn html_shows_why_a_near_miss_is_one() {
        assert_eq!(
            ("0.98996".to_owned(), "0.99000".to_owned()),
            figure_beside(0.989_96, 0.99)
        );
        assert_eq!(
            ("0.990".to_owned(), "0.990".to_owned()),
            figure_beside(0.99, 0.99)
        );
    }

    #[test]
    fn html_never_rounds_a_share_to_all_or_nothing() {
        for (share, text) in [
            (1.0, "100"),
            (0.9996, "&gt;99.9"),
            (0.9949, "99.5"),
            (0.5, "50"),
            (0.004, "0.4"),
            (0.0001, "&lt;0.1"),
            (0.0, "0"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(format!("{text}\u{202f}%"), percent(share));
        }
    }

    #[test]
    fn html_axes_are_marked_shortly() {
        assert_eq!("0.5", short(0.5));
        assert_eq!("1.5k", short(1_500.0));
        assert_eq!("320k", short(320_000.0));
    }

    #[test]
    fn html_escapes_what_could_be_markup() {
        assert_eq!("a&lt;b&gt; &amp; &quot;c&quot;", escape("a<b> & \"c\""));
    }
}
