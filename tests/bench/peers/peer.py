"""peer.py: what all peers share: a process that encodes and times what tests/bench asks of it.

A peer is a file of this folder with a function

    open_peer(model, cache, precision, threads) -> Peer

and ends with `serve(open_peer)`. It runs as

    python FILE.py --model DIR --cache DIR --precision fp32|bf16|int8 --threads N

and speaks the protocol of tests/bench/contender.h on standard input and output, a JSON object a line.
"""

import abc
import argparse
import base64
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

TOGETHER = "together"  # all threads work on one batch
APART = "apart"  # each thread has a batch of its own


class CannotError(Exception):
    """This engine cannot run the model in that precision here, and why."""


class Peer(abc.ABC):
    """An engine with a model loaded."""

    version = ""  # the engine's name and version, and the library that computes
    ways = (TOGETHER, APART)  # of using the threads

    @abc.abstractmethod
    def lanes(self, way):
        """Functions that may run at the same time, each in a thread of its own.

        They map input ids and mask, both int64 [sequences, tokens] with zeros behind the end of a
        sequence, to the last hidden state, float32 [sequences, tokens, hidden].
        """

    def enter(self, way):
        """Called before the lanes of a way run, where the process must be told."""

    @abc.abstractmethod
    def kernels(self):
        """The implementations that run, as the engine itself names them, in one line."""


def pad(sequences):
    """The input of a lane: ids and mask of sequences, filled up to the longest."""
    tokens = max(map(len, sequences))
    ids = np.zeros((len(sequences), tokens), np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return ids, mask


def batches_of(sequences, batching):
    """Cuts sequences into the inputs of lanes.

    "groups:N"  N sequences a batch, as they come
    "sorted:N"  sorted by length, at most N tokens a batch with what is filled up
    """
    kind, size = batching.split(":")
    size = int(size)
    if kind == "groups":
        cut = [sequences[at : at + size] for at in range(0, len(sequences), size)]
    elif kind == "sorted":
        cut = [[]]
        for sequence in sorted(sequences, key=len):
            if cut[-1] and (len(cut[-1]) + 1) * len(sequence) > size:
                cut.append([])
            cut[-1].append(sequence)
    else:
        raise ValueError(f"batching: expected groups:N or sorted:N, got {batching}")
    return [pad(batch) for batch in cut]


LONGEST_SECONDS = 3  # of passes; whoever needs longer is judged by what it did until then


class Passes:
    """Deals out the batches of whole passes through the work until `seconds` have gone by."""

    def __init__(self, batches, seconds):
        self._batches = batches
        self._next = 0
        self._lock = threading.Lock()
        now = time.perf_counter()
        self._end = now + seconds
        self._give_up = now + max(seconds, LONGEST_SECONDS)

    def take(self):
        """The next batch, or None."""
        with self._lock:
            at = self._next % len(self._batches)
            now = time.perf_counter()
            if now >= self._give_up or (at == 0 and self._next > 0 and now >= self._end):
                return None
            self._next += 1
            return self._batches[at]


def run_passes(lanes, batches, seconds):
    """Real tokens per second: the sum of the lanes' rates, each up to the end of its last batch."""
    passes = Passes(batches, seconds)
    rates = []

    def run(lane):
        start = end = time.perf_counter()
        tokens = 0
        while (batch := passes.take()) is not None:
            lane(*batch)
            tokens += int(batch[1].sum())
            end = time.perf_counter()
        rates.append(tokens / max(end - start, 1e-9))

    threads = [threading.Thread(target=run, args=(lane,)) for lane in lanes[1:]]
    for thread in threads:
        thread.start()
    run(lanes[0])
    for thread in threads:
        thread.join()
    return sum(rates)


class Server:
    """Answers the requests of the driver."""

    def __init__(self, peer):
        self._peer = peer
        self._lanes = {}
        self._work = {}
        self._warm = set()

    def answer(self, request):
        return getattr(self, "_" + request["do"])(request)

    def _lanes_of(self, way):
        if way not in self._lanes:
            self._lanes[way] = self._peer.lanes(way)
        return self._lanes[way]

    def _learn(self, request):
        self._work[request["work"]] = request["sequences"]
        return {}

    def _encode(self, request):
        lane = self._lanes_of(self._peer.ways[0])[0]
        rows = []
        for sequence in request["sequences"]:
            hidden = np.array(lane(*pad([sequence])), np.float32)  # a lane may reuse its memory
            rows.append(hidden.reshape(len(sequence), -1))
        return {"hidden": base64.b64encode(np.concatenate(rows).tobytes()).decode()}

    def _time(self, request):
        batches = batches_of(self._work[request["work"]], request["batching"])
        lanes = self._lanes_of(request["way"])
        self._peer.enter(request["way"])
        key = (request["work"], request["batching"], request["way"])
        if key not in self._warm:  # kernels are made when a shape is first seen
            run_passes(lanes, batches, 0)
            self._warm.add(key)
        return {"rate": run_passes(lanes, batches, request["seconds"])}

    def _kernels(self, _):
        return {"kernels": self._peer.kernels()}


def convert(script, *arguments):
    """Runs a script of this folder in a process of its own, so that what it loads is gone after."""
    path = pathlib.Path(__file__).with_name(script)
    done = subprocess.run([sys.executable, path, *map(str, arguments)], capture_output=True, text=True)
    sys.stderr.write(done.stdout + done.stderr)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise CannotError(f"{script} failed: {last}")


@contextlib.contextmanager
def captured(lines):
    """Appends to `lines` what libraries print on standard output and error meanwhile."""
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(1), os.dup(2)]
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        try:
            yield
        finally:
            for descriptor, old in zip((1, 2), kept):
                os.dup2(old, descriptor)
                os.close(old)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def made(path, make):
    """The path of what `make(partial path)` makes once: a file or folder that is whole or absent."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name("partial-" + path.name)
        make(partial)
        partial.rename(path)
    return path


def serve(open_peer):
    # Whatever a library prints goes to the log: standard output carries the protocol alone.
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(answer):
        output.write(json.dumps(answer) + "\n")

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    flags = parser.parse_args()
    try:
        peer = open_peer(flags.model, flags.cache, flags.precision, flags.threads)
    except CannotError as why:
        say({"error": str(why)})
        return
    except ImportError as why:
        say({"error": f"not installed: {why}"})
        return
    say({"version": peer.version, "ways": list(peer.ways)})
    server = Server(peer)
    for line in sys.stdin:
        try:
            say(server.answer(json.loads(line)))
        except Exception as why:  # pylint: disable=broad-except  # the driver reports it and goes on
            say({"error": f"{type(why).__name__}: {why}"[:300]})
