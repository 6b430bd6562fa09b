#!/usr/bin/env python3
"""Trains the bundled model: an encoder that reverses a sequence of 16 digits.

    usage: train.py [--output FOLDER]     trains and writes (default: beside this file)
           train.py --check               judges the model beside this file

Writes model.safetensors and config.json, and prints the accuracy over unseen sequences and how
clean the attention map is. Needs torch and safetensors; one CPU core, half a minute. Fixed seed and
one thread: the same torch on the same kind of CPU writes the same bytes.

The module is the reference that the goldens use, with one block and one head. To answer position i
it must look at position 15 - i, so its attention map is the anti-diagonal.
"""

import argparse
import json
import os
import sys
from pathlib import Path

# OpenBLAS has threads of its own, which torch.set_num_threads does not reach; on these small
# matrices they cost 90 times what they save.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, one_hot

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests" / "goldens"))
from reference_models import FusedQkvPredictor

TOKENS, DIGITS = 16, 10
STEPS, BATCH, WARMUP, LEARNING_RATE = 3000, 128, 100, 2e-3
# Reversing alone leaves 70 % of the attention on the right key. In the second half of the steps its
# entropy is part of the loss, with this weight; from the start it would settle on wrong keys.
ENTROPY_WEIGHT = 1.0
SEED, UNSEEN_SEED = 42, 1042

CONFIG = {
    "model_type": "fused_qkv_attention",
    "input_dim": DIGITS,
    "embed_dim": 32,
    "num_heads": 1,
    "num_layers": 1,
    "ffn_dim": 64,
    "max_len": TOKENS,
    "num_classes": DIGITS,
    "input_net": True,
    "output_net": True,
}


def forward(model, digits):
    """digits [batch, 16] -> logits [batch, 16, 10], attention [batch, 1, 16, 16]."""
    out = model(one_hot(digits, DIGITS).float())
    return out.logits, out.attentions[0]


def entropy(attention):
    """Mean entropy of a query's attention, nats: 0 when it looks at one key alone."""
    return -(attention * torch.log(attention + 1e-9)).sum(-1).mean()


def learning_rate(step):
    """Linear warm-up, then half a cosine down to zero."""
    cosine = 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / STEPS))).item()
    return cosine * min(1.0, (step + 1) / WARMUP)


def new_model():
    switches = ("model_type", "input_net", "output_net")
    return FusedQkvPredictor(**{k: v for k, v in CONFIG.items() if k not in switches})


def train():
    torch.manual_seed(SEED)
    model = new_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
    for step in range(STEPS):
        digits = torch.randint(DIGITS, (BATCH, TOKENS))
        logits, attention = forward(model, digits)
        loss = cross_entropy(logits.flatten(0, 1), digits.flip(1).flatten())
        if step >= STEPS // 2:
            loss += ENTROPY_WEIGHT * entropy(attention)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 500 == 0:
            print(f"step {step + 1}/{STEPS}: loss {loss.item():.2e}", flush=True)
    return model.eval()


def report(model):
    """Accuracy and attention over 1,000 sequences that training did not draw."""
    generator = torch.Generator().manual_seed(UNSEEN_SEED)
    digits = torch.randint(DIGITS, (1000, TOKENS), generator=generator)
    with torch.no_grad():
        logits, attention = forward(model, digits)
    accuracy = (logits.argmax(-1) == digits.flip(1)).float().mean().item()
    anti_diagonal = attention.flip(-1).diagonal(dim1=-2, dim2=-1)
    print(f"accuracy over {digits.numel()} digits of 1000 unseen sequences: {accuracy:.4%}")
    print(
        f"attention on the anti-diagonal: mean {anti_diagonal.mean():.4f}, "
        f"smallest {anti_diagonal.min():.4f}"
    )
    assert accuracy >= 0.999, accuracy


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=HERE)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        model = new_model().eval()
        model.load_state_dict(load_file(HERE / "model.safetensors"))
        report(model)
        return
    model = train()
    report(model)
    save_file(model.state_dict(), args.output / "model.safetensors", metadata={"format": "pt"})
    (args.output / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


if __name__ == "__main__":
    main()
