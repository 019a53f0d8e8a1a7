# A Slurm cluster of four simulated nodes with eight made-up GPUs each, on this machine and in `folder`. Needs no root.
# shellcheck shell=bash

nodes=(n0 n1 n2 n3)

# Starts the cluster, and sets SLURM_CONF. Fails where a daemon does.
start_cluster() {
    cluster=$folder/cluster
    local port=$((20000 + $$ % 10000)) host tries
    host=$(hostname)
    export SLURM_CONF=$cluster/slurm.conf PATH=$PATH:/usr/sbin
    mkdir -p "$cluster"/{munge,state,log,dev} "${nodes[@]/#/$cluster/spool/}" "${nodes[@]/#/$cluster/tmp/}"
    sed -e "s|FOLDER|$cluster|g; s|HOST|${host%%.*}|g; s|USER|$(id -un)|g" \
        -e "s|PORT0|$port|; s|PORT1|$((port + 1))|; s|PORT4|$((port + 4))|" \
        .ci/slurm/slurm.conf >"$SLURM_CONF"
    # A GPU is a device that is there.
    for index in {0..7}; do
        ln -s /dev/null "$cluster/dev/nvidia$index"
    done
    printf 'NodeName=n[0-3] Name=gpu File=%s/dev/nvidia[0-7]\n' "$cluster" >"$cluster/gres.conf"
    # Which plugin is one that does nothing has changed; none is used.
    if sinfo --version | grep -Eq ' (2[0-2]|23\.02)\.'; then
        printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$cluster/cgroup.conf"
    else
        printf 'CgroupPlugin=disabled\n' >"$cluster/cgroup.conf"
    fi
    head -c 1024 /dev/urandom >"$cluster/munge/key"
    chmod 400 "$cluster/munge/key"
    # It is forced to put its socket in a folder that others cannot read.
    munged --force --num-threads 10 --key-file "$cluster/munge/key" --socket "$cluster/munge/socket" \
        --pid-file "$cluster/munge/pid" --log-file "$cluster/munge/log" --seed-file "$cluster/munge/seed" 2>/dev/null
    slurmctld
    for node in "${nodes[@]}"; do
        start_node "$node"
    done
    for tries in {1..120}; do
        if [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = "${#nodes[@]}" ]; then
            return
        fi
        sleep 0.25
    done
    tail -n 20 "$cluster"/log/*
    printf 'error: no cluster after %s looks\n' "$tries" >&2
    return 1
}

start_node() {
    slurmd -N "$1"
}

# Kills the daemon of a node and all that runs there, as if its power had gone, and with it what it has no disk for.
kill_node() {
    local ranks stepd
    ranks=$(processes "SLURM_CONF=$SLURM_CONF" "SLURMD_NODENAME=$1")
    # shellcheck disable=SC2086 # They are words.
    stepd=$(ps -o ppid= $ranks | sort -u)
    # shellcheck disable=SC2086
    kill -KILL "$(cat "$cluster/slurmd-$1.pid")" $stepd $ranks
    rm -rf "$cluster/slurmd-$1.pid" "$cluster/spool/$1" "$cluster/tmp/$1"
    mkdir "$cluster/spool/$1" "$cluster/tmp/$1"
}

# Ends all daemons, jobs and what they started.
stop_cluster() {
    local left tries
    for tries in {1..20}; do
        left=$(processes "SLURM_CONF=$SLURM_CONF")
        if [ -z "$left" ]; then
            return 0 # And not what the script ended with, in a trap.
        fi
        # shellcheck disable=SC2086 # They are words.
        kill -KILL $left 2>/dev/null || true
        sleep 0.1
    done
    printf 'error: still there after %s looks: %s\n' "$tries" "$left" >&2
}

# Processes that began with all of these variables.
processes() {
    local found=(/proc/[0-9]*/environ) variable
    for variable in "$@"; do
        mapfile -t found < <(grep -lsxzF -- "$variable" "${found[@]}")
        if [ "${#found[@]}" -eq 0 ]; then
            return 0 # And not what the script ended with, in a trap.
        fi
    done
    # Not those that look.
    for variable in "${found[@]}"; do
        if [ -e "$variable" ]; then
            variable=${variable#/proc/}
            printf '%s\n' "${variable%/environ}"
        fi
    done
}
