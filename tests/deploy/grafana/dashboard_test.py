"""The dashboard and its provisioning are what Grafana takes without a word.

Method: reads deploy/grafana. What its queries find is ../prometheus/live_test.py's.
"""

import itertools
import json
import pathlib
import re
import unittest

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy"
GRAFANA = DEPLOY / "grafana"


def load(path):
    return yaml.safe_load((DEPLOY / path).read_text())


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads((GRAFANA / "dashboards/encoderd.json").read_text())
        self.panels = self.dashboard["panels"]

    def test_panels_lie_side_by_side(self):
        for panel in self.panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
        for one, other in itertools.combinations(self.panels, 2):
            a, b = one["gridPos"], other["gridPos"]
            apart = (a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
                     or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"])
            self.assertTrue(apart, (one["title"], other["title"]))

    def test_panels_can_be_told_apart(self):
        for key in ("id", "title"):
            values = [panel[key] for panel in self.panels]
            self.assertEqual(len(values), len(set(values)), key)
        for panel in self.panels:
            references = [target["refId"] for target in panel.get("targets", [])]
            self.assertEqual(len(references), len(set(references)), panel["title"])

    def test_every_panel_has_queries_a_unit_and_the_chosen_data_source(self):
        chosen = {"type": "prometheus", "uid": "${datasource}"}
        for panel in self.panels:
            if panel["type"] == "row":
                continue
            with self.subTest(panel["title"]):
                self.assertTrue(panel["targets"])
                for item in [panel, *panel["targets"]]:
                    self.assertEqual(item["datasource"], chosen)
                if panel["type"] in ("timeseries", "stat"):
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])

    def test_every_query_follows_the_variables(self):
        for panel in self.panels:
            for target in panel.get("targets", []):
                with self.subTest(target["expr"]):
                    selectors = re.findall(r"([\w:]+){([^{}]*)}", target["expr"])
                    self.assertTrue(selectors)
                    for metric, labels in selectors:
                        self.assertIn('namespace=~"$namespace", job=~"$job"', labels)
                        # What is recorded of a whole job has no instance.
                        self.assertNotEqual(metric.startswith("job"),
                                            'instance=~"$instance"' in labels)

    def test_all_namespaces_include_none(self):
        # Outside Kubernetes there is no such label; a list of those found would leave that out.
        (namespace,) = [variable for variable in self.dashboard["templating"]["list"]
                        if variable["name"] == "namespace"]
        self.assertTrue(namespace["includeAll"])
        self.assertEqual((namespace["allValue"], namespace["current"]["value"]),
                         (".*", ["$__all"]))

    def test_provisioning_names_what_is_there(self):
        (source,) = load("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
        scrapes = load("prometheus/prometheus.yaml")["global"]["scrape_interval"]
        # Else $__rate_interval could be shorter than four scrapes.
        self.assertEqual(source["jsonData"]["timeInterval"], scrapes)
        (provider,) = load("grafana/provisioning/dashboards/encoderd.yaml")["providers"]
        mounts = load("compose.yaml")["services"]["grafana"]["volumes"]
        self.assertIn(f"./grafana/dashboards:{provider['options']['path']}:ro", mounts)
        self.assertIn("./grafana/provisioning:/etc/grafana/provisioning:ro", mounts)


if __name__ == "__main__":
    unittest.main()
