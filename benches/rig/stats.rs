//! Medians, high percentiles, and how sure a ratio is.

use super::random::Random;

/// Samples of one target, by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    rounds: Vec<Vec<f64>>,
}

/// A ratio with its 95 % confidence interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    pub(crate) point: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Whether a figure is within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Yes,
    /// The interval has the limit in it.
    Perhaps,
    No,
}

impl Series {
    pub(crate) fn push_round(&mut self, samples: Vec<f64>) {
        self.rounds.push(samples);
    }

    pub(crate) fn median(&self) -> f64 {
        percentile(self.rounds.concat(), 0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        percentile(self.rounds.concat(), 0.99)
    }

    fn medians(&self) -> Vec<f64> {
        self.rounds
            .iter()
            .map(|round| percentile(round.clone(), 0.5))
            .collect()
    }

    /// The tenth of each round that was disturbed least: what is left of a machine that others use.
    pub(crate) fn quiet(&self) -> Self {
        let rounds = self.rounds.iter();
        Self {
            rounds: rounds
                .map(|round| vec![percentile(round.clone(), 0.1)])
                .collect(),
        }
    }

    /// What `self` takes more than `direct`, round by round.
    pub(crate) fn added(&self, direct: &Self) -> Self {
        let pairs = self.medians().into_iter().zip(direct.medians());
        Self {
            rounds: pairs.map(|(it, direct)| vec![it - direct]).collect(),
        }
    }

    /// `self` over `other`, by the medians of their rounds, drawn again and again.
    pub(crate) fn over(&self, other: &Self) -> Ratio {
        let (own, other) = (self.medians(), other.medians());
        let count = own.len().min(other.len());
        let ratio = |picked: &[usize]| {
            let of = |from: &[f64]| percentile(picked.iter().map(|at| from[*at]).collect(), 0.5);
            let other = of(&other);
            // Times that differ by less than what is noise have no ratio.
            if other < SMALLEST {
                return f64::INFINITY;
            }
            of(&own) / other
        };
        let mut random = Random::seeded(7);
        let drawn = (0..DRAWS).map(|_| {
            let picked: Vec<usize> = (0..count).map(|_| random.below(count)).collect();
            ratio(&picked)
        });
        let drawn: Vec<f64> = drawn.collect();
        Ratio {
            point: ratio(&(0..count).collect::<Vec<_>>()),
            low: percentile(drawn.clone(), 0.025),
            high: percentile(drawn, 0.975),
        }
    }

    /// The median with its interval.
    pub(crate) fn interval(&self) -> Ratio {
        let mut one = Self::default();
        for _ in &self.rounds {
            one.push_round(vec![1.0]);
        }
        self.over(&one)
    }
}

impl Ratio {
    pub(crate) fn at_most(&self, limit: f64) -> Holds {
        if !self.point.is_finite() {
            Holds::Perhaps
        } else if self.high <= limit {
            Holds::Yes
        } else if self.low > limit {
            Holds::No
        } else {
            Holds::Perhaps
        }
    }

    pub(crate) fn at_least(&self, limit: f64) -> Holds {
        if self.low >= limit {
            Holds::Yes
        } else if self.high < limit {
            Holds::No
        } else {
            Holds::Perhaps
        }
    }
}

/// The value below which `share` of all values are.
pub(crate) fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    if values.is_empty() {
        return f64::NAN;
    }
    let at = share * (values.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    if !values[high].is_finite() {
        return values[high];
    }
    values[low] + (values[high] - values[low]) * (at - at.floor())
}

/// How often rounds are drawn for an interval.
const DRAWS: usize = 2000;
/// Below this a time (µs) or another figure is noise.
const SMALLEST: f64 = 0.2;
