//! Completions for a shell, and the help.

use super::RunFolder;

const COMMANDS: [&str; 6] = ["run", "export", "collectives", "calibrate", "check", "completions"];

#[test]
fn completions_are_for_a_shell() {
    let place = RunFolder::new();
    for (shell, start) in
        [("bash", "_executor() {"), ("zsh", "#compdef executor"), ("fish", "# Print")]
    {
        let run = place.run(&format!("completions {shell}"));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert!(run.stdout.starts_with(start), "{shell}: {}", &run.stdout[..80]);
        for name in COMMANDS.into_iter().chain(["checkpoint-every", "wgpu"]) {
            assert!(run.stdout.contains(name), "{shell}: no {name}");
        }
    }
}

/// Each command has an example in its help.
#[test]
fn each_command_has_an_example() {
    let place = RunFolder::new();
    for name in COMMANDS {
        let help = place.run(&format!("{name} --help")).stdout;
        assert!(help.contains(&format!("\n  executor {name} ")), "{name}: {help}");
    }
}
