"""Goal: deploy/compose.yaml is what docker compose takes, and holds together with the files beside
it.
Method: docker-compose, which needs no daemon for that, resolves the file; the result is compared
with the checkout.

usage: compose_test.py SOURCE_DIR
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
DEPLOY = SOURCE / "deploy"


def resolved(**environment):
    result = subprocess.run(
        ["docker-compose", "--file", DEPLOY / "compose.yaml", "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", result.stderr  # a warning, such as a variable that is not set
    return json.loads(result.stdout)


def mounts(service):
    return {volume["target"]: volume for volume in service["volumes"]}


class ComposeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.services = resolved()["services"]

    def test_has_the_server_and_what_watches_it(self):
        self.assertEqual(set(self.services), {"encoderd", "prometheus", "grafana"})

    def test_mounts_folders_that_exist_read_only(self):
        for service in self.services.values():
            for volume in service["volumes"]:
                if volume["type"] == "bind":
                    self.assertTrue(os.path.isdir(volume["source"]), volume)
                    self.assertTrue(os.listdir(volume["source"]), volume)
                    self.assertTrue(volume["read_only"], volume)

    def test_serves_the_model_it_is_told_to(self):
        self.assertEqual(pathlib.Path(mounts(self.services["encoderd"])["/models"]["source"]),
                         DEPLOY / "models" / "reverse")
        told = resolved(MODEL_DIR="/some/model")["services"]["encoderd"]
        self.assertEqual(mounts(told)["/models"]["source"], "/some/model")

    def test_gives_the_limits_it_is_told_to(self):
        told = resolved(ENCODERD_CPUS="1.5", ENCODERD_MEMORY="1400m")["services"]["encoderd"]
        self.assertEqual((float(told["cpus"]), int(told["mem_limit"])), (1.5, 1400 << 20))

    def test_confines_every_service(self):
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertIs(service["read_only"], True)
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertEqual(service["security_opt"], ["no-new-privileges:true"])
                self.assertIn("test", service["healthcheck"])
                self.assertNotIn("privileged", service)
                for port in service["ports"]:
                    self.assertEqual(port["host_ip"], "127.0.0.1")

    def test_publishes_no_port_twice(self):
        ports = [port["published"]
                 for service in self.services.values() for port in service["ports"]]
        self.assertEqual(len(ports), len(set(ports)))

    def test_pins_the_images_of_others_and_builds_its_own(self):
        for name in ("prometheus", "grafana"):
            self.assertRegex(self.services[name]["image"], r":v?\d+\.\d+\.\d+$")
        build = self.services["encoderd"]["build"]
        dockerfile = pathlib.Path(build["context"]) / build["dockerfile"]
        self.assertTrue(dockerfile.samefile(SOURCE / "Dockerfile"))

    def test_probes_as_the_image_does(self):
        probe = re.search(r"^HEALTHCHECK .*?CMD (\[.*?\])$", (SOURCE / "Dockerfile").read_text(),
                          re.S | re.M)
        self.assertEqual(self.services["encoderd"]["healthcheck"]["test"],
                         ["CMD", *json.loads(probe[1])])

    def test_grace_is_longer_than_the_drain(self):
        self.assertEqual(self.services["encoderd"]["stop_grace_period"], "30s")
        declared = (SOURCE / "server" / "options.cc").read_text()
        drain = re.search(r"drain_timeout, absl::Seconds\((\d+)\)", declared)
        self.assertLess(int(drain[1]), 30)

    def test_prometheus_reads_the_files_that_are_mounted(self):
        folder = mounts(self.services["prometheus"])["/etc/encoderd"]["source"]
        self.assertIn("--config.file=/etc/encoderd/prometheus.yaml",
                      self.services["prometheus"]["command"])
        self.assertIn("names: [encoderd]", pathlib.Path(folder, "prometheus.yaml").read_text())

    def test_grafana_finds_prometheus_and_the_dashboards(self):
        grafana = mounts(self.services["grafana"])
        provisioning = pathlib.Path(grafana["/etc/grafana/provisioning"]["source"])
        sources = (provisioning / "datasources" / "prometheus.yaml").read_text()
        self.assertIn("url: http://prometheus:9090", sources)
        dashboards = (provisioning / "dashboards" / "encoderd.yaml").read_text()
        place = re.search(r"path: (\S+)", dashboards)[1]
        json.loads(pathlib.Path(grafana[place]["source"], "encoderd.json").read_text())


if __name__ == "__main__":
    unittest.main()
