# What the scripts of CI share. One that sources it stands in the repository's root from then on, ends at
# the first command that fails, and has no standard input.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
export CI=true CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

# Prints a command, then runs it.
step() {
    printf '\n==> %s\n' "$*"
    "$@"
}

# Runs a command under a name, and says how many seconds it took; a failure ends the script.
timed() {
    local name=$1 begun=$SECONDS status=0
    shift
    printf '\n==== %s\n' "$name"
    "$@" || status=$?
    took+=("$((SECONDS - begun))" "$name")
    if [ "$status" -ne 0 ]; then
        show_seconds
        printf 'error: %s fails\n' "$name" >&2
        exit "$status"
    fi
    printf '\n==== %s took %s s\n' "$name" "$((SECONDS - begun))"
}

# Seconds and names of what was timed.
took=()

show_seconds() {
    printf '\nseconds  step\n'
    printf '%7s  %s\n' "${took[@]}" "$SECONDS" 'all of it'
}

# Whether one of the commands is there.
any_of() {
    local name
    for name in "$@"; do
        if command -v "$name" >/dev/null; then
            return 0
        fi
    done
    return 1
}

# Whether MPI programs can be built and run.
has_mpi() {
    any_of mpicc && any_of mpirun && [ -n "$(
        find /usr/lib \( -name 'libclang.so*' -o -name 'libclang-[0-9]*.so*' \) -print -quit 2>/dev/null
    )" ]
}

# Whether a Slurm cluster can be started here.
has_slurm() {
    PATH=$PATH:/usr/sbin any_of slurmctld && PATH=$PATH:/usr/sbin any_of slurmd && PATH=$PATH:/usr/sbin any_of munged &&
        any_of sbatch
}

# Whether python3 is as new as the notebooks need it and can make environments.
can_make_venv() {
    python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Makes `folder`, which goes when the script ends.
make_folder() {
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
}

# How CI compiles.
as_ci() {
    # Each crate is compiled once; what would make a second time quicker takes time and disk.
    export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
    # Of what a user builds, the form is checked here and not the speed.
    export CARGO_PROFILE_RELEASE_LTO=${CARGO_PROFILE_RELEASE_LTO:-off}
    # What is drawn differs between commits, and is the same each time that one is tested.
    export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$(git rev-list --count HEAD 2>/dev/null || printf 0)}
}

# Which packages and features cargo is asked for decides the features of their dependencies, and a crate
# whose features differ is compiled anew. So steps ask for one of two things.

# Sets `all`: everything but what is for GPUs, with MPI where it is there.
choose_all() {
    all=(--workspace)
    if has_mpi; then
        all+=(--features executor/mpi)
    fi
}

# Sets `gpu`: the executor's crates for GPUs, whose dependencies are compiled for minutes, and what stands in for their driver.
choose_gpu() {
    gpu=(-p executor -p executor-communicators -p executor-kernels -p executor-runtime -p stand-in --features executor/cuda,executor/wgpu)
}

# Sets `executor` to the command as the tests build it.
# shellcheck disable=SC2034 # Steps use it.
build_executor() {
    choose_all
    step cargo test "${all[@]}" --no-run
    executor=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)/executor
}

# Runs the planner as a new user does, with its stdout in a file of `folder`.
planner_to() {
    local file=$1
    shift
    printf '\n==> cargo run --release -- %s\n' "$*"
    cargo run --release -- "$@" >"$folder/$file"
}

# Writes a plan that a few threads run in no time to `folder`.
make_small_plan() {
    planner_to small.txt evaluate .ci/small.json --gpus 4 --layout tp2-pp2-dp1 \
        --global-batch-size 8 --micro-batch-size 2 -o "$folder/small-plan.json"
}

# Checks that a file has each of the patterns, and shows the file if it lacks one.
has() {
    local file=$1 pattern
    shift
    for pattern in "$@"; do
        if ! grep -Eq -- "$pattern" "$file"; then
            cat "$file"
            # shellcheck disable=SC2016 # The quotes of a message.
            printf 'error: nothing above matches `%s`\n' "$pattern" >&2
            return 1
        fi
    done
}

# Checks that files are JSON, by another reader than ours.
is_json() {
    local file
    for file in "$@"; do
        if any_of python3; then
            step python3 -m json.tool "$file" /dev/null
        else
            printf 'skipped: no python3 to read %s\n' "$file"
        fi
    done
}
