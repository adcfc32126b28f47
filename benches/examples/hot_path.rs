//! The hottest paths, so many times over, for a tool that counts instructions: `tools/instructions.sh`.
//!
//! ```text
//! hot_path admit 20000
//! ```
//!
//! The clock is one that costs next to nothing, so that a count is of the controller's own instructions, the same on
//! every machine.

use std::error::Error;
use std::hint::black_box;

use cinnamon_core::{Request, Tier};
use cinnamon_lab::speed::fixture::{self, SLOTS};
use cinnamon_lab::speed::ours;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("which path: admit, owned or shed?")?;
    let times: u64 = arguments.next().ok_or("how many times?")?.parse()?;
    let (controller, lane) = fixture::steady(SLOTS)?;
    let request = |key| black_box(Request::new(Tier::T1).key(key));
    let good = match path.as_str() {
        "admit" => (0..times).all(|key| ours::borrowed(&lane, &request(key))),
        "owned" => (0..times).all(|key| ours::owned(&lane, &request(key))),
        "shed" => {
            fixture::shut(&controller)?;
            let refused = fixture::refused();
            (0..times).all(|_| ours::refused(&lane, black_box(&refused)))
        }
        other => return Err(format!("`{other}` is none of admit, owned, shed").into()),
    };
    if !good {
        return Err(format!("`{path}` did not do what is counted").into());
    }
    Ok(())
}
