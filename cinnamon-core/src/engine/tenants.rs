//! What an engine knows of its tenants: how many of each run and wait, what each claims, and what it may.
//!
//! Kept only where there are rules for tenants. A tenant has an *account* from its first offer on; one that has nobody
//! running or waiting and owes nothing may be forgotten when there are too many, and then finds its rule again: who is
//! over a cap is never let off by that. (Alike: kubernetes/kubernetes#140884, a queue removed with work in it.)

use crate::clock::Instant;
use crate::config::{Config, TenantSettings};
use crate::priority::{TIERS, Tier};
use crate::queue::flows::IdMap;
use crate::request::Tenant;
use crate::tenants::numbered;

/// Accounts that are kept: some 200 bytes each.
const ACCOUNTS_MAX: usize = 65_536;
/// What a tenant did not claim of a budget for a tier it may claim later, up to this long. A burst beyond it is demoted, which
/// costs nothing while there is room. (With a second of it, a tenant that began to claim t0 for 1.5 times the capacity
/// filled a tenth of a second with t0 and t1, and 0.2 % of the others' t1 in 20 s was lost.)
const BURST_NS: u64 = 100_000_000;

/// No single request is paid off for longer than this: what the lane can serve may just have been learned, and be far more.
const OWED_MAX_NS: u64 = 10_000_000_000;
/// When there is nobody to be forgotten, nobody is looked for again for so long.
const FULL_FOR_NS: u64 = 100_000_000;

/// What a tenant claimed, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Requests offered.
    pub(crate) offered: u64,
    /// Cost offered, by the tier that was claimed; untagged work under the tier that it got.
    pub(crate) claimed: [u64; TIERS],
    /// Cost that was put into a lower tier than it claimed.
    pub(crate) demoted: u64,
    /// Requests refused for the tenant's cap.
    pub(crate) capped: u64,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.demoted += other.demoted;
        self.capped += other.capped;
        for (all, of) in self.claimed.iter_mut().zip(other.claimed) {
            *all += of;
        }
    }
}

/// One tenant's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    rule: Option<u16>,
    pub(crate) running: u32,
    pub(crate) waiting: u32,
    pub(crate) figures: Figures,
    /// When what was claimed of each tier's budget will have been paid for.
    paid_at: [Instant; TIERS],
}

impl Account {
    /// One that only says what was claimed.
    pub(crate) const fn past(figures: Figures) -> Self {
        Self {
            rule: None,
            running: 0,
            waiting: 0,
            figures,
            paid_at: [Instant::ZERO; TIERS],
        }
    }
}

/// A rule, for this lane.
#[derive(Clone, Copy, Debug, Default)]
struct Rule {
    cap: Option<u32>,
    cap_share: Option<f64>,
    ceiling: Option<Tier>,
    default_tier: Option<Tier>,
    budgets: [Option<Rate>; TIERS],
}

#[derive(Clone, Copy, Debug)]
enum Rate {
    PerS(f64),
    Share(f64),
}

impl Rule {
    fn new(settings: &TenantSettings, lane: &str) -> Self {
        let mut rule = Self {
            cap: settings.lane_caps.get(lane).copied().or(settings.cap),
            cap_share: settings.cap_share,
            ceiling: settings.ceiling,
            default_tier: settings.default_tier,
            budgets: [None; TIERS],
        };
        for budget in &settings.budgets {
            let share = budget.share.map(Rate::Share);
            rule.budgets[budget.tier.index()] = budget.per_s.map(Rate::PerS).or(share);
        }
        rule
    }

    fn cap(&self, limit: u32) -> Option<u32> {
        let of_limit = |share: f64| ((share * f64::from(limit)) as u32).max(1);
        let share = self.cap_share.map(of_limit);
        self.cap.into_iter().chain(share).min()
    }

    /// Cost per second of this tier, if it is bounded.
    fn rate(&self, tier: Tier, capacity: f64) -> Option<f64> {
        match self.budgets[tier.index()]? {
            Rate::PerS(per_s) => Some(per_s),
            Rate::Share(share) if capacity > 0.0 => Some(share * capacity),
            Rate::Share(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Tenants {
    rules: Vec<Rule>,
    everybodys: Option<u16>,
    /// Tenants for whom another rule than everybody's holds.
    cards: IdMap<u32, u16>,
    accounts: IdMap<u32, Account>,
    /// Of accounts that are no longer kept, and of tenants that got none.
    past: Figures,
    /// Until when there is no room for others.
    full_until: Instant,
}

impl Tenants {
    pub(crate) fn new(config: &Config, lane: usize) -> Self {
        let mut tenants = Self {
            rules: Vec::new(),
            everybodys: None,
            cards: IdMap::default(),
            accounts: IdMap::default(),
            past: Figures::default(),
            full_until: Instant::ZERO,
        };
        tenants.reconfigure(config, lane);
        tenants
    }

    /// Takes over the rules. Who is named by one comes with [`Tenants::set_cards`].
    pub(crate) fn reconfigure(&mut self, config: &Config, lane: usize) {
        let name = &config.lanes[lane].name;
        let rule = |rule| Rule::new(rule, name);
        self.rules = config.tenants.iter().map(rule).collect();
        let (cards, everybodys) = numbered(&config.tenants);
        self.everybodys = everybodys;
        self.cards.clear();
        for account in self.accounts.values_mut() {
            account.rule = everybodys;
            // What was owed was owed by other rules.
            account.paid_at = [Instant::ZERO; TIERS];
        }
        self.set_cards(&cards);
    }

    /// For these tenants these rules hold.
    pub(crate) fn set_cards(&mut self, cards: &[(Tenant, u16)]) {
        for &(tenant, rule) in cards {
            self.cards.insert(tenant.0, rule);
            if let Some(account) = self.accounts.get_mut(&tenant.0) {
                account.rule = Some(rule);
            }
        }
    }

    /// This tenant is gone: its account, as long as it has one, keeps its rule.
    pub(crate) fn drop_card(&mut self, tenant: Tenant) {
        self.cards.remove(&tenant.0);
    }

    /// Whether there is anything to keep accounts for.
    pub(crate) fn is_on(&self) -> bool {
        !self.rules.is_empty()
    }

    fn rule(&self, tenant: Tenant) -> Option<&Rule> {
        let rule = match self.accounts.get(&tenant.0) {
            Some(account) => account.rule,
            None => self.cards.get(&tenant.0).copied().or(self.everybodys),
        };
        self.rules.get(usize::from(rule?))
    }

    /// The tier of this tenant's untagged work, if its rule says one.
    pub(crate) fn default_tier(&self, tenant: Tenant) -> Option<Tier> {
        self.rule(tenant)?.default_tier
    }

    /// The tier in which work of this tenant runs that claims `tier`. Nothing is charged.
    pub(crate) fn place(&self, now: Instant, tenant: Tenant, tier: Tier, capacity: f64) -> Tier {
        let Some(rule) = self.rule(tenant) else {
            return tier;
        };
        let best = rule.ceiling.map_or(tier, |ceiling| ceiling.max(tier));
        let account = self.accounts.get(&tenant.0);
        let has_room = |tier: &Tier| {
            let bounded = rule.rate(*tier, capacity).is_some();
            let owes_ns = account.map_or(0, |a| a.paid_at[tier.index()].nanos_since(now));
            !bounded || owes_ns <= BURST_NS
        };
        let mut from_here = Tier::ALL.into_iter().filter(|&t| t >= best);
        from_here.find(has_room).unwrap_or(Tier::T5)
    }

    /// Charges an offer: what it claimed, and where it was placed. Returns whether it is counted; then what becomes of
    /// it must be told.
    pub(crate) fn charge(
        &mut self,
        now: Instant,
        tenant: Tenant,
        (claimed, placed): (Tier, Tier),
        cost: u32,
        capacity: f64,
    ) -> bool {
        let figures = Figures {
            offered: 1,
            demoted: if placed > claimed { u64::from(cost) } else { 0 },
            capped: 0,
            claimed: std::array::from_fn(|i| {
                if i == claimed.index() {
                    u64::from(cost)
                } else {
                    0
                }
            }),
        };
        let rate = self
            .rule(tenant)
            .and_then(|rule| rule.rate(placed, capacity));
        let Some(account) = self.account(now, tenant) else {
            self.past.add(&figures);
            return false;
        };
        account.figures.add(&figures);
        if let Some(rate) = rate {
            let paid_at = &mut account.paid_at[placed.index()];
            let takes_ns = ((f64::from(cost) / rate * 1e9) as u64).min(OWED_MAX_NS);
            *paid_at = (*paid_at).max(now).after_nanos(takes_ns);
        }
        true
    }

    fn account(&mut self, now: Instant, tenant: Tenant) -> Option<&mut Account> {
        if self.accounts.len() >= ACCOUNTS_MAX && !self.accounts.contains_key(&tenant.0) {
            if now < self.full_until {
                return None;
            }
            self.forget_idle(now);
            if self.accounts.len() >= ACCOUNTS_MAX {
                self.full_until = now.after_nanos(FULL_FOR_NS);
                return None;
            }
        }
        let rule = self.cards.get(&tenant.0).copied().or(self.everybodys);
        let account = self.accounts.entry(tenant.0).or_insert(Account {
            rule,
            running: 0,
            waiting: 0,
            figures: Figures::default(),
            paid_at: [Instant::ZERO; TIERS],
        });
        Some(account)
    }

    /// Forgets who has nobody here and owes nothing; all of them at once, so that it is O(1) in the mean.
    fn forget_idle(&mut self, now: Instant) {
        let past = &mut self.past;
        self.accounts.retain(|_, account| {
            let owes = account.paid_at.iter().any(|&paid_at| paid_at > now);
            let stays = account.running > 0 || account.waiting > 0 || owes;
            if !stays {
                past.add(&account.figures);
            }
            stays
        });
    }

    /// Whether this tenant has as many running and waiting as it may; that is counted.
    pub(crate) fn caps(&mut self, tenant: Tenant, limit: u32) -> bool {
        let capped = self.would_cap(tenant, limit);
        if capped && let Some(account) = self.accounts.get_mut(&tenant.0) {
            account.figures.capped += 1;
        }
        capped
    }

    /// The same, and nothing is counted.
    pub(crate) fn would_cap(&self, tenant: Tenant, limit: u32) -> bool {
        let cap = self.rule(tenant).and_then(|rule| rule.cap(limit));
        let here = self.accounts.get(&tenant.0);
        let here = here.map_or(0, |account| account.running + account.waiting);
        cap.is_some_and(|cap| here >= cap)
    }

    /// A counted request runs, waits, or does so no longer.
    pub(crate) fn change(&mut self, tenant: Option<Tenant>, running: i32, waiting: i32) {
        if let Some(tenant) = tenant
            && let Some(account) = self.accounts.get_mut(&tenant.0)
        {
            account.running = account.running.saturating_add_signed(running);
            account.waiting = account.waiting.saturating_add_signed(waiting);
        }
    }

    /// Everybody's account.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (Tenant, &Account)> {
        self.accounts
            .iter()
            .map(|(&id, account)| (Tenant(id), account))
    }

    /// What those claimed of whom no account is kept.
    pub(crate) const fn past(&self) -> &Figures {
        &self.past
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Settings, TierBudget};

    const T: Tenant = Tenant(7);

    fn tenants(rules: Vec<TenantSettings>) -> Tenants {
        let mut settings = Settings::one_lane("main", 8);
        settings.tenants = rules;
        Tenants::new(&Config::new(settings).unwrap(), 0)
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Offers one request of cost 1 and says where it was placed.
    fn offer(tenants: &mut Tenants, ms: u64, tier: Tier) -> Tier {
        let placed = tenants.place(at_ms(ms), T, tier, 0.0);
        assert!(tenants.charge(at_ms(ms), T, (tier, placed), 1, 0.0));
        placed
    }

    #[test]
    #[cfg_attr(miri, ignore = "ten seconds of load")]
    fn what_exceeds_a_budget_runs_one_tier_lower() {
        let rule = TenantSettings::new("*")
            .budget(TierBudget::per_s(Tier::T0, 10.0))
            .budget(TierBudget::per_s(Tier::T1, 20.0));
        let mut tenants = tenants(vec![rule]);
        let mut placed = [0u32; TIERS];
        for ms in 0..10_000 {
            placed[offer(&mut tenants, ms, Tier::T0).index()] += 1;
        }
        // Ten and twenty a second, and a tenth of a second's worth each that had not been claimed.
        assert_eq!(placed[0], 101);
        assert_eq!(placed[1], 202);
        assert_eq!(placed[2], 10_000 - 101 - 202);
        let account = tenants.accounts[&T.0];
        assert_eq!(account.figures.claimed, [10_000, 0, 0, 0, 0, 0]);
        assert_eq!(account.figures.demoted, 9_899);
    }

    #[test]
    #[cfg_attr(miri, ignore = "ten seconds of load")]
    fn a_share_is_of_what_the_lane_can_serve_and_unknown_that_bounds_nobody() {
        let rule = TenantSettings::new("*").budget(TierBudget::share(Tier::T1, 0.1));
        let mut tenants = tenants(vec![rule]);
        for ms in 0..1_000 {
            assert_eq!(offer(&mut tenants, ms, Tier::T1), Tier::T1);
        }
        let mut at_t1 = 0;
        for ms in 1_000..11_000 {
            let placed = tenants.place(at_ms(ms), T, Tier::T1, 1_000.0);
            tenants.charge(at_ms(ms), T, (Tier::T1, placed), 1, 1_000.0);
            at_t1 += u32::from(placed == Tier::T1);
        }
        assert_eq!(at_t1, 1_010, "a hundred a second");
    }

    #[test]
    fn a_claim_above_the_ceiling_runs_at_the_ceiling() {
        let tenants = tenants(vec![TenantSettings::new("#7").ceiling(Tier::T3)]);
        let place = |tenant, tier| tenants.place(at_ms(0), tenant, tier, 0.0);
        assert_eq!(place(T, Tier::T0), Tier::T3);
        assert_eq!(place(T, Tier::T4), Tier::T4);
        assert_eq!(place(Tenant(8), Tier::T0), Tier::T0);
    }

    #[test]
    fn bug_62_an_idle_tenant_may_be_forgotten_and_one_over_its_cap_is_not() {
        let rules = vec![TenantSettings::new("*").cap(2)];
        let mut tenants = tenants(rules);
        let come = |tenants: &mut Tenants, id| {
            tenants.charge(at_ms(0), Tenant(id), (Tier::T1, Tier::T1), 1, 0.0)
        };
        assert!(come(&mut tenants, T.0));
        tenants.change(Some(T), 2, 0);
        assert!(tenants.caps(T, 8));
        for id in 0..ACCOUNTS_MAX as u32 + 100 {
            assert!(come(&mut tenants, 1_000 + id));
        }
        assert!(
            tenants.accounts.len() < ACCOUNTS_MAX,
            "those with nobody here were forgotten"
        );
        assert!(tenants.caps(T, 8), "its requests run still");
        let all: u64 = tenants.accounts().map(|(_, a)| a.figures.offered).sum();
        assert_eq!(all + tenants.past().offered, ACCOUNTS_MAX as u64 + 101);
        tenants.change(Some(T), -2, 0);
        assert!(!tenants.caps(T, 8));
        // What comes back late, for an account that is no more, harms nobody.
        tenants.forget_idle(at_ms(0));
        tenants.change(Some(T), -1, 0);
        assert!(!tenants.would_cap(T, 8));
    }

    #[test]
    fn when_everybody_is_busy_who_comes_new_is_let_in_uncounted() {
        let mut tenants = tenants(vec![TenantSettings::new("*").cap(1)]);
        for id in 0..ACCOUNTS_MAX as u32 {
            tenants.charge(at_ms(0), Tenant(id), (Tier::T1, Tier::T1), 1, 0.0);
            tenants.change(Some(Tenant(id)), 1, 0);
        }
        let counted = tenants.charge(at_ms(0), Tenant(1 << 20), (Tier::T1, Tier::T1), 1, 0.0);
        assert!(!counted && tenants.past().offered == 1);
        assert!(!tenants.caps(Tenant(1 << 20), 8));
    }

    #[test]
    fn a_cap_is_the_lesser_of_number_and_share_and_at_least_one() {
        let cap = |rule: TenantSettings, limit| Rule::new(&rule, "main").cap(limit);
        let share = |share| TenantSettings {
            cap_share: Some(share),
            ..TenantSettings::new("*")
        };
        assert_eq!(cap(share(0.25), 64), Some(16));
        assert_eq!(cap(share(0.25), 2), Some(1));
        assert_eq!(cap(share(0.25).cap(5), 64), Some(5));
        let mut of_lane = TenantSettings::new("*").cap(5);
        of_lane.lane_caps.insert("main".to_owned(), 9);
        assert_eq!(cap(of_lane, 64), Some(9));
        assert_eq!(cap(TenantSettings::new("*"), 64), None);
    }
}
