//! Connections that wait to be accepted: [`AcceptQueue`].

use std::ops::RangeInclusive;
use std::time::Duration;

use cinnamon_core::{Authority, Dynamics, Instant, Reading, Signal, View};

use crate::common::{Common, common_answers, common_setters, world_setters};
use crate::least::Least;
use crate::setting::{SettingError, within};
use crate::world::{Missing, World, number};

/// Share of the backlog that stands full at pressure 1.0: from half on a burst of as many again is refused by the
/// kernel, unseen by us.
pub const DEFAULT_ACCEPT_QUEUE_SHARE: f64 = 0.5;
/// Time between two looks: for each the kernel walks its table of connections.
pub const DEFAULT_ACCEPT_QUEUE_PERIOD: Duration = Duration::from_millis(500);
/// The least length within this counts: a burst, or a pause of 400 ms, fills the queue and is gone within a second.
pub const ACCEPT_QUEUE_WINDOW: Duration = Duration::from_secs(2);

/// How long to wait for the effect of a change: twice the window.
const HOLD: Duration = Duration::from_secs(4);
/// The state of a listener in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// How full the kernel's queue of connections that nobody has accepted yet stands.
///
/// - **Measures** the receive queues of all listeners on a port (`/proc/net/tcp` and `tcp6`: for a listener that is the
///   number of connections to be accepted) over their backlogs, which are what was given to `listen` or
///   `net.core.somaxconn`, whichever is less. The least share within [`ACCEPT_QUEUE_WINDOW`] counts: what stands, and
///   not what comes and goes. Pressure is that share over the target share.
/// - **A sample costs** the start of a table of all sockets of the network namespace, listeners first; the kernel walks its
///   hash table of connections to fill it: 1 to 4 milliseconds on a node that is otherwise idle, less on a busy one. Hence
///   the period, [`DEFAULT_ACCEPT_QUEUE_PERIOD`].
/// - **Lies** where connections live long: it counts arrivals of connections, not of requests. It sees only a loop
///   that is too slow to accept, so a server that accepts at once and queues inside shows nothing here. A port that is
///   shared with other processes counts whole.
/// - **Dynamics** are binary: how fast it fills is the clients' affair. **Authority** is [`Authority::Inferring`].
/// - **Target**: [`DEFAULT_ACCEPT_QUEUE_SHARE`].
///
/// Unavailable when nobody listens on the port, and on any system other than Linux.
#[derive(Clone, Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct AcceptQueue {
    common: Common,
    port: u16,
    backlog: u32,
    target_share: f64,
    world: World,
    least: Least,
}

/// What waits at the listeners of a port, and how many of those there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Listeners {
    count: u64,
    waiting: u64,
}

impl AcceptQueue {
    /// Of the listeners on this TCP port, called `accept-queue`. `backlog` is what each of them gave to `listen`; the
    /// greatest `u32` where that was as much as the system allows.
    ///
    /// # Errors
    ///
    /// When `port` or `backlog` is 0.
    pub fn new(port: u16, backlog: u32) -> Result<Self, SettingError> {
        let least_one = "at least 1";
        within(
            "accept_queue.port",
            f64::from(port),
            1.0..=65_535.0,
            least_one,
        )?;
        within(
            "accept_queue.backlog",
            f64::from(backlog),
            1.0..=f64::MAX,
            least_one,
        )?;
        let common = Common::new("accept-queue", Authority::Inferring);
        Ok(Self {
            common: common.every(DEFAULT_ACCEPT_QUEUE_PERIOD),
            port,
            backlog,
            target_share: DEFAULT_ACCEPT_QUEUE_SHARE,
            world: World::new(),
            least: Least::new(ACCEPT_QUEUE_WINDOW),
        })
    }

    common_setters!();

    /// The share of the backlog at pressure 1.0. Default [`DEFAULT_ACCEPT_QUEUE_SHARE`].
    ///
    /// # Errors
    ///
    /// Unless it is from 0.05 to 1.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        let bound = "from 0.05 to 1";
        self.target_share = within("accept_queue.target_share", share, 0.05..=1.0, bound)?;
        Ok(self)
    }

    world_setters!("Looks for `proc` in this directory instead of in `/`.");

    /// What waits, of how much.
    fn look(&mut self) -> Result<(u64, u64), Missing> {
        let port = self.port;
        let mut found = Listeners::default();
        let mut failed = None;
        for file in ["proc/net/tcp", "proc/net/tcp6"] {
            let parse = |text: &str| listeners(text, port);
            match self.world.look(file, "a table of sockets", parse) {
                Ok(here) => {
                    found.count += here.count;
                    found.waiting = found.waiting.saturating_add(here.waiting);
                }
                // A machine may have only one of them.
                Err(missing) => failed = Some(missing),
            }
        }
        if found.count == 0 {
            let nobody = || Missing::Other(format!("nobody listens on port {port}"));
            return Err(failed
                .filter(|error| !error.is_file())
                .unwrap_or_else(nobody));
        }
        let file = "proc/sys/net/core/somaxconn";
        // Containers may not see it; then what the caller said holds.
        let most = self
            .world
            .look(file, "a number", number)
            .unwrap_or(u64::MAX);
        let backlog = u64::from(self.backlog).min(most.max(1));
        Ok((found.waiting, backlog * found.count))
    }
}

/// Lines of `/proc/net/tcp`: number, local address, remote address, state, send and receive queue, …
fn listeners(text: &str, port: u16) -> Option<Listeners> {
    let mut lines = text.lines();
    lines.next()?.contains("local_address").then_some(())?;
    let mut found = Listeners::default();
    for line in lines {
        // The last line may be torn off; by then there are only connections.
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(local), _, Some(state), Some(queues)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if state != LISTEN {
            continue;
        }
        let (_, local_port) = local.rsplit_once(':')?;
        if u16::from_str_radix(local_port, 16).ok()? == port {
            let (_, waiting) = queues.split_once(':')?;
            found.count += 1;
            found.waiting += u64::from(u32::from_str_radix(waiting, 16).ok()?);
        }
    }
    Some(found)
}

impl Signal for AcceptQueue {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::binary(HOLD)
    }

    fn range(&self) -> RangeInclusive<f64> {
        // The kernel lets one more in than it was told.
        0.0..=2.0 / self.target_share
    }

    fn sample(&mut self, now: Instant, _view: &View) -> Reading {
        let (waiting, most) = match self.look() {
            Ok(found) => found,
            Err(missing) => return Reading::unavailable(missing.into_text()),
        };
        let share = (waiting as f64 / most as f64).min(1.0);
        match self.least.push(now, share) {
            Some(share) => Reading::pressure(share / self.target_share)
                .note(format!("{waiting} of {most} wait")),
            None => Reading::unavailable("not watched for a whole window yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n";

    fn line(port: u16, state: &str, waiting: u32) -> String {
        format!("   0: 00000000:{port:04X} 00000000:0000 {state} 00000000:{waiting:08X} 00:0 0\n")
    }

    fn table(lines: &[String]) -> String {
        format!("{HEAD}{}", lines.concat())
    }

    #[test]
    fn only_listeners_of_the_port_count() {
        let text = table(&[
            line(8080, "0A", 5),
            line(8080, "01", 900),
            line(8081, "0A", 900),
            line(8080, "0A", 7),
            "torn off\n".to_owned(),
        ]);
        let found = listeners(&text, 8080);
        assert_eq!(
            found,
            Some(Listeners {
                count: 2,
                waiting: 12
            })
        );
        for garbage in ["", "nonsense\n", &table(&["  0: x x 0A y z\n".to_owned()])] {
            assert_eq!(listeners(garbage, 8080), None, "{garbage:?}");
        }
    }

    #[cfg(target_os = "linux")]
    mod on_linux {
        use super::*;
        use crate::world::tests::{tree, write};

        #[test]
        fn what_stands_counts_and_not_what_comes_and_goes() {
            let root = tree(&[("proc/sys/net/core/somaxconn", "100\n")]);
            let queue = AcceptQueue::new(8080, 4_096).unwrap();
            let mut queue = queue.root(root.path());
            let mut sample = |quarters: u64, waiting: u32| {
                let text = table(&[line(8080, "0A", waiting)]);
                write(&root, "proc/net/tcp", &text);
                let now = Instant::ZERO.after(Duration::from_millis(250 * quarters));
                queue.sample(now, &View::default()).value()
            };
            for quarters in 0..8 {
                assert_eq!(sample(quarters, 100), None);
            }
            assert_eq!(
                sample(8, 101),
                Some(2.0),
                "of somaxconn, half of it the target"
            );
            assert_eq!(sample(9, 25), Some(0.5));
            assert_eq!(sample(10, 100), Some(0.5), "for two seconds");
            for quarters in 11..17 {
                sample(quarters, 60);
            }
            assert_eq!(sample(18, 60), Some(1.2));
        }

        #[test]
        fn nobody_who_listens_is_no_calm() {
            let root = tree(&[("proc/net/tcp6", &table(&[line(80, "0A", 3)]))]);
            let queue = AcceptQueue::new(8080, 10).unwrap();
            let said = queue
                .root(root.path())
                .sample(Instant::ZERO, &View::default());
            assert_eq!(said, Reading::unavailable("nobody listens on port 8080"));
            assert!(AcceptQueue::new(0, 10).is_err() && AcceptQueue::new(80, 0).is_err());
            let share = AcceptQueue::new(80, 10).and_then(|queue| queue.target_share(2.0));
            assert!(share.is_err());
        }
    }
}
