//! Figures in few characters.

/// What is not known.
pub(super) const UNKNOWN: &str = "-";

/// Three to five characters for any amount; nothing is a dot, so that something stands out.
pub(super) fn amount(value: Option<f64>) -> String {
    let Some(value) = value else {
        return UNKNOWN.to_owned();
    };
    match value {
        0.0 => ".".to_owned(),
        ..0.05 if value > 0.0 => "<0.1".to_owned(),
        ..9.95 => format!("{value:.1}"),
        ..9_999.5 => format!("{value:.0}"),
        ..99_950.0 => format!("{:.1}k", value / 1e3),
        ..999_500.0 => format!("{:.0}k", value / 1e3),
        ..99_950_000.0 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.0}M", value / 1e6),
    }
}

/// A count, without a dot for nothing.
pub(super) fn count(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.0}"))
}

/// Two decimals.
pub(super) fn ratio(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.2}"))
}

/// A time, with its unit.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "0 ms".to_owned(),
        ..0.000_999_5 => format!("{:.0} us", seconds * 1e6),
        ..0.009_995 => format!("{:.1} ms", seconds * 1e3),
        ..0.999_5 => format!("{:.0} ms", seconds * 1e3),
        ..9.95 => format!("{seconds:.1} s"),
        ..119.5 => format!("{seconds:.0} s"),
        ..5_970.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// A time that may be unknown.
pub(super) fn maybe_time(seconds: Option<f64>) -> String {
    seconds.map_or(UNKNOWN.to_owned(), time)
}

/// A size, with its unit.
pub(super) fn bytes(value: f64) -> String {
    match value {
        ..1_024.0 => format!("{value:.0} B"),
        ..1_048_576.0 => format!("{:.0} KiB", value / 1_024.0),
        ..1_073_741_824.0 => format!("{:.0} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}

/// At most so many characters; what is cut off shows.
pub(super) fn short(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_take_five_characters_at_most() {
        for (value, text) in [
            (0.0, "."),
            (0.01, "<0.1"),
            (0.5, "0.5"),
            (9.94, "9.9"),
            (9.96, "10"),
            (9_999.4, "9999"),
            (9_999.6, "10.0k"),
            (320_000.0, "320k"),
            (999_600.0, "1.0M"),
            (12_345_678.0, "12.3M"),
            (123_456_789.0, "123M"),
        ] {
            assert_eq!(amount(Some(value)), text);
        }
        assert_eq!(amount(None), "-");
    }

    #[test]
    fn times_have_their_unit() {
        for (seconds, text) in [
            (0.0, "0 ms"),
            (0.000_032_768, "33 us"),
            (0.004_2, "4.2 ms"),
            (0.05, "50 ms"),
            (1.5, "1.5 s"),
            (59.0, "59 s"),
            (598.0, "10 min"),
            (7_200.0, "2.0 h"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn a_name_that_is_too_long_shows_that_it_was_cut() {
        assert_eq!(short("write-stall", 11), "write-stall");
        assert_eq!(short("write-stall", 6), "write~");
        assert_eq!(bytes(2_048.0), "2 KiB");
        assert_eq!(bytes(5e9), "4.7 GiB");
    }
}
