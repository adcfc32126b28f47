//! Tenants by name: each gets a number once, and the rule that holds for it.

use dashmap::DashMap;

use crate::config::{TenantSettings, tenant_number};
use crate::request::Tenant;
use crate::sync::{AtomicU32, Ordering};

/// Numbers from here on are given out for names; those below are the embedder's own.
pub(crate) const NAMED_FROM: u32 = 1 << 31;
/// Names that are kept. A name costs some hundred bytes; whoever makes up tenants must not fill the memory.
pub const TENANT_NAMES_MAX: usize = 65_536;
/// Tenants beyond that are one for each rule, from this number down.
const OVERFLOW_FROM: u32 = u32::MAX;

/// The names that were given out. Read and written from any thread, not on the path of a request: a server asks once
/// for each connection.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: DashMap<Box<str>, u32>,
    names: DashMap<u32, Box<str>>,
    given: AtomicU32,
}

impl Names {
    /// The tenant of this name, if it was asked for before.
    pub(crate) fn known(&self, name: &str) -> Option<Tenant> {
        self.numbers.get(name).map(|number| Tenant(*number))
    }

    /// The tenant of this name, new or not.
    pub(crate) fn tenant(&self, name: &str, rules: &[TenantSettings]) -> Tenant {
        if let Some(tenant) = self.known(name) {
            return tenant;
        }
        if self.numbers.len() >= TENANT_NAMES_MAX {
            let rule = own_rule_of(name, rules).map_or(0, |rule| rule as u32 + 1);
            return Tenant(OVERFLOW_FROM - rule);
        }
        let number = *self.numbers.entry(name.into()).or_insert_with(|| {
            let number = NAMED_FROM + self.given.fetch_add(1, Ordering::Relaxed) % (1 << 30);
            self.names.insert(number, name.into());
            number
        });
        Tenant(number)
    }

    /// The name that a tenant was given its number for.
    pub(crate) fn name(&self, tenant: Tenant) -> Option<String> {
        self.names.get(&tenant.0).map(|name| name.to_string())
    }

    /// Forgets a name. Its number is not used again.
    pub(crate) fn forget(&self, tenant: Tenant) {
        if let Some((_, name)) = self.names.remove(&tenant.0) {
            self.numbers.remove(&name);
        }
    }

    /// The tenants for whom a rule of their own holds, by its place among the rules.
    pub(crate) fn cards(&self, rules: &[TenantSettings]) -> Vec<(Tenant, u16)> {
        let card =
            |(name, number): (&str, u32)| Some((Tenant(number), own_rule_of(name, rules)? as u16));
        let named = self.numbers.iter();
        let named = named.filter_map(|entry| card((entry.key(), *entry.value())));
        let overflow =
            (0..rules.len()).map(|rule| (Tenant(OVERFLOW_FROM - rule as u32 - 1), rule as u16));
        named.chain(overflow).collect()
    }
}

/// The rule for a tenant of this name: its name before the longest prefix, and that before `*`.
pub(crate) fn rule_of(name: &str, rules: &[TenantSettings]) -> Option<usize> {
    let strength = |rule: &TenantSettings| match rule.matches.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix).then_some(prefix.len()),
        None => (rule.matches == name).then_some(usize::MAX),
    };
    let matching = rules.iter().enumerate();
    let matching = matching.filter_map(|(i, rule)| Some((strength(rule)?, i)));
    matching
        .max_by_key(|&(strength, _)| strength)
        .map(|(_, i)| i)
}

/// The same, but for the one that is for everybody: that needs no card.
pub(crate) fn own_rule_of(name: &str, rules: &[TenantSettings]) -> Option<usize> {
    rule_of(name, rules).filter(|&rule| rules[rule].matches != "*")
}

/// The rules for tenants that the embedder numbers, and the one for everybody else.
pub(crate) fn numbered(rules: &[TenantSettings]) -> (Vec<(Tenant, u16)>, Option<u16>) {
    let cards = rules.iter().enumerate().filter_map(|(i, rule)| {
        let number = tenant_number(&rule.matches)?;
        Some((Tenant(number), i as u16))
    });
    let all = rules.iter().position(|rule| rule.matches == "*");
    (cards.collect(), all.map(|i| i as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(patterns: &[&str]) -> Vec<TenantSettings> {
        patterns.iter().map(|p| TenantSettings::new(p)).collect()
    }

    #[test]
    fn the_most_specific_rule_holds() {
        let rules = rules(&["*", "batch/*", "batch/nightly/*", "batch/nightly", "#7"]);
        let of = |name| rule_of(name, &rules);
        assert_eq!(of("web"), Some(0));
        assert_eq!(of("batch/x"), Some(1));
        assert_eq!(of("batch/nightly"), Some(3));
        assert_eq!(of("batch/nightly/eu"), Some(2));
        assert_eq!(rule_of("web", &rules[1..]), None);
        assert_eq!(numbered(&rules), (vec![(Tenant(7), 4)], Some(0)));
    }

    #[test]
    fn a_name_has_one_number_and_a_forgotten_number_is_not_used_again() {
        let (names, rules) = (Names::default(), rules(&["a*"]));
        assert_eq!(names.known("a"), None);
        let a = names.tenant("a", &rules);
        assert!(a.0 >= NAMED_FROM);
        assert_eq!((names.tenant("a", &rules), names.known("a")), (a, Some(a)));
        let b = names.tenant("b", &rules);
        assert_ne!(a, b);
        assert!(names.cards(&rules).contains(&(a, 0)));
        assert!(!names.cards(&rules).iter().any(|card| card.0 == b));
        assert_eq!(names.name(a).as_deref(), Some("a"));
        names.forget(a);
        assert_eq!(names.name(a), None);
        let again = names.tenant("a", &rules);
        assert!(![a, b].contains(&again));
    }

    #[test]
    #[cfg_attr(miri, ignore = "as many names as are kept, and more")]
    fn names_beyond_what_is_kept_are_one_tenant_for_each_rule() {
        let (names, rules) = (Names::default(), rules(&["a*", "b*"]));
        for i in 0..TENANT_NAMES_MAX {
            names.tenant(&format!("c{i}"), &rules);
        }
        let of = |name| names.tenant(name, &rules);
        assert_eq!(of("a1"), of("a2"));
        assert_ne!(of("a1"), of("b1"));
        assert_ne!(of("a1"), of("x"));
        assert_eq!(of("c5").0, NAMED_FROM + 5, "who was there stays");
        assert!(names.cards(&rules).contains(&(of("b1"), 1)));
    }
}
