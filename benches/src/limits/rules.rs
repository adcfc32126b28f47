//! What decides on the slots in a run.

use cinnamon_core::{Limit, LimitRule};

/// What a rule is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the bars are for.
    Product,
    /// What others do.
    Published,
    /// It does not look, and must fail.
    Control,
}

/// One rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What it is there for.
    pub kind: Kind,
    /// The lane's setting, given where the case begins.
    pub limit: fn(u32) -> Limit,
}

/// As many slots as anybody could want.
pub const MOST: u32 = 4_096;

/// All rules, the product first.
pub const RULES: [Rule; 7] = [
    Rule {
        name: "auto",
        kind: Kind::Product,
        limit: |start| Limit::auto().initial(start).at_most(MOST),
    },
    Rule {
        name: "gradient2",
        kind: Kind::Published,
        limit: |start| found(LimitRule::Gradient2, start),
    },
    Rule {
        name: "vegas",
        kind: Kind::Published,
        limit: |start| found(LimitRule::Vegas, start),
    },
    Rule {
        name: "aimd",
        kind: Kind::Published,
        limit: |start| found(LimitRule::Aimd, start),
    },
    Rule {
        name: "frozen",
        kind: Kind::Control,
        limit: Limit::fixed,
    },
    Rule {
        name: "always-max",
        kind: Kind::Control,
        limit: |_| Limit::fixed(MOST),
    },
    Rule {
        name: "always-min",
        kind: Kind::Control,
        limit: |_| Limit::fixed(1),
    },
];

const fn found(rule: LimitRule, start: u32) -> Limit {
    Limit::found(rule).initial(start).at_most(MOST)
}
