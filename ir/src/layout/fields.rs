//! The fields of a layout: one row each, from which structs, options, the short form and messages are generated.

use std::fmt::Display;

use super::by_group::MicroBatchesByGroup;
use super::choice::Choice;
use super::offload::Offload;
use super::zero::ZeroStage;
use crate::graph::{ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, TokenDispatcher};
use crate::schedule::ScheduleKind;

/// A field of a layout that an option decides.
#[derive(Debug)]
pub struct Field {
    /// Name in code and JSON.
    pub name: &'static str,
    /// Option that decides the field.
    pub option: &'static str,
    /// Number of values that the option takes.
    pub arity: Arity,
    /// Prefix of the value in the short form of a layout: `tp` in `tp8`.
    pub letters: &'static str,
    /// Further prefixes of the value, in addition to the name.
    pub(super) aliases: &'static [&'static str],
    /// Values that the short form leaves out when it is written.
    pub(super) hides: Hides,
}

/// Values that an option takes; restrictions are listed in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arity {
    /// Degrees: one, several or a range.
    Degrees,
    /// One or several values.
    Several,
    /// One value.
    One,
}

/// Values that the short form of a layout leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hides {
    /// No values.
    Nothing,
    /// The usual value.
    Usual,
    /// All values.
    All,
}

impl Field {
    /// A degree, which the short form always has.
    pub(super) const DEGREE: Self =
        Self { arity: Arity::Degrees, hides: Hides::Nothing, ..Self::OTHER };

    /// A field with one value, which the short form leaves out.
    pub(super) const OTHER: Self = Self {
        name: "",
        option: "",
        arity: Arity::One,
        letters: "",
        aliases: &[],
        hides: Hides::All,
    };

    /// True if `name` is a prefix of the field's values.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.letters == name || self.name == name || self.aliases.contains(&name)
    }
}

/// A value of a field.
pub(super) trait Value: Copy + Ord + Display {
    /// True for types that the short form writes as numbers.
    const IS_NUMBER: bool = false;

    /// True if the field may be named twice in one layout.
    const MAY_REPEAT: bool = false;

    /// True if most layouts have this value.
    fn is_usual(self) -> bool {
        false
    }

    /// True for a degree of 0, which no layout has.
    fn is_zero(self) -> bool {
        false
    }

    /// The part of a layout's short form for the value: `tp8`.
    fn part(self, letters: &str) -> String {
        format!("{letters}{self}")
    }

    /// The value that a number means.
    fn from_number(_: u32) -> Option<Self> {
        None
    }

    /// The value that a word without a number stands for.
    fn from_word(_: &Field, _: &str) -> Option<Self> {
        None
    }
}

impl Value for u32 {
    const IS_NUMBER: bool = true;

    fn is_usual(self) -> bool {
        self <= 1
    }

    fn is_zero(self) -> bool {
        self == 0
    }

    fn from_number(number: u32) -> Option<Self> {
        Some(number)
    }
}

impl Value for bool {
    fn is_usual(self) -> bool {
        !self
    }

    fn part(self, letters: &str) -> String {
        format!("{}{letters}", if self { "" } else { "no" })
    }

    fn from_word(field: &Field, word: &str) -> Option<Self> {
        let is_off = word.strip_prefix("no") == Some(field.letters);
        (is_off || field.is_called(word)).then_some(!is_off)
    }
}

impl Value for ContextParallelKind {
    fn is_usual(self) -> bool {
        self == Self::default()
    }

    fn part(self, _: &str) -> String {
        match self {
            Self::Ring => "ring".to_owned(),
            Self::AllToAll => "a2a".to_owned(),
        }
    }

    fn from_word(_: &Field, word: &str) -> Option<Self> {
        match word {
            "ring" | "p2p" => Some(Self::Ring),
            "a2a" | "ulysses" => Some(Self::AllToAll),
            _ => None,
        }
    }
}

impl Value for ZeroStage {
    const IS_NUMBER: bool = true;
    /// `fsdp64-zero3` names the stage twice.
    const MAY_REPEAT: bool = true;

    fn from_number(number: u32) -> Option<Self> {
        Self::try_from(u8::try_from(number).ok()?).ok()
    }

    fn from_word(_: &Field, word: &str) -> Option<Self> {
        Self::of_replicas(word)
    }
}

impl Value for MicroBatchesByGroup {}
impl Value for Recompute {}
impl Value for Offload {}
impl Value for ScheduleKind {}
impl Value for TokenDispatcher {}
impl Value for ExpertOverlap {}
impl Value for CudaGraphs {}

/// Reason why a part of a short form is rejected.
pub(super) enum Unfit {
    /// The part names no field.
    Unknown,
    /// The field was decided before.
    Decided,
    /// The number is not whole.
    Fraction,
    /// The number is too large.
    TooLarge,
}

/// The choice for a field, whatever its type, in the form that the option takes.
pub(super) trait Slot: Display {
    /// True if nothing is decided.
    fn is_any(&self) -> bool;

    /// True if several values may be chosen.
    fn is_list(&self) -> bool;

    /// True for a degree of 0.
    fn is_zero(&self) -> bool;

    /// True for the value that most layouts have.
    fn is_usual(&self) -> bool;

    /// The part of a layout's short form for the value, where there is one.
    fn part(&self, letters: &str) -> Option<String>;

    /// Leaves the field open.
    fn open(&mut self);

    /// Sets the field to the value that a word stands for, if it stands for one.
    fn fill_word(&mut self, field: &Field, word: &str) -> Option<Result<(), Unfit>>;

    /// Sets the field to the value that a number stands for.
    fn fill_number(&mut self, number: Result<u32, Unfit>) -> Result<(), Unfit>;
}

impl<T: Value> Slot for Choice<T> {
    fn is_any(&self) -> bool {
        self.is_any()
    }

    fn is_list(&self) -> bool {
        !self.is_any() && self.one().is_none()
    }

    fn is_zero(&self) -> bool {
        self.one().is_some_and(Value::is_zero)
    }

    fn is_usual(&self) -> bool {
        self.one().is_some_and(Value::is_usual)
    }

    fn part(&self, letters: &str) -> Option<String> {
        self.one().map(|value| value.part(letters))
    }

    fn open(&mut self) {
        *self = Self::Any;
    }

    fn fill_word(&mut self, field: &Field, word: &str) -> Option<Result<(), Unfit>> {
        T::from_word(field, word).map(|value| fill(self, value))
    }

    fn fill_number(&mut self, number: Result<u32, Unfit>) -> Result<(), Unfit> {
        if !T::IS_NUMBER {
            return Err(Unfit::Unknown);
        }
        fill(self, T::from_number(number?).ok_or(Unfit::Unknown)?)
    }
}

/// Decides a field; an error if the field was decided before.
pub(super) fn fill<T: Value>(slot: &mut Choice<T>, value: T) -> Result<(), Unfit> {
    let before = std::mem::replace(slot, Choice::One(value));
    let is_same = T::MAY_REPEAT && before == Choice::One(value);
    if before.is_any() || is_same { Ok(()) } else { Err(Unfit::Decided) }
}

/// Generates the structs of a layout, and the functions over their fields, from one row per field: its type, its value
/// on one rank, and the option that decides it, if any. The first rows are the fields of a
/// [`Sharding`](crate::graph::Sharding), the last those of [`Switches`](crate::graph::Switches).
macro_rules! layout_fields {
    (
        sharding {
            $($(#[$sharded_doc:meta])* $sharded:ident: $of_sharded:ty = $whole:expr => { $($row:tt)* };)*
        }
        further {
            $($(#[$attribute:meta])* $field:ident: $of:ty = $plain:expr $(=> { $($further_row:tt)* })?;)*
        }
        switches { $($switch:ident: $of_switch:ty => { $($switch_row:tt)* };)* }
    ) => {
        /// A layout as written; not yet known to be valid.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct LayoutSpec {
            $($(#[$sharded_doc])* pub $sharded: $of_sharded,)*
            $($(#[$attribute])* pub $field: $of,)*
            /// Switches in addition to the degrees.
            #[serde(default, skip_serializing_if = "Switches::are_usual")]
            pub switches: Switches,
        }

        /// A layout of which only some fields are decided; a search chooses the rest.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PartialLayout {
            $(
                #[doc = concat!("Choice of [`LayoutSpec::", stringify!($sharded), "`].")]
                pub $sharded: Choice<$of_sharded>,
            )*
            $($(
                #[doc = layout_fields!(@doc $field $($further_row)*)]
                pub $field: Choice<$of>,
            )?)*
            $(
                #[doc = concat!("Choice of [`Switches::", stringify!($switch), "`].")]
                pub $switch: Choice<$of_switch>,
            )*
        }

        impl LayoutSpec {
            /// The layout of one rank, which computes one micro-batch of one sequence.
            pub const ONE_RANK: Self =
                Self { $($sharded: $whole,)* $($field: $plain,)* switches: Switches::USUAL };

            /// Sharding of operators over the ranks of a stage.
            pub fn sharding(&self) -> Sharding {
                Sharding { $($sharded: self.$sharded,)* }
            }

            /// The layout with another sharding of operators.
            #[must_use]
            pub fn sharded(self, sharding: &Sharding) -> Self {
                Self { $($sharded: sharding.$sharded,)* ..self }
            }

            /// Name of the first degree or count that is 0.
            pub(super) fn zero(&self) -> Option<&'static str> {
                $(if self.$sharded.is_zero() {
                    return Some(stringify!($sharded));
                })*
                $(if self.$field.is_zero() {
                    return Some(stringify!($field));
                })*
                None
            }
        }

        impl From<&LayoutSpec> for PartialLayout {
            /// The layout with every field decided.
            fn from(spec: &LayoutSpec) -> Self {
                Self {
                    $($sharded: spec.$sharded.into(),)*
                    $($($field: layout_fields!(@value spec.$field.into(), $($further_row)*),)?)*
                    $($switch: spec.switches.$switch.into(),)*
                }
            }
        }

        impl PartialLayout {
            /// Fields that options decide on, in the order of a layout.
            pub const FIELDS: &[Field] = &[
                $(Field { name: stringify!($sharded), $($row)* },)*
                $($(Field { name: stringify!($field), $($further_row)* },)?)*
                $(Field { name: stringify!($switch), $($switch_row)* },)*
            ];

            /// The choices of all fields.
            pub(super) fn slots(&self) -> impl Iterator<Item = (&'static Field, &dyn Slot)> {
                let slots: [&dyn Slot; Self::FIELDS.len()] = [
                    $(&self.$sharded,)*
                    $($(layout_fields!(@value &self.$field, $($further_row)*),)?)*
                    $(&self.$switch,)*
                ];
                Self::FIELDS.iter().zip(slots)
            }

            /// Mutable choices of all fields.
            pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = (&'static Field, &mut dyn Slot)> {
                let slots: [&mut dyn Slot; Self::FIELDS.len()] = [
                    $(&mut self.$sharded,)*
                    $($(layout_fields!(@value &mut self.$field, $($further_row)*),)?)*
                    $(&mut self.$switch,)*
                ];
                Self::FIELDS.iter().zip(slots)
            }

            /// The intersection; `None` where the layouts contradict each other. Where both have a list or range,
            /// `other`'s is taken.
            pub fn and(&self, other: &Self) -> Option<Self> {
                Some(Self {
                    $($sharded: self.$sharded.and(&other.$sharded)?,)*
                    $($($field: layout_fields!(@value self.$field.and(&other.$field)?, $($further_row)*),)?)*
                    $($switch: self.$switch.and(&other.$switch)?,)*
                })
            }

            /// True if `layout` agrees with all decided fields.
            pub fn allows(&self, layout: &LayoutSpec) -> bool {
                $(self.$sharded.allows(layout.$sharded) &&)*
                $($(layout_fields!(@value self.$field.allows(layout.$field), $($further_row)*) &&)?)*
                $(self.$switch.allows(layout.switches.$switch) &&)*
                true
            }

            /// The layout with its decided values, and with those of `base` for the open fields.
            #[must_use]
            pub fn or(&self, base: LayoutSpec) -> LayoutSpec {
                LayoutSpec {
                    $($sharded: self.$sharded.unwrap_or(base.$sharded),)*
                    $($($field: layout_fields!(@value self.$field.unwrap_or(base.$field), $($further_row)*),)?)*
                    switches: Switches {
                        $($switch: self.$switch.unwrap_or(base.switches.$switch),)*
                    },
                    ..base
                }
            }
        }
    };
    (@doc $field:ident $($row:tt)*) => { concat!("Choice of [`LayoutSpec::", stringify!($field), "`].") };
    (@value $value:expr, $($row:tt)*) => { $value };
}

pub(super) use layout_fields;
