//! Tenants that ask for more than their share: [`HotTenants`].

mod tally;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use cinnamon_core::{
    Authority, Culprit, Dynamics, Instant, Observer, OfferEvent, Reading, Remedy, Signal, Tenant,
    View, Who,
};

use crate::common::{Common, common_answers, common_setters};
use crate::hot::rings::Cursor;
use crate::hot::{self, Busy, PEER_SIGMAS, SIGMAS, Told};
use crate::setting::{SettingError, within};
use tally::{Tally, Top};

/// Share of the load from which a tenant is named, and that it has at pressure 1.0 unless its peers have more: that of keys,
/// and twice what each of twenty equal tenants has.
pub const DEFAULT_HOT_TENANT_SHARE: f64 = 0.1;
/// And when it asks for so many times as much as its peers, the median of the other tenants that came. Tenants of one
/// service differ by half and by twice on any day.
pub const HOT_TENANT_PEERS: f64 = 4.0;
/// Most tenants named at once.
pub const HOT_TENANTS_MAX: usize = 8;

/// With fewer requests in the last second nothing is said: a quiet lane is not busy with them.
const OFFERS_MIN: u64 = 100;
/// How fast the share of a tenant follows what is asked: the two generations of the counts.
const TAU: Duration = Duration::from_secs(1);
/// Least share that can be set.
const SHARE_MIN: f64 = 0.01;
/// Weights that can be: no one is a thousandth of a tenant, or a thousand of them.
const WEIGHTS: RangeInclusive<f64> = 1e-3..=1e3;

/// Tenants that ask for far more than their peers, and who they are: they are throttled, and nobody else.
///
/// - **Measures** what each tenant asked for in the last half to whole second, by cost. It is counted exactly, for tenants are
///   few: of more than 4,096 in half a second those that came last are only load (which a hot one is not). A tenant is
///   *named* as a culprit, with its share, from [`DEFAULT_HOT_TENANT_SHARE`] of all cost and [`HOT_TENANT_PEERS`]
///   times its peers on, chance being taken off. Pressure is its share over that which it should have: what one of its
///   peers has beside the others, or [`DEFAULT_HOT_TENANT_SHARE`] if that is more. It is held under 1.0 while the
///   lanes of its scope are not busy, or next to nobody else comes.
/// - **A sample costs** about 50 ns for each request since the last one, 33,000 at most, of more the latest count, and 0.2 us
///   for each tenant that came. A request costs an addition and a store, a few nanoseconds; as an observer 20 ns.
/// - **Lies** about tenants that are large by right: beside many small ones the largest customer is a culprit as soon as the
///   lanes are busy. Give it its [`weight`](Self::weight). It knows what a request says that it costs, 1 if it says nothing;
///   and cannot tell exempt work from other.
/// - **Dynamics** are settling. **Remedy** is [`Remedy::Precise`]: it never moves a threshold, so its **authority**,
///   [`Authority::Inferring`], is of no account.
/// - **Target**: [`DEFAULT_HOT_TENANT_SHARE`].
///
/// One tenant alone has no peers, and equal ones are nobody's culprits. Work without a tenant is load, but no peer. With
/// fewer than 100 requests in that time its pressure is 0.
///
/// ```
/// use std::sync::Arc;
/// use cinnamon_core::{Config, Controller, Request, Settings, Tenant, Tier};
/// use cinnamon_signals::HotTenants;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (hot_tenants, handle) = HotTenants::new();
/// let config = Config::new(Settings::one_lane("main", 16))?;
/// let controller = Controller::builder(config)
///     .signal(hot_tenants)
///     .observer(Arc::new(handle))
///     .build()?;
/// let lane = controller.lane("main")?;
/// let permit = lane.try_admit(&Request::new(Tier::T2).tenant(Tenant(7)).cost(3))?;
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until a controller has it"]
pub struct HotTenants {
    common: Common,
    target_share: f64,
    weights: HashMap<u32, f64>,
    told: Arc<Told>,
    cursor: Cursor,
    tally: Tally,
    busy: Busy,
}

/// Tells a [`HotTenants`] of what is asked for, as an [`Observer`] or by hand, not both. Clones tell the same one.
#[derive(Clone, Debug)]
pub struct HotTenantsHandle {
    told: Arc<Told>,
}

impl HotTenantsHandle {
    /// A request of this tenant has come, of this cost. Say so before it is offered; what is refused is load, too.
    pub fn tenant(&self, tenant: Tenant, cost: u32) {
        self.told.rings.push(tally::word(tenant.0, cost));
    }
}

impl Observer for HotTenantsHandle {
    fn on_offer(&self, offer: &OfferEvent<'_>) {
        if !self.told.concerns(offer.lane) {
            return;
        }
        let cost = offer.request.get_cost().unwrap_or(1);
        match offer.request.get_tenant() {
            Some(tenant) => self.tenant(tenant, cost),
            None => self.told.rings.push_nameless(cost.into()),
        }
    }
}

impl HotTenants {
    /// A signal called `hot-tenants`, and the handle that tells it of what is asked for.
    pub fn new() -> (Self, HotTenantsHandle) {
        let told = Arc::new(Told::new());
        let signal = Self {
            common: Common::new("hot-tenants", Authority::Inferring),
            target_share: DEFAULT_HOT_TENANT_SHARE,
            weights: HashMap::new(),
            told: Arc::clone(&told),
            cursor: Cursor::default(),
            tally: Tally::new(),
            busy: Busy::default(),
        };
        (signal, HotTenantsHandle { told })
    }

    common_setters!();

    /// The share from which a tenant is named, and at which its pressure is 1.0. Default [`DEFAULT_HOT_TENANT_SHARE`]. A
    /// lower one throttles tenants for bursts that hurt nobody; with a higher one several may crowd out the rest.
    ///
    /// # Errors
    ///
    /// Unless it is from 0.01 to 1.
    pub fn target_share(mut self, share: f64) -> Result<Self, SettingError> {
        let (range, bound) = (SHARE_MIN..=1.0, "from 0.01 to 1");
        self.target_share = within("hot_tenants.target_share", share, range, bound)?;
        Ok(self)
    }

    /// As how many of its peers this tenant counts: what it may ask for grows with it. Default 1. Of tenants whose sizes
    /// differ by right the usual one is 1.
    ///
    /// # Errors
    ///
    /// Unless it is from 0.001 to 1000.
    pub fn weight(mut self, tenant: Tenant, weight: f64) -> Result<Self, SettingError> {
        let bound = "from 0.001 to 1000";
        let weight = within("hot_tenants.weight", weight, WEIGHTS, bound)?;
        self.weights.insert(tenant.0, weight);
        Ok(self)
    }

    /// The culprits, worst first, and the greatest pressure of them.
    fn judge(&self, top: &Top) -> (Vec<Culprit>, f64) {
        let (mut culprits, mut pressure) = (Vec::new(), 0.0_f64);
        if top.offers < OFFERS_MIN {
            return (culprits, pressure);
        }
        for (i, (tenant, cost)) in top.tenants.iter().enumerate().take(HOT_TENANTS_MAX) {
            let peer = hot::median_of_others(top.tenants.len(), i);
            let Some((_, peer)) = peer.and_then(|at| top.tenants.get(at)) else {
                break;
            };
            let sure = cost.sum - SIGMAS * cost.error();
            let weight = self.weights.get(tenant).copied().unwrap_or(1.0);
            let peers = weight * (peer.sum + PEER_SIGMAS * peer.error());
            let stands_out = sure >= HOT_TENANT_PEERS * peers;
            let share = top.share(cost.sum);
            let sure = top.share(sure);
            if !stands_out || sure < self.target_share {
                continue;
            }
            let who = Who::Tenant(Tenant(*tenant));
            culprits.push(Culprit { who, share });
            // With what a peer has, or several, it would have this share of what is left.
            let of_peers = weight * top.share(peer.sum);
            let fair = of_peers / (1.0 - share + of_peers);
            pressure = pressure.max(sure / fair.max(self.target_share));
        }
        (culprits, pressure)
    }
}

impl Signal for HotTenants {
    common_answers!();

    fn dynamics(&self) -> Dynamics {
        Dynamics::settling(TAU)
    }

    fn range(&self) -> RangeInclusive<f64> {
        0.0..=1.0 / self.target_share
    }

    fn remedy(&self) -> Remedy {
        Remedy::Precise
    }

    fn sample(&mut self, now: Instant, view: &View) -> Reading {
        let (told, tally) = (&self.told, &mut self.tally);
        told.learn_lanes(&self.common.scope, view);
        let came = told.rings.drain(&mut self.cursor, |word| tally.add(word));
        tally.came(came);
        // Judged before it turns: the present generation is never empty then.
        let top = tally.top();
        tally.turn(now);
        let busy = self.busy.look(now, &self.common.scope, view);
        let (culprits, pressure) = self.judge(&top);
        hot::reading(pressure, culprits, busy)
    }
}

#[cfg(test)]
mod tests;
