"""Holds manifests for Kubernetes to what their kinds must have.

    manifests.py FILE..
"""

import json
import re
import subprocess
import sys

import yaml

# Kinds with the replicas that they are made of, the first of which there is one.
KINDS = {
    "PyTorchJob": ("kubeflow.org/v1", "pytorchReplicaSpecs", ["Master", "Worker"], "pytorch"),
    "MPIJob": ("kubeflow.org/v2beta1", "mpiReplicaSpecs", ["Launcher", "Worker"], "mpi"),
}


def main():
    for path in sys.argv[1:]:
        with open(path) as file:
            config, job = yaml.load_all(file, UniqueKeys)
        check_files(config)
        check_job(job, config)
        print(f"{path}: {job['kind']}")


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that comes twice, of which the last would count."""

    def construct_mapping(self, node, deep=False):
        names = [key.value for key, _ in node.value]
        assert len(names) == len(set(names)), names
        return super().construct_mapping(node, deep)


def check_files(config):
    assert (config["apiVersion"], config["kind"]) == ("v1", "ConfigMap")
    json.loads(config["data"].get("plan.json", "{}"))
    script = config["data"]["run.sh"]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    # Arrays that are used are there, and files that lie beside.
    used = set(re.findall(r"\$\{([A-Z_]+)\[@\]\}", script))
    assert all(f"{name}=(" in script for name in used), used
    beside = set(re.findall(r"\$HERE/([\w.-]+)", script))
    assert beside <= set(config["data"]), beside


def check_job(job, config):
    version, specs, names, container_name = KINDS[job["kind"]]
    assert job["apiVersion"] == version
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", job["metadata"]["name"])
    replicas = job["spec"][specs]
    assert set(replicas) <= set(names) and names[0] in replicas
    assert replicas[names[0]]["replicas"] == 1
    for replica in replicas.values():
        assert replica["replicas"] >= 1
        pod = replica["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == container_name
        assert container["image"] and all(isinstance(word, str) for word in container["command"])
        # What is mounted is there.
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        assert volumes["plan"]["configMap"]["name"] == config["metadata"]["name"]


main()
