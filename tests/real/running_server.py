"""One encoderd process on a free port of this machine, for as long as a `with` block lasts."""

import re
import time

from logged_process import LoggedProcess

READY_SECONDS = 60
DRAIN_SECONDS = 30


class RunningServer:
    """`address` is where it listens, `metrics_address` where Prometheus may ask, `health_address`
    where probes may, if `flags` have a --health_listen; `seconds_to_ready` is how long that took.
    `flags` come last, so they hold where they say otherwise than this does.

    Leaving the block sends SIGTERM and raises unless the process drains and exits with 0. Raises
    with the log where it does not get ready.
    """

    def __init__(self, binary, model_dir, *flags):
        self._command = [
            str(binary),
            f"--model_dir={model_dir}",
            "--listen=127.0.0.1:0",
            "--metrics_listen=127.0.0.1:0",
            *flags,
        ]

    def __enter__(self):
        start = time.monotonic()
        self._process = LoggedProcess(self._command, "Serving. ", READY_SECONDS)
        self.seconds_to_ready = time.monotonic() - start
        self.address = self._address("Serving", "port")
        if not self.address:
            self._process.stop(0)
            raise RuntimeError("encoderd did not get ready; its log:\n" + self.log)
        self.metrics_address = self._address("Listening", "metrics_port")
        self.health_address = self._address("Listening", "health_port")
        return self

    def __exit__(self, kind, *unused):
        code = self._process.stop(DRAIN_SECONDS)
        if code != 0 and kind is None:
            raise RuntimeError(f"encoderd after SIGTERM: {code}; its log:\n" + self.log)

    @property
    def log(self):
        """What it has written so far."""
        return self._process.log

    def _address(self, event, port):
        """By the line "EVENT. … PORT=number …", as text or within JSON; None before that."""
        found = re.search(rf"\b{event}\. .*\b{port}=(\d+)", self.log)
        return found and f"127.0.0.1:{found.group(1)}"
