//! What goes before arrays, as bytes.

use burn::tensor::DType;
use ir::schedule::{Action, ActionKind};
use traces::timeline::Stream;

use super::engine::Form;
use crate::communicator::Tag;

/// Says which arrays come, and on which tag if it is not the lane's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    tag: Option<Tag>,
    forms: Vec<Form>,
}

/// Element types by their number in letters.
const ELEMENTS: [DType; 6] =
    [DType::F64, DType::F32, DType::Flex32, DType::F16, DType::BF16, DType::U8];

impl Letter {
    pub(super) fn new(tag: Option<Tag>, forms: &[&Form]) -> Self {
        let forms = forms.iter().map(|form| (*form).clone()).collect();
        Self { tag: tag.map(Tag::of_sender), forms }
    }

    /// The tag of a letter that has one.
    pub(super) fn tag(&self) -> Tag {
        self.tag.expect("ranks run the same program: where a tag is read, one was written")
    }

    /// What comes, if it is one array.
    pub(super) fn form(self) -> Form {
        let mut forms = self.forms.into_iter();
        let form = forms.next().filter(|_| forms.len() == 0);
        form.expect("ranks run the same program: where one form is read, one was written")
    }

    /// What comes.
    pub(super) fn forms(self) -> Vec<Form> {
        self.forms
    }

    /// Words of 8 bytes, little-endian: four for the tag, then each form's element type, number of
    /// dimensions and their sizes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut words = tag_words(self.tag).to_vec();
        for form in &self.forms {
            words.extend([number(&ELEMENTS, &form.element), form.shape.len() as u64]);
            words.extend(form.shape.iter().map(|size| *size as u64));
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (tag, mut rest) = words.split_at(4);
        let mut forms = Vec::new();
        while let [element, num_dims, sizes @ ..] = rest {
            let (sizes, others) = sizes.split_at(*num_dims as usize);
            let shape = sizes.iter().map(|size| *size as usize).collect();
            forms.push(Form { element: ELEMENTS[*element as usize], shape });
            rest = others;
        }
        Self { tag: read_tag(tag), forms }
    }
}

fn tag_words(tag: Option<Tag>) -> [u64; 4] {
    match tag {
        None => [0; 4],
        Some(Tag::Stream(stream)) => [1, number(&Stream::ALL, &stream), 0, 0],
        Some(Tag::Message(Action { stage, kind, micro_batch })) => {
            [2, number(&ActionKind::ALL, &kind), stage.into(), micro_batch.into()]
        }
    }
}

fn read_tag(words: &[u64]) -> Option<Tag> {
    Some(match words[0] {
        0 => return None,
        1 => Tag::Stream(Stream::ALL[words[1] as usize]),
        _ => Tag::Message(Action {
            stage: words[2] as u32,
            kind: ActionKind::ALL[words[1] as usize],
            micro_batch: words[3] as u32,
        }),
    })
}

fn number<T: PartialEq>(all: &[T], item: &T) -> u64 {
    let position = all.iter().position(|other| other == item);
    position.expect("the lists are complete") as u64
}
