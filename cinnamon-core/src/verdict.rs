//! What was decided: [`Verdict`], and the refusal a caller gets, [`Rejected`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::priority::Rank;
use crate::retry::{self, Advice, Retry};

/// How an admitted request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdmitKind {
    /// It holds one of the lane's slots.
    Slot,
    /// It is exempt and holds no slot: health checks, control traffic, work nested in a slot.
    Exempt,
    /// Admitted without a decision because the controller is off or has failed; holds no slot.
    Open,
}

/// The one answer every offered request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It runs.
    Admit(AdmitKind),
    /// Refused; the caller was told why.
    Refuse(Reason),
    /// The caller gave up while it waited.
    Cancel,
}

impl Verdict {
    /// Number of distinct verdicts.
    pub(crate) const COUNT: usize = 3 + Reason::COUNT + 1;

    /// A dense number, for counters.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Admit(kind) => kind as usize,
            Self::Refuse(reason) => 3 + reason as usize,
            Self::Cancel => 3 + Reason::COUNT,
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// Its rank is not below the gate's threshold.
    #[serde(rename = "shed")]
    Shed,
    /// Every slot is taken (or others wait), and the caller would not wait.
    #[serde(rename = "busy")]
    Busy,
    /// Its deadline had passed when it was offered.
    #[serde(rename = "hopeless")]
    Hopeless,
    /// It had to make room: the queue was full, or its backlog too long for the load; or it is larger
    /// than the queue may ever hold.
    #[serde(rename = "evict")]
    Evicted,
    /// It waited longer than its deadline, its own patience or the timeout in force allow.
    #[serde(rename = "expire")]
    Expired,
    /// The lane no longer takes work.
    #[serde(rename = "close")]
    Closed,
    /// Its tenant or its key may not run such work now: an [`Override`](crate::Override) says so, it has as many
    /// running and waiting as it may, or a signal named it as the culprit and it has had what is left to it.
    #[serde(rename = "capped")]
    Capped,
}

impl Reason {
    /// Number of reasons.
    pub const COUNT: usize = 7;

    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Shed,
        Self::Busy,
        Self::Hopeless,
        Self::Evicted,
        Self::Expired,
        Self::Closed,
        Self::Capped,
    ];

    /// The word used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shed => "shed",
            Self::Busy => "busy",
            Self::Hopeless => "hopeless",
            Self::Evicted => "evict",
            Self::Expired => "expire",
            Self::Closed => "close",
            Self::Capped => "capped",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What holds the gate where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Binding {
    /// Nothing: the gate is open.
    #[default]
    Nothing,
    /// The backlog of the lane with this index (another lane than one's own when a lane of the same
    /// scope needs the lower threshold).
    Backlog {
        /// Index of the lane, in the order of [`Settings::lanes`](crate::Settings::lanes).
        lane: u8,
    },
    /// A signal's budget.
    Signal {
        /// Index of the signal, in the order in which they were given to the builder;
        /// [`Controller::binding_name`](crate::Controller::binding_name) says its name.
        index: u8,
    },
    /// An [`Override`](crate::Override).
    Override,
    /// What the tenant may have running and waiting at once: see [`TenantSettings`](crate::TenantSettings).
    Tenant,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Backlog { lane } => write!(f, "backlog of lane {lane}"),
            Self::Signal { index } => write!(f, "signal {index}"),
            Self::Override => f.write_str("override"),
            Self::Tenant => f.write_str("cap of its tenant"),
        }
    }
}

/// A later attempt is kept as this one; the wait does not grow that far.
const ATTEMPT_MAX: u8 = 15;

/// A refusal that explains itself. 16 bytes, `Copy`; formatted only when asked.
///
/// The work was not begun, so it is safe to try again elsewhere, or here after [`Rejected::retry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    rank: Rank,
    threshold: Rank,
    salt: u32,
    reason: Reason,
    binding: Binding,
    /// The attempt in the lower half, the advice in the upper.
    retry: u8,
}

impl Rejected {
    pub(crate) const fn new(
        reason: Reason,
        rank: Rank,
        gate: (Rank, Binding),
        salt: u32,
        (attempt, advice): (u8, Advice),
    ) -> Self {
        let attempt = if attempt > ATTEMPT_MAX {
            ATTEMPT_MAX
        } else {
            attempt
        };
        Self {
            rank,
            threshold: gate.0,
            salt,
            reason,
            binding: gate.1,
            retry: attempt | (advice as u8) << 4,
        }
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The request's own rank.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The gate's threshold at that moment: the first rank not admitted.
    #[must_use]
    pub const fn threshold(&self) -> Rank {
        self.threshold
    }

    /// What held the gate at that threshold.
    #[must_use]
    pub const fn binding(&self) -> Binding {
        self.binding
    }

    /// When, where, or whether to try again. Spread by a hash so that callers refused together do not come
    /// back together; longer for less important tiers and for later attempts. [`Retry::Never`] when so many
    /// retries come already, or were told to come, that more would be the overload.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let advice = Advice::ALL[usize::from(self.retry >> 4)];
        let attempt = self.retry & ATTEMPT_MAX;
        retry::advise(self.reason, advice, self.rank, attempt, self.salt)
    }

    /// Whether the request is sure not to have begun. Always true: a refusal comes before any work.
    #[must_use]
    pub const fn did_no_work(&self) -> bool {
        true
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank.priority();
        match self.reason {
            Reason::Shed => write!(
                f,
                "shed: {rank} is not below the threshold {} ({})",
                self.threshold, self.binding
            ),
            Reason::Busy => write!(f, "busy: every slot is taken and {rank} would not wait"),
            Reason::Hopeless => write!(f, "hopeless: the deadline of {rank} has passed"),
            Reason::Evicted => write!(
                f,
                "evict: {rank} had to leave the queue (threshold {}, {})",
                self.threshold, self.binding
            ),
            Reason::Expired => write!(f, "expire: {rank} waited as long as it may"),
            Reason::Closed => f.write_str("close: the lane takes no more work"),
            Reason::Capped => match self.binding {
                Binding::Tenant => {
                    write!(
                        f,
                        "capped: its tenant has as many running and waiting as it may"
                    )
                }
                Binding::Signal { .. } => write!(
                    f,
                    "capped: its tenant or key is throttled ({})",
                    self.binding
                ),
                _ => write!(
                    f,
                    "capped: {rank} is not below what its tenant may run now, {} ({})",
                    self.threshold, self.binding
                ),
            },
        }?;
        write!(f, "; {}", self.retry())
    }
}

impl std::error::Error for Rejected {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::{Priority, Rank};

    fn rejected(reason: Reason) -> Rejected {
        let rank = Rank::new(Priority::from_number(450).unwrap(), 0);
        let gate = (Rank::threshold(448, 0.0), Binding::Backlog { lane: 0 });
        Rejected::new(reason, rank, gate, 7, (0, Advice::Wait))
    }

    #[test]
    fn a_refusal_is_small_and_says_who_where_and_why() {
        assert_eq!(size_of::<Rejected>(), 16);
        let text = rejected(Reason::Shed).to_string();
        assert!(
            text.starts_with(
                "shed: t3.66 is not below the threshold t3.64 (backlog of lane 0); retry after"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_reason_has_one_word() {
        for reason in Reason::ALL {
            let word = serde_json::to_value(reason).unwrap();
            assert_eq!(word, reason.as_str());
        }
    }

    #[test]
    fn verdict_numbers_are_dense_and_distinct() {
        let mut seen = vec![false; Verdict::COUNT];
        let admits = [AdmitKind::Slot, AdmitKind::Exempt, AdmitKind::Open].map(Verdict::Admit);
        let refusals = Reason::ALL.map(Verdict::Refuse);
        for verdict in admits.into_iter().chain(refusals).chain([Verdict::Cancel]) {
            assert!(!std::mem::replace(&mut seen[verdict.index()], true));
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
