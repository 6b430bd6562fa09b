"""write_selfcheck() writes what a model gives, in the server's format, and nothing that is wrong.

Method: models that only look like PyTorch's, and a reader of safetensors of the test's own. Whether
the server takes the file is tested with the server.
"""

import json
import pathlib
import struct
import tempfile
import types
import unittest

import numpy as np

import encoderd_client as ec


def read(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = {"I64": "<i8", "F32": "<f4"}[entry["dtype"]]
        body = data[8 + length + begin:8 + length + end]
        tensors[name] = np.frombuffer(body, dtype).reshape(entry["shape"])
    return tensors, metadata


class FakeTensor:
    """As much of a torch tensor as there must be: not an array, with gradients, maybe bfloat16."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def detach(self):
        return self

    cpu = float = detach

    def numpy(self):
        return self.array.astype(np.float32)


class FakeModel:
    """A transformers model in training mode: ids [1, S] in, named outputs out."""

    config = object()
    training = True

    def eval(self):
        self.training = False

    def train(self):
        self.training = True

    def __call__(self, *, input_ids):
        assert input_ids.shape[0] == 1 and input_ids.dtype == np.int64
        assert not self.training
        hidden = np.stack([input_ids[0], input_ids[0] / 4], axis=1)[np.newaxis]
        return types.SimpleNamespace(last_hidden_state=FakeTensor(hidden),
                                     pooler_output=FakeTensor(hidden[:, 0]), logits=None)


class SelfCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "selfcheck.safetensors"

    def refuse(self, text, model, sequences, **options):
        with self.assertRaisesRegex(ValueError, text):
            ec.write_selfcheck(model, sequences, self.path, **options)
        self.assertFalse(self.path.exists())

    def test_writes_what_a_model_gives_in_evaluation(self):
        model = FakeModel()
        ec.write_selfcheck(model, [[8, 4], np.array([2], np.int32)], self.path, tolerance=1e-3)
        tensors, metadata = read(self.path)
        self.assertEqual(metadata, {"format": "encoderd_selfcheck_1", "tolerance": "0.001"})
        self.assertEqual(sorted(tensors), [
            "0/input_ids", "0/last_hidden_state", "0/pooler_output",
            "1/input_ids", "1/last_hidden_state", "1/pooler_output"])
        self.assertEqual(tensors["0/input_ids"].tolist(), [8, 4])
        self.assertEqual(tensors["0/last_hidden_state"].tolist(), [[8, 2], [4, 1]])
        self.assertEqual(tensors["0/pooler_output"].tolist(), [8, 2])
        self.assertEqual(tensors["1/last_hidden_state"].tolist(), [[2, 0.5]])
        self.assertTrue(model.training)
        self.assertEqual([entry.name for entry in self.path.parent.iterdir()], [self.path.name])

    def test_calls_models_without_a_config_with_the_array_alone(self):
        vectors = np.ones((3, 5))
        ec.write_selfcheck(lambda batch: 2 * batch, [vectors], self.path)
        tensors, metadata = read(self.path)
        self.assertEqual(tensors["0/inputs_embeds"].shape, (3, 5))
        self.assertEqual(tensors["0/last_hidden_state"].tolist(), (2 * vectors).tolist())
        self.assertEqual(float(metadata["tolerance"]), 2e-4)

    def test_takes_mappings_and_names_for_bare_arrays(self):
        ec.write_selfcheck(lambda ids: {"sentence_embedding": np.ones((1, 4)), "other": 3},
                           [[1, 2]], self.path)
        self.assertEqual(read(self.path)[0]["0/sentence_embedding"].shape, (4,))
        for shape in ((1, 2, 7), (1, 7)):  # per token, per sequence
            ec.write_selfcheck(lambda ids, shape=shape: np.ones(shape), [[1, 2]], self.path,
                               bare_output="logits")
            self.assertEqual(read(self.path)[0]["0/logits"].shape, shape[-2:])

    def test_refuses_sequences_that_are_none(self):
        for sequence in ([], [1.5], [[1, 2]], [["a"]], np.ones((1, 2, 3)), np.ones((0, 3))):
            self.refuse(r"sequences\[1\]: expected ids", FakeModel(), [[1], sequence])
        self.refuse("expected 1 to 64, got 0", FakeModel(), [])
        self.refuse("expected 1 to 64, got 65", FakeModel(), [[1]] * 65)

    def test_refuses_answers_that_no_server_can_be_held_to(self):
        self.refuse("sequence 0: last_hidden_state is not finite",
                    lambda ids: np.full((1, 2, 3), np.nan), [[1, 2]])
        self.refuse("none of last_hidden_state", lambda ids: {"hidden": 1}, [[1]])
        self.refuse("last_hidden_state: expected numbers with 2 axes",
                    lambda ids: np.ones((2, 1, 3)), [[1]])
        self.refuse("expected numbers", lambda ids: np.array(["a"]), [[1]])

    def test_refuses_options_that_mean_nothing(self):
        for tolerance in (0, -1, float("nan"), float("inf")):
            self.refuse("tolerance", FakeModel(), [[1]], tolerance=tolerance)
        self.refuse("bare_output", FakeModel(), [[1]], bare_output="attentions")


if __name__ == "__main__":
    unittest.main()
