//! Each ready-made signal holds what it measures, lets in what that allows, and refuses nothing before and after.

use cinnamon_lab::each::measure;

#[test]
fn every_signal_alone_holds_its_bars() {
    for row in measure(1).unwrap() {
        assert!(row.held(), "seed 1: {row:#?}");
    }
}
