//! Long scans whose chunks are awaited.

use std::mem;

use cinnamon_core::Request;
use futures_channel::oneshot;

use super::AsyncStore;
use crate::error::{ScanError, StoreError};
use crate::scan::Scan;
use crate::store::Row;

type Chunk = Result<Option<Vec<Row>>, ScanError>;

/// A long scan under way; see [`AsyncStore::open_scan`], and [`Scan`] for what it keeps and for how long.
///
/// Dropped at any time, it frees all it holds: at once, or when the chunk under way is read.
#[derive(Debug)]
pub struct AsyncScan {
    store: AsyncStore,
    place: Place,
}

/// Where the scan is.
#[derive(Debug)]
enum Place {
    /// Here, between chunks.
    Here(Box<Scan>),
    /// With a thread, which reads a chunk from this key on.
    Reading(oneshot::Receiver<(Box<Scan>, Chunk)>, Option<Vec<u8>>),
    /// Lost: the chunk from this key on panicked, or found the store shut down.
    Lost(Option<Vec<u8>>),
}

impl AsyncScan {
    pub(super) fn new(store: AsyncStore, scan: Scan) -> Self {
        Self {
            store,
            place: Place::Here(Box::new(scan)),
        }
    }

    /// The next rows; `None` when there are no more.
    ///
    /// # Cancel safety
    ///
    /// No row is lost. Dropped while it waits for admission, it leaves the queue, and the scan stays where it
    /// is. Dropped while the chunk is read, the chunk is what the next call returns.
    ///
    /// # Errors
    ///
    /// Refused, closed, or RocksDB failed, with the key from which to go on: called again, it goes on where it
    /// was, on the same state of the store. Panicked: the scan is lost, and says so from then on.
    pub async fn next_chunk(&mut self) -> Chunk {
        if let Place::Here(scan) = &self.place {
            if scan.is_over() {
                return Ok(None);
            }
            let permit = match scan.admit().await {
                Ok(permit) => permit,
                Err(rejected) => return Err(scan.error(rejected)),
            };
            // Nothing is awaited between the permit and the thread.
            match mem::replace(&mut self.place, Place::Lost(None)) {
                Place::Here(mut scan) => {
                    let resume_at = scan.resume_at().map(<[u8]>::to_vec);
                    let work = move || {
                        let chunk = scan.next_chunk_with(permit);
                        (scan, chunk)
                    };
                    self.place = match self.store.hand_over(work) {
                        Ok(answer) => Place::Reading(answer, resume_at),
                        // Shut down since it was admitted; the scan went with the work.
                        Err(_) => Place::Lost(resume_at),
                    };
                }
                elsewhere => self.place = elsewhere,
            }
        }
        if let Place::Reading(answer, resume_at) = &mut self.place {
            if let Ok((scan, chunk)) = answer.await {
                self.place = Place::Here(scan);
                return chunk;
            }
            self.place = Place::Lost(resume_at.take());
        }
        let resume_at = match &self.place {
            Place::Lost(resume_at) => resume_at.clone(),
            Place::Here(_) | Place::Reading(..) => None,
        };
        let error = if self.store.pool.is_closed() {
            StoreError::Closed
        } else {
            StoreError::Panicked
        };
        Err(ScanError { error, resume_at })
    }

    /// The scan between chunks, to ask it where it stands; `None` while a chunk that nobody waits for any more
    /// is read.
    #[must_use]
    pub fn scan(&self) -> Option<&Scan> {
        match &self.place {
            Place::Here(scan) => Some(scan),
            Place::Reading(..) | Place::Lost(_) => None,
        }
    }

    /// Goes on on behalf of this request, as [`Scan::set_request`] does. `false` while a chunk that nobody
    /// waits for any more is read: then nothing changes.
    pub fn set_request(&mut self, request: &Request) -> bool {
        match &mut self.place {
            Place::Here(scan) => {
                scan.set_request(request);
                true
            }
            Place::Reading(..) | Place::Lost(_) => false,
        }
    }
}
