//! `lab`, the overload laboratory: drives the controller, its baselines and the oracle with one and the same trace.

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
    /// Name the experiments that this build can run.
    List,
}

/// An experiment: its name on the command line and what it shows.
#[derive(Debug)]
struct Experiment {
    name: &'static str,
    about: &'static str,
}

const EXPERIMENTS: &[Experiment] = &[];

fn main() {
    let Cli { command } = Cli::parse();
    match command {
        Command::List => list(EXPERIMENTS),
    }
}

fn list(experiments: &[Experiment]) {
    if experiments.is_empty() {
        println!("no experiments yet");
    }
    for Experiment { name, about } in experiments {
        println!("{name:<16} {about}");
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
