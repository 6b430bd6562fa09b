"""The Python client writes every field of the contract and reads every answer and error.

Method: calls a fake server in the same process, and looks at the messages that passed.
"""

import threading
import time
import unittest

import grpc
import numpy as np
from google.protobuf import duration_pb2, wrappers_pb2
from google.rpc import error_details_pb2

import encoderd_client as ec
from encoderd_client import _messages
from fake_server import FakeServer, Refusal


def tensor(array, dtype=ec.DataType.FP32):
    array = np.asarray(array)
    return _messages.Tensor(dtype=dtype, shape=array.shape, data=array.tobytes())


def f4(*shape):
    return np.arange(np.prod(shape), dtype="<f4").reshape(shape)


class ClientTestCase(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer()
        self.addCleanup(self.server.stop)
        self.client = ec.Client(self.server.address, timeout=20)
        self.addCleanup(self.client.close)

    def sent(self, *args, **options):
        """The request that encode(*args, **options) puts on the wire."""
        self.client.encode(*args, **options)
        return self.server.requests[-1]

    def answer(self, **fields):
        self.server.encode = lambda request, context: _messages.EncodeResponse(**fields)

    def fail(self, *args, **options):  # pylint: disable=arguments-differ
        refusal = Refusal(*args, **options)

        def raise_refusal(request, context):
            raise refusal

        self.server.encode = raise_refusal
        with self.assertRaises(ec.EncoderdError) as caught:
            self.client.encode([[1]], logits=True)
        return caught.exception


class RequestTest(ClientTestCase):
    def test_sends_ragged_ids_as_they_are(self):
        request = self.sent([[101, 7592, 102], np.array([5], np.int64), ()],
                            last_hidden_state=True)
        self.assertEqual([list(s.input_ids) for s in request.sequences],
                         [[101, 7592, 102], [5], []])
        self.assertTrue(request.outputs.last_hidden_state)
        self.assertFalse(request.outputs.HasField("attentions"))
        self.assertFalse(request.sequences[0].HasField("mask"))

    def test_sends_negative_ids_for_the_server_to_refuse(self):
        self.assertEqual(list(self.sent([[-1]], logits=True).sequences[0].input_ids), [-1])

    def test_sends_every_output_option(self):
        request = self.sent(
            [[1]], hidden_states=[0, -1], all_hidden_states=True, logits=True,
            attentions=ec.Attention(layers=[-1], heads=[0, 2], query_rows=[3]),
            pooled=[ec.Pooling.MEAN,
                    ec.PoolingSpec(ec.Pooling.CLS, normalize=False, layer=0, dimensions=64)],
            dtype=ec.DataType.BF16, priority=ec.Priority.BULK, request_id="r-1")
        outputs = request.outputs
        self.assertEqual(list(outputs.hidden_states), [0, -1])
        self.assertTrue(outputs.all_hidden_states and outputs.logits)
        self.assertEqual((list(outputs.attentions.layers), list(outputs.attentions.heads),
                          list(outputs.attentions.query_rows)), ([-1], [0, 2], [3]))
        mean, cls = outputs.pooled
        self.assertEqual(mean.kind, ec.Pooling.MEAN)
        self.assertFalse(mean.HasField("normalize") or mean.HasField("layer"))
        self.assertTrue(cls.HasField("normalize") and cls.HasField("layer"))
        self.assertEqual((cls.normalize, cls.layer, cls.dimensions), (False, 0, 64))
        self.assertEqual(outputs.dtype, ec.DataType.BF16)
        self.assertEqual(request.priority, ec.Priority.BULK)
        self.assertEqual(request.request_id, "r-1")
        self.assertEqual(request.max_response_bytes, 256 << 20)

    def test_asks_for_every_map_with_an_empty_attention_spec(self):
        self.assertTrue(self.sent([[1]], attentions=True).outputs.HasField("attentions"))
        self.assertTrue(self.sent([[1]], attentions=ec.Attention()).outputs.HasField("attentions"))

    def test_sends_every_part_of_a_mask(self):
        pairs = np.tril(np.ones((3, 3), bool))
        head_pairs = np.stack([pairs, pairs.T]).astype(np.int64)
        mask = ec.Mask(keys=[1, 1, 0], pairs=pairs, head_pairs=head_pairs, causal=True,
                       segment_ids=[0, 0, 1])
        sent = self.sent([ec.Sequence([1, 2, 3], mask=mask)], logits=True).sequences[0].mask
        self.assertEqual(sent.keys, bytes([1, 1, 0]))
        self.assertEqual(sent.pairs, bytes([1, 0, 0, 1, 1, 0, 1, 1, 1]))
        self.assertEqual(sent.head_pairs, sent.pairs + bytes([1, 1, 1, 0, 1, 1, 0, 0, 1]))
        self.assertTrue(sent.causal)
        self.assertEqual(list(sent.segment_ids), [0, 0, 1])

    def test_sends_types_positions_and_spans(self):
        sequence = self.sent([ec.Sequence([1, 2], token_type_ids=[0, 1], position_ids=[4, 5],
                                          spans=[(0, 1), (0, 2)])], logits=True).sequences[0]
        self.assertEqual(list(sequence.token_type_ids), [0, 1])
        self.assertEqual(list(sequence.position_ids), [4, 5])
        self.assertEqual([(s.begin, s.end) for s in sequence.spans], [(0, 1), (0, 2)])

    def test_sends_vectors_in_the_type_they_have(self):
        vectors = np.array([[1.0, -2.5], [0.0, 65504.0]])
        for dtype, wire in ((np.float64, ec.DataType.FP32), (np.float32, ec.DataType.FP32),
                            (np.int64, ec.DataType.FP32), (np.float16, ec.DataType.FP16)):
            array = vectors.astype(dtype)
            sent = self.sent([array], logits=True).sequences[0].inputs_embeds
            self.assertEqual((sent.dtype, list(sent.shape)), (wire, [2, 2]))
            values = np.frombuffer(sent.data, "<f2" if wire == ec.DataType.FP16 else "<f4")
            np.testing.assert_array_equal(values.reshape(2, 2), array)

    def test_sends_transposed_vectors_in_row_order(self):
        sent = self.sent([f4(2, 3).T], logits=True).sequences[0].inputs_embeds
        self.assertEqual(np.frombuffer(sent.data, "<f4").tolist(), [0, 3, 1, 4, 2, 5])

    def test_sends_its_token_with_every_call(self):
        seen = []

        def note(answer):
            def handle(request, context):
                seen.append(dict(context.invocation_metadata()).get("authorization"))
                return answer
            return handle

        self.server.encode = note(_messages.EncodeResponse(token_offsets=[0]))
        self.server.get_model = note(_messages.GetModelResponse())
        self.server.check = note(wrappers_pb2.Int32Value(value=1))
        self.server.watch = note([wrappers_pb2.Int32Value(value=1)])
        self.server.encode_chunked = note([])
        with ec.Client(self.server.address, token="first") as client:
            client.encode([[1]], logits=True)
            client.model()
            client.health()
            client.wait_until_serving(10)
            with self.assertRaises(ec.AnswerError):
                client.encode_chunked([[1]], logits=True)
        self.assertEqual(seen, ["Bearer first"] * 5)
        seen.clear()
        tokens = iter(["second", "third"])
        with ec.Client(self.server.address, token=lambda: next(tokens)) as client:
            client.health()
            client.health()
        self.client.health()
        self.assertEqual(seen, ["Bearer second", "Bearer third", None])

    def test_refuses_keys_that_contradict_each_other(self):
        with self.assertRaisesRegex(ValueError, "tls, credentials"):
            ec.Client(tls=True, credentials=grpc.ssl_channel_credentials())
        for half in ({"cert_file": "client.crt"}, {"key_file": "client.key"}):
            with self.assertRaisesRegex(ValueError, "both or neither"):
                ec.Tls(**half)
        with self.assertRaisesRegex(OSError, "no-such"):
            ec.Client(tls=ec.Tls(ca_file="/no-such/ca.crt"))

    def test_sends_model_and_metadata_of_the_client(self):
        seen = {}

        def encode(request, context):
            seen.update(context.invocation_metadata())
            return _messages.EncodeResponse(token_offsets=[0])

        self.server.encode = encode
        with ec.Client(self.server.address, model="m", metadata=[("x-team", "search")]) as client:
            client.encode([[1]], logits=True)
        self.assertEqual(self.server.requests[-1].model, "m")
        self.assertEqual(seen["x-team"], "search")

    def test_refuses_what_the_wire_cannot_carry(self):
        refused = [
            (TypeError, "sequences[0]", [1, 2, 3]),
            (TypeError, "sequences[0]", [[0.5, 1.5]]),
            (TypeError, "sequences[0]", [["a"]]),
            (ValueError, "sequences[1].input_ids[1]", [[1], [2, 2**31]]),
            (TypeError, "sequences[0].token_type_ids", [ec.Sequence([1], token_type_ids=[0.5])]),
            (ValueError, "mask.keys", [ec.Sequence([1, 2], mask=ec.Mask(keys=[1]))]),
            (ValueError, "mask.keys", [ec.Sequence([1, 2], mask=ec.Mask(keys=[1, 256]))]),
            (TypeError, "mask.keys", [ec.Sequence([1, 2], mask=ec.Mask(keys=[1.0, 0.0]))]),
            (ValueError, "mask.pairs", [ec.Sequence([1, 2], mask=ec.Mask(pairs=[1, 1]))]),
            # [S, S, heads]: as many bytes as [heads, S, S], and quite another mask.
            (ValueError, "mask.head_pairs",
             [ec.Sequence([1, 2], mask=ec.Mask(head_pairs=np.ones((2, 2, 3), int)))]),
        ]
        for error, field, sequences in refused:
            with self.subTest(field=field), self.assertRaises(error) as caught:
                self.client.encode(sequences, logits=True)
            self.assertIn(field, str(caught.exception))
        self.assertEqual(self.server.requests, [])


class AnswerTest(ClientTestCase):
    def test_gives_each_sequence_its_rows(self):
        self.answer(token_offsets=[0, 3, 4], last_hidden_state=tensor(f4(4, 2)),
                    hidden_states=[{"layer": 2, "tensor": tensor(f4(4, 2) + 1)}],
                    logits=tensor(f4(4, 5)))
        result = self.client.encode([[1, 2, 3], [4]], logits=True)
        self.assertEqual(len(result.last_hidden_state), 2)
        np.testing.assert_array_equal(result.last_hidden_state[0], f4(4, 2)[:3])
        np.testing.assert_array_equal(result.last_hidden_state[-1], f4(4, 2)[3:])
        np.testing.assert_array_equal(result.last_hidden_state.packed, f4(4, 2))
        self.assertTrue(np.shares_memory(result.last_hidden_state[0],
                                         result.last_hidden_state.packed))
        np.testing.assert_array_equal(result.hidden_states[2][1], f4(4, 2)[3:] + 1)
        np.testing.assert_array_equal(result.logits[1], f4(4, 5)[3:])
        self.assertEqual([rows.shape for rows in result.last_hidden_state], [(3, 2), (1, 2)])

    def test_gives_each_sequence_its_row_where_the_model_labels_sequences(self):
        self.answer(token_offsets=[0, 3, 4], logits=tensor(f4(2, 5)))
        result = self.client.encode([[1, 2, 3], [4]], logits=True)
        np.testing.assert_array_equal(result.logits[1], f4(2, 5)[1:])
        np.testing.assert_array_equal(result.logits.packed, f4(2, 5))

    def test_gives_contacts_by_sequence(self):
        self.answer(token_offsets=[0, 4, 5], contacts=[tensor(f4(2, 2)), tensor(f4(0, 0))])
        result = self.client.encode([[1, 2, 3, 4], [5]], contacts=True)
        self.assertTrue(self.server.requests[-1].outputs.contacts)
        np.testing.assert_array_equal(result.contacts[0], f4(2, 2))
        self.assertEqual(result.contacts[1].shape, (0, 0))

    def test_has_no_row_beyond_the_last_sequence(self):
        self.answer(token_offsets=[0, 3, 4], last_hidden_state=tensor(f4(4, 2)))
        result = self.client.encode([[1, 2, 3], [4]], last_hidden_state=True)
        with self.assertRaises(IndexError):
            result.last_hidden_state[2]

    def test_gives_maps_by_sequence_and_layer(self):
        self.answer(token_offsets=[0, 2], attentions=[
            {"sequence": 0, "layer": 5, "heads": [1, 3], "query_rows": [0, 1],
             "tensor": tensor(f4(2, 2, 2))}])
        found = self.client.encode([[1, 2]], attentions=True).attentions[0, 5]
        self.assertEqual((found.heads, found.query_rows), ((1, 3), (0, 1)))
        np.testing.assert_array_equal(found.weights, f4(2, 2, 2))

    def test_names_the_rows_of_a_map_that_has_all(self):
        self.answer(token_offsets=[0, 2], attentions=[
            {"sequence": 0, "layer": 0, "heads": [0], "tensor": tensor(f4(1, 2, 2))}])
        found = self.client.encode([[1, 2]], attentions=True).attentions[0, 0]
        self.assertEqual(found.query_rows, (0, 1))

    def test_leaves_out_what_was_not_asked_for(self):
        self.answer(token_offsets=[0, 1], pooled=[tensor(f4(1, 3))])
        result = self.client.encode([[1]], pooled=[ec.Pooling.MEAN])
        self.assertIsNone(result.last_hidden_state)
        self.assertIsNone(result.logits)
        self.assertEqual((result.hidden_states, result.attentions, result.contacts), ({}, {}, []))
        np.testing.assert_array_equal(result.pooled[0], f4(1, 3))

    def test_widens_bf16_exactly_and_keeps_fp16(self):
        bits = np.array([0x3F80, 0xC020, 0x7F80, 0x0001], "<u2")  # 1, -2.5, inf, subnormal
        halves = np.array([1, -2.5, np.inf, 6e-8], "<f2")
        self.answer(token_offsets=[0], pooled=[tensor(bits[None], ec.DataType.BF16),
                                               tensor(halves[None], ec.DataType.FP16)])
        wide, half = self.client.encode([[1]], pooled=[ec.Pooling.MEAN] * 2).pooled
        self.assertEqual((wide.dtype, half.dtype), (np.float32, np.float16))
        np.testing.assert_array_equal(wide[0], np.array([1, -2.5, np.inf, 2.0**-133], np.float32))
        np.testing.assert_array_equal(half[0], halves)

    def test_gives_timing_and_ids(self):
        self.answer(token_offsets=[0], numerics_id="n", request_id="r", timing={
            "queue_us": 1, "compute_us": 2, "batches": 3, "batch_tokens": 4, "layers_run": 5})
        result = self.client.encode([[1]], logits=True)
        self.assertEqual(result.timing, ec.Timing(queue_us=1, compute_us=2, batches=3,
                                                  batch_tokens=4, layers_run=5))
        self.assertEqual((result.numerics_id, result.request_id), ("n", "r"))

    def test_refuses_answers_that_contradict_themselves(self):
        good = f4(2, 2)
        attention = {"sequence": 0, "heads": [0], "query_rows": [0, 1],
                     "tensor": tensor(good[None])}
        malformed = {
            "no offsets": {},
            "falling offsets": {"token_offsets": [0, 2, 1]},
            "offsets not from 0": {"token_offsets": [1, 2]},
            "data short": {"last_hidden_state": {"dtype": 1, "shape": [2, 2], "data": bytes(15)}},
            "data long": {"logits": {"dtype": 1, "shape": [2, 2], "data": bytes(17)}},
            "negative": {"logits": {"dtype": 1, "shape": [-2, -2], "data": bytes(16)}},
            "beyond 64 bits": {"logits": {"dtype": 1, "shape": [2**62, 4], "data": b""}},
            "unknown type": {"logits": {"dtype": 9, "shape": [1], "data": bytes(4)}},
            "rows missing": {"last_hidden_state": tensor(f4(1, 2))},
            "map of no sequence": {"attentions": [{**attention, "sequence": 1}]},
            "map of another shape": {"attentions": [{**attention, "heads": [0, 1]}]},
            "contacts of another shape": {"contacts": [tensor(good)]},
            "contacts of no sequence": {"contacts": [tensor(f4(0, 0))] * 2},
        }
        for name, fields in malformed.items():
            if "offsets" not in name:
                fields = {"token_offsets": [0, 2], **fields}
            self.answer(**fields)
            with self.subTest(name), self.assertRaises(ec.AnswerError):
                self.client.encode([[1, 2]], logits=True)

    def test_accepts_answers_up_to_its_own_limit(self):
        self.answer(token_offsets=[0], pooled=[tensor(f4(1 << 20, 2))])  # 8 MiB
        self.assertEqual(self.client.encode([[1]], logits=True).pooled[0].shape, (1 << 20, 2))
        with ec.Client(self.server.address, max_response_bytes=1 << 20) as client:
            with self.assertRaises(ec.ResourceExhausted):
                client.encode([[1]], logits=True)
            self.assertEqual(self.server.requests[-1].max_response_bytes, 1 << 20)
        with self.assertRaises(ValueError):
            ec.Client(self.server.address, max_response_bytes=1 << 31)


class ChunkTest(ClientTestCase):
    """EncodeChunked: states of two tokens, and a map of one head."""

    STATES, WEIGHTS = f4(2, 3), f4(1, 2, 2)

    def setUp(self):
        super().setUp()
        self.messages = [self.head(), self.piece(1, 0, self.WEIGHTS.tobytes()[:4]),
                         self.piece(0, 0, self.STATES.tobytes()),
                         self.piece(1, 4, self.WEIGHTS.tobytes()[4:]),
                         _messages.EncodeChunk(timing={"batches": 7})]
        self.server.encode_chunked = lambda request, context: iter(self.messages)

    @staticmethod
    def head(**changes):
        fields = {"token_offsets": [0, 2], "numerics_id": "n",
                  "last_hidden_state": {"dtype": 1, "shape": [2, 3]},
                  "attentions": [{"heads": [4], "tensor": {"dtype": 1, "shape": [1, 2, 2]}}]}
        return _messages.EncodeChunk(head={**fields, **changes})

    @staticmethod
    def piece(index, offset, data):
        return _messages.EncodeChunk(piece={"tensor": index, "offset": offset, "data": data})

    def test_puts_an_answer_together(self):
        result = self.client.encode_chunked([[1, 2]], last_hidden_state=True, attentions=True)
        np.testing.assert_array_equal(result.last_hidden_state.packed, self.STATES)
        np.testing.assert_array_equal(result.attentions[0, 0].weights, self.WEIGHTS)
        self.assertEqual((result.numerics_id, result.timing.batches), ("n", 7))
        request = self.server.requests[-1]
        self.assertTrue(request.outputs.last_hidden_state)
        self.assertTrue(request.outputs.HasField("attentions"))

    def test_gives_the_pieces_as_they_come(self):
        pieces = list(self.client.iter_pieces([[1, 2]], attentions=True))
        self.assertEqual([(p.field, p.shape, p.offset, len(p.data)) for p in pieces],
                         [("attentions[0]", (1, 2, 2), 0, 4), ("last_hidden_state", (2, 3), 0, 24),
                          ("attentions[0]", (1, 2, 2), 4, 12)])

    def test_whoever_stops_early_cancels_the_call(self):
        cancelled = threading.Event()

        def endless(request, context):
            context.add_callback(cancelled.set)
            yield self.head(last_hidden_state={"dtype": 1, "shape": [1 << 40]})
            for offset in range(1 << 30):
                yield self.piece(0, 4 * offset, bytes(4))

        self.server.encode_chunked = endless
        pieces = self.client.iter_pieces([[1]], last_hidden_state=True)
        next(pieces)
        pieces.close()
        self.assertTrue(cancelled.wait(20))

    def test_raises_what_comes_after_pieces(self):
        def fails(request, context):
            yield from self.messages[:2]
            raise Refusal(grpc.StatusCode.INTERNAL, "a NaN",
                          [error_details_pb2.ErrorInfo(reason="NON_FINITE_RESULT")])

        self.server.encode_chunked = fails
        with self.assertRaises(ec.Internal) as caught:
            self.client.encode_chunked([[1, 2]], attentions=True)
        self.assertEqual(caught.exception.reason, "NON_FINITE_RESULT")

    def test_accepts_no_more_than_it_was_told(self):
        with self.assertRaises(ec.AnswerError):
            self.client.encode_chunked([[1, 2]], attentions=True, max_bytes=39)
        self.client.encode_chunked([[1, 2]], attentions=True, max_bytes=40)

    def test_refuses_streams_that_contradict_themselves(self):
        head, map_0, states, map_4, timing = self.messages
        malformed = {
            "no head": [map_0, states, map_4, timing],
            "two heads": [head, *self.messages],
            "nothing": [],
            "empty message": [head, _messages.EncodeChunk(), *self.messages[1:]],
            "no timing": self.messages[:-1],
            "two timings": [*self.messages, timing],
            "a piece missing": [head, map_0, states, timing],
            "a piece twice": [head, map_0, map_0, states, map_4, timing],
            "a gap": [head, states, map_4, timing],
            "past the end": [head, self.piece(0, 0, bytes(25)), timing],
            "empty piece": [head, self.piece(0, 0, b""), states, map_0, map_4, timing],
            "no such tensor": [head, self.piece(2, 0, bytes(4)), timing],
            "data in the head": [self.head(last_hidden_state=tensor(self.STATES)), timing],
            "negative": [self.head(last_hidden_state={"dtype": 1, "shape": [-2, -3]})],
            "unknown type": [self.head(last_hidden_state={"dtype": 9, "shape": [2, 3]})],
            "beyond 64 bits": [self.head(last_hidden_state={"dtype": 1, "shape": [1 << 62] * 3})],
        }
        for name, self.messages in malformed.items():
            with self.subTest(name), self.assertRaises(ec.AnswerError):
                self.client.encode_chunked([[1, 2]], attentions=True)


class ErrorTest(ClientTestCase):
    def test_carries_reason_and_violations(self):
        violation = {"field": "sequences[0].input_ids[0]", "description": "0..30521, got -1"}
        if "reason" in error_details_pb2.BadRequest.FieldViolation.DESCRIPTOR.fields_by_name:
            violation["reason"] = "TOKEN_OUT_OF_RANGE"
        error = self.fail(
            grpc.StatusCode.INVALID_ARGUMENT, "1 fault", details=[
                error_details_pb2.ErrorInfo(reason="TOKEN_OUT_OF_RANGE", domain="encoderd",
                                            metadata={"limit": "30522"}),
                error_details_pb2.BadRequest(field_violations=[violation]),
                error_details_pb2.RequestInfo(request_id="r-7")])
        self.assertIsInstance(error, ec.InvalidArgument)
        self.assertEqual((error.code, error.message), (grpc.StatusCode.INVALID_ARGUMENT, "1 fault"))
        self.assertEqual((error.reason, error.metadata), ("TOKEN_OUT_OF_RANGE", {"limit": "30522"}))
        self.assertEqual(error.violations, (ec.Violation(**violation),))
        self.assertEqual(error.request_id, "r-7")
        self.assertIsNone(error.retry_delay)
        for part in ("INVALID_ARGUMENT", "TOKEN_OUT_OF_RANGE", "input_ids[0]: 0..30521, got -1"):
            self.assertIn(part, str(error))

    def test_carries_sixteen_long_violations(self):
        violations = [{"field": f"sequences[{i}]", "description": "x" * 700} for i in range(16)]
        error = self.fail(grpc.StatusCode.INVALID_ARGUMENT, "many", details=[
            error_details_pb2.BadRequest(field_violations=violations)])
        self.assertEqual(len(error.violations), 16)

    def test_carries_the_retry_delay(self):
        overload = grpc.StatusCode.RESOURCE_EXHAUSTED
        error = self.fail(overload, "full", details=[error_details_pb2.RetryInfo(
            retry_delay=duration_pb2.Duration(nanos=250_000_000))])
        self.assertIsInstance(error, ec.ResourceExhausted)
        self.assertEqual(error.retry_delay, 0.25)
        pushback = self.fail(overload, "full", trailers=[("grpc-retry-pushback-ms", "40")])
        self.assertEqual(pushback.retry_delay, 0.04)
        never = self.fail(overload, "full", trailers=[("grpc-retry-pushback-ms", "-1")])
        self.assertIsNone(never.retry_delay)

    def test_has_an_exception_for_every_code_of_the_contract(self):
        expected = {"INVALID_ARGUMENT": ec.InvalidArgument, "NOT_FOUND": ec.NotFound,
                    "FAILED_PRECONDITION": ec.FailedPrecondition,
                    "RESOURCE_EXHAUSTED": ec.ResourceExhausted,
                    "DEADLINE_EXCEEDED": ec.DeadlineExceeded, "CANCELLED": ec.Cancelled,
                    "UNAVAILABLE": ec.Unavailable, "INTERNAL": ec.Internal,
                    "DATA_LOSS": ec.EncoderdError}
        for name, kind in expected.items():
            self.assertIs(type(self.fail(grpc.StatusCode[name], "text")), kind)

    def test_survives_details_that_cannot_be_parsed(self):
        def refuse(request, context):
            context.set_trailing_metadata([("grpc-status-details-bin", b"\xff\xff"),
                                           ("grpc-retry-pushback-ms", "soon")])
            context.abort(grpc.StatusCode.INTERNAL, "broken")

        self.server.encode = refuse
        with self.assertRaises(ec.Internal) as caught:
            self.client.encode([[1]], logits=True)
        self.assertEqual((caught.exception.violations, caught.exception.retry_delay), ((), None))

    def test_stops_waiting_at_the_timeout(self):
        release = threading.Event()
        self.addCleanup(release.set)
        self.server.get_model = lambda request, context: release.wait(30)
        with self.assertRaises(ec.DeadlineExceeded):
            self.client.model(timeout=0.05)

    def test_reports_a_server_that_is_not_there(self):
        self.server.stop()
        with self.assertRaises(ec.Unavailable):
            self.client.model()


class ModelAndHealthTest(ClientTestCase):
    def test_gives_every_field_of_the_model(self):
        names = _messages.GetModelResponse.DESCRIPTOR.fields_by_name.keys()
        self.assertEqual(set(ec.ModelInfo.__dataclass_fields__), set(names))
        self.server.get_model = lambda request, context: _messages.GetModelResponse(
            name="reverse", num_layers=2, default_pooling=ec.Pooling.CLS,
            outputs=["logits"], labels=["a", "b"], max_response_bytes=1 << 40,
            precision_trials=[dict(precision="bf16", error=0.25, tokens_per_second=9.5)])
        info = self.client.model()
        self.assertEqual((info.name, info.num_layers, info.max_response_bytes),
                         ("reverse", 2, 1 << 40))
        self.assertIs(info.default_pooling, ec.Pooling.CLS)
        self.assertEqual((info.outputs, info.labels), (("logits",), ("a", "b")))
        self.assertEqual(info.precision_trials, (ec.PrecisionTrial("bf16", 0.25, 9.5),))

    def test_asks_for_the_health_of_a_service(self):
        self.server.check = lambda request, context: wrappers_pb2.Int32Value(
            value=1 if request.value == "liveness" else 2)
        self.assertIs(self.client.health("liveness"), ec.HealthStatus.SERVING)
        self.assertIs(self.client.health(), ec.HealthStatus.NOT_SERVING)

    def test_waits_until_the_service_is_serving(self):
        self.server.watch = lambda request, context: map(
            lambda value: wrappers_pb2.Int32Value(value=value), [2, 2, 1])
        self.client.wait_until_serving(20)
        never = threading.Event()
        self.addCleanup(never.set)

        def not_serving(request, context):
            yield wrappers_pb2.Int32Value(value=2)
            never.wait(30)

        self.server.watch = not_serving
        begin = time.monotonic()
        with self.assertRaises(ec.DeadlineExceeded):
            self.client.wait_until_serving(0.1)
        self.assertLess(time.monotonic() - begin, 20)


if __name__ == "__main__":
    unittest.main()
