"""One encoderd process on a free port of this machine, for as long as a `with` block lasts."""

import re
import signal
import subprocess
import threading
import time

READY_SECONDS = 60
DRAIN_SECONDS = 30


class RunningServer:
    """`address` is where it listens, `metrics_address` where Prometheus may ask, `seconds_to_ready`
    how long that took.

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
        self._log = []
        self._ready = threading.Event()

    def __enter__(self):
        start = time.monotonic()
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read_log, daemon=True).start()
        self._ready.wait(READY_SECONDS)
        self.seconds_to_ready = time.monotonic() - start
        serving = [m for line in self._log if (m := re.search(r"Serving\. .*\bport=(\d+)", line))]
        if not serving:
            self._process.kill()
            raise RuntimeError("encoderd did not get ready; its log:\n" + "".join(self._log))
        self.address = f"127.0.0.1:{serving[0].group(1)}"
        metrics_port = re.search(r"Listening\. .*\bmetrics_port=(\d+)", "".join(self._log)).group(1)
        self.metrics_address = f"127.0.0.1:{metrics_port}"
        return self

    def __exit__(self, kind, *unused):
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = f"still running after {DRAIN_SECONDS} s"
        if code != 0 and kind is None:
            raise RuntimeError(f"encoderd after SIGTERM: {code}; its log:\n" + "".join(self._log))

    def _read_log(self):
        for line in self._process.stderr:
            self._log.append(line)
            if "Serving" in line:
                self._ready.set()
        self._ready.set()  # it ended
