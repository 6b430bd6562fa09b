"""The rules that promtool cannot check: every alert is tested, explained, and says where to look.

Method: reads deploy/prometheus/rules.yaml and the cases of rules_test.yaml, which promtool runs.
"""

import pathlib
import re
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
DEPLOY = HERE.parents[2] / "deploy"


def rules():
    groups = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def kebab_case(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


class RulesTest(unittest.TestCase):
    def setUp(self):
        self.alerts = [rule for rule in rules() if "alert" in rule]

    def test_every_alert_is_seen_to_fire_and_to_be_silent(self):
        cases = [case for group in yaml.safe_load((HERE / "rules_test.yaml").read_text())["tests"]
                 for case in group.get("alert_rule_test", [])]
        for alert in self.alerts:
            for severity in {a["labels"]["severity"] for a in self.alerts
                             if a["alert"] == alert["alert"]}:
                outcomes = {any(fired["exp_labels"]["severity"] == severity
                                for fired in case["exp_alerts"])
                            for case in cases if case["alertname"] == alert["alert"]}
                with self.subTest(alert["alert"], severity=severity):
                    self.assertEqual(outcomes, {True, False})

    def test_every_alert_says_what_is_wrong_with_its_value_and_what_to_do(self):
        self.assertGreater(len(self.alerts), 15)
        for alert in self.alerts:
            name, notes = alert["alert"], alert["annotations"]
            with self.subTest(name):
                self.assertIn(alert["labels"]["severity"], ("warning", "critical"))
                self.assertEqual(set(notes), {"summary", "description", "runbook"})
                self.assertEqual(notes["runbook"], f"deploy/runbook.md#{kebab_case(name)}")
                # Where the condition is more than a yes or no, its value is told.
                if not re.search(r"== 0", alert["expr"]):
                    self.assertIn("$value", notes["description"])

    def test_every_recording_is_used_by_an_alert_a_panel_or_another_rule(self):
        readers = (DEPLOY / "grafana/dashboards/encoderd.json").read_text() + " ".join(
            rule["expr"] for rule in rules())
        for rule in rules():
            if "record" in rule:
                with self.subTest(rule["record"]):
                    self.assertIn(rule["record"], readers)


if __name__ == "__main__":
    unittest.main()
