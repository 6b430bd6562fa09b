"""The overlays of deploy/k8s as `kubectl kustomize` renders them."""

import pathlib
import re
import subprocess

import yaml

K8S = pathlib.Path(__file__).resolve().parents[3] / "deploy/k8s"


def render(kubectl, folder):
    """Its objects. Raises with kubectl's words where it refuses to render, or warns."""
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"kubectl kustomize {folder}: {done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


class Overlay:
    """Its objects, and what every overlay has one of."""

    def __init__(self, kubectl, name):
        self.name = name
        self.objects = render(kubectl, K8S / "overlays" / name)

    def of_kind(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    @property
    def deployment(self):
        (deployment,) = self.of_kind("Deployment")
        return deployment

    @property
    def pod(self):
        return self.deployment["spec"]["template"]

    @property
    def container(self):
        (container,) = self.pod["spec"]["containers"]
        return container

    def flags(self):
        """{name: value} of the container's arguments, with the variables that the kubelet expands;
        "true" for a flag without a value."""
        flags = {}
        for argument in self.container["args"]:
            name, value = re.fullmatch(r"--(\w+)(?:=(.*))?", argument).groups(default="true")
            for variable in self.container["env"]:
                kind, resource = variable["valueFrom"]["resourceFieldRef"]["resource"].split(".")
                value = value.replace(f"$({variable['name']})",
                                      self.container["resources"][kind][resource])
            flags[name] = value
        return flags


def render_all(kubectl):
    names = sorted(path.parent.name for path in K8S.glob("overlays/*/kustomization.yaml"))
    return [Overlay(kubectl, name) for name in names]
