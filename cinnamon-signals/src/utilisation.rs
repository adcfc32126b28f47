//! What a store says of itself to callers upstream: [`Utilisation`], plain data that travels in an answer.

use serde::{Deserialize, Serialize};

/// How a store stands with one of its namespaces (a table, a column family), as Netflix's data stores tell their
/// callers. All numbers are shares, 0..=1.
///
/// It is data for a header or a body: what an older or newer store leaves out is 0 or nothing, what is not known here
/// is passed over. It is here, and not with a store, so that whoever reads it need not have the store's code.
///
/// ```
/// use cinnamon_signals::{LatencySlo, Utilisation};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (signal, handle) = LatencySlo::of(&[])?; // the signal goes to the gateway's controller
/// # drop(signal);
/// // In an answer of the store's: 44 % of its demand was refused or slower than its target.
/// let header = r#"{"name":"orders","overall":0.44,"latency":{"slo_target":0.41,"slo_max":0.0},"system":{"storage":0.2}}"#;
/// let orders: Utilisation = serde_json::from_str(header)?;
/// handle.report("store-a/orders", orders.overall, orders.latency.slo_max);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Utilisation {
    /// The namespace.
    pub name: String,
    /// The share of what was *asked* that was not served as promised: refused, or slower than the target. So a store
    /// that sheds half of its load and is quick with the rest says 0.5 or more, and hides no demand. What to compare
    /// with a threshold.
    pub overall: f64,
    /// How late it is with what it serves.
    pub latency: LatencyShares,
    /// How much of what stands behind it is used up.
    pub system: SystemShares,
    /// Of reads alone; nothing where reads have no promise. What the fields above say is the greater of reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<ServiceShares>,
    /// Of writes alone; nothing where writes have no promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<ServiceShares>,
}

/// Of what was served, how much was slower than was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LatencyShares {
    /// The share slower than the target, 0..=1.
    pub slo_target: f64,
    /// The share slower than the maximum, 0..=1.
    pub slo_max: f64,
}

/// What stands behind a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SystemShares {
    /// How far the storage is on its way to holding writes back, 0..=1; nothing where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<f64>,
}

/// How one kind of requests is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ServiceShares {
    /// [`Utilisation::overall`] of this kind.
    pub overall: f64,
    /// [`Utilisation::latency`] of this kind.
    pub latency: LatencyShares,
}

impl LatencyShares {
    /// These shares, 0..=1.
    #[must_use]
    pub const fn new(slo_target: f64, slo_max: f64) -> Self {
        Self {
            slo_target,
            slo_max,
        }
    }
}

impl ServiceShares {
    /// These shares.
    #[must_use]
    pub const fn new(overall: f64, latency: LatencyShares) -> Self {
        Self { overall, latency }
    }
}

impl Utilisation {
    /// Of this namespace, nothing known yet.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The same with what is known of its reads and its writes: the greater of both is what it says itself.
    #[must_use]
    pub fn with(mut self, reads: Option<ServiceShares>, writes: Option<ServiceShares>) -> Self {
        for kind in [reads, writes].into_iter().flatten() {
            self.overall = self.overall.max(kind.overall);
            let (latency, of_kind) = (&mut self.latency, kind.latency);
            latency.slo_target = latency.slo_target.max(of_kind.slo_target);
            latency.slo_max = latency.slo_max.max(of_kind.slo_max);
        }
        (self.reads, self.writes) = (reads, writes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn shares(overall: f64, slo_target: f64, slo_max: f64) -> ServiceShares {
        ServiceShares::new(overall, LatencyShares::new(slo_target, slo_max))
    }

    #[test]
    fn it_says_the_greater_of_reads_and_writes() {
        let (reads, writes) = (shares(0.5, 0.2, 0.1), shares(0.3, 0.3, 0.0));
        let both = Utilisation::of("orders").with(Some(reads), Some(writes));
        assert_eq!((both.name.as_str(), both.overall), ("orders", 0.5));
        assert_eq!((both.latency.slo_target, both.latency.slo_max), (0.3, 0.1));
        assert_eq!((both.reads, both.writes), (Some(reads), Some(writes)));
        let neither = Utilisation::of("orders").with(None, None);
        assert_eq!(neither, Utilisation::of("orders"));
    }

    #[test]
    fn it_travels_between_versions() {
        let mut sent = Utilisation::of("orders").with(None, Some(shares(0.3, 0.3, 0.0)));
        sent.system.storage = Some(0.25);
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(
            text,
            r#"{"name":"orders","overall":0.3,"latency":{"slo_target":0.3,"slo_max":0.0},"system":{"storage":0.25},"writes":{"overall":0.3,"latency":{"slo_target":0.3,"slo_max":0.0}}}"#
        );
        assert_eq!(serde_json::from_str::<Utilisation>(&text).unwrap(), sent);
        // Another's, with less and with more in it.
        let other = r#"{"name":"blobs","system":{"compute":0.7},"zone":"b"}"#;
        let read: Utilisation = serde_json::from_str(other).unwrap();
        assert_eq!(read, Utilisation::of("blobs"));
    }
}
