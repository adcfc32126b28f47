//! `lab`, the overload laboratory.

#[cfg(feature = "rocks")]
mod demo;
#[cfg(feature = "rocks")]
mod machine;
#[cfg(feature = "rocks")]
mod slots;
#[cfg(feature = "rocks")]
mod stall;
#[cfg(feature = "rocks")]
mod surge;
#[cfg(feature = "rocks")]
mod task;

use std::process::ExitCode;

/// The system's allocator gives memory back to the kernel when the load falls and fetches it page by page
/// when it rises: the capacity then depended on what had run a minute before, by 15 %.
#[cfg(feature = "rocks")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use cinnamon_lab::{alerts, each, fair, limits, sim, top};
use clap::{Parser, Subcommand};

/// The overload laboratory of the Cinnamon admission controller.
#[derive(Debug, Parser)]
#[command(name = "lab", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Name the experiments, scenarios and arms of this build.
    List,
    /// Overload in virtual time: Cinnamon against a perfect shedder and the systems it replaces.
    ///
    /// Exits with 0 when Cinnamon held every bar, 1 when it missed one, 2 when there is no outcome.
    Sim(sim::command::Options),
    /// Find the number of slots in virtual time: Auto beside the limiters it is measured against.
    ///
    /// Exits with 0 when Auto held every bar and the controls failed, 1 when not, 2 when there is no outcome.
    Limits(limits::Options),
    /// One caller does what it should not, in virtual time: who pays?
    ///
    /// Exits with 0 when every bar was held and every control failed, 1 when not, 2 when there is no outcome.
    Fair(fair::Options),
    /// Each ready-made signal alone, in virtual time: does it hold what it measures, and nothing more?
    ///
    /// Exits with 0 when every bar was held, 1 when not, 2 when there is no outcome.
    Signals(each::Options),
    /// Drive a controller through trouble in virtual time: does the one alert fire that should?
    ///
    /// Needs `promtool`. Exits with 0 when exactly the alerts fired that should, 1 when not, 2 when there is no outcome.
    Alerts(alerts::Options),
    /// Break a real RocksDB store four ways, through five generations of overload control: who gets dropped?
    ///
    /// Exits with 0 when every promise held, 1 when one was missed, 2 when the run could not be made,
    /// 3 when it was not valid: the generator was late.
    #[cfg(feature = "rocks")]
    Demo(demo::Options),
    /// Overload a real RocksDB store twelvefold, without and with Cinnamon, and judge the promises.
    ///
    /// Exits with 0 when every promise held, 1 when one was missed, 2 when the run could not be made,
    /// 3 when it was not valid: the generator was late, or the machine slower than measured.
    #[cfg(feature = "rocks")]
    Surge(surge::Options),
    /// Write to a real RocksDB store faster than it can compact: does Cinnamon shed before RocksDB stalls?
    ///
    /// Exits with 0 when every bar was held, 1 when one was missed, 2 when the run could not be made,
    /// 3 when it was not valid: the generator was late.
    #[cfg(feature = "rocks")]
    Stall(stall::Options),
    /// Clients that never rest on a real RocksDB store: the limit that finds itself against every fixed one.
    ///
    /// Exits with 0 when the bars were held on every workload, 1 when one was missed, 2 when the run could not be made.
    #[cfg(feature = "rocks")]
    Slots(slots::Options),
    /// Watch a running controller through the metrics that its process exports.
    ///
    /// Exits with 2 when there is nothing to show.
    Top(top::Options),
}

/// An experiment: its name on the command line and what it shows.
const EXPERIMENTS: &[(&str, &str)] = &[
    (
        "sim",
        "runs the engine in virtual time against a perfect shedder and the systems it replaces",
    ),
    (
        "limits",
        "finds the number of slots, beside the limiters that are measured against",
    ),
    (
        "fair",
        "hot keys, floods, lying tags and retry storms: sees that nobody else pays",
    ),
    (
        "signals",
        "holds each ready-made signal's pressure at its target, alone",
    ),
    (
        "alerts",
        "makes every alert of docs/alerts.yml fire, and sees that no other does",
    ),
    #[cfg(feature = "rocks")]
    (
        "demo",
        "breaks a RocksDB store four ways, through five generations of overload control",
    ),
    #[cfg(feature = "rocks")]
    (
        "surge",
        "overloads a RocksDB store twelvefold, without and with Cinnamon, and judges promises",
    ),
    #[cfg(feature = "rocks")]
    (
        "slots",
        "finds the number of slots on a RocksDB store, against every fixed number",
    ),
    #[cfg(feature = "rocks")]
    (
        "stall",
        "drives a RocksDB store into its write stall, without and with the signal of it",
    ),
];

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::List => {
            for (name, about) in EXPERIMENTS {
                println!("{name:<8} {about}");
            }
            print!("\n{}", sim::command::list());
            ExitCode::SUCCESS
        }
        Command::Sim(options) => sim::command::main(&options),
        Command::Limits(options) => limits::main(&options),
        Command::Fair(options) => fair::main(&options),
        Command::Signals(options) => each::main(&options),
        Command::Alerts(options) => alerts::main(&options),
        #[cfg(feature = "rocks")]
        Command::Demo(options) => demo::main(&options),
        #[cfg(feature = "rocks")]
        Command::Surge(options) => surge::main(&options),
        #[cfg(feature = "rocks")]
        Command::Stall(options) => stall::main(&options),
        #[cfg(feature = "rocks")]
        Command::Slots(options) => slots::main(&options),
        Command::Top(options) => top::main(&options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
