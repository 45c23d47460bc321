//! What is said about a figure: three gates, from sharp to soft, and one language for all.

pub mod deterministic;
pub mod fence;
pub mod wall;

use serde::Deserialize;
use std::fmt;

/// What a gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing that is more than noise.
    Neutral,
    /// Better.
    Improvement,
    /// The figures do not allow a verdict.
    CannotTell,
    /// Unusual, on the bad side; somebody should look.
    Alert,
    /// Worse.
    Regression,
}

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What is said.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
}

/// All limits of all gates. What a file leaves out is as it is by default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// How much deterministic figures may change.
    pub tolerances: deterministic::Tolerances,
    /// When ratios of times count.
    pub wall: wall::WallLimits,
    /// What is usual in a history.
    pub fence: fence::FenceLimits,
}

impl Judgement {
    pub(crate) fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { verdict, why }
    }

    pub(crate) fn cannot_tell(why: impl Into<String>) -> Self {
        Self::new(Verdict::CannotTell, why)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Neutral => "neutral",
            Self::Improvement => "improvement",
            Self::CannotTell => "cannot tell",
            Self::Alert => "alert",
            Self::Regression => "REGRESSION",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_a_file_and_the_rest_is_usual() {
        let text = r#"{"tolerances": {"figures": {"syncs": 0.0}}, "wall": {"floor": 1.1}}"#;
        let limits: Limits = serde_json::from_str(text).expect("limits");
        assert_eq!(limits.tolerances.get("any", "syncs"), 0.0);
        let usual = Limits::default();
        assert_eq!(limits.tolerances.default, usual.tolerances.default);
        assert_eq!(
            (limits.wall.floor, limits.wall.seed),
            (1.1, usual.wall.seed)
        );
        assert_eq!(limits.fence, usual.fence);
        assert!(serde_json::from_str::<Limits>(r#"{"wal": {}}"#).is_err());
    }
}
