#!/usr/bin/env python3
"""Checks that the goldens can be trusted, and prints how far each common mistake moves them.

    usage: check_goldens.py > mutations.md

1. The committed files are what make_goldens.py gives now, to float32 round-off.
2. The references are the libraries' own maths: torch.nn.TransformerEncoder called as a whole with
   its bool mask, and models of transformers called with their usual 2-D attention_mask, give the same last hidden
   state.
3. Every mistake of MISTAKES moves some tensor of the golden by ten times the tests' tolerance.

Exits with an AssertionError that names the golden where one of these does not hold.
"""

import copy
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import EsmModel, ModernBertModel, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.models.albert.modeling_albert import AlbertLayer
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Model,
    DisentangledSelfAttention,
)
from transformers.models.distilbert.modeling_distilbert import FFN as DistilBertFFN
from transformers.models.esm.modeling_esm import EsmIntermediate
from transformers.models.modernbert.modeling_modernbert import ModernBertAttention, ModernBertMLP
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

import jina_models
import make_goldens
import models
import reference_models as ref

TOLERANCE = 1e-5


def encoder_of(module):
    """What a class of transformers with a head has below it; any other module itself."""
    return getattr(module, "base_model", module)


# ---- Mistakes: each edits a copy of the module, or the mask; None where it cannot be made --------


def edit_norms(change):
    def edit(golden, module):
        for part in module.modules():
            if isinstance(part, nn.LayerNorm):
                part.eps = change(part.eps)
        return module

    return edit


def wrong_scale(golden, module):
    """Root of the embed size where the head size is right, and the reverse."""
    for part in module.modules():
        if isinstance(part, ref.SharedProjectionAttention):
            part.score_divisor = part.head_dim**0.5
        elif hasattr(part, "score_divisor"):
            part.score_divisor = (part.head_dim * part.num_heads) ** 0.5
        elif isinstance(part, ModernBertAttention):  # has its scale in its head size
            for parameter in part.Wqkv.parameters():
                parameter[: part.Wo.in_features] /= golden.heads**0.5
        elif hasattr(part, "scaling"):
            part.scaling /= golden.heads**0.5
        elif isinstance(part, MPNetSelfAttention):
            part.q.weight /= golden.heads**0.5
            part.q.bias /= golden.heads**0.5
        elif isinstance(part, DisentangledSelfAttention):
            for query in ("query_proj", "pos_query_proj"):
                for parameter in getattr(part, query, nn.Identity()).parameters():
                    parameter /= golden.heads**0.5
        elif isinstance(part, nn.MultiheadAttention):
            part.in_proj_weight[: part.embed_dim] /= part.num_heads**0.5
            part.in_proj_bias[: part.embed_dim] /= part.num_heads**0.5
    return module


def wrong_activation(golden, module):
    """relu <-> gelu, exact gelu <-> its tanh form, silu -> gelu."""
    if isinstance(module, ref.FusedQkvAttention):
        return None  # has none
    swap = {
        "relu": nn.functional.gelu,
        "gelu": ACT2FN["gelu_pytorch_tanh"],
        "gelu_new": nn.functional.gelu,
        "gelu_pytorch_tanh": nn.functional.gelu,
        "silu": nn.functional.gelu,
    }
    config = getattr(module, "config", None)
    act = golden.config.get("activation") or "relu"
    wrong = swap[getattr(config, "hidden_act", getattr(config, "hidden_activation", act))]
    for part in module.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            part.activation = wrong
        elif isinstance(part, (DistilBertFFN, AlbertLayer)):
            part.activation = _Function(wrong)
        elif isinstance(part, EsmIntermediate):
            part.forward = lambda x, dense=part.dense: ACT2FN["gelu_pytorch_tanh"](dense(x))
        elif isinstance(part, jina_models.GatedFfn):
            part.act = nn.GELU("tanh") if isinstance(part.act, nn.GELU) else nn.GELU()
        elif isinstance(part, ModernBertMLP):
            part.act = _Function(wrong)
        elif hasattr(part, "act_fn"):
            part.act_fn = _Function(wrong)
        elif hasattr(part, "intermediate_act_fn"):
            part.intermediate_act_fn = _Function(wrong)
        elif hasattr(part, "feed_forward"):
            part.feed_forward[1] = _Function(wrong)
        elif hasattr(part, "linear_net"):
            part.linear_net[2] = _Function(wrong)
    return module


class _Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self._function = function

    def forward(self, x):
        return self._function(x)


def grouped_by_part(golden, module):
    """A fused projection read as all of q, all of k, all of v, and not head by head."""
    found = [m for m in module.modules() if isinstance(m, ref.FusedQkvAttention)]
    for part in found:
        rows = torch.arange(part.qkv_proj.out_features)
        order = rows.view(3, part.num_heads, part.head_dim).transpose(0, 1).flatten()
        for parameter in part.qkv_proj.parameters():
            parameter.copy_(parameter[order])
    return module if found else None


def without_final_norm(golden, module):
    if isinstance(module, ModernBertModel):
        module.final_norm = nn.Identity()
        return module
    if isinstance(module, EsmModel):
        module.encoder.emb_layer_norm_after = nn.Identity()
        return module
    if getattr(module, "norm", None) is None:
        return None
    module.norm = None
    return module


def norm_in_the_wrong_place(golden, module):
    if not isinstance(module, nn.TransformerEncoder):
        return None
    for layer in module.layers:
        layer.norm_first = not layer.norm_first
    return module


def without_token_types(golden, module):
    if golden.types < 2:
        return None
    table = encoder_of(module).embeddings.token_type_embeddings.weight
    table[1:] = table[0]
    return module


def positions_off_by_one(golden, module):
    if hasattr(module, "pe"):
        module.pe = module.pe.roll(-1, 0)
    else:
        embeddings = getattr(encoder_of(module), "embeddings", None)
        table = getattr(getattr(embeddings, "position_embeddings", None), "weight", None)
        if table is None:
            return None
        table.copy_(table.roll(-1, 0))
    return module


def rotation_too_fast(golden, module):
    found = [buffer for name, buffer in module.named_buffers() if name.endswith("inv_freq")]
    for frequencies in found:
        frequencies *= 1.01
    return module if found else None


def distances_ignored(golden, module):
    encoder = encoder_of(module)
    if hasattr(encoder, "slopes"):
        encoder.slopes.zero_()
    elif hasattr(getattr(encoder, "encoder", None), "relative_attention_bias"):
        encoder.encoder.relative_attention_bias.weight.zero_()
    elif hasattr(getattr(encoder, "encoder", None), "rel_embeddings"):
        encoder.encoder.rel_embeddings.weight.zero_()
    else:
        return None
    return module


def narrower_window(golden, module):
    if not isinstance(module, ModernBertModel):
        return None
    module.config.local_attention -= 2
    return module


def transposed(visible):
    return visible.transpose(-1, -2)


def inverted(visible):
    return ~visible


def key_mask_on_queries(visible):
    return visible & visible.any(-2).unsqueeze(-1)


MISTAKES = {
    "eps 1e-5 → 1e-6, 1e-12 → 1e-6": edit_norms(lambda eps: 1e-6),
    "eps 1e-5 → 1e-12, 1e-12 → 1e-5": edit_norms(lambda eps: 1e-12 if eps == 1e-5 else 1e-5),
    "√d ↔ √E": wrong_scale,
    "activation": wrong_activation,
    "qkv grouping": grouped_by_part,
    "no final norm": without_final_norm,
    "pre ↔ post norm": norm_in_the_wrong_place,
    "types ignored": without_token_types,
    "positions + 1": positions_off_by_one,
    "rotation · 1.01": rotation_too_fast,
    "distances ignored": distances_ignored,
    "window − 1": narrower_window,
}
MASK_MISTAKES = {
    "mask transposed": transposed,
    "mask inverted": inverted,
    "key mask on queries": key_mask_on_queries,
}


def has_norms(golden):
    return any(isinstance(part, nn.LayerNorm) for part in golden.module.modules())


def distances(golden):
    """{mistake: largest absolute change over the golden, or None}."""
    module = copy.deepcopy(golden.module).double().eval()
    cases = [s for _, sequences in make_goldens.CaseMaker(golden).cases() for s in sequences]
    right = [make_goldens.run(golden, module, s) for s in cases]

    def distance(wrong_module, edit_visible=lambda visible: visible):
        return max(
            make_goldens.max_difference(a, make_goldens.run(golden, wrong_module, s, edit_visible))
            for a, s in zip(right, cases)
        )

    result = {}
    for name, edit in MISTAKES.items():
        with torch.no_grad():
            wrong = edit(golden, copy.deepcopy(module))
        possible = wrong is not None and (has_norms(golden) or not name.startswith("eps"))
        result[name] = distance(wrong) if possible else None
    for name, edit in MASK_MISTAKES.items():
        result[name] = distance(module, edit)
    return result


# ---- The references are the libraries ------------------------------------------------------------


def check_committed(golden):
    stored = load_file(Path(__file__).resolve().parent / golden.name / "golden.safetensors")
    module = copy.deepcopy(golden.module).double().eval()
    for name, sequences in make_goldens.CaseMaker(golden).cases():
        for i, sequence in enumerate(sequences):
            outputs = make_goldens.run(golden, module, sequence)
            for key, value in make_goldens.kept(outputs, sequence["tokens"]).items():
                error = (stored[f"{name}/{i}/{key}"] - value.float()).abs().max().item()
                assert error <= 1e-6, (golden.name, name, i, key, error)


def hides(sequence, token):
    keys = sequence.get("mask", {}).get("keys", [])
    return any(id == token and key == 0 for id, key in zip(sequence["input_ids"], keys))


def seen(tensors, keys):
    """Without the rows of hidden tokens, whose embeddings and view some classes take away. Logits of
    a whole sequence hang on its first row."""
    visible = torch.tensor(keys) == 1
    of_rows = {name: t[visible] for name, t in tensors.items() if t.dim() == 2}
    of_first = {name: t for name, t in tensors.items() if t.dim() == 1 and keys[0] == 1}
    return of_rows | of_first


def check_contacts(golden, base, sequence, inputs, right):
    if "contacts" not in right or "position_ids" in inputs:
        return  # too short, or not to be asked for with positions of one's own
    with torch.no_grad():
        actual = base.predict_contacts(inputs["input_ids"], inputs["attention_mask"])[0]
    error = (actual - right["contacts"]).abs().max().item()
    assert error <= 1e-6, (golden.name, sequence, error)


def check_library(golden):
    """Sequences whose every row sees something, through the library's plain call."""
    module = copy.deepcopy(golden.module).double().eval()
    checked = 0
    base = encoder_of(module)
    is_library = isinstance(module, (nn.TransformerEncoder, PreTrainedModel))
    is_library = is_library and golden.run is not jina_models.run_jina_bert
    for _, sequences in make_goldens.CaseMaker(golden).cases():
        for sequence in sequences:
            mask = sequence.get("mask", {})
            visible = make_goldens.visible_pairs(mask, golden.heads, sequence["tokens"])
            right = make_goldens.run(golden, module, sequence)
            expected = {"last_hidden_state": right["last_hidden_state"]}
            if isinstance(module, nn.TransformerEncoder) and visible.any(-1).all():
                x = sequence["inputs_embeds"].double().unsqueeze(0)
                with torch.no_grad():
                    actual = {"last_hidden_state": module(x, mask=~visible)[0]}
            elif isinstance(base, EsmModel) and "inputs_embeds" in sequence:
                continue  # the class takes them for finished embeddings
            elif isinstance(base, EsmModel) and hides(sequence, golden.mask_token):
                continue  # the class counts it among the visible ones
            elif is_library and set(mask) <= {"keys"}:
                inputs = {
                    key: torch.tensor(value).unsqueeze(0)
                    for key, value in sequence.items()
                    if key.endswith("_ids")
                }
                if "inputs_embeds" in sequence:
                    inputs["inputs_embeds"] = sequence["inputs_embeds"].double().unsqueeze(0)
                keys = mask.get("keys", [1] * sequence["tokens"])
                inputs["attention_mask"] = torch.tensor([keys])
                with torch.no_grad():
                    actual = {"last_hidden_state": base(**inputs)[0][0]}
                    if "logits" in right:
                        expected["logits"] = right["logits"]
                        actual["logits"] = module(**inputs).logits[0]
                if isinstance(base, (DebertaV2Model, EsmModel)):
                    expected, actual = seen(expected, keys), seen(actual, keys)
                if isinstance(base, EsmModel):
                    check_contacts(golden, base, sequence, inputs, right)
            else:
                continue
            checked += 1
            error = make_goldens.max_difference(actual, expected)
            # Parts of these two classes are in single precision whatever the model's type.
            single = isinstance(base, (EsmModel, ModernBertModel))
            assert error <= (1e-6 if single else 1e-12), (golden.name, sequence, error)
    assert checked > 0 or not is_library, golden.name


# ---- Report --------------------------------------------------------------------------------------


def main():
    torch.set_num_threads(1)
    columns = [*MISTAKES, *MASK_MISTAKES]
    print("# How far a mistake moves each golden\n")
    print("Largest absolute change of any tensor; the tests' tolerance is 1e-5. Written by")
    print("`check_goldens.py`; – where the model cannot be got wrong in this way.\n")
    print("| golden | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for golden in models.all_goldens():
        check_committed(golden)
        check_library(golden)
        moved = distances(golden)
        cells = ["–" if moved[c] is None else f"{moved[c]:.1e}" for c in columns]
        print(f"| {golden.name} | " + " | ".join(cells) + " |", flush=True)
        for name, distance in moved.items():
            assert distance is None or distance >= 10 * TOLERANCE, (golden.name, name, distance)


if __name__ == "__main__":
    main()
