"""A process that says on standard error when it is ready."""

import subprocess
import threading


class LoggedProcess:
    """Starts `command` and waits until a line of its log has `ready` in it, it has ended, or
    `seconds` have passed.
    """

    def __init__(self, command, ready, seconds):
        self._lines = []
        self._reported = threading.Event()
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read_log, args=[ready], daemon=True).start()
        self._reported.wait(seconds)

    @property
    def log(self):
        """What it has written so far."""
        return "".join(self._lines)

    def stop(self, seconds):
        """SIGTERM, and SIGKILL after `seconds`: returns the exit code, or what took so long."""
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"still running after {seconds} s"

    def _read_log(self, ready):
        with self._process.stderr as log:
            for line in log:
                self._lines.append(line)
                if ready in line:
                    self._reported.set()
        self._reported.set()  # it ended
