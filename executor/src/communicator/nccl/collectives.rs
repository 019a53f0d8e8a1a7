//! Which calls to the library a collective is.

use std::sync::atomic::Ordering;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use traces::timeline::Stream;

use super::engine::{Call, Form};
use super::letters::Letter;
use super::{Checks, NcclCommunicator};
use crate::array::Array;
use crate::communicator::rendezvous::Lane;
use crate::communicator::{
    Arriving, CommunicationError, Communicator, Group, Reduction, Tag, Traffic,
};
use crate::lock::lock;

type Result<T> = std::result::Result<T, CommunicationError>;

impl<B: Backend> NcclCommunicator<B> {
    /// Starts what leaves the arrays of all, flat, one after the other for each of so many pieces of them.
    fn start_gathering(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        pieces: usize,
    ) -> Result<Arriving<Array<B>>> {
        let member = self.member(group, stream)?;
        let array = array.flatten();
        let form = Form::of(&array);
        member.check(&[&form])?;
        member.count((member.len() as u64 - 1) * form.num_bytes());
        if member.is_alone() || form.num_elements() == 0 {
            return Ok(Arriving::here(array));
        }
        member.start_one(Call::AllGather { array, pieces })
    }

    /// Starts what leaves the member's part, flat, of the arrays of all as one, for each of so many pieces of them.
    fn start_scattering(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
        pieces: usize,
    ) -> Result<Arriving<Array<B>>> {
        let member = self.member(group, stream)?;
        let array = array.flatten();
        let form = Form::of(&array);
        member.check(&[&form])?;
        let len = member.len() as u64;
        member.count(form.num_bytes() / len * (len - 1));
        if member.is_alone() || form.num_elements() == 0 {
            return Ok(Arriving::here(array));
        }
        member.start_one(Call::ReduceScatter { array, pieces, reduction })
    }
}

impl<B: Backend> Communicator<B> for NcclCommunicator<B> {
    fn rank(&self) -> u32 {
        self.line.rank()
    }

    fn num_ranks(&self) -> u32 {
        self.line.num_ranks()
    }

    fn is_asynchronous(&self) -> bool {
        self.engine.is_asynchronous()
    }

    fn begin_step(&self) {
        self.num_steps.fetch_add(1, Ordering::Relaxed);
    }

    fn send(&self, to: u32, tag: Tag, array: Array<B>) -> Result<()> {
        self.line.check()?;
        if to == self.line.rank() {
            self.arrivals(to, tag).put(tag, array);
        } else {
            self.sent.add(tag.stream(), array.num_bytes());
            self.start_sending(to, tag, array)?;
        }
        Ok(())
    }

    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>> {
        self.line.check()?;
        self.next_arrival(from, tag)
    }

    fn broadcast(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Option<Array<B>>,
    ) -> Result<Array<B>> {
        let member = self.member(group, stream)?;
        let root = member.position_of(root);
        let form = if member.position == root {
            let form = Form::of(array.as_ref().expect("the root of a broadcast gives the array"));
            member.tell_others(&form)?;
            form
        } else {
            member.hear(root)?
        };
        member.count(member.num_children(root) as u64 * form.num_bytes());
        // What others than the root give is ignored.
        let array = array.filter(|_| member.position == root);
        if member.is_alone() || form.num_elements() == 0 {
            return Ok(array.unwrap_or_else(|| member.empty(&form)));
        }
        member.call_one(Call::Broadcast { root, form, array })
    }

    fn reduce(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Option<Array<B>>> {
        let member = self.member(group, stream)?;
        let root = member.position_of(root);
        let form = Form::of(&array);
        member.check(&[&form])?;
        let is_root = member.position == root;
        // As much as a reduce-scatter, after which the parts go to the root.
        let kept = if is_root { member.cut_bytes(&form) } else { 0 };
        member.count(form.num_bytes() - kept);
        if member.is_alone() || form.num_elements() == 0 {
            return Ok(is_root.then_some(array));
        }
        let mut left = member.call(vec![Call::Reduce { root, array, reduction }])?;
        Ok(left.pop().flatten())
    }

    fn all_reduce(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Array<B>> {
        self.start_all_reduce(group, stream, array, reduction)?.wait()
    }

    fn gather(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Array<B>,
    ) -> Result<Option<Vec<Array<B>>>> {
        let member = self.member(group, stream)?;
        let root = member.position_of(root);
        if member.position != root {
            member.tell(root, &Form::of(&array))?;
            return member.exchange(vec![(root, array)], Vec::new()).map(|_| None);
        }
        let forms = member.others().map(|from| Ok((from, member.hear(from)?)));
        let forms = forms.collect::<Result<_>>()?;
        let arrays = member.exchange(Vec::new(), forms)?;
        Ok(Some(member.among(arrays, array)))
    }

    fn all_gather(&self, group: &Group, stream: Stream, array: Array<B>) -> Result<Vec<Array<B>>> {
        let member = self.member(group, stream)?;
        if member.is_alone() {
            return Ok(vec![array]);
        }
        let own = Form::of(&array);
        member.tell_others(&own)?;
        let heard = member.others().map(|from| Ok((from, member.hear(from)?)));
        let heard: Vec<(usize, Form)> = heard.collect::<Result<_>>()?;
        let is_like =
            |form: &Form| form.num_elements() == own.num_elements() && form.element == own.element;
        if own.num_elements() == 0 || !heard.iter().all(|(_, form)| is_like(form)) {
            let sends = member.others().map(|to| (to, array.clone())).collect();
            let arrays = member.exchange(sends, heard)?;
            return Ok(member.among(arrays, array));
        }
        member.count((member.len() as u64 - 1) * own.num_bytes());
        let all = member.call_one(Call::AllGather { array: array.clone(), pieces: 1 })?;
        let mut parts = all.split(0, &vec![own.num_elements(); member.len()]);
        let others = heard.into_iter().map(|(from, form)| {
            // Taken out of their places, from which they are not missed.
            let part = std::mem::replace(&mut parts[from], array.clone());
            (from, part.reshape(&form.shape))
        });
        let others = others.collect();
        Ok(member.among(others, array))
    }

    fn scatter(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        parts: Option<Vec<Array<B>>>,
    ) -> Result<Array<B>> {
        let member = self.member(group, stream)?;
        let root = member.position_of(root);
        if member.position != root {
            let form = member.hear(root)?;
            let mut arrays = member.exchange(Vec::new(), vec![(root, form)])?;
            return Ok(arrays.pop().expect("one was to come").1);
        }
        let parts = parts.expect("the root of a scatter gives the parts");
        let (own, others) = member.without_own(parts);
        for (to, part) in &others {
            member.tell(*to, &Form::of(part))?;
        }
        member.exchange(others, Vec::new())?;
        Ok(own)
    }

    fn reduce_scatter(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
        reduction: Reduction,
    ) -> Result<Array<B>> {
        let member = self.member(group, stream)?;
        assert_eq!(parts.len(), member.len(), "there is a part for each rank of {group}");
        let forms: Vec<Form> = parts.iter().map(Form::of).collect();
        member.check(&forms.iter().collect::<Vec<_>>())?;
        let own = &forms[member.position];
        member.count(forms.iter().map(Form::num_bytes).sum::<u64>() - own.num_bytes());
        if member.is_alone() {
            return Ok(parts.into_iter().next().expect("there is a part for each rank"));
        }
        let is_even = |form: &Form| form.num_elements() == own.num_elements();
        if own.num_elements() > 0 && forms.iter().all(is_even) {
            let flat = parts.into_iter().map(Array::flatten).collect();
            let array = Array::concat(flat, 0);
            let part = member.call_one(Call::ReduceScatter { array, pieces: 1, reduction })?;
            return Ok(part.reshape(&own.shape));
        }
        let is_filled = |(_, array): &(usize, Array<B>)| array.num_elements() > 0;
        let (roots, calls): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .enumerate()
            .filter(is_filled)
            .map(|(root, array)| (root, Call::Reduce { root, array, reduction }))
            .unzip();
        let left = if calls.is_empty() { Vec::new() } else { member.call(calls)? };
        let mut left = roots.into_iter().zip(left);
        let found = left.find(|(root, _)| *root == member.position).and_then(|(_, array)| array);
        Ok(found.unwrap_or_else(|| member.empty(own)))
    }

    fn start_all_gather_along(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        dim: usize,
    ) -> Result<Arriving<Array<B>>> {
        let mut whole = array.shape();
        // What is joined lies together for each place of the dimensions before: nothing is copied.
        let pieces = whole[..dim].iter().product();
        whole[dim] *= group.len();
        let all = self.start_gathering(group, stream, array, pieces)?;
        Ok(all.map(|all| all.reshape(&whole)))
    }

    fn start_reduce_scatter_along(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        dim: usize,
        reduction: Reduction,
    ) -> Result<Arriving<Array<B>>> {
        let mut part = array.shape();
        let pieces = part[..dim].iter().product();
        part[dim] /= group.len();
        let sum = self.start_scattering(group, stream, array, reduction, pieces)?;
        Ok(sum.map(|sum| sum.reshape(&part)))
    }

    fn start_all_gather(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
    ) -> Result<Arriving<Array<B>>> {
        self.start_gathering(group, stream, array, 1)
    }

    fn start_reduce_scatter(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Arriving<Array<B>>> {
        self.start_scattering(group, stream, array, reduction, 1)
    }

    fn start_all_reduce(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Arriving<Array<B>>> {
        let member = self.member(group, stream)?;
        let form = Form::of(&array);
        member.check(&[&form])?;
        // All but the own part goes to be combined, then the own part to all others.
        let cut = member.cut_bytes(&form);
        member.count(form.num_bytes() - cut + (member.len() as u64 - 1) * cut);
        if member.is_alone() || form.num_elements() == 0 {
            return Ok(Arriving::here(array));
        }
        member.start_one(Call::AllReduce { array, reduction })
    }

    fn all_to_all(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
    ) -> Result<Vec<Array<B>>> {
        let member = self.member(group, stream)?;
        let (own, others) = member.without_own(parts);
        for (to, part) in &others {
            member.tell(*to, &Form::of(part))?;
        }
        let heard = member.others().map(|from| Ok((from, member.hear(from)?)));
        let heard = heard.collect::<Result<_>>()?;
        let arrays = member.exchange(others, heard)?;
        Ok(member.among(arrays, own))
    }

    fn all_gather_shaped(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        shapes: &[Vec<usize>],
    ) -> Result<Vec<Array<B>>> {
        let member = self.member(group, stream)?;
        let sends = member.others().map(|to| (to, array.clone())).collect();
        let arrays = member.exchange(sends, member.known(array.dtype(), shapes))?;
        Ok(member.among(arrays, array))
    }

    fn all_to_all_shaped(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
        shapes: &[Vec<usize>],
    ) -> Result<Vec<Array<B>>> {
        let member = self.member(group, stream)?;
        let (own, others) = member.without_own(parts);
        let arrays = member.exchange(others, member.known(own.dtype(), shapes))?;
        Ok(member.among(arrays, own))
    }

    fn barrier(&self, group: &Group, stream: Stream) -> Result<()> {
        self.member(group, stream)?;
        self.line.all_gather(group.ranks(), Lane::Calls(stream), &[]).map(drop)
    }

    fn traffic(&self) -> Traffic {
        self.sent.read()
    }

    fn stop(&self, cause: &str) {
        self.line.stop(cause);
    }
}

impl<B: Backend> NcclCommunicator<B> {
    fn member<'a>(&'a self, group: &'a Group, stream: Stream) -> Result<Member<'a, B>> {
        let rank = self.line.rank();
        let Some(position) = group.position(rank) else {
            panic!("a rank calls collectives of its own groups: {rank} is not in {group}")
        };
        self.line.check()?;
        Ok(Member { own: self, group, stream, position })
    }
}

/// A rank in a group on a stream. It and its peers are named by their positions in the group.
struct Member<'a, B: Backend> {
    own: &'a NcclCommunicator<B>,
    group: &'a Group,
    stream: Stream,
    position: usize,
}

impl<B: Backend> Member<'_, B> {
    fn len(&self) -> usize {
        self.group.len()
    }

    fn is_alone(&self) -> bool {
        self.len() == 1
    }

    fn position_of(&self, root: u32) -> usize {
        let Some(position) = self.group.position(root) else {
            panic!("the root of a collective belongs to its group: {root} is not in {}", self.group)
        };
        position
    }

    /// The other positions.
    fn others(&self) -> impl Iterator<Item = usize> + use<B> {
        let own = self.position;
        (0..self.len()).filter(move |position| *position != own)
    }

    /// To how many the member hands a broadcast on, down a binomial tree.
    fn num_children(&self, root: usize) -> usize {
        let place = (self.position + self.len() - root) % self.len();
        let reaches = (0..usize::BITS).map(|bit| 1 << bit).skip_while(|reach| *reach <= place);
        reaches.take_while(|reach| place + reach < self.len()).count()
    }

    /// The member's part, in bytes, of an array that is cut as evenly as its elements allow.
    fn cut_bytes(&self, form: &Form) -> u64 {
        let count = form.num_elements();
        let cut = count / self.len() + usize::from(self.position < count % self.len());
        if count == 0 { 0 } else { form.num_bytes() / count as u64 * cut as u64 }
    }

    fn count(&self, bytes: u64) {
        self.own.sent.add(self.stream, bytes);
    }

    fn empty(&self, form: &Form) -> Array<B> {
        Array::zeros_of(&form.shape, form.element, &self.own.device)
    }

    fn tell(&self, to: usize, form: &Form) -> Result<()> {
        let letter = Letter::new(None, &[form]).to_bytes();
        self.own.line.send(self.group.ranks()[to], Lane::Calls(self.stream), letter)
    }

    fn tell_others(&self, form: &Form) -> Result<()> {
        self.others().try_for_each(|to| self.tell(to, form))
    }

    fn hear(&self, from: usize) -> Result<Form> {
        let from = self.group.ranks()[from];
        let letter = self.own.line.receive(from, Lane::Calls(self.stream))?;
        Ok(Letter::from_bytes(&letter).form())
    }

    /// What comes from the others, if the shapes are known of all members.
    fn known(&self, element: DType, shapes: &[Vec<usize>]) -> Vec<(usize, Form)> {
        assert_eq!(shapes.len(), self.len(), "there is a shape for each rank of {}", self.group);
        self.others().map(|from| (from, Form { element, shape: shapes[from].clone() })).collect()
    }

    /// Fails if the others are about to reduce something else.
    fn check(&self, forms: &[&Form]) -> Result<()> {
        if self.own.checks == Checks::None || self.is_alone() {
            return Ok(());
        }
        let letter = Letter::new(None, forms).to_bytes();
        let lane = Lane::Calls(self.stream);
        let letters = self.own.line.all_gather(self.group.ranks(), lane, &letter)?;
        for (letter, other) in letters.iter().zip(self.group.ranks()) {
            let others = Letter::from_bytes(letter).forms();
            for (form, other_form) in forms.iter().zip(&others) {
                if *form != other_form {
                    return Err(CommunicationError::Mismatch {
                        rank: self.own.line.rank(),
                        element: form.element,
                        shape: form.shape.clone(),
                        other: *other,
                        other_element: other_form.element,
                        other_shape: other_form.shape.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    fn call(&self, calls: Vec<Call<B>>) -> Result<Vec<Option<Array<B>>>> {
        self.start(calls)?.wait()
    }

    fn start(&self, calls: Vec<Call<B>>) -> Result<Arriving<Vec<Option<Array<B>>>>> {
        let clique = self.own.clique(self.group, self.stream)?;
        let left = lock(&clique).call(calls)?;
        Ok(left)
    }

    fn call_one(&self, call: Call<B>) -> Result<Array<B>> {
        self.start_one(call)?.wait()
    }

    fn start_one(&self, call: Call<B>) -> Result<Arriving<Array<B>>> {
        let only = |mut left: Vec<Option<Array<B>>>| left.pop().flatten();
        let left = self.start(vec![call])?.map(only);
        Ok(left.map(|left| left.expect("the call leaves something on each member")))
    }

    /// Sends arrays, and gives those that others send. All members that send or receive something
    /// call this.
    fn exchange(
        &self,
        sends: Vec<(usize, Array<B>)>,
        receives: Vec<(usize, Form)>,
    ) -> Result<Vec<(usize, Array<B>)>> {
        self.count(sends.iter().map(|(_, array)| array.num_bytes()).sum());
        let filled = |form: &Form| form.num_elements() > 0;
        let sends = sends.into_iter().filter(|(_, array)| array.num_elements() > 0);
        let mut calls: Vec<_> =
            sends.map(|(to, array)| Call::Send { to, array, after: None }).collect();
        let num_sends = calls.len();
        let expected = receives.iter().filter(|(_, form)| filled(form));
        calls
            .extend(expected.map(|(from, form)| Call::Receive { from: *from, form: form.clone() }));
        // The clique is made by all its members, also by those that have nothing to say.
        let mut arrived = self.call(calls)?.into_iter().skip(num_sends).flatten();
        let array = |(from, form): (usize, Form)| {
            let array = if filled(&form) {
                arrived.next().expect("each receive leaves an array")
            } else {
                self.empty(&form)
            };
            (from, array)
        };
        Ok(receives.into_iter().map(array).collect())
    }

    /// The member's own of its parts, and the others with whom they are for.
    fn without_own(&self, parts: Vec<Array<B>>) -> (Array<B>, Vec<(usize, Array<B>)>) {
        assert_eq!(parts.len(), self.len(), "there is a part for each rank of {}", self.group);
        let mut parts: Vec<_> = parts.into_iter().enumerate().collect();
        let (_, own) = parts.remove(self.position);
        (own, parts)
    }

    /// Arrays of the others in the order of their positions, with the member's own in its place.
    fn among(&self, others: Vec<(usize, Array<B>)>, own: Array<B>) -> Vec<Array<B>> {
        let mut arrays: Vec<_> = others.into_iter().map(|(_, array)| array).collect();
        arrays.insert(self.position, own);
        arrays
    }
}
