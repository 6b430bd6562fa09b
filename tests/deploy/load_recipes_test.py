"""Goal: every recipe of deploy/load runs as it is shipped, and its Job is what Kubernetes takes.

Method: run.sh against a real server with the bundled model, each recipe with its times cut to
fractions of a second; the Job as kubectl renders it.

usage: load_recipes_test.py ENCODERD ENCODERCTL KUBECTL
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import yaml

from rendered import render
from running_server import RunningServer

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LOAD = SOURCE / "deploy/load"
ENCODERD, ENCODERCTL, KUBECTL = sys.argv[1:4]
RECIPES = {path.stem for path in LOAD.glob("*.flags")}
GHZ = shutil.which(os.environ.get("GHZ", "ghz"))


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

    @unittest.skipUnless(GHZ, "ghz is not installed")
    def test_ghz_calls_by_reflection(self):
        call = {"sequences": [{"inputs_embeds": {
            "dtype": "DATA_TYPE_FP32", "shape": [1, 10],
            "data": base64.b64encode(bytes(40)).decode()}}],
            "outputs": {"last_hidden_state": True}}
        done = self.run_recipe("ghz", "--duration=1s", f"--data={json.dumps(call)}",
                               "--format=json")
        codes = json.loads(done.stdout)["statusCodeDistribution"]
        self.assertGreater(codes.get("OK", 0), 0, codes)


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

    def test_it_meets_the_strictest_pod_security(self):
        self.assertTrue(self.pod["spec"]["securityContext"]["runAsNonRoot"])
        self.assertEqual(self.pod["spec"]["securityContext"]["seccompProfile"]["type"],
                         "RuntimeDefault")
        self.assertFalse(self.container["securityContext"]["allowPrivilegeEscalation"])
        self.assertEqual(self.container["securityContext"]["capabilities"], {"drop": ["ALL"]})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
