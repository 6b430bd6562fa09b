"""Writes selfcheck.safetensors: what a running model gives for a few sequences, for the server to
be held to.

    model = transformers.AutoModel.from_pretrained("…").eval()
    model.save_pretrained("folder")
    encoderd_client.write_selfcheck(model, [[101, 7592, 102], [101, 102]],
                                    "folder/selfcheck.safetensors")

encoderd runs it before it serves the folder, and with --check. The format is described in the
server's engine/README.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import struct
import sys
from collections import abc
from typing import Any, Union

import numpy as np
import numpy.typing as npt

FORMAT = "encoderd_selfcheck_1"
MAX_SEQUENCES = 64

# Outputs by the names of the file, and how many axes one sequence's has: a model's answer may have
# one more in front, for the batch of one. Logits are per token or per sequence, as the model has
# them.
_OUTPUTS = {"last_hidden_state": 2, "logits": 2, "pooler_output": 1, "sentence_embedding": 1}

Arrays = dict[str, npt.NDArray[Any]]


def write_selfcheck(model: abc.Callable[..., Any], sequences: abc.Iterable[npt.ArrayLike],
                    path: Union[str, os.PathLike[str]], *, tolerance: float = 2e-4,
                    bare_output: str = "last_hidden_state") -> None:
    """Runs the model on each sequence alone and writes the file.

    model:       a PyTorch module, of transformers or anybody else's, or any function. One with a
                 `config` is called with input_ids= or inputs_embeds=, any other with the one array
                 as its argument: [1, S] ids or [1, S, width] vectors. A module is put into eval
                 mode for the time.
    sequences:   up to 64: lists of ids, or arrays of vectors [S, width].
    tolerance:   the largest |got - expected| / max(1, |expected|) that the server may have.
    bare_output: what the answer is, when the model returns an array and not named outputs:
                 "last_hidden_state", "logits", "pooler_output" or "sentence_embedding".

    Of an answer with named outputs (attributes or keys) these four are written. Raises ValueError
    where there is none of them, or where numbers are not finite.
    """
    if bare_output not in _OUTPUTS:
        raise ValueError(f"bare_output: expected one of {', '.join(_OUTPUTS)}, got {bare_output!r}")
    if not 0 < tolerance < float("inf"):
        raise ValueError(f"tolerance: expected a number above 0, got {tolerance}")
    inputs = [_input_of(sequence, index) for index, sequence in enumerate(sequences)]
    if not 0 < len(inputs) <= MAX_SEQUENCES:
        raise ValueError(f"sequences: expected 1 to {MAX_SEQUENCES}, got {len(inputs)}")
    tensors: Arrays = {}
    with _evaluating(model):
        for index, (name, values) in enumerate(inputs):
            tensors[f"{index}/{name}"] = values
            for output, array in _outputs_of(_call(model, name, values), bare_output).items():
                if not np.isfinite(array).all():
                    raise ValueError(f"sequence {index}: {output} is not finite")
                tensors[f"{index}/{output}"] = array.astype("<f4")
    _write(pathlib.Path(path), tensors, {"format": FORMAT, "tolerance": repr(float(tolerance))})


@contextlib.contextmanager
def _evaluating(model: Any) -> abc.Iterator[None]:
    """Without dropout, if the model has such a mode, and without gradients, if there is torch."""
    training = getattr(model, "training", False)
    no_grad = sys.modules["torch"].no_grad() if "torch" in sys.modules else contextlib.nullcontext()
    if training:
        model.eval()
    try:
        with no_grad:
            yield
    finally:
        if training:
            model.train()


def _input_of(sequence: npt.ArrayLike, index: int) -> tuple[str, npt.NDArray[Any]]:
    values = np.asarray(sequence)
    if values.ndim == 1 and values.size > 0 and values.dtype.kind in "iu":
        return "input_ids", values.astype("<i8")
    if values.ndim == 2 and values.size > 0 and values.dtype.kind == "f":
        return "inputs_embeds", values.astype("<f4")
    raise ValueError(f"sequences[{index}]: expected ids [S] or vectors [S, width], got "
                     f"{values.dtype} {list(values.shape)}")


def _call(model: Any, name: str, values: npt.NDArray[Any]) -> Any:
    batch: Any = values[np.newaxis]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        parameter = next(model.parameters())
        batch = torch.from_numpy(batch).to(parameter.device)
        if name == "inputs_embeds":
            batch = batch.to(parameter.dtype)
    return model(**{name: batch}) if hasattr(model, "config") else model(batch)


def _outputs_of(answer: Any, bare_output: str) -> Arrays:
    if isinstance(answer, abc.Mapping):
        found = {name: answer.get(name) for name in _OUTPUTS}
    else:
        found = {name: getattr(answer, name, None) for name in _OUTPUTS}
        if all(value is None for value in found.values()):
            found = {bare_output: answer}
    outputs = {name: _array(value, name) for name, value in found.items() if value is not None}
    if not outputs:
        raise ValueError(f"the model gives none of {', '.join(_OUTPUTS)}")
    return outputs


def _array(value: Any, name: str) -> npt.NDArray[Any]:
    if hasattr(value, "detach"):  # a torch tensor; NumPy has no bfloat16
        value = value.detach().cpu().float().numpy()
    array = np.asarray(value)
    if array.ndim == _OUTPUTS[name] + 1 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != _OUTPUTS[name] or array.dtype.kind != "f":
        raise ValueError(f"{name}: expected numbers with {_OUTPUTS[name]} axes, or with one of "
                         f"length 1 in front, got {array.dtype} {list(array.shape)}")
    return array


def _write(path: pathlib.Path, tensors: Arrays, metadata: dict[str, str]) -> None:
    """As a safetensors file, which is there in full or not at all."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in tensors.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": "I64" if array.dtype.kind == "i" else "F32",
                        "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(array.tobytes())
    os.replace(partial, path)
