//! Frames of a few models, as they look on a terminal of 80 x 24.

use std::fmt::Write as _;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::text::parse;

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

/// A controller with two lanes, `n` seconds after it was built: read is overloaded, write is not.
fn text(n: u64) -> String {
    let mut text = format!(
        "cinnamon_mode{{mode=\"off\"}} 0\n\
         cinnamon_mode{{mode=\"enforce\"}} 1\n\
         cinnamon_ticks_total {}\n\
         cinnamon_ticks_late_total {n}\n\
         cinnamon_health{{state=\"stressed\"}} 1\n\
         cinnamon_headroom 0.125\n\
         cinnamon_weight 97\n\
         cinnamon_demand 2.01\n\
         cinnamon_protected_refused 0.004\n",
        n * 50
    );
    let mut of = |lane: &str, samples: &str| {
        for sample in samples
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let (metric, value) = sample.rsplit_once(' ').unwrap();
            let (name, labels) = metric.split_once('{').unwrap_or((metric, "}"));
            let _ = writeln!(text, "{name}{{lane=\"{lane}\",{labels} {value}");
        }
    };
    of(
        "write",
        "cinnamon_limit 2\ncinnamon_threshold_levels 768\ncinnamon_bound_by{cause=\"nothing\"} 1",
    );
    of(
        "read",
        &format!(
            "cinnamon_lane_mode{{mode=\"enforce\"}} 1
             cinnamon_limit 20
             cinnamon_limit_min 5
             cinnamon_limit_max 40
             cinnamon_in_use{{kind=\"slot\"}} 20
             cinnamon_in_use{{kind=\"exempt\"}} 1
             cinnamon_in_use{{kind=\"open\"}} 0
             cinnamon_waiting{{tier=\"t2\"}} 2
             cinnamon_waiting{{tier=\"t3\"}} 10
             cinnamon_waiting_bytes 2048
             cinnamon_engaged 1
             cinnamon_threshold_levels 448.25
             cinnamon_bound_by{{cause=\"backlog\"}} 1
             cinnamon_bound_by{{cause=\"debt\"}} 0
             cinnamon_budget_cost_per_second 995
             cinnamon_capacity_cost_per_second 1000
             cinnamon_offered_cost_per_second 2010
             cinnamon_wait_seconds 0.012
             cinnamon_wait_target_seconds 0.02
             cinnamon_codel_state{{state=\"standing\"}} 1
             cinnamon_newest_first 1
             cinnamon_timeout_seconds 0.05
             cinnamon_offered_total {}
             cinnamon_untagged_total {}
             cinnamon_verdicts_total{{tier=\"t0\",verdict=\"admit_slot\"}} {}
             cinnamon_verdicts_total{{tier=\"t3\",verdict=\"admit_slot\"}} {}
             cinnamon_verdicts_total{{tier=\"t3\",verdict=\"shed\"}} {}
             cinnamon_verdicts_total{{tier=\"t5\",verdict=\"shed\"}} {}
             cinnamon_verdicts_total{{tier=\"t5\",verdict=\"evict\"}} {n}
             cinnamon_waited_seconds_bucket{{le=\"0.001048576\"}} {}
             cinnamon_waited_seconds_bucket{{le=\"0.033554432\"}} {}
             cinnamon_waited_seconds_bucket{{le=\"+Inf\"}} {}
             cinnamon_served_seconds_bucket{{le=\"17.179869184\"}} 0
             cinnamon_served_seconds_bucket{{le=\"+Inf\"}} {n}",
            2_010 * n,
            12 * n,
            900 * n,
            95 * n,
            14 * n,
            1_000 * n,
            60 * n,
            100 * n,
            100 * n,
        ),
    );
    for (signal, pressure, binding, budget) in
        [("calm-one", "0.4", 0, "+Inf"), ("debt", "1.3", 1, "700")]
    {
        let _ = write!(
            text,
            "cinnamon_signal_mode{{signal=\"{signal}\",mode=\"enforce\"}} 1\n\
             cinnamon_signal_state{{signal=\"{signal}\",state=\"engaged\"}} {binding}\n\
             cinnamon_signal_state{{signal=\"{signal}\",state=\"calm\"}} {}\n\
             cinnamon_signal_pressure{{signal=\"{signal}\"}} {pressure}\n\
             cinnamon_signal_binding{{signal=\"{signal}\"}} {binding}\n\
             cinnamon_signal_budget_cost_per_second{{signal=\"{signal}\"}} {budget}\n\
             cinnamon_signal_authority{{signal=\"{signal}\"}} 0.98\n\
             cinnamon_signal_faults_total{{signal=\"{signal}\",fault=\"stale\"}} {}\n",
            1 - binding,
            n * (1 - binding),
        );
    }
    text
}

/// What was seen in the seconds 1 to `n`.
fn seen(n: u64, more: &str) -> Model {
    let mut model = Model::new("http://127.0.0.1:9184/metrics");
    for second in 1..=n {
        let scrapes = parse(&format!("{}{more}", text(second)));
        model.take(at(second), scrapes.map_err(|error| error.to_string()));
    }
    model
}

fn frame(
    model: &Model,
    choice: &Choice,
    now: Instant,
    rows: u16,
) -> (Vec<String>, Terminal<TestBackend>) {
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, rows)).unwrap();
    terminal
        .draw(|frame| draw(frame, model, choice, now))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let row = |row: &[ratatui::buffer::Cell]| {
        let text: String = row.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    let rows = buffer
        .content()
        .chunks(usize::from(WIDTH))
        .map(row)
        .collect();
    (rows, terminal)
}

fn ascii() -> Choice {
    Choice {
        ascii: true,
        ..Choice::default()
    }
}

#[test]
fn a_controller_under_load_fits_80_columns_and_24_rows() {
    let (rows, _) = frame(&seen(120, ""), &ascii(), at(120), 24);
    let curve = |c: &str| c.repeat(54);
    let expected = format!(
        "\
cinnamon default  enforce  late ticks 120 +1.0/s   http://127.0.0.1:9184/metrics
STRESSED  headroom 0.12  weight 97  demand 2.01  t0+t1 refused 0.4 %
lanes [read t3.64]  write open
lane read  enforce  held by backlog  engaged  W 12 ms of 20 ms
threshold t3.64   t0 ###### t1 ###### t2 ###### t3 ###... t4 ...... t5 ......
slots 20/20 (5 to 40)  exempt 1  waiting 12 (2 KiB)  service p50 >17 s p99 >17 s
waits p50 <=1.0 ms p99 <=34 ms  timeout 50 ms  CoDel standing  newest first
offered 2010/s (untagged 12)  demand 2.01  cost/s 2010 of C 1000, budget 995
per s  waiting   admit    shed   busy  evict expire hopeless cancel capped close
t0           -     900       .      .      .      .        .      .      .     .
t1           -       .       .      .      .      .        .      .      .     .
t2           2       .       .      .      .      .        .      .      .     .
t3          10      95      14      .      .      .        .      .      .     .
t4           -       .       .      .      .      .        .      .      .     .
t5           -       .    1000      .    1.0      .        .      .      .     .
all         12     995    1014      .    1.0      .        .      .      .     .
signal        press 0         1.0       2.0 budget  auth  state
debt           1.30 [##########|###       ]    700  0.98  engaged BINDS
calm-one       0.40 [####      |          ]   none  0.98  calm stale
threshold {} t3.64, 2 min
offered   {} 2010/s
admitted  {} 995/s of 2010
q quit   l next lane   c next controller   p pause   ? help",
        curve("="),
        curve("#"),
        curve(":"),
    );
    let expected: Vec<&str> = expected.lines().collect();
    assert_eq!(rows[..expected.len()], expected, "{}", rows.join("\n"));
    assert!(rows[expected.len()..].iter().all(String::is_empty));
}

#[test]
fn nothing_but_ascii_is_written_where_that_is_asked_for_and_blocks_else() {
    let model = seen(3, "");
    let (rows, _) = frame(&model, &ascii(), at(3), 24);
    assert!(rows.concat().is_ascii());
    let (rows, _) = frame(&model, &Choice::default(), at(3), 24);
    assert!(rows.concat().contains('█'));
}

#[test]
fn an_override_a_failure_and_a_broken_file_stand_out_without_colours() {
    let more = "cinnamon_override_seconds{target=\"controller\",action=\"shed t4\"} 598\n\
                cinnamon_override_seconds{target=\"lane read\",action=\"mode off\"} 0\n\
                cinnamon_override_file_error 1\n\
                cinnamon_failed 1\n";
    let (rows, terminal) = frame(&seen(2, more), &ascii(), at(2), 24);
    let at = |text: &str| rows.iter().position(|row| row.starts_with(text));
    for text in [
        "!! OVERRIDE controller: shed t4, 10 min left",
        "!! OVERRIDE FILE is not understood",
        "!! FAILED",
    ] {
        let row = at(text).unwrap_or_else(|| panic!("{text}\n{}", rows.join("\n")));
        let cell = &terminal.backend().buffer()[(70, row as u16)];
        assert!(cell.modifier.contains(Modifier::REVERSED), "{text}");
    }
    // It has ended.
    assert!(!rows.concat().contains("mode off"));
    // They are read first.
    assert!(at("!! FAILED") < at("lane read"));
}

#[test]
fn without_an_answer_the_last_figures_are_grey_and_their_age_is_told() {
    let forced = "cinnamon_override_seconds{target=\"controller\",action=\"shed t4\"} 7\n";
    let mut model = seen(2, forced);
    model.take(
        at(3),
        Err("http://127.0.0.1:9184/metrics does not answer".to_owned()),
    );
    let (rows, terminal) = frame(&model, &ascii(), at(14), 24);
    assert_eq!(rows[1], "!! NO ANSWER: figures are 12 s old; trying on");
    assert_eq!(rows[2], "!! http://127.0.0.1:9184/metrics does not answer");
    let all = rows.iter().position(|row| row.starts_with("all ")).unwrap();
    assert!(rows[all].contains("995"), "{}", rows[all]);
    // The override may be over by now.
    assert!(rows[3].starts_with("!! OVERRIDE"), "{}", rows.join("\n"));
    for row in [3, all] {
        let cell = &terminal.backend().buffer()[(1, row as u16)];
        assert_eq!((cell.fg, cell.modifier), (Color::DarkGray, Modifier::DIM));
    }
}

#[test]
fn a_name_that_is_not_there_is_told() {
    let asked = Choice {
        controller: Some("main".to_owned()),
        lane: Some("scan".to_owned()),
        ..ascii()
    };
    let (rows, _) = frame(&seen(2, ""), &asked, at(2), 24);
    assert_eq!(rows[1], "!! NO CONTROLLER main there; this is another");
    assert_eq!(rows[2], "!! NO LANE scan there; this is another");
    assert!(rows.iter().any(|row| row.starts_with("lane read")));
}

#[test]
fn a_control_thread_that_stands_still_is_told() {
    let mut model = seen(2, "");
    for second in 3..10 {
        model.take(
            at(second),
            parse(&text(2)).map_err(|error| error.to_string()),
        );
    }
    let (rows, _) = frame(&model, &ascii(), at(10), 24);
    assert!(rows[1].starts_with("!! NO TICK for 8.0 s"), "{}", rows[1]);
}

#[test]
fn in_few_rows_the_past_goes_first_then_signals_and_the_keys_stay() {
    let model = seen(3, "");
    let starts = |rows: &[String], text: &str| rows.iter().any(|row| row.starts_with(text));
    let (rows, _) = frame(&model, &ascii(), at(3), 20);
    assert!(!starts(&rows, "offered  "));
    assert!(starts(&rows, "calm-one"));
    let (rows, _) = frame(&model, &ascii(), at(3), 18);
    assert_eq!(rows[16], "2 signals: a taller window shows them");
    assert!(starts(&rows[17..], "q quit"));
    let many: String = (0..9)
        .map(|n| format!("cinnamon_signal_mode{{signal=\"s{n}\",mode=\"off\"}} 1\n"))
        .collect();
    let (rows, _) = frame(&seen(3, &many), &ascii(), at(3), 20);
    assert!(starts(&rows[17..], "debt"), "{}", rows.join("\n"));
    assert_eq!(rows[18], "10 more signals: a taller window shows them");
    let (rows, _) = frame(&model, &ascii(), at(3), 5);
    assert!(starts(&rows[4..], "q quit"));
    let (rows, _) = frame(&model, &ascii(), at(3), 1);
    assert!(starts(&rows, "q quit"));
}

#[test]
fn keys_go_round_and_help_fits() {
    let model = seen(3, "");
    let write = next(&model, &ascii(), Next::Lane);
    assert_eq!(write.lane.as_deref(), Some("write"));
    let (rows, _) = frame(&model, &write, at(3), 24);
    assert_eq!(rows[2], "lanes  read t3.64  [write open]");
    assert!(rows[3].starts_with("lane write  mode -  held by nothing"));
    let read = next(&model, &write, Next::Lane);
    assert_eq!(read.lane.as_deref(), Some("read"));
    let only = next(&model, &read, Next::Controller);
    assert_eq!(only.controller.as_deref(), Some("default"));
    let help = Choice {
        help: true,
        paused: true,
        ..ascii()
    };
    let (rows, _) = frame(&model, &help, at(3), 24);
    assert!(rows[0].contains("PAUSED"));
    assert!(
        rows.iter().any(|row| row.ends_with("p go on   ? back")),
        "{}",
        rows.join("\n")
    );
    assert!(HELP.iter().all(|line| line.len() <= usize::from(WIDTH)));
}

#[test]
fn before_the_first_answer_it_says_what_it_waits_for() {
    let mut model = Model::new("http://node/metrics");
    let (rows, _) = frame(&model, &ascii(), at(0), 24);
    assert_eq!(rows[0], "asking http://node/metrics ...");
    model.take(
        at(1),
        Err("http://node/metrics does not answer: refused".to_owned()),
    );
    let (rows, _) = frame(&model, &ascii(), at(1), 24);
    assert_eq!(
        rows[0],
        "http://node/metrics does not answer: refused; trying on"
    );
}
