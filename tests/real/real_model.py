#!/usr/bin/env python3
"""Compares a running encoderd with PyTorch on a real sentence-transformers model.

    usage: real_model.py --encoderd BINARY --model_dir FOLDER       (tests/real_model.sh calls it)

Tokenises texts.txt, sends the sequences in calls of mixed sizes from two threads at once, and
compares every layer, every attention map and the pooled vectors with the eager BertModel of
transformers in float32. Then sends every sequence alone and compares the bits. Prints a table;
exits with 1 where a limit is exceeded.

The table's last columns say how far either side is from the same model in float64: the limit is
about agreement, these are about who is right.
"""

import argparse
import concurrent.futures
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

# OpenBLAS has threads of its own, which torch.set_num_threads does not reach.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
from encoderd_client import Client, Pooling, PoolingSpec, Sequence
from tokenizers import Tokenizer
from transformers import BertModel
from transformers.utils import logging

from running_server import RunningServer

HIDDEN_LIMIT, MAP_LIMIT, COSINE_LIMIT = 2e-4, 1e-5, 0.99999
LONG_TOKENS = (48, 64, 65, 96, 100, 127, 128, 129, 160, 192, 200, 224, 240, 255, 256, 256)
PAIRS = 6
MAX_CALL_SEQUENCES = 8  # eight maps of 256 tokens are 150 MB: below the server's answer limit
POOLINGS = {
    "the folder's own": PoolingSpec(Pooling.MODEL_DEFAULT),
    "cls": PoolingSpec(Pooling.CLS, normalize=False),
    "mean": PoolingSpec(Pooling.MEAN, normalize=False),
    "max": PoolingSpec(Pooling.MAX, normalize=False),
    "pooler": PoolingSpec(Pooling.POOLER, normalize=False),
}


# ---- What is sent --------------------------------------------------------------------------------


def read_sequences(model_dir):
    """Lines as they are, pairs with token types, and joined lines cut to LONG_TOKENS."""
    lines = (Path(__file__).parent / "texts.txt").read_text(encoding="utf-8").splitlines()
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    tokenizer.no_padding()  # the file switches on padding and truncation to 128
    tokenizer.no_truncation()
    encodings = [tokenizer.encode(line) for line in lines]
    encodings += [tokenizer.encode(*lines[10 + 2 * i : 12 + 2 * i]) for i in range(PAIRS)]
    for i, tokens in enumerate(LONG_TOKENS):
        tokenizer.enable_truncation(tokens)
        encodings.append(tokenizer.encode(" ".join(lines[i:])))
    return [Sequence(input_ids=e.ids, token_type_ids=e.type_ids) for e in encodings]


def mixed_calls(sequences):
    """Indices, shuffled and cut into calls of 1 to MAX_CALL_SEQUENCES."""
    generator = random.Random(7)
    indices = list(range(len(sequences)))
    generator.shuffle(indices)
    calls = []
    while indices:
        size = generator.randint(1, MAX_CALL_SEQUENCES)
        calls.append(indices[:size])
        indices = indices[size:]
    return calls


def send(client, sequences, calls, **outputs):
    """{index: {tensor name: array}} of all sequences, two calls at a time."""
    answers = {}

    def call(indices):
        result = client.encode(
            [sequences[i] for i in indices],
            last_hidden_state=True,
            pooled=POOLINGS.values(),
            timeout=120,
            **outputs,
        )
        for position, index in enumerate(indices):
            tensors = {"last_hidden_state": result.last_hidden_state[position]}
            for layer, rows in result.hidden_states.items():
                tensors[f"hidden_states[{layer}]"] = rows[position]
            for (sequence, layer), found in result.attentions.items():
                if sequence == position:
                    tensors[f"attentions[{layer}]"] = found.weights
            for name, rows in zip(POOLINGS, result.pooled):
                tensors[f"pooled: {name}"] = rows[position]
            answers[index] = tensors

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        list(threads.map(call, calls))
    return answers


# ---- What PyTorch says ---------------------------------------------------------------------------


def reference(model, sequence):
    """The same from BertModel; mean, then L2 norm, is what the folder's modules.json says."""
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([sequence.input_ids]),
            token_type_ids=torch.tensor([sequence.token_type_ids]),
            output_hidden_states=True,
            output_attentions=True,
        )
    last = out.last_hidden_state[0]
    tensors = {"last_hidden_state": last}
    tensors |= {f"hidden_states[{i}]": h[0] for i, h in enumerate(out.hidden_states)}
    tensors |= {f"attentions[{i}]": a[0] for i, a in enumerate(out.attentions)}
    tensors["pooled: the folder's own"] = torch.nn.functional.normalize(last.mean(0), dim=0)
    tensors["pooled: cls"] = last[0]
    tensors["pooled: mean"] = last.mean(0)
    tensors["pooled: max"] = last.amax(0)
    tensors["pooled: pooler"] = out.pooler_output[0]
    return {name: tensor.numpy() for name, tensor in tensors.items()}


# ---- Comparing -----------------------------------------------------------------------------------


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    dot = (a * b).sum(-1)
    return (dot / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min()


def compare(answers, sequences, model_dir):
    """{tensor name: worst figures over all sequences}."""
    plain = BertModel.from_pretrained(model_dir, attn_implementation="eager").eval()
    exact = BertModel.from_pretrained(model_dir, attn_implementation="eager").double().eval()
    worst = defaultdict(lambda: {"max_abs": 0.0, "cosine": 1.0, "ours64": 0.0, "torch64": 0.0})
    for index, sequence in enumerate(sequences):
        ours = answers[index]
        torch32, torch64 = reference(plain, sequence), reference(exact, sequence)
        assert ours.keys() == torch32.keys(), (index, ours.keys() ^ torch32.keys())
        for name, expected in torch32.items():
            assert ours[name].shape == expected.shape, (index, name, ours[name].shape)
            row = worst[name]
            # np.maximum, unlike max, lets a NaN through to the table, where it fails.
            row["max_abs"] = np.maximum(row["max_abs"], np.abs(ours[name] - expected).max())
            row["cosine"] = np.minimum(row["cosine"], cosine(ours[name], expected))
            row["ours64"] = np.maximum(row["ours64"], np.abs(ours[name] - torch64[name]).max())
            row["torch64"] = np.maximum(row["torch64"], np.abs(expected - torch64[name]).max())
    return dict(worst)


def print_table(worst):
    """Prints it and returns the names of what exceeds its limit."""
    failed = []
    print(f"{'':28}{'max abs':>10}{'limit':>9}{'smallest cosine':>17}{'':4}against float64:")
    print(f"{'':68}{'encoderd':>10}{'PyTorch':>10}")
    for name, row in worst.items():
        is_map = name.startswith("attentions")
        limit = MAP_LIMIT if is_map else HIDDEN_LIMIT
        passed = row["max_abs"] <= limit and (is_map or row["cosine"] >= COSINE_LIMIT)
        print(
            f"{name:28}{row['max_abs']:10.1e}{limit:9.0e}"
            + (f"{'':17}" if is_map else f"{row['cosine']:17.9f}")
            + f"{'':4}{row['ours64']:10.1e}{row['torch64']:10.1e}"
            + ("" if passed else "   EXCEEDED")
        )
        if not passed:
            failed.append(name)
    return failed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--encoderd", type=Path, required=True)
    parser.add_argument("--model_dir", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    sequences = read_sequences(args.model_dir)
    lengths = [len(s.input_ids) for s in sequences]
    calls = mixed_calls(sequences)
    alone = [[i] for i in range(len(sequences))]
    print(
        f"{len(sequences)} sequences of {min(lengths)} to {max(lengths)} tokens, {sum(lengths)} "
        f"in all, in {len(calls)} calls of 1 to {max(map(len, calls))} sequences"
    )

    with RunningServer(args.encoderd, args.model_dir) as server, Client(server.address) as client:
        print(f"encoderd was ready after {server.seconds_to_ready:.2f} s")
        answers = send(client, sequences, calls, all_hidden_states=True, attentions=True)
        solo = send(client, sequences, alone)
    print("comparing with PyTorch …", flush=True)
    failed = print_table(compare(answers, sequences, args.model_dir))

    different = [
        i
        for i, tensors in solo.items()
        if any(rows.tobytes() != answers[i][name].tobytes() for name, rows in tensors.items())
    ]
    print(
        f"sent alone, without maps and layers: {len(solo) - len(different)} of {len(solo)} "
        "sequences the same to the bit"
    )
    if failed or different:
        sys.exit(f"FAILED: {', '.join(failed) or 'answers depend on what else was in the call'}")
    print("PASSED")


if __name__ == "__main__":
    main()
