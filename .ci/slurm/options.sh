# Holds the options of job scripts against full lists: Slurm's commands take what a name begins with for the name, and
# `sbatch --test-only` says nothing.
# shellcheck shell=bash

# What the commands say of themselves, and what only their manuals have.
declare -A options_of=()
list_options() {
    local command
    for command in sbatch srun sinfo scontrol; do
        options_of[$command]=" $("$command" --help | grep -oE -- '--[a-z][a-z0-9-]+' | tr '\n' ' ')"
    done
    options_of[sbatch]+='--open-mode --test-only '
    options_of[srun]+='--cpu-bind --mem-bind --open-mode '
}

# The options of a script: a line for each, with its command.
options_in() {
    sed -n 's/^#SBATCH \(--[^= ]*\).*/sbatch \1/p' "$1"
    # Lines that go on are one; an option is what stands between a command and its first other word.
    sed -e ':more' -e '/\\$/N; s/\\\n//; t more' "$1" | grep -v '^ *#' |
        grep -oE '\b(srun|sinfo|scontrol)( +--[^ )|]+)+' |
        while read -r command words; do
            # shellcheck disable=SC2086 # They are words.
            printf "$command %s\n" $words
        done | sed 's/=.*//'
}

# Whether all options of a script are known by their full names.
has_full_names() {
    local command option all_known=0
    while read -r command option; do
        case ${options_of[$command]} in
            *" $option "*) ;;
            *)
                printf 'error: %s: %s has no option %s\n' "$1" "$command" "$option" >&2
                all_known=1
                ;;
        esac
    done < <(options_in "$1")
    return "$all_known"
}
