//! What collectives are, in plain words, and checks of communicators against it. Every rank of a
//! run calls the same check and finds out alone whether it got the right thing.

#![expect(clippy::unwrap_used, reason = "a check fails by a panic")]

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{CollectiveCall, CommunicationError, Communicator, Group, Reduction};
use executor_kernels::array::{Array, Element};
use ir::units::Bytes;
use traces::timeline::Stream;

type Ranks<'a> = &'a dyn Communicator<Flex>;

/// Sizes of arrays, in elements: none, fewer than ranks, uneven, many.
const SIZES: [usize; 5] = [0, 1, 5, 24, 1000];

/// Each collective in each group to which this rank belongs, for all shapes of groups, sizes and element types.
pub(crate) fn check_all(rank: Ranks<'_>) {
    for groups in meshes(rank.num_ranks()) {
        for group in &groups {
            if group.position(rank.rank()).is_some() {
                for size in SIZES {
                    for element in [Element::F32, Element::F64, Element::BF16] {
                        check_group(rank, group, Stream::Tensor, size, element);
                    }
                }
            }
        }
    }
}

/// Groups that act at once: those of each axis and each two axes of each mesh of two and of three
/// axes, and one in another order.
fn meshes(num_ranks: u32) -> Vec<Vec<Group>> {
    let divisors = |n: u32| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let mut meshes = vec![vec![Group::new((0..num_ranks).rev().collect::<Vec<_>>())]];
    for inner in divisors(num_ranks) {
        for middle in divisors(num_ranks / inner) {
            let coordinates =
                |rank: u32| [rank % inner, rank / inner % middle, rank / inner / middle];
            // An axis that is in a group varies within it; the others are the same for all its
            // members.
            for varies in [[true, false, false], [false, true, false], [true, false, true]] {
                let key = |rank: u32| {
                    let mut key = coordinates(rank);
                    (0..3).filter(|axis| varies[*axis]).for_each(|axis| key[axis] = 0);
                    key
                };
                let of = |first: u32| {
                    Group::new((0..num_ranks).filter(|r| key(*r) == key(first)).collect::<Vec<_>>())
                };
                let mut groups: Vec<Group> = (0..num_ranks).map(of).collect();
                groups.sort();
                groups.dedup();
                meshes.push(groups);
            }
        }
    }
    meshes.sort();
    meshes.dedup();
    meshes
}

/// Elements that rank `rank` has at first: numbers that differ by rank, part and place, and whose sums and products are
/// exact in all element types that are tested.
pub(crate) fn value(rank: u32, part: usize, place: usize) -> f64 {
    f64::from(rank % 3 + 1) * if (part + place).is_multiple_of(2) { 1.0 } else { -0.5 }
}

/// Elements that rank `rank` has at first, as an array.
pub(crate) fn array(rank: u32, part: usize, size: usize, element: Element) -> Array<Flex> {
    let values = (0..size).map(|place| value(rank, part, place)).collect();
    Array::from_f64(values, &[size], element, &FlexDevice)
}

/// One place of arrays combined.
fn combined(reduction: Reduction, values: impl Iterator<Item = f64>) -> f64 {
    let combine = |a: f64, b: f64| match reduction {
        Reduction::Sum => a + b,
        Reduction::Product => a * b,
        Reduction::Max => a.max(b),
        Reduction::Min => a.min(b),
    };
    values.reduce(combine).unwrap()
}

/// Each collective in one group, once.
pub(crate) fn check_group(
    rank: Ranks<'_>,
    group: &Group,
    stream: Stream,
    size: usize,
    element: Element,
) {
    let check =
        Check { rank, group, stream, size, element, me: group.position(rank.rank()).unwrap() };
    check.broadcast_and_scatter();
    check.reductions();
    check.gathers();
    check.all_to_all();
    check.reduce_scatter();
    check.even_ones();
    check.sent(0, || rank.on(group, stream).barrier().unwrap());
}

struct Check<'a> {
    rank: Ranks<'a>,
    group: &'a Group,
    stream: Stream,
    size: usize,
    element: Element,
    me: usize,
}

impl Check<'_> {
    fn own(&self) -> Array<Flex> {
        array(self.rank.rank(), 0, self.size, self.element)
    }

    /// Part `part` of what this rank has for others: sizes differ.
    fn part(&self, from: u32, part: usize) -> Array<Flex> {
        array(from, part, self.part_size(part), self.element)
    }

    fn part_size(&self, part: usize) -> usize {
        if part == 1 { 0 } else { self.size + part }
    }

    /// What `call` gives, having sent as many elements on its stream and none elsewhere.
    fn sent<T>(&self, num_elements: usize, call: impl FnOnce() -> T) -> T {
        let before = self.rank.traffic();
        let result = call();
        let sent = self.rank.traffic().since(&before);
        let bytes = num_elements as u64 * self.own_width();
        assert_eq!(sent.bytes(self.stream), Bytes::new(bytes), "{}", self.group);
        result
    }

    /// What a collective that leaves one array leaves.
    fn start(&self, call: CollectiveCall<Flex>) -> Result<Array<Flex>, CommunicationError> {
        self.rank.on(self.group, self.stream).start(call)?.wait()
    }

    fn own_width(&self) -> u64 {
        array(0, 0, 1, self.element).num_bytes()
    }

    fn is(&self, found: &Array<Flex>, expected: &Array<Flex>, what: &str) {
        let context = format!("{what} of {} by {}", self.size, self.group);
        assert_eq!(found.shape(), expected.shape(), "{context}");
        assert_eq!(found.element(), expected.element(), "{context}");
        assert_eq!(found.to_f64(), expected.to_f64(), "{context}");
    }

    fn broadcast_and_scatter(&self) {
        let Self { rank, group, stream, size, .. } = *self;
        let n = group.len();
        for (position, &root) in group.ranks().iter().enumerate() {
            let is_root = rank.rank() == root;
            // Counted from the root, place p sends to p + 2^k for each 2^k above p.
            let place = (self.me + n - position) % n;
            let children = (0..8).map(|bit| 1 << bit).filter(|r| *r > place && place + r < n);
            let num_sent = children.count() * size;
            let found = self.sent(num_sent, || {
                rank.on(group, stream).broadcast(root, is_root.then(|| self.own()))
            });
            self.is(&found.unwrap(), &array(root, 0, size, self.element), "broadcast");

            let parts = is_root.then(|| (0..n).map(|part| self.part(root, part)).collect());
            let all: usize = (0..n).map(|part| self.part_size(part)).sum();
            let num_sent = if is_root { all - self.part_size(position) } else { 0 };
            let part = self.sent(num_sent, || rank.on(group, stream).scatter(root, parts));
            self.is(&part.unwrap(), &self.part(root, self.me), "scatter");
        }
    }

    fn reductions(&self) {
        let Self { rank, group, stream, size, me, .. } = *self;
        let n = group.len();
        let cut = size / n + usize::from(me < size % n);
        for reduction in Reduction::ALL {
            let place =
                |place| combined(reduction, group.ranks().iter().map(|r| value(*r, 0, place)));
            let values = (0..size).map(place).collect();
            let expected = Array::from_f64(values, &[size], self.element, &FlexDevice);
            // Each rank sends all but its part to be combined, then its part to each other.
            let found = self.sent((size - cut) + (n - 1) * cut, || {
                rank.on(group, stream).all_reduce(self.own(), reduction)
            });
            self.is(&found.unwrap(), &expected, "all-reduce");
            let root = group.ranks()[n / 2];
            let num_sent = if rank.rank() == root { size - cut } else { size };
            let found =
                self.sent(num_sent, || rank.on(group, stream).reduce(root, self.own(), reduction));
            match found.unwrap() {
                Some(found) => self.is(&found, &expected, "reduce"),
                None => assert_ne!(rank.rank(), root),
            }
        }
    }

    fn reduce_scatter(&self) {
        let Self { rank, group, me, .. } = *self;
        let parts = (0..group.len()).map(|part| self.part(rank.rank(), part)).collect();
        let sizes = (0..group.len()).map(|part| self.part_size(part)).collect();
        let others = (0..group.len()).filter(|part| *part != me);
        let num_sent = others.map(|part| self.part_size(part)).sum();
        let array = Array::concat(parts, 0);
        let call =
            CollectiveCall::ReduceScatter { array, dim: 0, sizes, reduction: Reduction::Sum };
        let found = self.sent(num_sent, || self.start(call));
        let place = |place| group.ranks().iter().map(|r| value(*r, me, place)).sum();
        let values = (0..self.part_size(me)).map(place).collect();
        let expected = Array::from_f64(values, &[self.part_size(me)], self.element, &FlexDevice);
        self.is(&found.unwrap(), &expected, "reduce-scatter");
    }

    fn gathers(&self) {
        let Self { rank, group, stream, me, .. } = *self;
        let own = self.part(rank.rank(), me);
        let check = |arrays: Vec<Array<Flex>>| {
            assert_eq!(arrays.len(), group.len());
            for (position, array) in arrays.iter().enumerate() {
                self.is(array, &self.part(group.ranks()[position], position), "gather");
            }
        };
        let num_sent = (group.len() - 1) * self.part_size(me);
        check(
            self.sent(num_sent, || rank.on(group, stream).all_gather(own.clone(), None)).unwrap(),
        );
        let shapes: Vec<_> = (0..group.len()).map(|part| vec![self.part_size(part)]).collect();
        let found =
            self.sent(num_sent, || rank.on(group, stream).all_gather(own.clone(), Some(&shapes)));
        check(found.unwrap());
        let root = group.ranks()[group.len() - 1];
        let num_sent = if rank.rank() == root { 0 } else { self.part_size(me) };
        match self.sent(num_sent, || rank.on(group, stream).gather(root, own)).unwrap() {
            Some(arrays) => check(arrays),
            None => assert_ne!(rank.rank(), root),
        }
    }

    /// Those whose arrays are alike: along each dimension, and those that start and arrive.
    fn even_ones(&self) {
        let Self { rank, group, size, element, me, .. } = *self;
        let n = group.len();
        let of = |rank: u32| array(rank, 0, 2 * size * 3, element).reshape(&[2, size, 3]);
        let all: Vec<_> = group.ranks().iter().map(|rank| of(*rank)).collect();
        let num_elements = 6 * size;
        for dim in 0..3 {
            let call = CollectiveCall::AllGather { array: of(rank.rank()), dim };
            let found = self.sent((n - 1) * num_elements, || self.start(call));
            self.is(&found.unwrap(), &Array::concat(all.clone(), dim), "all-gather along");
        }
        let call = CollectiveCall::AllGather { array: of(rank.rank()).flatten(), dim: 0 };
        let found = self.sent((n - 1) * num_elements, || self.start(call));
        let flat = all.iter().map(|array| array.clone().flatten()).collect();
        self.is(&found.unwrap(), &Array::concat(flat, 0), "flat all-gather");

        // A part for each rank along one dimension; numbers differ by part and place.
        let whole = |rank: u32, dim: usize| {
            let parts = (0..n).map(|part| array(rank, part, num_elements, element));
            Array::concat(parts.map(|part| part.reshape(&[2, size, 3])).collect(), dim)
        };
        let place = |place| group.ranks().iter().map(|r| value(*r, me, place)).sum();
        let values = (0..num_elements).map(place).collect();
        let expected = Array::from_f64(values, &[2, size, 3], element, &FlexDevice);
        let reduction = Reduction::Sum;
        for dim in 0..3 {
            let array = whole(rank.rank(), dim);
            let sizes = vec![array.size(dim) / n; n];
            let call = CollectiveCall::ReduceScatter { array, dim, sizes, reduction };
            let found = self.sent((n - 1) * num_elements, || self.start(call));
            self.is(&found.unwrap(), &expected, "reduce-scatter along");
        }
        let array = whole(rank.rank(), 0).flatten();
        let sizes = vec![num_elements; n];
        let call = CollectiveCall::ReduceScatter { array, dim: 0, sizes, reduction };
        let found = self.sent((n - 1) * num_elements, || self.start(call));
        self.is(&found.unwrap(), &expected.flatten(), "flat reduce-scatter");

        let sum = |place| group.ranks().iter().map(|r| value(*r, 0, place)).sum();
        let expected = Array::from_f64((0..size).map(sum).collect(), &[size], element, &FlexDevice);
        let found = self.start(CollectiveCall::AllReduce { array: self.own(), reduction });
        self.is(&found.unwrap(), &expected, "started all-reduce");
    }

    fn all_to_all(&self) {
        let Self { rank, group, stream, me, .. } = *self;
        // The size depends on both sides, and is zero for some.
        let part = |from: usize, to: usize| {
            let size = (self.size + from) * (to % 3);
            array(group.ranks()[from], to, size, self.element)
        };
        let parts: Vec<_> = (0..group.len()).map(|to| part(me, to)).collect();
        let others = parts.iter().enumerate().filter(|(to, _)| *to != me);
        let num_sent = others.map(|(_, part)| part.num_elements()).sum();
        let shapes: Vec<_> = (0..group.len()).map(|from| part(from, me).shape()).collect();
        let same = parts.clone();
        let arrays =
            self.sent(num_sent, || rank.on(group, stream).all_to_all(parts, None)).unwrap();
        let shaped =
            self.sent(num_sent, || rank.on(group, stream).all_to_all(same, Some(&shapes))).unwrap();
        for arrays in [arrays, shaped] {
            assert_eq!(arrays.len(), group.len());
            for (from, array) in arrays.iter().enumerate() {
                self.is(array, &part(from, me), "all-to-all");
            }
        }
    }
}
