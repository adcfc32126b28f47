//! The thread that watches the override file.
//!
//! It has a thread of its own because a disk that hangs must not hold up the control step; if it hangs, the
//! file is not heeded, and nothing else happens. It holds the controller weakly, so it ends with it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::clock::Instant;
use crate::control::Shared;
use crate::driver::BLIND_SLEEP;
use crate::sync::{Arc, ThreadBuilder, Weak, lock};

/// Between two looks. A file that is not there costs a system call of some microseconds.
const PERIOD: Duration = Duration::from_millis(50);
/// A larger file is none of ours.
const BYTES_MAX: u64 = 64 << 10;

/// What a look at the file found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing is there, or nothing is in it.
    Nothing,
    /// Its text, and when it was written.
    Text(String, SystemTime),
    Unreadable(String),
}

/// What was told of it last.
#[derive(Debug)]
struct Told {
    /// The last that could be read: a disk that fails ends no override.
    text: Found,
    /// Nothing was found at the last look: whoever writes a file empties it first, so it takes two.
    nothing: bool,
    /// The last look failed, and that was told.
    unreadable: bool,
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
            let mut told = Told {
                text: Found::Nothing,
                nothing: true,
                unreadable: false,
            };
            while let Some(now) = watch(&weak, &path, &mut told) {
                if !kick.sleep(now, now.after(PERIOD)) {
                    return;
                }
            }
        })
        .map(drop)
}

/// Looks once and tells the controller what is new; `None` when there is no controller any more.
fn watch(weak: &Weak<Shared>, path: &Path, told: &mut Told) -> Option<Instant> {
    let found = look(path);
    let shared = weak.upgrade()?;
    // What it calls of the embedder's, such as a subscriber of the log, must not end it.
    let _unwound = catch_unwind(AssertUnwindSafe(|| tell(&shared, found, told)));
    let now = shared.read_clock();
    Some(now.unwrap_or(Instant::ZERO.after(BLIND_SLEEP)))
}

fn tell(shared: &Shared, found: Found, told: &mut Told) {
    let was_nothing = std::mem::replace(&mut told.nothing, found == Found::Nothing);
    let (text, age) = match &found {
        Found::Unreadable(why) => {
            told.unreadable = true;
            shared.tell_override_file_error(Some(why.clone()));
            return;
        }
        Found::Nothing if !was_nothing => return,
        Found::Nothing => ("", Duration::ZERO),
        Found::Text(text, written) => (text.as_str(), age(*written)),
    };
    let was_unreadable = std::mem::take(&mut told.unreadable);
    if was_unreadable || found != told.text {
        shared.take_override_file(text, age);
        told.text = found;
    }
}

/// How long ago that was. By the world's clock, which stamps files too: the controller's own may have drifted from
/// it since it was built.
#[expect(
    clippy::disallowed_methods,
    reason = "the age of a file is a matter of the clock that stamped it"
)]
fn age(written: SystemTime) -> Duration {
    let age = SystemTime::now().duration_since(written);
    // Written in the future: just now, by a clock that was set back since.
    age.unwrap_or_default()
}

fn look(path: &Path) -> Found {
    let read = || -> std::io::Result<Found> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            file => file?,
        };
        let written = file.metadata()?.modified()?;
        let mut text = String::new();
        file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > BYTES_MAX {
            let why = format!("it is larger than {BYTES_MAX} bytes");
            return Ok(Found::Unreadable(why));
        }
        if text.is_empty() {
            return Ok(Found::Nothing);
        }
        Ok(Found::Text(text, written))
    };
    match read() {
        Ok(found) => found,
        Err(error) => Found::Unreadable(error.to_string()),
    }
}
