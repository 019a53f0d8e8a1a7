//! A reader of shell scripts for launch scripts: assignments, arrays, expansions and commands.
//!
//! Some values are decided only when a script runs: command substitutions, variables that the script does not set, and
//! branches on these. A word that depends on them records this; a branch is followed one [`Way`] or the other.

mod arithmetic;
mod builtin;
mod condition;
mod continued;
mod expand;
mod lex;
mod loops;
mod nested;
mod pattern;
mod reader;
mod script;
mod slurm;
mod syntax;
mod text;
mod word;

use std::collections::BTreeMap;

use reader::Reader;
pub(super) use script::{Command, Script, Way};
pub(super) use slurm::count;
use syntax::statements;
pub use word::{End, ShellError};
pub(super) use word::{Word, is_program};

/// Reads a script; `set` has the variables that the user sets, `files` the scripts that it runs, by their names.
///
/// # Errors
///
/// [`ShellError`] if the script has an unclosed quote or bracket, is too large, or has a command that ends before its
/// options do; with [`Way::None`], also for branches that start a program.
pub(super) fn read(
    text: &str,
    set: &BTreeMap<String, String>,
    files: &BTreeMap<String, String>,
    way: &Way,
) -> Result<Script, ShellError> {
    let directives = slurm::directives(text);
    let outer = slurm::variables(&directives);
    let mut reader = Reader::new(text, (set, &outer), files, way);
    reader.run(&statements(text)?, false)?;
    let mut script = reader.into_script();
    script.directives.extend(directives);
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strictly(text: &str) -> Result<Script, ShellError> {
        read(text, &BTreeMap::new(), &BTreeMap::new(), &Way::None)
    }

    fn check(text: &str, expected: &[&str]) {
        let script = strictly(text).unwrap();
        let commands = script.commands.iter().map(|Command { words, .. }| {
            let word = |word: &Word| {
                let unknown: Vec<&str> = word.unknown.iter().map(String::as_str).collect();
                let unknown = unknown.join(",");
                let mark = if unknown.is_empty() { "" } else { "?" };
                format!("[{}{mark}{unknown}]", word.text)
            };
            words.iter().map(word).collect::<String>()
        });
        assert_eq!(commands.collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn words_are_those_of_a_shell() {
        check("a 'b c' \"d e\"f g\\ h # not i\nj", &["[a][b c][d ef][g h]", "[j]"]);
        check("a \\\n  b; c && d | e", &["[a][b]", "[c]", "[d]", "[e]"]);
        check("A=1 B='2 3'\nx $A \"$B\" $B ${A}0", &["[x][1][2 3][2][3][10]"]);
        check("export A=4\nx $((A * 2 + 1)) ${N:-7} ${A:?no} ${M:=5} $M", &["[x][9][7][4][5][5]"]);
        check("L=(a 'b c'\n # why\n d)\nL+=(e)\nx \"${L[@]}\" ${#L[@]}", &["[x][a][b c][d][e][4]"]);
        check("A=\"--b 1\"\nA+=\" --c\"\nx $A", &["[x][--b][1][--c]"]);
        check("x $A \"$A/b\" $(hostname) `date` \"$@\"", &["[x][?A][/b?A][?$(hostname)][?`date`]"]);
        check("if [ -z \"$A\" ]; then\n  exit 1\nfi\nx", &["[x]"]);
        check("A=1\nif y; then\n  A=2\nelse y --b; fi\nx $A", &["[x][?A]"]);
        check("A=(a)\nfor i in 1 2; do A+=($i) B=1; done\nx \"${A[@]}\" z", &["[x][a][1][2][z]"]);
        check("A=1\n[ -f y ] && A=2\nx $A", &["[x][?A]"]);
        check("[ 1 = 1 ] || A=2 || A=3\nx $A", &["[x]"]);
        check("A=1\nif [ $A -gt 0 ]; then\n  A=2\nelse A=3; fi\nx $A", &["[x][2]"]);
        check(
            "A=b\nif [[ $A == c ]]; then A=1\nelif [ -z \"$A\" ]; then A=2\nfi\nx $A",
            &["[x][b]"],
        );
        check("A=1\nif [ $A = 1 ] && [ -f y ]; then A=2; fi\nx $A", &["[x][?A]"]);
        check("if [ 1 = 1 ]; then if [ 1 = 2 ]; then x; else y; fi; fi; z", &["[y]", "[z]"]);
        check("A=1\n[ $A = 1 ] && A=2 || A=3\nx $A", &["[x][2]"]);
        check("[ $# -lt 1 ] && A=2\nx $A", &["[x][?A]"]);
        check("if [ 1 = 2 ]; then A=1; fi\nx $A y", &["[x][y]"]);
        check("[ 1 = 2 ] && A=1\nx $A y", &["[x][y]"]);
        check("if [ -n \"$Y\" ]; then A=2; fi\n[ $Z = 1 ] && B=2\nx $A $B", &["[x][?Y][?Z]"]);
        check("A=\nif [ -z $A ]; then B=1; fi\nx $B", &["[x][1]"]);
        let text = "A=70b\ncase $A in\n  8b|7b) T=2;;\n  \"70b\") T=8 ;;\n  *) T=1\nesac\nx $T";
        check(text, &["[x][8]"]);
        check("A=y; case \"$A\" in z*) T=2;; *) T=1;; esac; x $T", &["[x][1]"]);
        check("case $B in z) T=2;; esac\nx $T", &["[x][?B]"]);
        check("N=2; A=0; (( N > 1 && N*2 != 5 )) && A=1 || A=2\nx $A", &["[x][1]"]);
        check("if (( N > 1 )); then A=1; fi; (( I++ )); x $A $I", &["[x][?N][?I]"]);
        check("mapfile -t L < y; x ${#L[@]} \"${L[@]}\" \"${M[@]}\"", &["[x][?L][?L]"]);
        check("A=1 && export B=2 && cd y && C=3\nx $A $B $C", &["[cd][y]", "[x][1][2][3]"]);
        check("A=1\n(A=2; y $A)\nA=3 z $A\nx $A", &["[y][2]", "[z][1]", "[x][1]"]);
        check("f() { A=$1; y $A; }\nA=1\nf 2\nx $A", &["[y][2]", "[x][2]"]);
        check("function f {\n  torchrun --a\n}\nx", &["[x]"]);
        check("x <<EOF\nany $thing\nEOF\ny >out 2>&1", &["[x]", "[y]"]);
    }

    /// An unknown value makes only the word that contains it unknown.
    #[test]
    fn what_is_unknown_stays_in_its_word() {
        check("A=\"--a $H/x --b 2\"\ny $A", &["[y][--a][/x?H][--b][2]"]);
        check("A=\"--a 1\"\nif [ -n \"$W\" ]; then A=\"$A --w\"; fi\ny $A", &["[y][--a][1][?W]"]);
        check("A=\"--a $(hostname -I) --b\"\ny $A", &["[y][--a][?$(hostname -I)][--b]"]);
        check("A=$(hostname)\ny $A ${A%%.*}", &["[y][?A][?A]"]);
        check("y $(seq 2 3 9) `seq 2` $(echo a \"b\")", &["[y][2][5][8][1][2][a][b]"]);
        check("y $(echo $X | cut -d '(' -f 1)", &["[y][?$(echo $X | cut -d '(' -f 1)]"]);
        check("y a$B\" c\"", &["[y][a c?B]"]);
        let text = "#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\ny $SLURM_NNODES $((SLURM_NNODES * SLURM_GPUS_ON_NODE))";
        check(text, &["[y][4][32]"]);
        let text = "#SBATCH --gres=gpu:h100:4,lscratch:100\ny $SLURM_GPUS_ON_NODE";
        check(text, &["[y][4]"]);
    }

    /// A shell that a command starts reads its own script, with the variables of the enclosing one.
    #[test]
    fn nested_scripts_are_read() {
        let text = "A=(--a 1 --b)\nsrun --x bash -c \"y ${A[*]} \\$C\"";
        check(text, &["[srun][--x][y][--a][1][--b][?C]"]);
        check("C='y --a 1'\nsrun sh -c \"$C\"", &["[srun][y][--a][1]"]);
        check("C='y --a 1'\neval \"$C 2>&1 | tee log\"", &["[y][--a][1]", "[tee][log]"]);
        check("bash -c 'y \"$@\" $0 $#' n 1 '2 3'", &["[y][1][2 3][?0][2]"]);
        check("r() { z \"$@\"; }\nr a 'b c' ${@:2}", &["[z][a][b c]"]);
        check("r() { shift; y $1 ${@:2}; }\nr a b c d", &["[y][b][c][d]"]);
        check("A=1\nsbatch <<EOF\n#SBATCH --nodes=2\ny $A \\$B\nEOF\nz", &["[y][1][?B]", "[z]"]);
        check("for a in \"$@\"; do B=1; done\ny $B ${1} ${@:2}", &["[y][?B][?1]"]);
        check("while [ $# -gt 0 ]; do A=$1; shift; done\ny $A", &["[y][?A]"]);
        let script = strictly("cat > a/d.json <<EOF\n{\"x\": 1}\nEOF\nsource b/c.sh").unwrap();
        assert_eq!(script.written["d.json"], "{\"x\": 1}\n");
        assert!(script.runs.contains("b/c.sh"));
        let files = BTreeMap::from([("c.sh".to_owned(), "A=$1; y --c".to_owned())]);
        let script = read("source b/c.sh; bash c.sh 2; x $A", &BTreeMap::new(), &files, &Way::None);
        let lines: Vec<_> = script.unwrap().commands.iter().map(|it| it.line).collect();
        assert_eq!(lines, [1, 1, 1]);
    }

    /// Forms of loops, tests, quotes and brackets.
    #[test]
    fn statements_nest_in_all_forms() {
        check("for ((I = 0; I < 3; I++)); do A+=($I); done\nx ${A[@]} $I", &["[x][0][1][2][3]"]);
        check("for ((i=N; i>0; i-=1)); do A=1; done\nx $A", &["[x][?N]"]);
        check("select a in 1 2; do A=$a; done; until y; do B=1; done\nx $A $B", &["[x][?A][?B]"]);
        check("A=1\n[[ $A == 1 && $B == 2 ]] && A=2\nx $A", &["[x][?B]"]);
        check("A=1\nif [[ $A == 1 && ! -z $A ]]; then A=2; fi\nx $A", &["[x][2]"]);
        check("if [[ ( 1 == 1 || $A == 2 ) && 1 == 2 ]]; then B=1; fi\nx $B", &["[x][?A]"]);
        check("[[ a =~ ^(a|b)$ ]] || A=1\nx $A", &["[x]"]);
        check("[ 1 = 2 ] || { A=1; y; }\n[ 1 = 1 ] || { A=2; z; }\nx $A", &["[y]", "[x][1]"]);
        check("[ $N = 2 ] && { A=1; }\nx $A", &["[x][?N]"]);
        check("f() (\n A=1; y $A\n)\nA=2; f; x $A", &["[y][1]", "[x][2]"]);
        check("if y; then x; else { case a in (a|b) z ;; esac; } fi\nx", &["[x]"]);
        check("x $'a\\tb\\'c' <(y \"(\") >(z)", &["[x][a\tb'c][?<(y \"(\")][?>(z)]"]);
        check("A=abc\nL=(a b c)\nx ${#A} ${L[@]:1} \"${L[@]:0:1}\"", &["[x][3][b][c][a]"]);
        check("L=(a b)\nx $((1 + ${#L[@]})) $(which y) $(command -v z)", &["[x][3][y][z]"]);
        let script = strictly("if [ ! -f a.json ]; then\ncat > a.json <<E\n{}\nE\nfi\nx").unwrap();
        assert_eq!(script.written["a.json"], "{}\n");
        let files = BTreeMap::from([("c.sh".to_owned(), "y \"$@\"".to_owned())]);
        let script = read("f() { \"$@\"; }\nf bash c.sh", &BTreeMap::new(), &files, &Way::None);
        assert_eq!(script.unwrap().commands.len(), 1);
    }

    /// Commands of the shell that set variables, and how long these settings hold.
    #[test]
    fn variables_are_set_by_commands_too() {
        check("IFS=, read -ra L <<< \"0,1,2\"\nx ${#L[@]} ${L[1]} ${L[-1]}", &["[x][3][1][2]"]);
        check("read A B <<< '1 2'\nread C\nx $A $B $C", &["[x][1][2][?C]"]);
        check("read -r -d '' A <<E\ny --b $U\nE\nx $A", &["[x][y][--b][?U]"]);
        check("A=1; let A=4 B=A*2; printf -v C %s 5; unset D; x $A $B $C", &["[x][4][8][5]"]);
        check("D=1; unset D; ((A = 3, B = A * 2)); x $A $B $D", &["[x][3][6][?D]"]);
        check(
            "A=1; f() { local A=2 B; B=3; C=4; y $A $B; }; f; x $A $C $B",
            &["[y][2][3]", "[x][1][4][?B]"],
        );
        check("A=1 f=2 y $A; declare -i N=2*3; x $N", &["[y][?A]", "[x][6]"]);
        check("declare -A L=([a]=1 [b]='2 3'); K=b; x \"${L[$K]}\" ${L[a]}", &["[x][2 3][1]"]);
        check("L=(a b); L[0]=c; x ${L[0]}", &["[x][?L]"]);
    }

    #[test]
    fn patterns_and_arithmetic_are_those_of_a_shell() {
        check("M=a-70b; [[ $M == *70b ]] && A=1; [[ $M != a* ]] && B=1; x $A $B", &["[x][1]"]);
        check("M=a-70b; case $M in *7b) A=1;; a*|b) A=2;; *) A=3;; esac; x $A", &["[x][2]"]);
        check("M=a_b.sh; x ${M##*_} ${M%.*} ${M/a/c} ${M:0:1}", &["[x][b.sh][a_b][c_b.sh][a]"]);
        check(
            "A=4; x $[A / 2] $((A > 2 ? 2 ** 3 : 1)) $((-A + 5)) $(echo \"$A * 2\" | bc)",
            &["[x][2][8][1][8]"],
        );
    }

    /// A variable that nothing sets counts as empty in a test for emptiness, as in a default, if the test decides its
    /// value.
    #[test]
    fn variables_without_a_value_have_their_defaults() {
        check("if [ -z \"$A\" ]; then A=2; B=3; fi; x $A $B", &["[x][2][3]"]);
        check("[ -n \"$A\" ] || A=2; [[ -z ${B} ]] && B=3; x $A $B", &["[x][2][3]"]);
        check("A=1; if [ -n \"${6}\" ]; then A=$6; fi; x $A", &["[x][1]"]);
        check("A=$(y); if [ -z \"$A\" ]; then A=2; fi; x $A", &["[x][?A]"]);
        check("A=\"\"; while [ $# -gt 0 ]; do A=$1; shift; done; x $A", &["[x][?A]"]);
    }

    #[test]
    fn loops_that_repeat_a_run_have_one() {
        check(
            "while true; do torchrun --n 1 a.py; sleep 1; done",
            &["[torchrun][--n][1][a.py]", "[sleep][1]"],
        );
        check("until torchrun --n 1 a.py; do sleep 1; done", &["[torchrun][--n][1][a.py]"]);
        check(
            "for i in $(seq 9); do torchrun --n $i a.py && break; done",
            &["[torchrun][--n][1][a.py]"],
        );
        check(
            "for ((i = 1; i < 9; i++)); do torchrun --n $i a.py && break; done",
            &["[torchrun][--n][1][a.py]"],
        );
        check("A=1; while [ $A -lt 4 ]; do A=$((A * 2)); done; x $A", &["[x][4]"]);
        check("while y; do A=1; done; x $A", &["[x][?A]"]);
    }

    /// Every way through a branch on an unknown value can be followed.
    #[test]
    fn branches_are_read_every_way() {
        let text = "A=1\nif [ -n \"$W\" ]; then A=2\nelif [ $V = 3 ]; then A=3\nelse A=4; fi\n[ -f y ] && A=5\nx $A";
        let none = BTreeMap::new();
        let last = |way: &Way| {
            let script = read(text, &none, &none, way).unwrap();
            (script.commands.last().unwrap().words[1].text.clone(), script)
        };
        let (first, script) = last(&Way::first());
        assert_eq!(first, "4");
        let names: Vec<&String> = script.open.values().flat_map(|it| &it.variables).collect();
        assert_eq!(names, ["V", "W"]);
        let others: Vec<String> = Way::others(&script).iter().map(|(_, way)| last(way).0).collect();
        assert_eq!(others, ["2", "3", "5"]);
    }

    #[test]
    fn what_has_no_end_or_decides_is_refused() {
        let line = |text: &str| strictly(text).unwrap_err().to_string();
        assert_eq!(line("a\n'b"), "line 2: a quote without its end");
        assert_eq!(line("A=(b"), "line 1: a list in brackets without its end");
        assert!(
            line("x\nif y; then\n  torchrun --nnodes 1 z.py\nfi")
                .starts_with("line 2: what `if` decides")
        );
        assert!(
            line("x 1\n  --b 2")
                .starts_with("line 2: `--b` begins a line, but the command before it")
        );
        assert!(line("x 1 \\ \n  --b 2").starts_with("line 1: a blank follows the `\\`"));
        assert!(
            line("x 1 \\\n# why\n  --b 2")
                .ends_with("hint: move the comment of line 2 above the command")
        );
        assert!(line("x 1 \\\n\n  --b 2").ends_with("hint: remove the empty line 2"));
        assert_eq!(line(&"(".repeat(20_000)), line(&"(".repeat(1_000)));
        let doubled = "A=xx\n".to_owned() + &"A=$A$A\n".repeat(100) + "x $A";
        assert!(line(&doubled).starts_with("line 23: a variable becomes larger than 2 MiB"));
        let laughs = "f() { f; f; }\nf";
        assert!(line(laughs).starts_with("line 1: functions call each other too often"));
        assert!(line("torchrun\nx.py --b 2").starts_with("line 2: `x.py` begins"));
        check("--a 1\n--b 2", &["[--a][1]", "[--b][2]"]);
        check("python x.py\npython y.py", &["[python][x.py]", "[python][y.py]"]);
    }
}
