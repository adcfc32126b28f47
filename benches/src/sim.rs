//! Overload in virtual time: scenarios × arms × seeds, judged by an oracle.

pub mod arms;
pub mod bars;
pub mod command;
pub mod html;
pub mod measures;
pub mod oracle;
pub mod outcome;
pub mod record;
pub mod run;
pub mod scenario;
pub mod table;
pub mod timeline;
