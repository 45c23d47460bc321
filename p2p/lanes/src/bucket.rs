//! Token bucket rate limiter.

const SECOND_US: i128 = 1_000_000;

/// A token bucket. Time is an argument, in microseconds since an arbitrary start; a value earlier
/// than the last one is ignored.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    per_second: u64,
    /// Capacity in millionths of tokens.
    most: i128,
    /// Millionths of tokens; negative for tokens spent in advance.
    left: i128,
    at_us: u64,
}

impl Bucket {
    /// A full bucket of `burst` tokens that refills at `per_second` tokens a second.
    pub fn new(per_second: u64, burst: u64) -> Self {
        let most = i128::from(burst) * SECOND_US;
        Self {
            per_second: per_second.max(1),
            most,
            left: most,
            at_us: 0,
        }
    }

    /// Changes the rate from now on. What is there stays, up to the new capacity.
    pub fn set_rate(&mut self, now_us: u64, per_second: u64, burst: u64) {
        self.refill(now_us);
        self.per_second = per_second.max(1);
        self.most = i128::from(burst) * SECOND_US;
        self.left = self.left.min(self.most);
    }

    fn refill(&mut self, now_us: u64) {
        let passed = now_us.saturating_sub(self.at_us);
        self.at_us = self.at_us.max(now_us);
        self.left = (self.left + self.gained(passed)).min(self.most);
    }

    fn gained(&self, passed_us: u64) -> i128 {
        i128::from(passed_us) * i128::from(self.per_second)
    }

    /// Takes the tokens if there are enough.
    pub fn take(&mut self, now_us: u64, tokens: u64) -> bool {
        self.refill(now_us);
        let price = i128::from(tokens) * SECOND_US;
        let affordable = price <= self.left;
        if affordable {
            self.left -= price;
        }
        affordable
    }

    /// Takes the tokens even if there are not enough; the deficit must be refilled first.
    pub fn spend(&mut self, now_us: u64, tokens: u64) {
        self.refill(now_us);
        self.left -= i128::from(tokens) * SECOND_US;
    }

    /// Number of microseconds until something is left; 0 if something is left now.
    pub fn empty_for_us(&self, now_us: u64) -> u64 {
        let passed = now_us.saturating_sub(self.at_us);
        let left = self.left + self.gained(passed);
        if left > 0 {
            return 0;
        }
        let wait = -left / i128::from(self.per_second) + 1;
        u64::try_from(wait).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_much_a_second() {
        let mut bucket = Bucket::new(10, 5);
        let passed = (0..20).filter(|_| bucket.take(7, 1)).count();
        assert_eq!(passed, 5);
        let passed = (0..1_000).filter(|i| bucket.take(7 + i * 1_000, 1)).count();
        assert_eq!(passed, 9, "in the second that follows");
        assert!(
            !bucket.take(0, 1),
            "time that runs backwards brings nothing"
        );
    }

    #[test]
    fn a_new_rate_holds_from_then_on() {
        let mut bucket = Bucket::new(1_000, 100);
        bucket.spend(0, 1_100);
        bucket.set_rate(500_000, 100, 100);
        assert!((5_000_000..5_000_010).contains(&bucket.empty_for_us(500_000)));
    }

    #[test]
    fn what_is_spent_in_advance_is_waited_for() {
        let mut bucket = Bucket::new(1_000, 500);
        bucket.spend(0, 2_500);
        let wait = bucket.empty_for_us(0);
        assert!((2_000_000..2_000_010).contains(&wait), "{wait}");
        assert_eq!(bucket.empty_for_us(wait), 0);
        assert!(bucket.empty_for_us(wait / 2) > 900_000);
    }
}
