//! Completions for a shell, the manual, and the help.

use std::fs;

use super::RunFolder;

const COMMANDS: [&str; 7] =
    ["run", "export", "collectives", "calibrate", "check", "completions", "man"];

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

/// Each command has a page, with its options and its example, and the same in its help.
#[test]
fn each_command_has_a_page_and_an_example() {
    let place = RunFolder::new();
    let made = place.run("man pages");
    assert_eq!((made.code, made.stdout.as_str(), made.stderr.as_str()), (Some(0), "", ""));
    assert_eq!(fs::read_dir(place.path("pages")).unwrap().count(), COMMANDS.len() + 1);
    assert!(place.path("pages/executor.1").exists());
    for name in COMMANDS {
        let page = fs::read_to_string(place.path(&format!("pages/executor-{name}.1"))).unwrap();
        let help = place.run(&format!("{name} --help")).stdout;
        assert!(page.contains("OPTIONS") && page.contains("executor "), "{name}");
        assert!(help.contains(&format!("\n  executor {name} ")), "{name}: {help}");
    }
}
