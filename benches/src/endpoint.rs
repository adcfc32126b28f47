//! The metrics of this process over HTTP, for as long as an experiment runs: [`Endpoint`].
//!
//! The recorder is `metrics-exporter-prometheus`. Its own listener wants a runtime and does not say which port
//! it got, so a small server answers with what the recorder renders.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tiny_http::{Header, Request, Response, Server};

/// Histograms of whoever records some are taken in this often, if nobody fetches them. The recorder keeps every
/// sample until then; each fetch takes them in too.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);
/// The text form of Prometheus.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves all metrics of this process, whatever path is asked for, until it is dropped.
///
/// Controllers of one process need names of their own: under one name the counters of the first would hide the
/// second's. What a controller emitted is served as long as the process lives: a recorder takes nothing back, and
/// one that forgets what is not renewed takes a quarter more time for a page (`--example scrape`).
pub struct Endpoint {
    address: SocketAddr,
    server: Arc<Server>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address can be reached from other machines.
    #[error(
        "metrics are served to this machine only: {address} is no loopback address, such as 127.0.0.1:0"
    )]
    NotLoopback {
        /// The address asked for.
        address: SocketAddr,
    },
    /// This process has a recorder already.
    #[error("the metrics of this process go elsewhere already")]
    Recorder(#[source] BuildError),
    /// The port is taken, or out of bounds for this user.
    #[error("metrics cannot be served on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The server, or the thread that answers, could not be started.
    #[error("the server of metrics on {address} could not be started: {cause}")]
    Start {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        cause: String,
    },
}

impl Endpoint {
    /// Serves on this loopback address; port 0 takes any that is free. The first one of a process also
    /// installs the recorder, and that stays.
    ///
    /// # Errors
    ///
    /// When the address is no loopback address or taken, or when another recorder is installed.
    pub fn start(address: SocketAddr) -> Result<Self, EndpointError> {
        if !address.ip().is_loopback() {
            return Err(EndpointError::NotLoopback { address });
        }
        let metrics = recorder()?;
        let bind = |source| EndpointError::Bind { address, source };
        let start = |cause| EndpointError::Start { address, cause };
        let listener = TcpListener::bind(address).map_err(bind)?;
        let bound = listener.local_addr().map_err(bind)?;
        let server =
            Server::from_listener(listener, None).map_err(|cause| start(cause.to_string()))?;
        let server = Arc::new(server);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (server, stop) = (Arc::clone(&server), Arc::clone(&stop));
            thread::Builder::new()
                .name("lab-endpoint".to_owned())
                .spawn(move || serve(&server, &metrics, &stop))
                .map_err(|cause| start(cause.to_string()))?
        };
        Ok(Self {
            address: bound,
            server,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to give to `lab top`, or to a Prometheus on this machine.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did there is nobody to tell.
            let _ended = thread.join();
        }
    }
}

/// The recorder of this process, installed at the first call.
fn recorder() -> Result<PrometheusHandle, EndpointError> {
    static HANDLE: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut handle = HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*handle {
        return Ok(handle.clone());
    }
    let installed = PrometheusBuilder::new()
        .install_recorder()
        .map_err(EndpointError::Recorder)?;
    Ok(handle.insert(installed).clone())
}

fn serve(server: &Server, metrics: &PrometheusHandle, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match server.recv_timeout(UPKEEP_PERIOD) {
            Ok(Some(request)) => answer(request, metrics),
            Ok(None) => metrics.run_upkeep(),
            // The listener is gone, and will not come back.
            Err(_) => return,
        }
    }
}

fn answer(request: Request, metrics: &PrometheusHandle) {
    let mut response = Response::from_string(metrics.render());
    if let Ok(header) = Header::from_bytes("Content-Type", CONTENT_TYPE) {
        response = response.with_header(header);
    }
    // Whoever asked has gone: nothing is lost.
    let _gone = request.respond(response);
}
