"""One Prometheus on a free port of this machine, for as long as a `with` block lasts."""

import json
import pathlib
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import yaml

from logged_process import LoggedProcess

READY = "ready to receive"
READY_SECONDS = 30


class QueryError(Exception):
    """What Prometheus says of a query that it refuses."""


class RunningPrometheus:
    """Scrapes `targets` ([(address, labels)]) four times a second and evaluates `rules`.

    Raises with its log where it does not get ready.
    """

    def __init__(self, binary, targets, rules):
        self._binary = str(binary)
        self._config = {
            "global": {"scrape_interval": "250ms", "evaluation_interval": "250ms"},
            "rule_files": [str(rules)],
            "scrape_configs": [{
                "job_name": "encoderd",
                "static_configs": [{"targets": [address], "labels": labels}
                                   for address, labels in targets]}],
        }

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        config = pathlib.Path(self._folder.name) / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._config))
        self._process = LoggedProcess(
            [self._binary, f"--config.file={config}", "--web.listen-address=127.0.0.1:0",
             f"--storage.tsdb.path={self._folder.name}/data"], READY, READY_SECONDS)
        log = self._process.log
        listening = re.search(r'msg="?Listening on"? address=(127\.0\.0\.1:\d+)', log)
        if not listening or READY not in log:
            self.__exit__()
            raise RuntimeError("Prometheus did not get ready; its log:\n" + log)
        self._address = listening.group(1)
        return self

    def __exit__(self, *unused):
        self._process.stop(seconds=10)
        self._folder.cleanup()

    def query(self, expression):
        """The samples of an instant vector now: [(labels, value)]. Raises QueryError."""
        found = self._get("query", query=expression)
        if found["resultType"] == "scalar":
            return [({}, float(found["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in found["result"]]

    def label_values(self, label, selector):
        return self._get(f"label/{label}/values", **{"match[]": selector})

    def _get(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{query}",
                                        timeout=30) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{parameters}: {error.read().decode()}") from error
