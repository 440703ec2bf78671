//! A map that refuses to grow past its capacity.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// A map keyed by outside input that never holds more than its capacity.
///
/// It biases towards what lives already: where it is full a newcomer is refused, nothing is evicted.
#[derive(Debug)]
pub struct BoundedMap<K, V> {
    /// Invariant: `entries.len() <= capacity`.
    entries: BTreeMap<K, V>,
    capacity: usize,
}

/// The map is at its capacity and doesn't hold the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {capacity} entries")]
pub struct Full {
    /// The bound that would have been passed.
    pub capacity: usize,
}

impl<K: Ord, V> BoundedMap<K, V> {
    /// Makes an empty map for at most `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            capacity,
        }
    }

    /// Puts `value` under `key`, in place of an older one.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            return Err(Full {
                capacity: self.capacity,
            });
        }
        Ok(self.entries.insert(key, value))
    }

    /// Finds the value under `key`.
    pub fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    /// Finds the value under `key` to change it.
    pub fn find_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.entries.get_mut(key)
    }

    /// Takes the entry of `key` out.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key)
    }

    /// Every entry, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomer_over_the_bound_is_refused_and_nothing_is_evicted() {
        let mut map = BoundedMap::new(2);
        assert_eq!(map.try_insert("a", 1), Ok(None));
        assert_eq!(map.try_insert("b", 2), Ok(None));
        assert_eq!(map.try_insert("c", 3), Err(Full { capacity: 2 }));
        assert_eq!(map.try_insert("a", 4), Ok(Some(1)));
        assert_eq!(
            (map.find("a"), map.find("b"), map.len()),
            (Some(&4), Some(&2), 2)
        );
    }
}
