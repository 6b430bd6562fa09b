#!/usr/bin/env python3
"""Holds bf16 and int8 against fp32 on a real model and real sentences.

    usage: rounded_precisions.py --encoderd BINARY --model_dir FOLDER

(tests/real_model.sh calls it, for folders with a tokenizer.json.)

Encodes the lines of texts.txt in each precision that this machine runs and prints the smallest
cosine to fp32 over the tokens and over the folder's own pooled vectors, and the rank correlation of
the similarities of all pairs of sentences. Exits with 1 where one is below its bound.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from encoderd_client import Client, Pooling
from tokenizers import Tokenizer

from running_server import RunningServer

TOKEN_BOUND = {"bf16": 0.999, "int8": 0.99}
POOLED_BOUND = {"bf16": 0.999, "int8": 0.995}
RANK_BOUND = 0.99
BAD_FLAGS = 64  # the exit code where the CPU does not run the precision


def read_sequences(model_dir):
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lines = (Path(__file__).parent / "texts.txt").read_text(encoding="utf-8").splitlines()
    return [tokenizer.encode(line).ids for line in lines if line]


def encode(arguments, precision, sequences):
    """Tokens [tokens, hidden] and pooled vectors [sequences, width], in float64."""
    flag = f"--precision={precision}"
    with RunningServer(arguments.encoderd, arguments.model_dir, flag) as server:
        with Client(server.address) as client:
            result = client.encode(sequences, last_hidden_state=True,
                                   pooled=[Pooling.MODEL_DEFAULT])
    rows = [result.last_hidden_state[i] for i in range(len(sequences))]
    return np.concatenate(rows).astype(np.float64), result.pooled[0].astype(np.float64)


def cosines(a, b):
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def rank_correlation(a, b):
    """Of the similarities of all pairs of rows."""
    def ranks(vectors):
        unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
        return (unit @ unit.T)[np.triu_indices(len(unit), 1)].argsort().argsort()

    return np.corrcoef(ranks(a), ranks(b))[0, 1]


def runs_here(arguments, precision):
    check = [arguments.encoderd, "--check", f"--model_dir={arguments.model_dir}",
             f"--precision={precision}"]
    return subprocess.run(check, capture_output=True, check=False).returncode != BAD_FLAGS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--encoderd", required=True)
    parser.add_argument("--model_dir", type=Path, required=True)
    arguments = parser.parse_args()
    sequences = read_sequences(arguments.model_dir)
    tokens, pooled = encode(arguments, "fp32", sequences)

    passed = True
    print(f"{'cosine to fp32':16} {'token, worst':>14} {'token, mean':>14} {'pooled, worst':>14} "
          f"{'rank corr.':>12}")
    for precision in TOKEN_BOUND:
        if not runs_here(arguments, precision):
            print(f"{precision:16} this CPU does not run it")
            continue
        rounded_tokens, rounded_pooled = encode(arguments, precision, sequences)
        token, vector = cosines(tokens, rounded_tokens), cosines(pooled, rounded_pooled)
        rank = rank_correlation(pooled, rounded_pooled)
        within = (token.min() >= TOKEN_BOUND[precision] and
                  vector.min() >= POOLED_BOUND[precision] and rank >= RANK_BOUND)
        passed = passed and within
        print(f"{precision:16} {token.min():14.6f} {token.mean():14.6f} {vector.min():14.6f} "
              f"{rank:12.6f}{'' if within else '  BELOW'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
