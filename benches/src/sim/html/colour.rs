//! Colours: the same thing has the same colour on the whole page.

use cinnamon_core::TIERS;
use plotters::style::RGBColor;

use crate::sim::outcome::PLANTS;

/// By tier, cool for what matters most. Okabe and Ito's palette, which colour-blind readers can tell apart.
pub(super) const TIER: [RGBColor; TIERS] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
];

pub(super) const OFFERED: RGBColor = RGBColor(0x4a, 0x50, 0x5a);
pub(super) const GOOD: RGBColor = RGBColor(0x1b, 0x7f, 0x5c);
pub(super) const ORACLE: RGBColor = RGBColor(0xd9, 0x8a, 0x00);
pub(super) const CAPACITY: RGBColor = RGBColor(0xa4, 0xaa, 0xb4);

pub(super) const THRESHOLD: RGBColor = RGBColor(0x1f, 0x4e, 0x9c);
pub(super) const STANDING: RGBColor = RGBColor(0xfd, 0xec, 0xc8);
pub(super) const NEWEST_FIRST: RGBColor = RGBColor(0x8e, 0x44, 0xad);

pub(super) const MEDIAN: RGBColor = RGBColor(0x1f, 0x4e, 0x9c);
pub(super) const P99: RGBColor = RGBColor(0x7f, 0xa8, 0xdc);
pub(super) const BACKLOG: RGBColor = RGBColor(0xc0, 0x55, 0x1c);
pub(super) const TARGET: RGBColor = RGBColor(0x8a, 0x8f, 0x98);

/// Of the first plants.
pub(super) const PRESSURE: [RGBColor; PLANTS] =
    [RGBColor(0x8e, 0x44, 0xad), RGBColor(0x00, 0x72, 0xb2)];

pub(super) const AXIS: RGBColor = RGBColor(0x9a, 0xa0, 0xaa);
pub(super) const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
pub(super) const BAND: RGBColor = RGBColor(0xf4, 0xf5, 0xf8);
pub(super) const LABEL: RGBColor = RGBColor(0x55, 0x5c, 0x66);

/// Nothing, half and all of it answered in time. Lighter from end to end, so that the order survives in
/// grey, and all of them light enough for black print.
const HEAT: [RGBColor; 3] = [
    RGBColor(0xdd, 0x6b, 0x57),
    RGBColor(0xf4, 0xd0, 0x83),
    RGBColor(0x96, 0xd0, 0xab),
];

/// The colour of a share: red through amber to green.
pub(super) fn heat(share: f64) -> RGBColor {
    let [nothing, half, all] = HEAT;
    let at = share.clamp(0.0, 1.0) * 2.0;
    if at < 1.0 {
        between(nothing, half, at)
    } else {
        between(half, all, at - 1.0)
    }
}

fn between(a: RGBColor, b: RGBColor, at: f64) -> RGBColor {
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * at).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// As CSS has it.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The scale of [`heat`], as CSS has it.
pub(super) fn heat_gradient() -> String {
    let [nothing, half, all] = HEAT.map(hex);
    format!("linear-gradient(90deg,{nothing},{half},{all})")
}
