//! Doubly linked lists over indices: one [`Links`] table serves any number of disjoint [`List`]s,
//! and every operation is O(1). A slab entry that must be on several lists has a place in several
//! tables.

/// Marks the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// Head and tail of one list; the links live in a [`Links`] table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
    };

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Index at the front, [`NIL`] when empty.
    pub(crate) const fn front(&self) -> u32 {
        self.head
    }

    /// Index at the back, [`NIL`] when empty.
    pub(crate) const fn back(&self) -> u32 {
        self.tail
    }
}

/// Previous and next of every index; an index is on at most one list of its table.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<(u32, u32)>);

impl Links {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes room for indices below `len`.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.0.len() < len {
            self.0.resize(len, (NIL, NIL));
        }
    }

    /// What follows `index` on its list, [`NIL`] at the end.
    pub(crate) fn next(&self, index: u32) -> u32 {
        self.0[index as usize].1
    }

    /// Appends `index`, which must not be on a list of this table.
    pub(crate) fn push_back(&mut self, list: &mut List, index: u32) {
        self.0[index as usize] = (list.tail, NIL);
        if list.tail == NIL {
            list.head = index;
        } else {
            self.0[list.tail as usize].1 = index;
        }
        list.tail = index;
    }

    /// Takes `index` off `list`, on which it must be.
    pub(crate) fn unlink(&mut self, list: &mut List, index: u32) {
        let (prev, next) = self.0[index as usize];
        if prev == NIL {
            list.head = next;
        } else {
            self.0[prev as usize].1 = next;
        }
        if next == NIL {
            list.tail = prev;
        } else {
            self.0[next as usize].0 = prev;
        }
    }
}
