#!/usr/bin/env python3
"""Writes the golden folders beside this file: tiny models and what PyTorch says they give.

    usage: make_goldens.py [--output FOLDER] [NAME ...]      (default: all, beside this file)

Needs torch, safetensors and transformers; attention is eager everywhere. README.md beside this file
gives the format that the C++ tests read.

Numbers: the weights are float32, the maths is done in float64 on exactly those weights, the result
is rounded to float32. So a golden is the nearest float32 to the true value and says nothing about
the order in which a library adds. What float32 PyTorch itself loses against it is printed at the
end of each line and recorded in cases.json (`float32_error`): a tolerance must allow for that.
"""

import argparse
import copy
import hashlib
import json
import platform
import shutil
from pathlib import Path

import safetensors
import torch
import transformers
from safetensors.torch import save_file

import models
import reference_models as ref

VERSIONS = {
    "python": platform.python_version(),
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "safetensors": safetensors.__version__,
}


LONGEST_WITH_MAPS = 64


# ---- Masks ---------------------------------------------------------------------------------------


def visible_pairs(mask, heads, tokens):
    """[heads, S, S], True where the query (row) may see the key (column): all parts ANDed."""
    visible = torch.ones(heads, tokens, tokens, dtype=torch.bool)
    if "keys" in mask:
        visible &= torch.tensor(mask["keys"], dtype=torch.bool)[None, None, :]
    if "pairs" in mask:
        visible &= torch.tensor(mask["pairs"], dtype=torch.bool).view(1, tokens, tokens)
    if "head_pairs" in mask:
        visible &= torch.tensor(mask["head_pairs"], dtype=torch.bool).view(heads, tokens, tokens)
    if mask.get("causal"):
        visible &= torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if "segment_ids" in mask:
        segments = torch.tensor(mask["segment_ids"])
        visible &= (segments[:, None] == segments[None, :])[None]
    return visible


# ---- Cases ---------------------------------------------------------------------------------------


class CaseMaker:
    """Draws the inputs of one golden, all from one generator seeded with the golden's seed."""

    def __init__(self, golden):
        self.golden = golden
        self.generator = torch.Generator().manual_seed(1000 + golden.seed)

    def integers(self, low, high, shape):
        return torch.randint(low, high, shape, generator=self.generator).tolist()

    def bits(self, *shape):
        """Flat 0/1 list, about two thirds ones; not symmetric, so that a transposed mask shows."""
        return (torch.rand(*shape, generator=self.generator) < 0.66).int().flatten().tolist()

    def vectors(self, tokens):
        """Every other row is small: its variance is what shows a wrong epsilon."""
        scale = torch.where(torch.arange(tokens) % 2 == 0, 0.02, 1.0)
        return torch.randn(tokens, self.golden.width, generator=self.generator) * scale[:, None]

    def sequence(self, tokens, mask=None, types=False, positions=False, vectors=False):
        sequence = {"tokens": tokens}
        if self.golden.input == "vectors" or vectors:
            sequence["inputs_embeds"] = self.vectors(tokens)
        else:
            sequence["input_ids"] = self.integers(0, self.golden.vocab, (tokens,))
        if types:
            sequence["token_type_ids"] = self.integers(0, self.golden.types, (tokens,))
        if positions:
            sequence["position_ids"] = self.integers(0, self.golden.positions, (tokens,))
        if mask:
            sequence["mask"] = mask
        return sequence

    def sequence_of(self, ids, mask=None):
        sequence = {"tokens": len(ids), "input_ids": ids}
        return sequence | {"mask": mask} if mask else sequence

    def cases(self):
        full, heads, longest = self.golden.full, self.golden.heads, self.golden.longest
        usual = (1, 2, 5, 7, 17, 33) if full else (1, 2, longest) if longest else (1, 5, 9)
        lengths = self.golden.lengths or usual
        yield "no_mask", [self.sequence(s) for s in lengths]
        yield "combined", [
            self.sequence(
                7,
                {
                    "keys": [1, 0, 1, 1, 1, 1, 0],
                    "pairs": self.bits(7, 7),
                    "head_pairs": self.bits(heads, 7, 7),
                    "causal": True,
                    "segment_ids": [0, 0, 0, 1, 1, 0, 1],
                },
            )
        ]
        if self.golden.types > 1:
            yield "token_types", [
                self.sequence(5, types=True),
                self.sequence(5),
                self.sequence(7, {"keys": [1, 1, 1, 1, 1, 0, 0]}, types=True),
            ]
        if self.golden.positions:
            yield "position_ids", [self.sequence(6, positions=True)]
        if self.golden.input == "ids":
            yield "input_vectors", [self.sequence(5, vectors=True), self.sequence(4)]
        if self.golden.padding is not None:
            pad = self.golden.padding
            yield "padding", [
                self.sequence_of([3, 9, pad, 8, 2]),
                self.sequence_of([pad, pad, 3, 9, 2], {"keys": [0, 0, 1, 1, 1]}),
                self.sequence_of([3, 9, 2, pad], {"keys": [1, 1, 1, 0]}),
            ]
        if self.golden.mask_token is not None:
            masked, pad = self.golden.mask_token, self.golden.padding
            yield "mask_tokens", [
                self.sequence_of([3, masked, 9, masked, 8, 2]),
                self.sequence_of([masked, 9, pad, masked, 7], {"keys": [1, 1, 0, 0, 1]}),
            ]
        if self.golden.end_cases:
            end = self.golden.end_token
            yield "end_tokens", [
                self.sequence_of([0, 5, end, 7, 9, end]),
                self.sequence_of([0, 7, 8, end, 6, 1, 1], {"keys": [1, 1, 1, 1, 0, 0, 0]}),
            ]
        if full or self.golden.pooling:
            yield "keys", [
                self.sequence(5, {"keys": [1, 0, 1, 1, 0]}),
                self.sequence(7, {"keys": [1, 1, 1, 0, 0, 0, 0]}),
                self.sequence(6, {"keys": [1, 0, 0, 0, 0, 0]}),
            ]
        if full:
            yield from self.mask_cases(heads)

    def mask_cases(self, heads):
        lower = [1, 0, 0, 1, 1, 0, 1, 1, 1]
        upper = [1, 1, 1, 0, 1, 1, 0, 0, 1]
        yield "pairs", [
            self.sequence(5, {"pairs": self.bits(5, 5)}),
            self.sequence(3, {"pairs": lower}),
            self.sequence(3, {"pairs": upper}),
        ]
        yield "head_pairs", [self.sequence(5, {"head_pairs": self.bits(heads, 5, 5)})]
        yield "causal", [self.sequence(5, {"causal": True}), self.sequence(17, {"causal": True})]
        yield "segments", [self.sequence(7, {"segment_ids": [0, 0, 1, 1, 1, 7, 0]})]
        yield "keys_and_pairs", [
            self.sequence(5, {"keys": [1, 1, 0, 1, 1], "pairs": self.bits(5, 5)})
        ]
        yield "causal_segments", [
            self.sequence(9, {"causal": True, "segment_ids": [3, 3, 3, 4, 4, 4, 4, 5, 5]})
        ]
        one_row = [1] * 25
        one_row[5:10] = [0] * 5
        one_head = [1] * (heads * 25)
        one_head[10:15] = [0] * 5
        yield "rows_that_see_nothing", [
            self.sequence(5, {"pairs": one_row}),
            self.sequence(5, {"head_pairs": one_head}),
            # The keys of segment 1 are all hidden: its rows see nothing, and attend to all 5 keys.
            self.sequence(5, {"keys": [1, 1, 0, 0, 1], "segment_ids": [0, 0, 1, 1, 0]}),
            self.sequence(5, {"pairs": [0] * 25}),
        ]


# ---- Running -------------------------------------------------------------------------------------


def run(golden, module, sequence, edit_visible=lambda visible: visible):
    """{tensor name after '<case>/<i>/': tensor} of one sequence, in the data type of `module`."""
    mask = sequence.get("mask", {})
    visible = edit_visible(visible_pairs(mask, golden.heads, sequence["tokens"]))
    dtype = next(module.parameters()).dtype
    inputs = {}
    for key in ("input_ids", "token_type_ids", "position_ids"):
        if key in sequence:
            inputs[key] = torch.tensor(sequence[key])
    if "inputs_embeds" in sequence:
        inputs["inputs_embeds"] = sequence["inputs_embeds"].to(dtype)
    if golden.gives_keys:
        inputs["keys"] = torch.tensor(mask.get("keys", [1] * sequence["tokens"]))
    with torch.no_grad():
        out = golden.run(module, inputs, visible)
        tensors = {f"hidden_states/{l}": h for l, h in enumerate(out.hidden_states)}
        tensors |= {f"attentions/{l}": a for l, a in enumerate(out.attentions)}
        tensors["last_hidden_state"] = out.last_hidden_state
        if out.logits is not None:
            tensors["logits"] = out.logits
        if golden.end_token is not None and sequence["tokens"] > 2:
            counts = torch.tensor(mask.get("keys", [1] * sequence["tokens"])) == 1
            if "input_ids" in sequence:
                counts &= inputs["input_ids"] != golden.end_token
            regression = module.base_model.contact_head.regression
            tensors["contacts"] = ref.contacts(regression, out.attentions, counts.to(dtype))
        tensors |= pooled(golden, out, torch.tensor(mask.get("keys", [1] * sequence["tokens"])))
    return tensors


def pooled(golden, out, keys):
    """Pooled vectors [hidden]; hidden keys do not count."""
    last = out.last_hidden_state
    kinds = {
        "cls": last[keys.nonzero()[0, 0]],
        "mean": (last * keys[:, None]).sum(0) / keys.sum(),
        "max": last.masked_fill(keys[:, None] == 0, float("-inf")).amax(0),
    }
    if out.pooler is not None:
        kinds["pooler"] = out.pooler
    if golden.pooling:
        kind, normalize = golden.pooling
        vector = kinds[kind]
        if golden.dense is not None:
            vector = copy.deepcopy(golden.dense).to(vector.dtype)(vector)
        kinds["default"] = torch.nn.functional.normalize(vector, dim=0) if normalize else vector
    return {f"pooled/{kind}": vector for kind, vector in kinds.items()}


def kept(outputs, tokens):
    """What of a sequence's outputs is stored. Of long ones, whose maps would be most of a golden,
    only what the last block gives."""
    if tokens <= LONGEST_WITH_MAPS:
        return outputs
    return {
        key: tensor
        for key, tensor in outputs.items()
        if not key.startswith(("attentions/", "hidden_states/"))
    }


def max_difference(a, b):
    return max((a[name].double() - b[name].double()).abs().max().item() for name in a)


# ---- Writing -------------------------------------------------------------------------------------


def write(golden, root):
    folder = root / golden.name
    shutil.rmtree(folder, ignore_errors=True)
    for name, state in golden.folders.items():
        write_model(folder / name, state, golden.configs.get(name, golden.config), golden)

    exact = copy.deepcopy(golden.module).double().eval()
    plain = golden.module.float().eval()
    tensors, cases, float32_error = {}, [], 0.0
    for name, sequences in CaseMaker(golden).cases():
        cases.append((name, sequences))
        for i, sequence in enumerate(sequences):
            outputs = run(golden, exact, sequence)
            float32_error = max(
                float32_error, max_difference(outputs, run(golden, plain, sequence))
            )
            if "inputs_embeds" in sequence:
                outputs["inputs_embeds"] = sequence["inputs_embeds"]
            for key, tensor in kept(outputs, sequence["tokens"]).items():
                assert torch.isfinite(tensor).all(), (golden.name, name, i, key)
                tensors[f"{name}/{i}/{key}"] = tensor.float().contiguous()
    # One key: the library writes several in an order that changes from run to run.
    record = {"made_by": json.dumps(VERSIONS | {"seed": golden.seed})}
    save_file(tensors, folder / "golden.safetensors", metadata=record)
    write_cases(golden, folder, cases, float32_error)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{golden.name:28} {size / 1024:7.0f} KiB   float32 error {float32_error:.1e}")
    return size


def write_model(folder, state, config, golden):
    folder.mkdir(parents=True)
    for path, tensors in {"model.safetensors": state, **golden.weights}.items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        save_file(tensors, target, metadata={"format": "pt"})
    for path, value in {"config.json": config, **golden.files}.items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(value, indent=2) + "\n")


def write_cases(golden, folder, cases, float32_error):
    """One line per sequence, so that the file can be read and a change be seen."""
    files = sorted(path for path in folder.rglob("*.safetensors"))
    head = {
        "name": golden.name,
        "models": list(golden.folders),
        "seed": golden.seed,
        "versions": VERSIONS,
        "float32_error": float(f"{float32_error:.2e}"),
        "sha256": {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
    }
    lines = json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n'
    blocks = []
    for name, sequences in cases:
        rows = [
            json.dumps({key: value for key, value in sequence.items() if key != "inputs_embeds"})
            for sequence in sequences
        ]
        blocks.append(f'  {{"name": "{name}", "sequences": [\n   ' + ",\n   ".join(rows) + "]}")
    (folder / "cases.json").write_text(lines + ",\n".join(blocks) + "\n ]\n}\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of additions on every machine
    total = sum(
        write(golden, args.output)
        for golden in models.all_goldens()
        if not args.names or golden.name in args.names
    )
    print(f"{total / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
