"""One golden: a tiny model, its configuration, its random weights, and how it is saved."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn


@dataclass
class Golden:
    """One golden folder. `folders` are the ways in which the one set of weights is saved."""

    name: str
    module: nn.Module
    run: Callable  # see reference_models
    config: dict
    input: str  # "ids" or "vectors"
    heads: int
    width: int  # of input vectors or word embeddings
    seed: int
    vocab: int = 0
    types: int = 0
    positions: int = 0  # rows of the position table: position_ids may be sent
    lengths: tuple = ()  # of the sequences without a mask, where not the usual ones
    longest: int = 0  # tokens of the longest sequence, where there is a case with it
    padding: int | None = None  # id of the padding, where there are cases with it
    mask_token: int | None = None  # id that is dropped, where the visible ones are counted
    end_token: int | None = None  # id that touches nothing, where the model tells contacts
    end_cases: bool = False  # whether there are cases with it
    gives_keys: bool = False  # whether `run` has which tokens the keys' mask lets see
    full: bool = True  # all mask cases, or only a few
    folders: dict = field(default_factory=dict)  # folder -> {tensor name: tensor}
    configs: dict = field(default_factory=dict)  # folder -> config.json, where it is not `config`
    files: dict = field(default_factory=dict)  # path in every folder -> JSON value
    pooling: tuple = ()  # what a sentence-transformers folder says: (kind, normalize)
    dense: nn.Module | None = None  # in between: what its Dense modules do with the vector
    weights: dict = field(default_factory=dict)  # path in every folder -> {tensor name: tensor}


def randomize(module, seed):
    """Fills every parameter, in the order of its name, from one generator.

    A golden must move by far more than a test's tolerance (1e-5) when the maths is wrong:
      - queries and keys are large, so that attention is far from even (scale, masks, head order);
      - the first FFN matrix is large, so that activations reach where GELU's forms differ;
      - the second is small, so that residual sums of pre-norm blocks stay near 1;
      - attention's output is small, so that a row with a small input keeps a small variance up to
        the first norm, where the epsilon then shows;
      - every bias and norm is random, so that none can be left out or swapped.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_shaped(name, noise))


def _shaped(name, noise):
    if re.search(r"(position|token_type)_embeddings", name):
        return noise * 0.01
    if re.search(r"embeddings?\.", name) and noise.dim() == 2:
        # Every other token is small: rows of small variance.
        small = torch.arange(noise.shape[0]) % 2 == 0
        return noise * torch.where(small, 0.02, 1.0)[:, None]
    if re.search(r"norm", name, re.IGNORECASE) or re.search(r"output_net\.1", name):
        # Positions are never small, so behind them it is the first norm that makes small rows.
        scale = 0.05 if name.startswith("transformer.layers.0.norm1") else 1.0
        return scale * (0.5 + 0.1 * noise if name.endswith("weight") else 0.1 * noise)
    if noise.dim() == 1:
        return noise * min(0.1, 0.1 * _gain(name))
    return noise * _gain(name) / noise.shape[1] ** 0.5


_ATTENTION_OUT = (
    r"o_proj|fc_out|self_attn\.fc\.|out_proj|attention\.output\.dense|out_lin|attention\.dense"
    r"|attn\.o\.|attn\.Wo"
)


_FFN_OUT = (
    r"linear_net\.3|feed_forward\.2|linear2|layer\.\d+\.output\.dense|lin2|ffn_output"
    r"|down_proj|mlp\.Wo|mlp\.wo"
)


def _gain(name):
    if re.search(_ATTENTION_OUT, name) or name.startswith("output_net.0"):
        return 0.1
    if re.search(
        r"qkv_proj|in_proj|query|queries|key|[qk]_lin|attn\.[qk]\.|[qk]_proj|Wqkv", name
    ):
        return 3.0
    if re.search(
        r"linear_net\.0|feed_forward\.0|linear1|intermediate|lin1|gated_layers|\.ffn\.weight|gate_proj|Wi", name
    ):
        return 5.0
    if re.search(_FFN_OUT, name):
        return 0.4
    return 1.0


def state_of(module):
    """The state_dict as the user's `save_file(module.state_dict(), …)` writes it."""
    return {
        name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()
    }


def saved_by_the_library(module):
    """What a model of transformers writes to disk: today's classes keep the names and the fused
    matrices of the first checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


def prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}
