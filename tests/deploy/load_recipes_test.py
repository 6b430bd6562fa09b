"""Goal: every recipe of deploy/load runs as it is shipped, and its Job is what Kubernetes takes.

Method: run.sh against a real server with the bundled model, each recipe with its times cut to
fractions of a second; the request of ghz, which ghz_test.py runs, by the messages of the proto;
the Job as kubectl renders it.

usage: load_recipes_test.py ENCODERD ENCODERCTL KUBECTL
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml
from google.protobuf import json_format

from encoderd_client import _messages
from rendered import render
from running_server import RunningServer

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LOAD = SOURCE / "deploy/load"
ENCODERD, ENCODERCTL, KUBECTL = sys.argv[1:4]
RECIPES = {path.stem for path in LOAD.glob("*.flags")}


class RunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer(ENCODERD, SOURCE / "deploy/models/reverse", "--workers=1")
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None)

    def run_recipe(self, *arguments, code=0):
        done = subprocess.run(
            [LOAD / "run.sh", *arguments], capture_output=True, text=True, timeout=120,
            env=os.environ | {"ENCODERCTL": ENCODERCTL, "ADDRESS": self.server.address})
        self.assertEqual(done.returncode, code, done)
        return done

    # Short enough for a test, and of lengths that the bundled model takes.
    def shortened(self, recipe):
        return self.run_recipe(recipe, f"--address={self.server.address}", "--lengths=fixed:16",
                               "--warm_up=100ms", "--duration=600ms", "--json")

    def test_each_recipe_is_tried_here(self):
        self.assertEqual(RECIPES, {"capacity", "soak", "spike", "overload"})

    def test_capacity_finds_a_rate(self):
        found = json.loads(self.shortened("capacity").stdout)
        self.assertGreater(found["best_rate"], 0)
        self.assertEqual(found["p99_bound_ms"], 250)

    def test_soak_stays_below_what_the_server_can_do(self):
        done = self.shortened("soak")
        self.assertIn("0.7 times that", done.stderr)
        self.assertGreater(json.loads(done.stdout)["answered"], 0)

    def test_spike_tells_its_thirds_apart(self):
        run = json.loads(self.shortened("spike").stdout)
        before, during, after = (part["calls"] for part in run["parts"])
        self.assertGreater(during, 1.5 * before)
        self.assertGreater(during, 1.5 * after)

    def test_overload_offers_twice_what_the_server_can_do(self):
        done = self.shortened("overload")
        self.assertIn("2 times that", done.stderr)
        self.assertGreater(json.loads(done.stdout)["answered"], 0)

    def test_the_command_line_wins_and_faults_are_told(self):
        self.assertIn("not a flag of load", self.run_recipe("soak", "--timeout=1s", code=64).stderr)
        usage = self.run_recipe("no_such_recipe", code=64).stderr
        for recipe in RECIPES | {"ghz"}:
            self.assertIn(recipe, usage)
        self.run_recipe("--help")


class GhzTest(unittest.TestCase):
    def test_it_makes_a_call_of_the_proto(self):
        recipe = json.loads((LOAD / "ghz.json").read_text())
        file = _messages.EncodeRequest.DESCRIPTOR.file
        service, method = recipe["call"].removeprefix(f"{file.package}.").split(".")
        called = file.services_by_name[service].methods_by_name[method]
        self.assertEqual(called.input_type, _messages.EncodeRequest.DESCRIPTOR)
        # Raises where a field is not there, or is of another kind.
        request = json_format.ParseDict(recipe["data"], _messages.EncodeRequest())
        self.assertEqual([len(sequence.input_ids) for sequence in request.sequences], [16])
        self.assertEqual(len(request.outputs.pooled), 1)


class JobTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        by_kind = {one["kind"]: one for one in render(KUBECTL, LOAD)}
        cls.job, cls.recipes = by_kind["Job"], by_kind["ConfigMap"]
        cls.pod = cls.job["spec"]["template"]
        cls.container = cls.pod["spec"]["containers"][0]

    def test_it_carries_every_recipe_and_runs_one(self):
        self.assertEqual(set(self.recipes["data"]), {f"{recipe}.flags" for recipe in RECIPES})
        volume = self.pod["spec"]["volumes"][0]
        self.assertEqual(volume["configMap"]["name"], self.recipes["metadata"]["name"])
        mount = self.container["volumeMounts"][0]
        self.assertEqual(mount["name"], volume["name"])
        flag_file = next(argument for argument in self.container["args"]
                         if argument.startswith("--flagfile="))
        self.assertIn(flag_file.removeprefix(f"--flagfile={mount['mountPath']}/"),
                      self.recipes["data"])

    def test_it_calls_the_servers_of_the_manifests(self):
        services = list(yaml.safe_load_all((SOURCE / "deploy/k8s/base/services.yaml").read_text()))
        policy = yaml.safe_load((SOURCE / "deploy/k8s/base/networkpolicy.yaml").read_text())
        address = next(argument for argument in self.container["args"]
                       if argument.startswith("--address=dns:///"))
        host, port = address.removeprefix("--address=dns:///").split(":")
        service = next(one for one in services if one["metadata"]["name"] == host)
        self.assertIn(int(port), [one["port"] for one in service["spec"]["ports"]])
        self.assertEqual(service["spec"]["clusterIP"], "None")
        allowed = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
        self.assertLessEqual(allowed.items(), self.pod["metadata"]["labels"].items())

    def test_the_overlay_of_the_readme_sets_its_image_and_keys(self):
        readme = (LOAD / "README.md").read_text()
        known = subprocess.run([ENCODERCTL, "load", "--help"], capture_output=True, text=True,
                               check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "encoderd").symlink_to(SOURCE)
            own = pathlib.Path(folder) / "own"
            own.mkdir()
            (own / "kustomization.yaml").write_text(
                "".join(re.findall(r"^```yaml\n(.*?)^```$", readme, re.M | re.S)))
            (job,) = (one for one in render(KUBECTL, own) if one["kind"] == "Job")
        pod = job["spec"]["template"]["spec"]
        container = pod["containers"][0]
        self.assertEqual(container["image"], "registry.example.com/minilm:1")
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == "tls")
        (volume,) = (one for one in pod["volumes"] if one["name"] == "tls")
        self.assertIn(f"create secret generic {volume['secret']['secretName']} ", readme)
        added = container["args"][len(self.container["args"]):]
        flags = dict(flag.partition("=")[::2] for flag in added)
        self.assertEqual({flag for flag in flags if not re.search(rf"{flag}\b", known)}, set())
        for flag in ("--tls_ca_file", "--tls_cert_file", "--tls_key_file"):
            file = flags[flag].removeprefix(f"{mount['mountPath']}/")
            self.assertIn(f"--from-file={file}", readme)
        certificate = yaml.safe_load(
            (SOURCE / "deploy/k8s/components/tls/certificate.yaml").read_text())
        self.assertIn(flags["--tls_server_name"], certificate["spec"]["dnsNames"])

    def test_it_meets_the_strictest_pod_security(self):
        self.assertTrue(self.pod["spec"]["securityContext"]["runAsNonRoot"])
        self.assertEqual(self.pod["spec"]["securityContext"]["seccompProfile"]["type"],
                         "RuntimeDefault")
        self.assertFalse(self.container["securityContext"]["allowPrivilegeEscalation"])
        self.assertEqual(self.container["securityContext"]["capabilities"], {"drop": ["ALL"]})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
