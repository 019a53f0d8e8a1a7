//! Partial layouts: a user decides some of the fields.

use std::fmt;

use super::error::LayoutError;
use super::fields::{Field, Hides};
use super::spec::PartialLayout;

impl PartialLayout {
    /// The decided fields as options with their values: one value, or several among which a search may choose.
    pub fn restrictions(&self) -> Vec<(&'static str, String)> {
        let mut decided: Vec<_> = self.slots().filter(|(_, slot)| !slot.is_any()).collect();
        decided.sort_by_key(|(field, slot)| (slot.is_list(), field.arity));
        decided.into_iter().map(|(field, slot)| (field.option, slot.to_string())).collect()
    }

    /// True if any field has several values to choose from.
    pub fn has_lists(&self) -> bool {
        self.slots().any(|(_, slot)| slot.is_list())
    }

    /// The layout with the fields of an option left open.
    #[must_use]
    pub fn without(mut self, option: &str) -> Self {
        self.slots_mut().filter(|(field, _)| field.option == option).for_each(|it| it.1.open());
        self
    }

    /// The first field that the two layouts decide differently, with the values of each.
    pub fn contradiction(&self, other: &Self) -> Option<(&'static Field, [String; 2])> {
        let only = |layout: &Self, field: &Field| {
            let others = Self::FIELDS.iter().filter(|it| it.name != field.name);
            others.fold(*layout, |layout, it| layout.without(it.option))
        };
        let differs = |it: &&Field| only(self, it).and(&only(other, it)).is_none();
        let field = Self::FIELDS.iter().find(differs)?;
        let text = |layout: &Self| {
            layout.slots().find(|it| it.0.name == field.name).map(|(_, slot)| slot.to_string())
        };
        Some((field, [self, other].map(|layout| text(layout).unwrap_or_default())))
    }

    /// The part of the short form, such as `tp8`, for the field of an option.
    pub fn part(&self, option: &str) -> Option<String> {
        let (field, slot) = self.slots().find(|(field, _)| field.option == option)?;
        slot.part(field.letters)
    }

    /// Checks that no decided degree is zero.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Zero`] with the first such degree.
    pub fn check(&self) -> Result<(), LayoutError> {
        match self.slots().find(|(_, slot)| slot.is_zero()) {
            Some((Field { name, .. }, _)) => Err(LayoutError::Zero { name }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for PartialLayout {
    /// Formats the decided degrees, as in `tp8-sp-pp4-dp2`; usual values are left out for fields that hide them.
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
