//! What a store holds, counted over all of its memories and tables.

use pacer_policy::Limits;
use wasmtime::ResourceLimiter;

/// Core instances in a component: the policy itself, adapters for what it imports, and the shims that toolchains add.
const INSTANCES: usize = 32;
/// Memories in a component: the policy's own, and those of the parts which a toolchain composed with it.
const MEMORIES: usize = 8;
/// Tables in a component: those of its parts and of the encoder.
const TABLES: usize = 8;
/// Elements over all tables.
const TABLE_ELEMENTS: usize = 10_000;

/// Counts what a store holds, over all of its memories and tables, and remembers what it refused.
#[derive(Debug)]
pub(crate) struct Meter {
    memory_limit: usize,
    memory: usize,
    peak: usize,
    elements: usize,
    denied: bool,
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { memory_limit: limits.memory(), memory: 0, peak: 0, elements: 0, denied: false }
    }

    /// Whether anything was refused.
    pub(crate) fn denied(&self) -> bool {
        self.denied
    }

    /// The most that was held at once, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    fn grown(total: usize, current: usize, desired: usize, limit: usize) -> Option<usize> {
        let grown = total.saturating_add(desired.saturating_sub(current));
        (grown <= limit).then_some(grown)
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            // The guest's own maximum; the growth fails without our doing and must not be counted.
            return Ok(false);
        }
        match Self::grown(self.memory, current, desired, self.memory_limit) {
            Some(grown) => {
                self.memory = grown;
                self.peak = self.peak.max(grown);
                Ok(true)
            }
            None => {
                self.denied = true;
                Ok(false)
            }
        }
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        match Self::grown(self.elements, current, desired, TABLE_ELEMENTS) {
            Some(grown) => {
                self.elements = grown;
                Ok(true)
            }
            None => {
                self.denied = true;
                Ok(false)
            }
        }
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use pacer_policy::LimitRequest;

    use super::*;

    #[test]
    fn the_meter_adds_up_memories_and_remembers_a_refusal() {
        let mut meter = Meter::new(&Limits::lowered(LimitRequest { memory_mebibytes: Some(1), ..Default::default() }).unwrap());
        assert!(meter.memory_growing(0, 512 << 10, None).unwrap());
        assert!(!meter.memory_growing(0, 512 << 10, Some(1)).unwrap());
        assert!(!meter.denied());
        assert!(meter.memory_growing(0, 512 << 10, None).unwrap());
        assert!(!meter.memory_growing(512 << 10, (512 << 10) + 1, None).unwrap());
        assert!(meter.denied());
        assert_eq!(meter.peak(), 1 << 20);
        assert!(!meter.table_growing(0, 10_001, None).unwrap());
    }
}
