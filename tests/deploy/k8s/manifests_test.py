"""What the rendered manifests say fits together, and the real server starts with it.

Method: kubectl renders every overlay; names, ports, labels, times and flags that must agree are
compared; then encoderd is started with the arguments of each rendered Deployment, its variables
expanded as the kubelet would and addresses and paths replaced by ones that exist here.

usage: manifests_test.py KUBECTL ENCODERD ENCODERCTL
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

from rendered import K8S, render_all
from running_server import RunningServer
from self_signed import write_keys

KUBECTL, ENCODERD, ENCODERCTL = sys.argv[1:4]
DEPLOY = K8S.parent
OVERLAYS = render_all(KUBECTL)


def in_every_overlay(test):
    """A test that takes an Overlay, as one that asks them all."""
    def run(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay.name):
                test(self, overlay)
    return run


def seconds(duration):
    """Of a flag's value such as 1m30s."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3}
    return sum(float(number) * units[unit]
               for number, unit in re.findall(r"([\d.]+)(ms|h|m|s)", duration))


def of_any_overlay(kind):
    return [item for overlay in OVERLAYS for item in overlay.of_kind(kind)]


class ManifestsTest(unittest.TestCase):
    def test_every_file_is_part_of_an_overlay(self):
        used, waiting = set(), [K8S / "overlays" / overlay.name for overlay in OVERLAYS]
        while waiting:
            folder = waiting.pop()
            file = folder / "kustomization.yaml"
            used.add(file.resolve())
            content = yaml.safe_load(file.read_text())
            for name in content.get("resources", []) + content.get("components", []):
                path = (folder / name).resolve()
                (waiting.append if path.is_dir() else used.add)(path)
        # Of the adapter, another program; ../prometheus/live_test.py asks its queries.
        used.add(K8S / "components/hpa/prometheus-adapter.yaml")
        self.assertEqual(set(K8S.rglob("*.yaml")) - used, set())

    @in_every_overlay
    def test_ports_agree(self, overlay):
        ports = {port["name"]: port["containerPort"] for port in overlay.container["ports"]}
        flags = overlay.flags()
        for name, flag in (("grpc", "listen"), ("health", "health_listen"),
                           ("metrics", "metrics_listen")):
            self.assertEqual(flags[flag], f"0.0.0.0:{ports[name]}")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(overlay.container[probe]["grpc"]["port"], ports["health"])
        served = {}
        for service in overlay.of_kind("Service"):
            for port in service["spec"]["ports"]:
                self.assertEqual((port["targetPort"], port["port"]),
                                 (port["name"], ports[port["name"]]))
                served.setdefault(service["metadata"]["name"], set()).add(port["port"])
        for route in overlay.of_kind("GRPCRoute"):
            for backend in (b for rule in route["spec"]["rules"] for b in rule["backendRefs"]):
                self.assertIn(backend["port"], served[backend["name"]])
        (policy,) = overlay.of_kind("NetworkPolicy")
        self.assertEqual([port["port"] for rule in policy["spec"]["ingress"]
                          for port in rule["ports"]], ["grpc", "metrics"])

    @in_every_overlay
    def test_probes_ask_what_they_are_for(self, overlay):
        asked = {probe: overlay.container[probe]["grpc"].get("service", "")
                 for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
        self.assertEqual(asked, {"startupProbe": "", "readinessProbe": "",
                                 "livenessProbe": "liveness"})

    @in_every_overlay
    def test_selectors_find_the_pods(self, overlay):
        selectors = [overlay.deployment["spec"]["selector"]["matchLabels"]]
        selectors += [s["spec"]["selector"] for s in overlay.of_kind("Service")]
        selectors += [b["spec"]["selector"]["matchLabels"]
                      for b in overlay.of_kind("PodDisruptionBudget")]
        selectors += [p["spec"]["podSelector"]["matchLabels"]
                      for p in overlay.of_kind("NetworkPolicy")]
        selectors += [c["labelSelector"]["matchLabels"]
                      for c in overlay.pod["spec"]["topologySpreadConstraints"]]
        self.assertEqual(len(selectors), 7)
        for selector in selectors:
            self.assertTrue(selector.items() <= overlay.pod["metadata"]["labels"].items(), selector)

    @in_every_overlay
    def test_prometheus_finds_each_replica_once(self, overlay):
        for monitor in overlay.of_kind("ServiceMonitor"):
            (endpoint,) = monitor["spec"]["endpoints"]
            found = [service["metadata"]["name"] for service in overlay.of_kind("Service")
                     if monitor["spec"]["selector"]["matchLabels"].items()
                     <= service["metadata"]["labels"].items()
                     and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]]
            self.assertEqual(found, ["encoderd"])

    @in_every_overlay
    def test_scalers_find_the_deployment_and_own_its_replicas(self, overlay):
        scalers = overlay.of_kind("HorizontalPodAutoscaler") + overlay.of_kind("ScaledObject")
        self.assertEqual("replicas" in overlay.deployment["spec"], not scalers)
        for scaler in scalers:
            self.assertEqual(scaler["spec"]["scaleTargetRef"]["name"],
                             overlay.deployment["metadata"]["name"])

    def test_a_gateway_may_put_many_calls_on_one_connection(self):
        text = subprocess.run([ENCODERD, "--help"], capture_output=True, text=True,
                              check=True).stdout
        default = int(re.search(r"--max_connection_inflight \(default: (\d+)\)", text)[1])
        for overlay in OVERLAYS:
            allowed = int(overlay.flags().get("max_connection_inflight", default))
            with self.subTest(overlay.name):
                self.assertEqual(allowed > default, bool(overlay.of_kind("GRPCRoute")))

    def test_keda_takes_no_answer_for_no_load(self):
        for scaler in of_any_overlay("ScaledObject"):
            for trigger in scaler["spec"]["triggers"]:
                self.assertEqual(trigger["metadata"]["ignoreNullValues"], "false")

    def test_both_scalers_want_the_same(self):
        (hpa,) = of_any_overlay("HorizontalPodAutoscaler")
        (keda,) = of_any_overlay("ScaledObject")
        hpa, keda = hpa["spec"], keda["spec"]
        adapter = yaml.safe_load((K8S / "components/hpa/prometheus-adapter.yaml").read_text())
        self.assertEqual([metric["pods"]["metric"]["name"] for metric in hpa["metrics"]],
                         [rule["name"]["as"] for rule in adapter["rules"]])
        self.assertEqual([metric["pods"]["target"]["averageValue"] for metric in hpa["metrics"]],
                         [f"{float(trigger['metadata']['threshold']) * 1000:.0f}m"
                          for trigger in keda["triggers"]])
        self.assertEqual((hpa["minReplicas"], hpa["maxReplicas"], hpa["behavior"]),
                         (keda["minReplicaCount"], keda["maxReplicaCount"],
                          keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]))

    @in_every_overlay
    def test_the_grace_period_holds_the_drain_and_the_end(self, overlay):
        flags = overlay.flags()
        drain = seconds(flags["drain_delay"]) + seconds(flags["drain_timeout"])
        self.assertGreater(drain, 0)
        self.assertGreaterEqual(overlay.pod["spec"]["terminationGracePeriodSeconds"], drain + 5)
        # The delay is the server's own: a hook's would come on top.
        self.assertNotIn("lifecycle", overlay.container)

    @in_every_overlay
    def test_pods_may_do_nothing_but_serve(self, overlay):
        spec = overlay.pod["spec"]
        self.assertIs(spec["automountServiceAccountToken"], False)
        self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
        self.assertGreater(spec["securityContext"]["runAsUser"], 0)
        self.assertEqual(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
        self.assertEqual(overlay.container["securityContext"],
                         {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                          "capabilities": {"drop": ["ALL"]}})
        for mount in overlay.container.get("volumeMounts", []):
            self.assertIs(mount["readOnly"], True, mount)

    @in_every_overlay
    def test_a_rollout_never_has_fewer_replicas(self, overlay):
        self.assertEqual(overlay.deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"],
                         0)

    @in_every_overlay
    def test_the_image_is_this_version(self, overlay):
        cmake = (DEPLOY.parent / "CMakeLists.txt").read_text()
        version = re.search(r"project\(encoderd VERSION ([\d.]+)", cmake)[1]
        self.assertEqual(overlay.container["image"], f"encoderd:{version}")

    def test_the_operator_gets_the_same_rules_as_prometheus(self):
        folder = K8S / "components/monitoring"
        printed = subprocess.run(["sh", folder / "render.sh"], capture_output=True, text=True,
                                 check=True).stdout
        self.assertEqual((folder / "prometheusrule.yaml").read_text(), printed,
                         "write what components/monitoring/render.sh prints")
        groups = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())["groups"]
        rules = of_any_overlay("PrometheusRule")
        self.assertTrue(rules)
        for rule in rules:
            self.assertEqual(rule["spec"]["groups"], groups)

    def test_grafana_gets_the_dashboard(self):
        text = (DEPLOY / "grafana/dashboards/encoderd.json").read_text()
        found = of_any_overlay("ConfigMap")
        self.assertTrue(found)
        for item in found:
            self.assertEqual(item["metadata"]["labels"], {"grafana_dashboard": "1"})
            self.assertEqual(json.loads(item["data"]["encoderd.json"]), json.loads(text))


class StartTest(unittest.TestCase):
    """The server with the arguments that a cluster would give it."""

    # What is elsewhere here than in the container.
    HERE = {
        "model_dir": str(DEPLOY / "models/reverse"),
        "listen": "127.0.0.1:0",
        "health_listen": "127.0.0.1:0",
        "metrics_listen": "127.0.0.1:0",
        "termination_log": "/dev/null",
        "drain_delay": "0s",  # nobody has to be told
    }
    # With components/tls.
    KEYS = {"tls_cert_file": "tls.crt", "tls_key_file": "tls.key", "tls_client_ca_file": "tls.crt"}

    @classmethod
    def setUpClass(cls):
        cls.keys = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        write_keys(cls.keys)

    @in_every_overlay
    def test_every_flag_is_the_servers(self, overlay):
        text = subprocess.run([ENCODERD, "--help"], capture_output=True, text=True,
                              check=True).stdout
        known = set(re.findall(r"--(\w+)", text))
        self.assertGreater(len(known), 30)
        self.assertEqual(set(overlay.flags()) - known, set())

    def arguments(self, overlay):
        flags = overlay.flags()
        self.assertEqual(set(self.HERE) - set(flags), set())
        here = self.HERE | {name: str(self.keys / file) for name, file in self.KEYS.items()
                            if name in flags}
        return [f"--{name}={value}" for name, value in (flags | here).items()]

    @in_every_overlay
    def test_memory_is_what_the_server_suggests(self, overlay):
        report = subprocess.run([ENCODERD, *self.arguments(overlay), "--check"],
                                capture_output=True, text=True, check=True).stdout
        suggested = float(re.search(r"suggested memory request: +([\d.]+) MiB", report)[1])
        resources = overlay.container["resources"]
        requested = re.fullmatch(r"(\d+)Mi", resources["requests"]["memory"])[1]
        self.assertEqual(resources["limits"], {"memory": f"{requested}Mi"})
        # MiniLM-L6, which the manifest speaks of, takes some 160 MiB more than the bundled model.
        self.assertGreater(int(requested), suggested + 160)

    @in_every_overlay
    def test_serves_and_answers_the_probes(self, overlay):
        arguments = self.arguments(overlay)
        with RunningServer(ENCODERD, self.HERE["model_dir"], *arguments) as server:
            self.assertRegex(server.log, rf"\bworkers={overlay.flags()['workers']}\b")
            for line in server.log.splitlines():
                json.loads(line)  # what those who collect logs expect
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                service = overlay.container[probe]["grpc"].get("service", "")
                answer = subprocess.run([ENCODERCTL, "health", *filter(None, [service]),
                                         f"--address={server.health_address}"],
                                        capture_output=True, text=True, timeout=30)
                self.assertEqual(answer.stdout, "SERVING\n", answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
