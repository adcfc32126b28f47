//! A limit as it is written in files: a number, the name of a rule, or a table.

use std::fmt::{self, Formatter};

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{DEFAULT_FOUND_LIMIT_MAX, Limit, LimitRule};

/// A [`Limit`] as it is written in files.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Written {
    Slots(u32),
    Rule(LimitRule),
    Table(Table),
}

/// By hand, for the words of the refusal.
impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Written;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("a number of slots, the name of a rule, or a table")
            }

            fn visit_u64<E: de::Error>(self, slots: u64) -> Result<Written, E> {
                let other = || E::invalid_value(Unexpected::Unsigned(slots), &self);
                u32::try_from(slots)
                    .map(Written::Slots)
                    .map_err(|_| other())
            }

            fn visit_i64<E: de::Error>(self, slots: i64) -> Result<Written, E> {
                let other = || E::invalid_value(Unexpected::Signed(slots), &self);
                u32::try_from(slots)
                    .map(Written::Slots)
                    .map_err(|_| other())
            }

            fn visit_str<E: de::Error>(self, rule: &str) -> Result<Written, E> {
                LimitRule::deserialize(rule.into_deserializer()).map(Written::Rule)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Written, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map)).map(Written::Table)
            }
        }
        from.deserialize_any(Any)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default)]
    rule: LimitRule,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial: Option<u32>,
    #[serde(default = "one")]
    min: u32,
    #[serde(default = "most")]
    max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_max_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected_service_us: Option<f64>,
}

const fn one() -> u32 {
    1
}

const fn most() -> u32 {
    DEFAULT_FOUND_LIMIT_MAX
}

impl From<Written> for Limit {
    fn from(written: Written) -> Self {
        match written {
            Written::Slots(slots) => Self::fixed(slots),
            Written::Rule(rule) => Self::found(rule),
            Written::Table(table) => Self {
                rule: table.rule,
                initial: table.initial,
                min: table.min,
                max: table.max,
                service_max_us: table.service_max_us,
                expected_per_s: table.expected_per_s,
                expected_service_us: table.expected_service_us,
            },
        }
    }
}

impl From<Limit> for Written {
    fn from(limit: Limit) -> Self {
        match limit.initial {
            Some(slots) if limit == Limit::fixed(slots) => Self::Slots(slots),
            None if limit == Limit::found(limit.rule) => Self::Rule(limit.rule),
            _ => Self::Table(Table {
                rule: limit.rule,
                initial: limit.initial,
                min: limit.min,
                max: limit.max,
                service_max_us: limit.service_max_us,
                expected_per_s: limit.expected_per_s,
                expected_service_us: limit.expected_service_us,
            }),
        }
    }
}
