//! The thread that watches the override file.
//!
//! It has a thread of its own because a disk that hangs must not hold up the control step; if it hangs, the
//! file is not heeded, and nothing else happens. It holds the controller weakly, so it ends with it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::clock::Instant;
use crate::control::Shared;
use crate::driver::BLIND_SLEEP;
use crate::sync::{Arc, ThreadBuilder, Weak, lock};

/// Between two looks. A file that is not there costs a system call of some microseconds.
const PERIOD: Duration = Duration::from_millis(50);
/// A larger file is none of ours.
const BYTES_MAX: u64 = 64 << 10;

/// The file as it was when it was last looked at.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Missing,
    /// Its text, and when it was written, ns since the Unix epoch.
    Text(String, u64),
    Unreadable(String),
}

/// Starts the thread, if a file is to be watched.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let path = lock(&shared.config).override_file.clone();
    let Some(path) = path else {
        return Ok(());
    };
    let weak = Arc::downgrade(shared);
    let kick = Arc::clone(&shared.sentinel);
    ThreadBuilder::new()
        .name("cinnamon-sentinel".to_owned())
        .spawn(move || {
            let mut seen = Seen::Missing;
            while let Some(now) = watch(&weak, &path, &mut seen) {
                if !kick.sleep(now, now.after(PERIOD)) {
                    return;
                }
            }
        })
        .map(drop)
}

/// Looks once and tells the controller what is new; `None` when there is no controller any more.
fn watch(weak: &Weak<Shared>, path: &Path, seen: &mut Seen) -> Option<Instant> {
    let found = look(path);
    let shared = weak.upgrade()?;
    let now = shared.read_clock();
    if found != *seen {
        *seen = found;
        tell(&shared, seen, now.unwrap_or_default());
    }
    Some(now.unwrap_or(Instant::ZERO.after(BLIND_SLEEP)))
}

fn tell(shared: &Shared, seen: &Seen, now: Instant) {
    let file = match seen {
        Seen::Missing => Ok(None),
        Seen::Text(text, written_unix_ns) => {
            let now_unix_ns = shared.origin_unix_ns.saturating_add(now.as_nanos());
            let age_ns = now_unix_ns.saturating_sub(*written_unix_ns);
            Ok(Some((text.as_str(), Duration::from_nanos(age_ns))))
        }
        Seen::Unreadable(why) => Err(why.clone()),
    };
    shared.take_override_file(file);
}

fn look(path: &Path) -> Seen {
    let read = || -> std::io::Result<Option<Seen>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let about = file.metadata()?;
        let written = about.modified()?.duration_since(UNIX_EPOCH);
        let mut text = String::new();
        file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > BYTES_MAX {
            let why = format!("it is larger than {BYTES_MAX} bytes");
            return Ok(Some(Seen::Unreadable(why)));
        }
        let written = written.unwrap_or_default();
        Ok(Some(Seen::Text(text, written.as_nanos() as u64)))
    };
    match read() {
        Ok(found) => found.unwrap_or(Seen::Missing),
        Err(error) => Seen::Unreadable(error.to_string()),
    }
}
