"""The executor reads the plan itself: what starts it is held against the plan."""

from plans import equal, script_arguments


def check(plan, folder):
    command, _ = script_arguments(folder / "executor-mpirun.sh", "mpirun", {"HOSTFILE": "/dev/null"})
    place = command.index("executor")
    equal("the command", command[place + 1], "run")
    equal("the plan", command[place + 2], str(folder / "plan.json"))
    equal("ranks", int(command[command.index("--np") + 1]), plan["num_gpus"])
