//! Where the figures come from: [`Source`], one address that is fetched again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use ureq::Agent;
use ureq::http::Uri;

use super::text::{self, Scrape, TextError};

/// An answer that takes longer is as good as none: the next one would be due twice.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// More than this is no metrics endpoint; a large process exports a megabyte.
const BODY_BYTES_MAX: u64 = 16 << 20;
/// Where metrics are by custom, and what is asked for when the address names no path.
const PATH: &str = "/metrics";

/// An address of metrics.
#[derive(Clone, Debug)]
pub struct Source {
    url: String,
    agent: Agent,
}

/// The address cannot be one of metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{url}` is no address of metrics: {what}; expected is http://HOST:PORT/metrics, or HOST:PORT for short"
)]
pub struct UrlError {
    /// The address as it was given.
    pub url: String,
    /// What is wrong with it.
    pub what: String,
}

/// There are no figures to be had now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// Nobody answers there, or not in time.
    #[error("{url} does not answer: {cause}")]
    NoAnswer {
        /// The address.
        url: String,
        /// Why.
        cause: String,
    },
    /// Who answers there does not export metrics under this path.
    #[error("{url} answers with status {status}; metrics come with 200")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
    },
    /// What came is not in the form of Prometheus.
    #[error("{url} answers, but not as Prometheus would: {source}")]
    Text {
        /// The address.
        url: String,
        /// What is wrong.
        source: TextError,
    },
    /// What came has no metric of ours.
    #[error("{url} answers, but exports no metrics of a controller (none begins with cinnamon_)")]
    NoController {
        /// The address.
        url: String,
    },
}

impl Source {
    /// The metrics at this address. Nothing is fetched yet.
    ///
    /// # Errors
    ///
    /// When it is no address of the form `http://HOST:PORT/PATH`.
    pub fn new(given: &str) -> Result<Self, UrlError> {
        let wrong = |what: &str| UrlError {
            url: given.to_owned(),
            what: what.to_owned(),
        };
        let mut url = given.trim().to_owned();
        if !url.contains("://") {
            url.insert_str(0, "http://");
        }
        let after_scheme = url.split_once("://").map_or("", |(_, rest)| rest);
        if !after_scheme.contains('/') {
            url.push_str(PATH);
        }
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("TLS is not spoken here, use a tunnel")),
            _ => return Err(wrong("it begins with another scheme")),
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(wrong("it names no host"));
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let names_port = authority
            .rsplit(']')
            .next()
            .is_some_and(|of| of.contains(':'));
        if names_port && uri.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong("its port is not one of 1 to 65535"));
        }
        let agent = Agent::config_builder()
            .timeout_global(Some(ANSWER_MAX))
            // What runs on this machine is not behind a proxy, whatever the environment says.
            .proxy(None)
            // An idle connection outlives the process at its other end without a sign of it.
            .max_idle_connections(0)
            .build()
            .new_agent();
        Ok(Self { url, agent })
    }

    /// The whole address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What every controller there exports now. Blocks for two seconds at most.
    ///
    /// # Errors
    ///
    /// When nobody answers, or the answer is none of metrics of a controller.
    pub fn fetch(&self) -> Result<BTreeMap<String, Scrape>, FetchError> {
        let url = || self.url.clone();
        let failed = |error| match error {
            ureq::Error::StatusCode(status) => FetchError::Status { url: url(), status },
            other => FetchError::NoAnswer {
                url: url(),
                cause: other.to_string(),
            },
        };
        let mut answer = self.agent.get(&self.url).call().map_err(failed)?;
        let body = answer.body_mut().with_config().limit(BODY_BYTES_MAX);
        let text = body.read_to_string().map_err(failed)?;
        let found = text::parse(&text).map_err(|source| FetchError::Text { url: url(), source })?;
        if found.is_empty() {
            return Err(FetchError::NoController { url: url() });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_short() {
        for (given, url) in [
            ("127.0.0.1:9184", "http://127.0.0.1:9184/metrics"),
            (" http://[::1]:9184", "http://[::1]:9184/metrics"),
            ("http://node/stats?all=1", "http://node/stats?all=1"),
            ("localhost:9184/", "http://localhost:9184/"),
        ] {
            assert_eq!(Source::new(given).unwrap().url(), url);
        }
    }

    #[test]
    fn an_address_that_cannot_be_one_is_named_with_what_is_expected() {
        for (given, what) in [
            ("https://node:9184", "TLS is not spoken here"),
            ("ftp://node", "another scheme"),
            ("", "invalid"),
            ("http://", "invalid"),
            ("node:port", "its port is not one of 1 to 65535"),
            ("node:70000", "its port is not one of 1 to 65535"),
            ("[::1]:0", "its port is not one of 1 to 65535"),
            ("a b", "invalid"),
        ] {
            let error = Source::new(given).unwrap_err().to_string();
            assert!(error.contains(&format!("`{given}`")), "{error}");
            assert!(error.contains(what), "{error}");
            assert!(error.contains("http://HOST:PORT/metrics"), "{error}");
        }
    }
}
