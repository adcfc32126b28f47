//! The kinds of calls.

use cinnamon_core::Class;

/// What a call does. Each kind is a class of its own to the controller, with a mean cost of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Read one key.
    Get,
    /// Read rows in order: a scan that is answered at once, or one chunk of a long one.
    Scan,
    /// Write one key.
    Put,
    /// Remove one key.
    Delete,
    /// Read many keys at once.
    MultiGet,
    /// Write many keys at once, all or none.
    Batch,
}

impl Operation {
    pub(crate) const ALL: [Self; 6] = [
        Self::Get,
        Self::Scan,
        Self::Put,
        Self::Delete,
        Self::MultiGet,
        Self::Batch,
    ];

    /// Its class to the controller.
    #[must_use]
    pub const fn class(self) -> Class {
        Class(self as u16)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::MultiGet => "multi-get",
            Self::Batch => "batch",
        }
    }

    /// Whether it takes a slot of the lane `read`; else one of the lane `write`.
    pub(crate) const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Scan | Self::MultiGet)
    }
}
