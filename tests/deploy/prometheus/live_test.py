"""Every query of the dashboard and of the rules finds numbers in a server that works.

Method: two encoderd with the bundled model are loaded and asked what they refuse, a third one has
TLS; all are scraped by a real Prometheus with the real rules. Each query is asked as Grafana would
ask it, with all values of its variables, until it has given a number; a condition of an alert is
asked for its truth, so that it has an answer when all is well.

usage: live_test.py ENCODERD ENCODERCTL PROMETHEUS
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import yaml

import encoderd_client as ec
from running_prometheus import QueryError, RunningPrometheus
from running_server import RunningServer
from self_signed import write_keys

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy"
MODEL = DEPLOY / "models/reverse"
ENCODERD, ENCODERCTL, PROMETHEUS = sys.argv[1:4]
PATIENCE_SECONDS = 60  # of all tests together
# As long as the test may take, so that a rate sees all of it.
RATE_INTERVAL = "2m"


def rounded_precision():
    """Flags of a server whose drift can be seen; none where this CPU has no precision but fp32."""
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    for feature, precision in (("avx512_bf16", "bf16"), ("avx512_vnni", "int8")):
        if re.search(rf"\b{feature}\b", cpu):
            return [f"--precision={precision}", "--shadow_rate=1/1"]
    return []


def every_target(node):
    """Each {"expr": …} of the dashboard: panels' targets and annotations."""
    if isinstance(node, dict):
        if "expr" in node:
            yield node
        for child in node.values():
            yield from every_target(child)
    elif isinstance(node, list):
        for child in node:
            yield from every_target(child)


def as_truth(condition):
    """The condition of an alert, so that its value is 0 or 1 instead of nothing or something."""
    return re.sub(r"(?<=\s)(==|!=|>=|<=|>|<)(?=\s)", r"\1 bool", condition)


class LiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dashboard = json.loads((DEPLOY / "grafana/dashboards/encoderd.json").read_text())
        groups = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())["groups"]
        cls.rules = [rule for group in groups for rule in group["rules"]]

        cls.rounded = rounded_precision()
        cls.servers = [cls.enterClassContext(RunningServer(ENCODERD, MODEL, "--workers=1", *flags))
                       for flags in (["--precision=auto"], cls.rounded, cls.tls())]
        cls.prometheus = cls.enterClassContext(RunningPrometheus(
            PROMETHEUS,
            [(server.metrics_address, {"namespace": "encoderd", "pod": f"encoderd-{index}"})
             for index, server in enumerate(cls.servers)],
            DEPLOY / "prometheus/rules.yaml"))
        cls.end = time.monotonic() + PATIENCE_SECONDS
        # A rate needs a sample from before what it counts.
        cls.wait_for_number(f"count(encoderd_ready == 1) == {len(cls.servers)}")
        for server in cls.servers[:2]:
            cls.use(server.address)
        cls.values = {
            variable: "|".join(map(re.escape,
                                   cls.prometheus.label_values(label, "encoderd_model_info")))
            for variable, label in (("model", "name"), ("job", "job"), ("instance", "instance"))}
        cls.values |= {variable["name"]: variable["allValue"]
                       for variable in cls.dashboard["templating"]["list"]
                       if "allValue" in variable}

    @classmethod
    def tls(cls):
        """Flags of a server with TLS, which nobody here calls: it has series of its own."""
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        write_keys(folder)
        return [f"--tls_cert_file={folder}/tls.crt", f"--tls_key_file={folder}/tls.key"]

    @staticmethod
    def use(address):
        """All methods, calls of a load, and refusals."""
        subprocess.run([ENCODERCTL, "load", f"--address={address}", "--rate=200", "--duration=1s",
                        "--warm_up=0s", "--lengths=fixed:16", "--logits"],
                       check=True, stdout=subprocess.DEVNULL, timeout=60)
        digits = np.eye(10, dtype=np.float32)[[3, 1, 4, 1]]
        with ec.Client(address) as client:
            client.model()
            client.encode_chunked([digits], logits=True)
            for bad, options in (([[1, 2]], {}), ([digits], {"hidden_states": [7]})):
                try:
                    client.encode(bad, logits=True, **options)
                except ec.EncoderdError:
                    continue
                raise AssertionError("a call that is to be refused was answered")

    @classmethod
    def wait_for_number(cls, expression):
        """Its samples, once one of them is a finite number. Raises when none ever is."""
        while True:
            samples = cls.prometheus.query(expression)
            # Where nothing is compared with fp32, its quantiles are there and not a number.
            if any(math.isfinite(value) or ("shadow_error" in expression and not cls.rounded)
                   for _, value in samples):
                return samples
            if time.monotonic() > cls.end:
                raise AssertionError(f"not a number yet: {expression} gives {samples}")
            time.sleep(0.05)

    def as_grafana_asks(self, expression):
        expression = expression.replace("$__rate_interval", RATE_INTERVAL)
        for name, value in self.values.items():
            expression = expression.replace(f'"${name}"', json.dumps(f"({value})"))
        self.assertNotIn("$", expression, "a variable that this test does not know")
        return expression

    def test_every_panel_shows_something(self):
        targets = list(every_target(self.dashboard))
        self.assertGreater(len(targets), 60)
        for target in targets:
            with self.subTest(target["expr"]):
                samples = self.wait_for_number(self.as_grafana_asks(target["expr"]))
                # What a legend names is a label of what was found.
                for label in re.findall(r"{{(\w+)}}", target.get("legendFormat", "")):
                    for labels, _ in samples:
                        self.assertIn(label, labels)

    def test_every_variable_has_values(self):
        for variable in self.dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            with self.subTest(variable["name"]):
                found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                selector, label = found.groups()
                self.assertTrue(self.prometheus.label_values(
                    label, self.as_grafana_asks(selector)))

    def test_every_rule_has_a_number(self):
        for rule in self.rules:
            with self.subTest(rule.get("record", rule.get("alert"))):
                self.wait_for_number(rule["record"] if "record" in rule
                                     else as_truth(rule["expr"]))

    def test_both_scalers_find_what_they_scale_by(self):
        components = DEPLOY / "k8s/components"
        adapter = yaml.safe_load((components / "hpa/prometheus-adapter.yaml").read_text())
        for rule in adapter["rules"]:
            query = rule["metricsQuery"]
            for template, text in (("<<.Series>>", rule["seriesQuery"].split("{")[0]),
                                   ("<<.LabelMatchers>>", 'namespace="encoderd", pod=~".+"'),
                                   ("<<.GroupBy>>", "pod")):
                query = query.replace(template, text)
            with self.subTest(query):
                self.assertTrue(self.prometheus.query(rule["seriesQuery"]))
                pods = {labels["pod"] for labels, _ in self.wait_for_number(query)}
                self.assertEqual(pods, {f"encoderd-{index}"
                                        for index in range(len(self.servers))})
        keda = yaml.safe_load((components / "keda/scaledobject.yaml").read_text())
        for trigger in keda["spec"]["triggers"]:
            with self.subTest(trigger["metadata"]["query"]):
                self.wait_for_number(trigger["metadata"]["query"])

    def test_every_series_of_the_server_is_shown_or_watched(self):
        read = " ".join([target["expr"] for target in every_target(self.dashboard)]
                        + [rule["expr"] for rule in self.rules])
        names = {labels["__name__"] for labels, _ in
                 self.prometheus.query('{__name__=~"encoderd_.+|process_.+", job="encoderd"}')}
        families = {re.sub("_(bucket|sum|count)$", "", name) for name in names}
        self.assertGreater(len(families), 40)
        for family in families:
            with self.subTest(family):
                self.assertRegex(read, rf"\b{family}(_bucket|_sum|_count)?\b")

    def test_a_query_that_is_wrong_is_noticed(self):
        with self.assertRaises(QueryError):
            self.prometheus.query("rate(encoderd_calls_total)")
        self.assertEqual(self.prometheus.query("encoderd_cals_total"), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
