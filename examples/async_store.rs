//! A store without a runtime: a batch over two column families, and a long scan in chunks.
//! `tools/cargo-rocks.sh run --release -p cinnamon-examples --example async_store`
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use cinnamon_rocks::{AsyncStore, Request, ScanOptions, Store, StoreOptions, Tier};

const OPTIONS: &str = r#"
read_limit = 4
memory_bytes_max = 536870912

[[families]]
name = "orders"
write_buffer_bytes = 16777216

[[control.classes]]
name = "scan"
default_tier = "t4"
"#;

/// Wakes the thread that waits: all of a runtime that is needed here.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

async fn run(store: AsyncStore) -> Result<(), Box<dyn std::error::Error>> {
    let orders = store.family("orders")?;
    let customer = Request::new(Tier::T1).key(4711);
    let mut batch = store.batch();
    for order in 0..1_000u32 {
        batch.put(orders.store(), &order.to_be_bytes(), b"paid");
    }
    batch.put(store.store(), b"orders", b"1000");
    store.write(&customer, batch).await?;
    for order in 0..600u32 {
        orders.delete(&customer, &order.to_be_bytes()).await?;
    }

    // A report: t4 by its class, in chunks, and not at the cache's expense.
    let mut options = ScanOptions::default();
    options.fill_cache = false;
    let mut scan = orders.open_scan(&Request::untagged().key(1), options);
    while let Some(rows) = scan.next_chunk().await? {
        println!("{} rows", rows.len());
    }
    let snapshot = store.store().snapshot();
    for lane in &snapshot.lanes {
        println!("{}: {} admitted", lane.name, lane.verdicts.admitted());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let options = StoreOptions::from_toml(OPTIONS)?;
    let store = AsyncStore::new(Store::open(dir.path(), options)?)?;
    block_on(run(store))
}
