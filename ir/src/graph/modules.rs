//! Sets of modules of a layer, by name.

use std::fmt;
use std::marker::PhantomData;

/// A kind of module of a layer.
pub trait LayerModule: Copy + Eq + 'static {
    /// All values, at most sixteen.
    const ALL: &'static [Self];

    /// The name.
    fn name(self) -> &'static str;

    /// The name in Megatron-Core, where that has the module.
    fn megatron_name(self) -> Option<&'static str>;
}

/// A set of modules, at least one; written with `+` between names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleSet<M>(u16, PhantomData<M>);

impl<M: LayerModule> ModuleSet<M> {
    /// The set of these modules; `None` if there are none.
    pub fn new(modules: impl IntoIterator<Item = M>) -> Option<Self> {
        let bits = modules.into_iter().fold(0, |bits, module| bits | bit(module));
        (bits != 0).then_some(Self(bits, PhantomData))
    }

    /// The set of the modules of these names, Megatron-Core's included.
    ///
    /// # Errors
    ///
    /// The name of no module.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let module = |name: &str| {
            let mut all = M::ALL.iter().copied();
            all.find(|it| name == it.name() || Some(name) == it.megatron_name())
                .ok_or_else(|| name.to_owned())
        };
        let modules = names.into_iter().map(module).collect::<Result<Vec<M>, _>>()?;
        Self::new(modules).ok_or_else(String::new)
    }

    /// The modules.
    pub fn iter(self) -> impl Iterator<Item = M> {
        M::ALL.iter().copied().filter(move |module| self.contains(*module))
    }

    /// Returns whether the set has a module.
    pub fn contains(self, module: M) -> bool {
        self.0 & bit(module) != 0
    }

    /// Names of all modules, with those of Megatron-Core in brackets.
    pub fn known() -> String {
        let name = |module: &M| match module.megatron_name() {
            Some(other) if other != module.name() => format!("{} ({other})", module.name()),
            _ => module.name().to_owned(),
        };
        M::ALL.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

fn bit<M: LayerModule>(module: M) -> u16 {
    let place = M::ALL.iter().position(|it| *it == module);
    1 << place.expect("all modules are listed")
}

impl<M: LayerModule> fmt::Display for ModuleSet<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(M::name).collect();
        f.write_str(&names.join("+"))
    }
}
