"""Both clients against the real server: what they send is understood, what they say is true.

Method: encoderd with the bundled model (vectors in) and with a tiny BERT of the goldens (ids in);
the Python client is judged by what must hold among its answers, encoderctl by the Python client.

usage: server_test.py ENCODERD ENCODERCTL
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import grpc
import numpy as np

import encoderd_client as ec
from encoderd_client import _messages
from running_server import RunningServer

SOURCE = pathlib.Path(__file__).resolve().parents[3]
ENCODERD, ENCODERCTL = sys.argv[1:3]


class ServerTestCase(unittest.TestCase):
    model = ""
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer(ENCODERD, SOURCE / cls.model, *cls.flags)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None)
        cls.client = ec.Client(cls.server.address, timeout=30)
        cls.addClassCleanup(cls.client.close)

    def encoderctl(self, *arguments, code=0, stdin=""):
        done = subprocess.run([ENCODERCTL, *arguments, f"--address={self.server.address}"],
                              input=stdin, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done)
        return done.stdout if code == 0 else done.stderr

    def refusal(self, *arguments, **options):
        with self.assertRaises(ec.EncoderdError) as caught:
            self.client.encode(*arguments, **options)
        return caught.exception


class ReverseTest(ServerTestCase):
    """The bundled model: one-hot vectors [16, 10] in, the digits in reverse order out."""

    model = "deploy/models/reverse"

    @staticmethod
    def one_hot(digits):
        return np.eye(10, dtype=np.float32)[digits]

    def test_reverses_a_thousand_unseen_sequences(self):
        digits = np.random.default_rng(20260131).integers(0, 10, (1000, 16))
        right, diagonal = 0, []
        for call in np.split(digits, 10):
            result = self.client.encode(self.one_hot(call), logits=True, attentions=True)
            for index, sequence in enumerate(call):
                right += np.sum(result.logits[index].argmax(axis=1) == sequence[::-1])
                weights = result.attentions[index, 0].weights[0]
                diagonal.append(np.fliplr(weights).diagonal())
                np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
        self.assertGreaterEqual(right / digits.size, 0.999)
        self.assertGreater(np.min(diagonal), 0.9)

    def test_says_what_is_served(self):
        info = self.client.model()
        self.assertEqual((info.name, info.family), ("reverse", "fused_qkv_attention"))
        self.assertEqual((info.input_dim, info.num_layers, info.num_heads), (10, 1, 1))
        self.assertEqual(info.inputs_embeds_width, 10)
        self.assertEqual(info.max_sequence_tokens, 16)
        self.assertIn("logits", info.outputs)
        printed = json.loads(self.encoderctl("info", "--json"))
        self.assertEqual(printed["numerics_id"], info.numerics_id)
        self.assertEqual(printed["max_response_bytes"], info.max_response_bytes)
        self.assertEqual(printed["inputs_embeds_width"], info.inputs_embeds_width)

    def test_both_clients_give_the_same_numbers(self):
        digits = [3, 1, 4, 1, 5, 9, 2, 6]
        result = self.client.encode([self.one_hot(digits)], logits=True, attentions=True,
                                    all_hidden_states=True)
        printed = json.loads(self.encoderctl(
            "encode", ",".join(map(str, digits)), "--one_hot=10", "--logits", "--attentions",
            "--hidden_states=all", "--json"))

        def array(tensor):
            return np.array(tensor["data"], np.float32).reshape(tensor["shape"])

        np.testing.assert_array_equal(array(printed["logits"]), result.logits.packed)
        np.testing.assert_array_equal(array(printed["attentions"][0]["tensor"]),
                                      result.attentions[0, 0].weights)
        self.assertEqual([state["layer"] for state in printed["hidden_states"]],
                         list(result.hidden_states))
        for state in printed["hidden_states"]:
            np.testing.assert_array_equal(array(state["tensor"]),
                                          result.hidden_states[state["layer"]].packed)
        self.assertEqual(printed["numerics_id"], result.numerics_id)

    def test_sends_vectors_in_every_type(self):
        vectors = self.one_hot([7, 0, 9])
        packed = self.client.encode([vectors], logits=True).logits.packed
        half = self.client.encode([vectors.astype(np.float16)], logits=True).logits.packed
        np.testing.assert_array_equal(packed, half)

    def test_receives_every_type(self):
        vectors = self.one_hot([7, 0, 9])
        exact = self.client.encode([vectors], logits=True).logits.packed
        for dtype, digits in ((ec.DataType.BF16, 8), (ec.DataType.FP16, 11)):
            rounded = self.client.encode([vectors], logits=True, dtype=dtype).logits.packed
            np.testing.assert_allclose(rounded, exact, rtol=2.0**-digits, atol=1e-6)

    def test_keeps_ids_and_names(self):
        result = self.client.encode([self.one_hot([1])], logits=True, request_id="my-call")
        self.assertEqual(result.request_id, "my-call")
        self.assertEqual(result.numerics_id, self.client.model().numerics_id)
        self.assertEqual(result.timing.layers_run, 1)

    def test_draws_the_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "map.png"
            self.encoderctl("attention", "3 1 4 1 5 9 2 6", "--one_hot=10", f"--output={path}")
            self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_is_healthy(self):
        self.client.wait_until_serving(10)
        for service in ("", "liveness", "encoderd.v1.EncoderService"):
            self.assertIs(self.client.health(service), ec.HealthStatus.SERVING)
            self.assertEqual(self.encoderctl("health", *filter(None, [service])), "SERVING\n")
        with self.assertRaises(ec.NotFound):
            self.client.health("nobody")

    def test_refuses_ids(self):
        error = self.refusal([[1, 2]], logits=True)
        self.assertIsInstance(error, ec.InvalidArgument)
        self.assertEqual(error.reason, "INPUT_KIND_MISMATCH")

    def test_refuses_answers_that_are_too_large(self):
        with ec.Client(self.server.address, max_response_bytes=100) as client:
            with self.assertRaises(ec.InvalidArgument) as caught:
                client.encode([self.one_hot([1, 2, 3])], logits=True)
        self.assertEqual(caught.exception.reason, "ANSWER_TOO_LARGE")
        self.assertIn("raise --max_response_bytes",
                      self.encoderctl("encode", "1,2,3", "--one_hot=10", "--logits",
                                      "--max_response_bytes=100", code=64))

    def test_gives_the_same_in_pieces(self):
        vectors = self.one_hot([[3, 1, 4, 1], [5, 9, 2, 6]])
        options = {"logits": True, "attentions": True, "all_hidden_states": True}
        whole = self.client.encode(vectors, **options)
        chunked = self.client.encode_chunked(vectors, **options)
        np.testing.assert_array_equal(chunked.logits.packed, whole.logits.packed)
        for key, expected in whole.attentions.items():
            np.testing.assert_array_equal(chunked.attentions[key].weights, expected.weights)
        for layer, expected in whole.hidden_states.items():
            np.testing.assert_array_equal(chunked.hidden_states[layer].packed, expected.packed)
        self.assertEqual(chunked.numerics_id, whole.numerics_id)
        self.assertEqual(sum(len(piece.data) for piece in
                             self.client.iter_pieces(vectors, logits=True)),
                         whole.logits.packed.nbytes)
        words = ("encode", "3,1,4,1", "--one_hot=10", "--logits", "--attentions", "--json")
        with_pieces, without = (json.loads(self.encoderctl(*words, *flag))
                                for flag in (["--chunked"], []))
        self.assertEqual(with_pieces["logits"], without["logits"])
        self.assertEqual(with_pieces["attentions"], without["attentions"])


class SmallAnswersTest(ServerTestCase):
    """A server that gives little in one message."""

    model = "deploy/models/reverse"
    flags = ("--max_response_bytes=20000",)

    def test_encoderctl_fetches_in_pieces_what_is_too_large_for_one_message(self):
        lines = "\n".join(["3,1,4,1,5,9,2,6"] * 64)
        printed = json.loads(self.encoderctl("encode", "--one_hot=10", "--hidden_states=all",
                                             "--json", stdin=lines))
        self.assertEqual(len(printed["token_offsets"]), 65)
        self.assertIn("ANSWER_TOO_LARGE",
                      self.encoderctl("encode", "--one_hot=10", "--hidden_states=all",
                                      "--max_response_bytes=20000", code=64, stdin=lines))


class KeysTest(ServerTestCase):
    """Mutual TLS with an allowed client and a token, by the recipe of the clients' README."""

    model = "tests/goldens/bert/model"

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        readme = (SOURCE / "deploy/client/README.md").read_text()
        recipe = re.search(r"```\n(openssl req.*?)```", readme, re.DOTALL).group(1)
        subprocess.run(["sh", "-ec", recipe + "issue other DNS:other.example\n"], check=True,
                       cwd=cls.folder, stderr=subprocess.DEVNULL)
        cls.flags = (f"--tls_cert_file={cls.folder}/server.crt",
                     f"--tls_key_file={cls.folder}/server.key",
                     f"--tls_client_ca_file={cls.folder}/ca.crt",
                     "--allowed_clients=spiffe://example.org/search",
                     f"--token_file={cls.folder}/tokens")
        super().setUpClass()
        cls.token = (cls.folder / "tokens").read_text().strip()

    def tls(self, name="client", **options):
        return ec.Tls(ca_file=self.folder / "ca.crt", cert_file=self.folder / f"{name}.crt",
                      key_file=self.folder / f"{name}.key", **options)

    def keys(self, name="client"):
        return (*self.trust(), f"--tls_cert_file={self.folder}/{name}.crt",
                f"--tls_key_file={self.folder}/{name}.key", f"--token_file={self.folder}/tokens")

    def trust(self):
        return ("--tls", f"--tls_ca_file={self.folder}/ca.crt")

    def call(self, **options):
        with ec.Client(self.server.address, timeout=30, **options) as client:
            return client.encode([[2, 17, 3]], last_hidden_state=True)

    def test_python_calls_with_its_keys(self):
        rows = self.call(tls=self.tls(), token=self.token).last_hidden_state[0]
        self.assertEqual(rows.shape, (3, 24))
        self.call(tls=self.tls(server_name="localhost"), token=lambda: self.token)

    def test_python_is_told_what_is_missing(self):
        for expected, reason, options in (
                (ec.Unauthenticated, "TOKEN_MISSING", {"tls": self.tls()}),
                (ec.Unauthenticated, "TOKEN_WRONG", {"tls": self.tls(), "token": "x" * 64}),
                (ec.PermissionDenied, "CLIENT_NOT_ALLOWED",
                 {"tls": self.tls("other"), "token": self.token}),
                (ec.Unavailable, "", {"tls": ec.Tls(ca_file=self.folder / "ca.crt")}),
                (ec.Unavailable, "", {"tls": self.tls(server_name="other.example")}),
                (ec.Unavailable, "", {"tls": True}),
                (ec.Unavailable, "", {"token": self.token})):
            with self.subTest(reason=reason, options=options):
                with self.assertRaises(expected) as caught:
                    self.call(**options)
                self.assertEqual(caught.exception.reason, reason)

    def test_every_command_of_encoderctl_takes_keys(self):
        self.assertIn("bert", self.encoderctl("info", *self.keys()))
        self.assertIn("last_hidden_state",
                      self.encoderctl("encode", "2,17,3", "--last_hidden_state", *self.keys()))
        self.encoderctl("encode", "2,17,3", "--last_hidden_state", "--chunked", *self.keys())
        self.encoderctl("attention", "2,17,3", f"--output={self.folder}/map.png", *self.keys())
        loaded = json.loads(self.encoderctl("load", "--rate=20", "--lengths=fixed:8", "--json",
                                            "--warm_up=0s", "--duration=500ms", *self.keys()))
        self.assertEqual(set(loaded["codes"]), {"OK"})
        self.assertEqual(self.encoderctl("health", *self.keys()), "SERVING\n")
        # Of health, a certificate is enough.
        self.assertEqual(self.encoderctl("health", *self.keys("other")[:-1]), "SERVING\n")

    def test_encoderctl_says_what_is_missing(self):
        self.assertIn("TOKEN_MISSING", self.encoderctl("info", *self.keys()[:-1], code=77))
        self.assertIn("CLIENT_NOT_ALLOWED", self.encoderctl("info", *self.keys("other"), code=77))
        self.assertIn("UNAVAILABLE", self.encoderctl("info", *self.trust(), code=69))
        self.assertIn("UNAVAILABLE", self.encoderctl("info", code=69))
        for flags, fault in (
                (self.keys()[1:], "--tls_ca_file: expected together with --tls"),
                ((*self.trust(), f"--tls_cert_file={self.folder}/client.crt"), "both or neither"),
                ((*self.trust(), f"--tls_cert_file={self.folder}/client.crt",
                  f"--tls_key_file={self.folder}/other.key"),
                 "--tls_key_file: expected the key of"),
                (("--tls", f"--tls_ca_file={self.folder}/tokens"),
                 "--tls_ca_file: expected a certificate in PEM"),
                ((f"--token_file={self.folder}/ca.crt",), "--token_file: expected a token of"),
                (("--token_file=/no/such/file",), "--token_file: cannot open /no/such/file")):
            with self.subTest(flags=flags):
                self.assertIn(fault, self.encoderctl("info", *flags, code=64))


class BertTest(ServerTestCase):
    """A tiny BERT of the goldens: 50 ids, 2 layers, 3 heads, hidden size 24."""

    model = "tests/goldens/bert/model"
    IDS = [[2, 17, 5, 33, 3], [2, 9, 3], [49]]

    def test_gives_rows_by_sequence(self):
        result = self.client.encode(self.IDS, last_hidden_state=True, all_hidden_states=True)
        self.assertEqual([rows.shape for rows in result.last_hidden_state],
                         [(5, 24), (3, 24), (1, 24)])
        self.assertEqual(list(result.hidden_states), [0, 1, 2])
        np.testing.assert_array_equal(result.hidden_states[2].packed,
                                      result.last_hidden_state.packed)
        for index, ids in enumerate(self.IDS):
            alone = self.client.encode([ids], last_hidden_state=True).last_hidden_state[0]
            np.testing.assert_array_equal(alone, result.last_hidden_state[index])

    def test_pools_by_sequence_and_span(self):
        sequence = ec.Sequence(self.IDS[0], mask=ec.Mask(keys=[1, 1, 1, 1, 0]),
                               spans=[(0, 2), (1, 5)])
        result = self.client.encode(
            [sequence, self.IDS[1]], last_hidden_state=True,
            pooled=[ec.PoolingSpec(ec.Pooling.MEAN, normalize=False),
                    ec.PoolingSpec(ec.Pooling.MAX, normalize=False),
                    ec.PoolingSpec(ec.Pooling.CLS, normalize=True, dimensions=8)])
        first, second = result.last_hidden_state
        mean, maximum, cls = result.pooled
        expected = [first[0:2], first[1:4], second]  # row 4 is hidden
        np.testing.assert_allclose(mean, [rows.mean(axis=0) for rows in expected], atol=1e-6)
        np.testing.assert_array_equal(maximum, [rows.max(axis=0) for rows in expected])
        self.assertEqual(cls.shape, (3, 8))
        np.testing.assert_allclose(np.linalg.norm(cls, axis=1), 1, atol=1e-6)

    def test_applies_every_part_of_a_mask(self):
        tokens = 5
        lower = np.tril(np.ones((tokens, tokens), bool))
        head_pairs = np.ones((3, tokens, tokens), bool)
        head_pairs[1, :, 0] = False
        masks = {
            "keys": (ec.Mask(keys=[1, 0, 1, 1, 1]), lambda w: w[:, :, 1]),
            "pairs": (ec.Mask(pairs=lower), lambda w: w[:, ~lower]),
            "causal": (ec.Mask(causal=True), lambda w: w[:, ~lower]),
            "head_pairs": (ec.Mask(head_pairs=head_pairs), lambda w: w[1, :, 0]),
            "segments": (ec.Mask(segment_ids=[0, 0, 1, 1, 1]), lambda w: w[:, :2, 2:]),
        }
        free = self.client.encode([self.IDS[0]], attentions=True).attentions[0, 0].weights
        for name, (mask, hidden) in masks.items():
            with self.subTest(name):
                result = self.client.encode([ec.Sequence(self.IDS[0], mask=mask)], attentions=True)
                weights = result.attentions[0, 0].weights
                self.assertTrue(np.all(hidden(weights) == 0))
                self.assertTrue(np.all(hidden(free) > 0))
                np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)

    def test_chooses_layers_heads_and_rows(self):
        every = self.client.encode(self.IDS[:2], attentions=True)
        self.assertEqual(sorted(every.attentions), [(0, 0), (0, 1), (1, 0), (1, 1)])
        some = self.client.encode(self.IDS[:2],
                                  attentions=ec.Attention(layers=[-1], heads=[2], query_rows=[1]))
        self.assertEqual(sorted(some.attentions), [(0, 1), (1, 1)])
        found = some.attentions[1, 1]
        self.assertEqual((found.heads, found.query_rows), ((2,), (1,)))
        np.testing.assert_array_equal(found.weights, every.attentions[1, 1].weights[2:3, 1:2])

    def test_sends_types_and_positions(self):
        plain = self.client.encode([self.IDS[0]], last_hidden_state=True).last_hidden_state[0]
        same = ec.Sequence(self.IDS[0], token_type_ids=[0] * 5, position_ids=range(5))
        other = ec.Sequence(self.IDS[0], token_type_ids=[0, 0, 1, 1, 1])
        later = ec.Sequence(self.IDS[0], position_ids=range(1, 6))
        result = self.client.encode([same, other, later], last_hidden_state=True)
        np.testing.assert_array_equal(result.last_hidden_state[0], plain)
        self.assertFalse(np.array_equal(result.last_hidden_state[1], plain))
        self.assertFalse(np.array_equal(result.last_hidden_state[2], plain))

    def test_lists_every_violation(self):
        error = self.refusal([[2, 50, -1], [3], []], hidden_states=[7],
                             attentions=ec.Attention(heads=[3]))
        self.assertIsInstance(error, ec.InvalidArgument)
        fields = [violation.field for violation in error.violations]
        for field in ("sequences[0].input_ids[1]", "sequences[0].input_ids[2]", "sequences[2]",
                      "outputs.hidden_states[0]", "outputs.attentions.heads[0]"):
            self.assertTrue(any(found.startswith(field) for found in fields), (field, fields))
        self.assertNotEqual(error.request_id, "")
        printed = self.encoderctl("encode", "2,50,-1", "--logits", code=64)
        self.assertIn("sequences[0].input_ids[1]", printed)
        self.assertIn("next: ", printed)

    def test_refuses_outputs_that_the_model_has_not(self):
        self.assertIsInstance(self.refusal([[2]], logits=True), ec.FailedPrecondition)
        self.assertIsInstance(self.refusal([[2]], contacts=True), ec.FailedPrecondition)
        self.assertEqual(self.refusal([[2]]).reason, "NO_OUTPUTS")

    def test_refuses_other_models_by_name(self):
        with ec.Client(self.server.address, model="other") as client:
            with self.assertRaises(ec.NotFound):
                client.model()

    def test_fits_all_violations_into_an_unconfigured_client(self):
        with grpc.insecure_channel(self.server.address) as channel:
            encode = channel.unary_unary(f"/{_messages.SERVICE}/Encode")
            request = _messages.EncodeRequest(sequences=[{"input_ids": [1000 + i]}
                                                         for i in range(100)],
                                              outputs={"last_hidden_state": True})
            with self.assertRaises(grpc.RpcError) as caught:
                encode(request.SerializeToString(), timeout=30)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("grpc-status-details-bin", dict(caught.exception.trailing_metadata()))


class ContactsTest(ServerTestCase):
    """A protein model with a contact head."""

    model = "tests/goldens/esm/model"
    IDS = [[0, 5, 9, 8, 7, 2], [0, 2], [0, 11, 12, 2]]

    def test_gives_every_sequence_its_contacts(self):
        self.assertIn("contacts", self.client.model().outputs)
        result = self.client.encode(self.IDS, contacts=True)
        self.assertEqual([array.shape for array in result.contacts], [(4, 4), (0, 0), (2, 2)])
        for array in result.contacts:
            np.testing.assert_array_equal(array, array.T)
            self.assertTrue(np.all((array > 0) & (array < 1)))
        alone = self.client.encode(self.IDS[2:], contacts=True, last_hidden_state=True)
        np.testing.assert_array_equal(alone.contacts[0], result.contacts[2])

    def test_gives_the_same_in_pieces_and_to_encoderctl(self):
        options = {"contacts": True, "attentions": True}
        whole = self.client.encode(self.IDS, **options)
        chunked = self.client.encode_chunked(self.IDS, **options)
        printed = json.loads(self.encoderctl(
            "encode", *(",".join(map(str, ids)) for ids in self.IDS), "--contacts", "--json"))
        for index, expected in enumerate(whole.contacts):
            np.testing.assert_array_equal(chunked.contacts[index], expected)
            data = np.array(printed["contacts"][index]["data"], np.float32)
            np.testing.assert_array_equal(data.reshape(expected.shape), expected)


class SelfCheckTest(ServerTestCase):
    """What the client writes is what the server reads. The model is the server itself."""

    model = "tests/goldens/sentence_bert_mean/model"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "model"
        shutil.copytree(SOURCE / self.model, self.folder)

    def write(self, error):
        def model(ids):
            result = self.client.encode(ids, last_hidden_state=True,
                                        pooled=[ec.Pooling.MODEL_DEFAULT])
            return {"last_hidden_state": result.last_hidden_state[0] + error,
                    "sentence_embedding": result.pooled[0]}

        ec.write_selfcheck(model, [[3, 1, 4], [1, 5]], self.folder / "selfcheck.safetensors",
                           tolerance=1e-3)

    def check(self):
        return subprocess.run([ENCODERD, "--check", f"--model_dir={self.folder}"],
                              capture_output=True, text=True, timeout=60)

    def test_passes_on_the_model_that_it_was_written_from(self):
        self.write(error=0)
        done = self.check()
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"self-check: +passed, 2 sequences: largest error 0 ")

    def test_fails_on_another_model(self):
        self.write(error=0.01)
        done = self.check()
        self.assertEqual(done.returncode, 65, done)
        self.assertRegex(done.stderr, r"0/last_hidden_state: element \d+: expected .*, got .*: "
                                      r"an error of 0\.01.*; the tolerance is 0\.001")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
