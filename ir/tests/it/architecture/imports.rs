//! Which file of a crate takes what from which other, read from the text of its sources.
//!
//! The reader knows modules, definitions, `use` and paths; it knows no types, so it does not see who
//! calls whose methods. A name that a module hands on is taken from the file that defines it. Nothing
//! takes from a `main.rs`, which stands above the library and all of its own modules.

use std::collections::{BTreeMap, BTreeSet};

/// Which file takes something from which other, with the names taken.
pub(super) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// The imports among `sources`, each a path from the crate's `src` with its text.
pub(super) fn imports(sources: &[(String, String)]) -> Imports {
    let mut modules = Modules::default();
    for (file, text) in sources {
        modules.read(file, text);
    }
    let mut imports = Imports::new();
    for (at, module) in &modules.0 {
        for path in module.taken() {
            let Some(Resolved::Item(name, file)) = modules.find(at, &path, &mut Seen::new()) else {
                continue;
            };
            if *file != module.file {
                let files = (module.file.clone(), file.clone());
                imports.entry(files).or_default().insert(name);
            }
        }
    }
    imports
}

/// Every way to name an item of another file is read, and what only looks like one is not.
#[test]
fn sources_are_read() {
    let check = |text: &str, expected: &[&str]| {
        let roof = "pub struct Roof;\npub mod tiles { pub struct Tile; }\nmacro_rules! nail {}";
        let sources =
            [("lib.rs", "mod cellar;\nmod roof;"), ("roof.rs", roof), ("cellar.rs", text)];
        let own = sources.map(|(file, text)| (file.to_owned(), text.to_owned()));
        let names: Vec<String> = imports(&own).into_values().flatten().collect();
        assert_eq!(names, expected, "{text}");
    };
    check("use crate::roof::{Roof as Top, tiles::{self, Tile}, };", &["Roof", "Tile"]);
    check("use crate::roof::tiles;\nfn x() -> tiles::Tile { tiles::Tile::new() }", &["Tile"]);
    check(
        "use crate::roof::*;\nfn x(tile: tiles::Tile) -> Roof { nail!() }",
        &["Roof", "Tile", "nail"],
    );
    check("fn x<'a>(_: &'a str) { '{'; '\\''; super::roof::Roof::<'a>::new(\"}\") }", &["Roof"]);
    check("mod inner { use super::super::roof::Roof; }", &["Roof"]);
    check("const X: Range = 0..crate::roof::MADE_BY_A_MACRO;", &["MADE_BY_A_MACRO"]);
    check("pub(crate) use crate::roof::Roof;\nstruct Cellar(Roof);", &["Roof"]);
    check("pub(crate) use crate::roof::Roof;\nfn x() { y.Roof }", &[]);
    check("// crate::roof::Roof\n/* crate::roof::Roof */\n\"crate::roof::Roof\\\"\"", &[]);
    check("use std::roof::Roof;\nfn x() { r#\"\"crate::roof::Roof\"#; cellar::roof::Roof }", &[]);
}

/// Segments of a path, or where a module is below the root of its crate.
type Names = Vec<String>;

/// One module, a file or inline.
#[derive(Default)]
struct Module {
    file: String,
    /// Its items; not what stands within them.
    defined: BTreeSet<String>,
    uses: Vec<Use>,
    /// The paths in its code, `use` left out; a bare name is a path too.
    paths: BTreeSet<Names>,
}

/// A name that a `use` brings into a module.
struct Use {
    /// True if others may take it from here.
    handed_on: bool,
    path: Names,
    /// Name of the item here; `*` for all that the path has.
    name: String,
}

impl Module {
    /// The paths by which this module takes something. What is only handed on is not taken.
    fn taken(&self) -> Vec<Names> {
        let named = |name: &String| self.paths.iter().any(|path| path.first() == Some(name));
        let used = self.uses.iter().filter(|used| !used.handed_on || named(&used.name));
        let used = used.map(|used| used.path.clone());
        let has_glob = self.uses.iter().any(|used| used.name == "*");
        let written = self.paths.iter().filter(|path| path.len() > 1 || has_glob);
        used.chain(written.cloned()).collect()
    }
}

/// Module or item that a path leads to.
enum Resolved<'a> {
    /// A module, by where it is.
    Module(Names),
    /// An item, with the file that defines it.
    Item(String, &'a String),
}

/// The names that a search came through, with where they were and whether they were the last.
type Seen = Vec<(Names, String, bool)>;

/// The modules of a crate, by where they are.
#[derive(Default)]
struct Modules(BTreeMap<Names, Module>);

impl Modules {
    /// What `path` leads to from within the module `at`; `None` where that is outside of the crate.
    fn find(&self, at: &Names, path: &[String], seen: &mut Seen) -> Option<Resolved<'_>> {
        let mut at = at.clone();
        for (index, segment) in path.iter().enumerate() {
            let is_last = index + 1 == path.len();
            match segment.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                name => match self.find_name(&at, name, is_last, seen) {
                    Some(Resolved::Module(module)) => at = module,
                    Some(item) => return Some(item),
                    // What a module has without saying so comes from its macros.
                    None if index > 0 => {
                        return Some(Resolved::Item(segment.clone(), &self.0.get(&at)?.file));
                    }
                    None => return None,
                },
            }
        }
        Some(Resolved::Module(at))
    }

    /// What `name` is in the module `at`. One name may be a module and an item: the last of a path is
    /// the item, what goes on is the module.
    fn find_name(
        &self,
        at: &Names,
        name: &str,
        is_last: bool,
        seen: &mut Seen,
    ) -> Option<Resolved<'_>> {
        let key = (at.clone(), name.to_owned(), is_last);
        if seen.contains(&key) {
            return None;
        }
        seen.push(key);
        let module = self.0.get(at)?;
        let child: Names = at.iter().cloned().chain([name.to_owned()]).collect();
        let child = self.0.contains_key(&child).then_some(Resolved::Module(child));
        if !is_last && child.is_some() {
            return child;
        }
        if module.defined.contains(name) {
            return Some(Resolved::Item(name.to_owned(), &module.file));
        }
        let mut named = module.uses.iter().filter(|used| used.name == name);
        let named = named.find_map(|used| self.find(at, &used.path, seen));
        let mut all = module.uses.iter().filter(|used| used.name == "*");
        named.or(child).or_else(|| {
            all.find_map(|used| match self.find(at, &used.path, seen)? {
                Resolved::Module(whole) => self.find_name(&whole, name, is_last, seen),
                Resolved::Item(..) => None,
            })
        })
    }

    /// Adds the modules of one file.
    fn read(&mut self, file: &str, text: &str) {
        let mut at: Names = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if at.last().is_some_and(|name| name == "mod" || name == "lib") {
            at.pop();
        }
        let tokens = tokens(text);
        let mut reader = Reader { file, tokens: &tokens, next: 0 };
        reader.module(at, &mut self.0);
    }
}

/// Goes through the tokens of a file.
struct Reader<'a> {
    file: &'a str,
    tokens: &'a [&'a str],
    next: usize,
}

impl<'a> Reader<'a> {
    /// Reads a module up to its closing brace, and those within it.
    fn module(&mut self, at: Names, modules: &mut BTreeMap<Names, Module>) {
        let mut module = Module { file: self.file.to_owned(), ..Module::default() };
        let mut depth = 0;
        let mut is_public = false;
        while let Some(token) = self.take() {
            match token {
                "{" => depth += 1,
                "}" if depth == 0 => break,
                "}" => depth -= 1,
                "pub" => {
                    is_public = true;
                    self.visibility();
                    continue;
                }
                "use" => self.use_tree(&mut Vec::new(), is_public, &mut module.uses),
                "mod" if self.peek(1) == "{" => {
                    let name = self.take().unwrap_or_default().to_owned();
                    self.next += 1;
                    self.module(at.iter().cloned().chain([name]).collect(), modules);
                }
                "mod" => self.next += 1,
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static"
                    if depth == 0 && is_name(self.peek(0)) =>
                {
                    module.defined.insert(self.peek(0).to_owned());
                }
                "macro_rules" => drop(module.defined.insert(self.peek(1).to_owned())),
                name if is_name(name) => {
                    // A field or a method has a dot before it; what follows `..` is a path.
                    let before = |back: usize| self.next.checked_sub(back).map(|i| self.tokens[i]);
                    let is_member = before(2) == Some(".") && before(3) != Some(".");
                    let path = self.path(name);
                    if !is_member {
                        module.paths.insert(path);
                    }
                }
                _ => {}
            }
            is_public = false;
        }
        modules.insert(at, module);
    }

    /// Passes over the `(crate)` of a visibility.
    fn visibility(&mut self) {
        if self.peek(0) == "(" && ["crate", "super", "self", "in"].contains(&self.peek(1)) {
            while self.take().is_some_and(|token| token != ")") {}
        }
    }

    /// The path that starts with `first`, which has just been taken.
    fn path(&mut self, first: &str) -> Names {
        let mut path = vec![first.to_owned()];
        while self.peek(0) == "::" && is_name(self.peek(1)) {
            path.push(self.peek(1).to_owned());
            self.next += 2;
        }
        path
    }

    /// Reads a tree of `use` below `path`: up to its `;`, or to the `,` or `}` of the group that it
    /// is in, which are left.
    fn use_tree(&mut self, path: &mut Names, handed_on: bool, uses: &mut Vec<Use>) {
        let outer = path.len();
        let mut name = None;
        loop {
            match self.peek(0) {
                "" | ";" | "," | "}" => break,
                "{" => {
                    name = Some(String::new());
                    while self.peek(0) == "{" || self.peek(0) == "," {
                        self.next += 1;
                        self.use_tree(path, handed_on, uses);
                    }
                }
                "*" => name = Some("*".to_owned()),
                "as" => {
                    name = Some(self.peek(1).to_owned());
                    self.next += 1;
                }
                "self" if outer > 0 => name = path.last().cloned(),
                "::" => {}
                segment => path.push(segment.to_owned()),
            }
            self.next += 1;
        }
        let last = path.last().filter(|_| path.len() > outer);
        let name = name.or_else(|| last.cloned()).unwrap_or_default();
        if !name.is_empty() {
            uses.push(Use { handed_on, path: path.clone(), name });
        }
        path.truncate(outer);
    }

    fn take(&mut self) -> Option<&'a str> {
        self.next += 1;
        self.tokens.get(self.next - 1).copied()
    }

    fn peek(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.next + ahead).copied().unwrap_or_default()
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The names and marks of a source; comments, literals and lifetimes left out.
fn tokens(source: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let word = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (length, is_token) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with("/*") {
            (rest.find("*/").map_or(rest.len(), |end| end + 2), false)
        } else if let Some(length) = literal(rest) {
            (length, false)
        } else if word > 0 {
            (word, !first.is_ascii_digit())
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), !first.is_whitespace())
        };
        let (token, after) = rest.split_at(length);
        tokens.extend(is_token.then_some(token));
        rest = after;
    }
    tokens
}

/// The length of the string, character or lifetime that `text` starts with.
fn literal(text: &str) -> Option<usize> {
    let unprefixed = text.trim_start_matches(['b', 'c']);
    let raw =
        unprefixed.strip_prefix('r').filter(|raw| raw.trim_start_matches('#').starts_with('"'));
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let (open, close) = (hashes + 1, format!("\"{}", "#".repeat(hashes)));
        let end = raw[open..].find(&close).map_or(raw.len(), |end| open + end + close.len());
        return Some(text.len() - raw.len() + end);
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        let mut chars = quoted.char_indices();
        let (_, first) = chars.next()?;
        let (second, mark) = chars.next()?;
        return match (first, mark) {
            ('\\', _) => quoted[second + 1..].find('\'').map(|end| 1 + second + 1 + end + 1),
            (_, '\'') => Some(1 + second + 1),
            // A lifetime: its name is passed over with the tick.
            _ => quoted.find(|c: char| !c.is_alphanumeric() && c != '_').map(|end| 1 + end),
        };
    }
    let mut is_escaped = false;
    let mut ends = text.strip_prefix('"')?.char_indices();
    let end = ends.find(|(_, c)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    Some(end.map_or(text.len(), |(end, _)| end + 2))
}
