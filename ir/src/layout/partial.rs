//! Layouts of which a user decides on some fields.

use std::fmt;

use super::error::LayoutError;
use super::fields::{Field, Hides};
use super::spec::PartialLayout;

impl PartialLayout {
    /// What is decided, each with the option that decides it: one value, or several among which a search may choose.
    pub fn restrictions(&self) -> Vec<(&'static str, String)> {
        let mut decided: Vec<_> = self.slots().filter(|(_, slot)| !slot.is_any()).collect();
        decided.sort_by_key(|(field, slot)| (slot.is_list(), field.takes));
        decided.into_iter().map(|(field, slot)| (field.option, slot.text())).collect()
    }

    /// True if there is a field of which several values may be chosen.
    pub fn has_lists(&self) -> bool {
        self.slots().any(|(_, slot)| slot.is_list())
    }

    /// The same without what an option decides.
    #[must_use]
    pub fn without(mut self, option: &str) -> Self {
        self.slots_mut().filter(|(field, _)| field.option == option).for_each(|it| it.1.open());
        self
    }

    /// The first field on which both decide, and not alike, with the values of each.
    pub fn contradiction(&self, other: &Self) -> Option<(&'static Field, [String; 2])> {
        let only = |layout: &Self, field: &Field| {
            let others = Self::FIELDS.iter().filter(|it| it.name != field.name);
            others.fold(*layout, |layout, it| layout.without(it.option))
        };
        let differs = |it: &&Field| only(self, it).and(&only(other, it)).is_none();
        let field = Self::FIELDS.iter().find(differs)?;
        let text = |layout: &Self| {
            layout.slots().find(|it| it.0.name == field.name).map(|(_, slot)| slot.text())
        };
        Some((field, [self, other].map(|layout| text(layout).unwrap_or_default())))
    }

    /// The part of the short form, such as `tp8`, that decides what an option does.
    pub fn part(&self, option: &str) -> Option<String> {
        let (field, slot) = self.slots().find(|(field, _)| field.option == option)?;
        slot.part(field.letters)
    }

    /// Whether all that is decided can be: no degree is zero.
    ///
    /// # Errors
    ///
    /// The first that is.
    pub fn check(&self) -> Result<(), LayoutError> {
        match self.slots().find(|(_, slot)| slot.is_zero()) {
            Some((Field { name, .. }, _)) => Err(LayoutError::Zero { name }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PartialLayout {
    /// The degrees that are decided, as in `tp8-sp-pp4-dp2`; of those that layouts mostly leave at 1, the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.slots().filter(|(field, slot)| match field.hides {
            Hides::Nothing => true,
            Hides::Usual => !slot.is_usual(),
            Hides::All => false,
        });
        let parts: Vec<String> =
            shown.filter_map(|(field, slot)| slot.part(field.letters)).collect();
        f.write_str(&parts.join("-"))
    }
}
