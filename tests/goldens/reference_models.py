"""The reference encoders whose outputs the goldens hold, as PyTorch modules.

The three founding models are written here with the parameter names, the order of operations and the
masking of their original code, so that `state_dict()` is what their users have on disk. The other
two references are the libraries' own modules: `torch.nn.TransformerEncoder` and the `BertModel` of
Hugging Face; only the way they are called is written here.

Every reference is called as `run(module, inputs, visible) -> Outputs` on ONE sequence:
  inputs   dict with `input_ids` [S] or `inputs_embeds` [S, width], and, where the sequence has
           them, `token_type_ids` [S] and `position_ids` [S]
  visible  bool [heads, S, S], row = query, column = key, True = may be seen

A row that may see nothing attends evenly to all keys of its sequence. All references do so by
themselves when what they put in place of a masked score is finite: all scores of the row are then
equal. The founding models' code does that (-9e15, -1e20). Hugging Face adds the smallest finite
number of the type. torch.nn.TransformerEncoder turns a bool mask into -inf and gives NaN for such
a row, so it is handed the finite mask that Hugging Face uses; for every other row the weights are
the same to the bit, because both underflow to exactly 0.
"""

import math
from dataclasses import dataclass, field
from unittest import mock

import torch
from torch import nn


@dataclass
class Outputs:
    """What one sequence of S tokens gives."""

    hidden_states: list = field(default_factory=list)  # [S, width]; 0 = what enters block 0
    attentions: list = field(default_factory=list)  # [heads, S, S] per block
    last_hidden_state: torch.Tensor = None  # [S, hidden], after the final norm if there is one
    logits: torch.Tensor = None  # [S, labels or vocabulary]; [labels] of a whole sequence
    pooler: torch.Tensor = None  # [hidden], the checkpoint's own pooler


# ---- A: fused QKV attention ----------------------------------------------------------------------


class FusedQkvAttention(nn.Module):
    """x [..., S, input_dim] -> output [..., S, embed_dim], attention [..., heads, S, S].

    The 3E outputs of qkv_proj are grouped by head: head i owns columns 3d*i .. 3d*(i+1)-1, its q, k
    and v in that order.
    """

    def __init__(self, input_dim, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.score_divisor = math.sqrt(self.head_dim)
        self.qkv_proj = nn.Linear(input_dim, 3 * embed_dim)
        self.o_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        qkv = self.qkv_proj(x).unflatten(-1, (self.num_heads, 3 * self.head_dim)).transpose(-3, -2)
        q, k, v = qkv.chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / self.score_divisor
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -9e15)
        attention = scores.softmax(dim=-1)
        values = (attention @ v).transpose(-3, -2).flatten(-2)
        return self.o_proj(values), attention


class EncoderBlock(nn.Module):
    """Post-norm block around FusedQkvAttention."""

    def __init__(self, input_dim, num_heads, dim_feedforward, dropout=0.0):
        super().__init__()
        self.self_attn = FusedQkvAttention(input_dim, input_dim, num_heads)
        self.linear_net = nn.Sequential(
            nn.Linear(input_dim, dim_feedforward),
            nn.Dropout(dropout),
            nn.ReLU(),
            nn.Linear(dim_feedforward, input_dim),
        )
        self.norm1 = nn.LayerNorm(input_dim)
        self.norm2 = nn.LayerNorm(input_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        attention_out, attention = self.self_attn(x, mask)
        x = self.norm1(x + self.dropout(attention_out))
        return self.norm2(x + self.dropout(self.linear_net(x))), attention


class FusedQkvStack(nn.Module):
    """Blocks alone: names layers.{i}.… ."""

    def __init__(self, num_layers, embed_dim, num_heads, ffn_dim):
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderBlock(embed_dim, num_heads, ffn_dim) for _ in range(num_layers)
        )

    def forward(self, x, mask=None):
        out = Outputs(hidden_states=[x])
        for layer in self.layers:
            x, attention = layer(x, mask)
            out.hidden_states.append(x)
            out.attentions.append(attention)
        out.last_hidden_state = x
        return out


def sinusoidal_positions(max_len, embed_dim):
    """[max_len, embed_dim], sine in even and cosine in odd columns, base 10000, in float32."""
    table = torch.zeros(max_len, embed_dim)
    position = torch.arange(0, max_len, dtype=torch.float32).unsqueeze(1)
    frequency = torch.exp(torch.arange(0, embed_dim, 2).float() * (-math.log(10000.0) / embed_dim))
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


class FusedQkvPredictor(nn.Module):
    """input_net, positions, `transformer` (a FusedQkvStack), output_net."""

    def __init__(self, input_dim, embed_dim, num_heads, num_layers, ffn_dim, max_len, num_classes):
        super().__init__()
        self.input_net = nn.Sequential(nn.Dropout(0.0), nn.Linear(input_dim, embed_dim))
        self.register_buffer("pe", sinusoidal_positions(max_len, embed_dim), persistent=False)
        self.transformer = FusedQkvStack(num_layers, embed_dim, num_heads, ffn_dim)
        self.output_net = nn.Sequential(
            nn.Linear(embed_dim, embed_dim),
            nn.LayerNorm(embed_dim),
            nn.ReLU(),
            nn.Dropout(0.0),
            nn.Linear(embed_dim, num_classes),
        )

    def forward(self, x, mask=None, position_ids=None):
        if position_ids is None:
            position_ids = torch.arange(x.shape[-2])
        out = self.transformer(self.input_net(x) + self.pe[position_ids], mask)
        out.logits = self.output_net(out.last_hidden_state)
        return out


def run_fused_qkv_attention(module, inputs, visible):
    x = inputs["inputs_embeds"]
    output, attention = module(x, visible)
    return Outputs([x, output], [attention], output)


def run_fused_qkv_stack(module, inputs, visible):
    return module(inputs["inputs_embeds"], visible)


def run_fused_qkv_predictor(module, inputs, visible):
    return module(inputs["inputs_embeds"], visible, inputs.get("position_ids"))


# ---- B: shared-head-projection encoder -----------------------------------------------------------


class SharedProjectionAttention(nn.Module):
    """One d x d matrix for all heads; energies divided by the root of the EMBED size."""

    def __init__(self, embed_size, heads):
        super().__init__()
        self.heads = heads
        self.head_dim = embed_size // heads
        self.score_divisor = embed_size**0.5
        self.values = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.keys = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.queries = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, queries, mask=None):
        tokens = values.shape[0]
        values = self.values(values.reshape(tokens, self.heads, self.head_dim))
        keys = self.keys(keys.reshape(tokens, self.heads, self.head_dim))
        queries = self.queries(queries.reshape(tokens, self.heads, self.head_dim))
        energy = torch.einsum("qhd,khd->hqk", queries, keys)
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-1e20"))
        attention = torch.softmax(energy / self.score_divisor, dim=-1)
        out = torch.einsum("hql,lhd->qhd", attention, values).reshape(tokens, -1)
        return self.fc_out(out), attention


class SharedProjectionBlock(nn.Module):
    def __init__(self, embed_size, heads, forward_expansion):
        super().__init__()
        self.attention = SharedProjectionAttention(embed_size, heads)
        self.norm1 = nn.LayerNorm(embed_size)
        self.norm2 = nn.LayerNorm(embed_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_size, forward_expansion * embed_size),
            nn.ReLU(),
            nn.Linear(forward_expansion * embed_size, embed_size),
        )

    def forward(self, value, key, query, mask=None):
        attention_out, attention = self.attention(value, key, query, mask)
        x = self.norm1(attention_out + query)
        return self.norm2(self.feed_forward(x) + x), attention


class SharedProjectionEncoder(nn.Module):
    """x [S, embed_size]; no embedding table, no positions."""

    def __init__(self, embed_size, heads, forward_expansion, num_layers):
        super().__init__()
        self.layers = nn.ModuleList(
            SharedProjectionBlock(embed_size, heads, forward_expansion) for _ in range(num_layers)
        )

    def forward(self, x, mask=None):
        out = Outputs(hidden_states=[x])
        for layer in self.layers:
            x, attention = layer(x, x, x, mask)
            out.hidden_states.append(x)
            out.attentions.append(attention)
        out.last_hidden_state = x
        return out


def run_shared_projection(module, inputs, visible):
    return module(inputs["inputs_embeds"], visible)


# ---- C: token encoder with vocabulary head -------------------------------------------------------


class TokenSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.score_divisor = math.sqrt(self.head_dim)
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.fc = nn.Linear(hidden_size, hidden_size)

    def _split(self, x):
        return x.view(x.shape[0], self.num_heads, self.head_dim).transpose(0, 1)

    def forward(self, x, mask=None):
        query, key, value = (self._split(f(x)) for f in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / self.score_divisor
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e20)
        attention = torch.softmax(scores, dim=-1)
        out = (attention @ value).transpose(0, 1).reshape(x.shape[0], -1)
        return self.fc(out), attention


class TokenEncoderBlock(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.self_attn = TokenSelfAttention(hidden_size, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size),
            nn.ReLU(),
            nn.Linear(4 * hidden_size, hidden_size),
        )
        self.norm1 = nn.LayerNorm(hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)

    def forward(self, x, mask=None):
        attention_out, attention = self.self_attn(x, mask)
        x = self.norm1(x + attention_out)
        return self.norm2(x + self.feed_forward(x)), attention


class TokenEncoder(nn.Module):
    def __init__(self, input_size, hidden_size, num_heads, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.transformer_blocks = nn.ModuleList(
            TokenEncoderBlock(hidden_size, num_heads) for _ in range(num_layers)
        )
        self.fc = nn.Linear(hidden_size, input_size)

    def forward(self, embedded, mask=None):
        x = embedded
        out = Outputs(hidden_states=[x])
        for block in self.transformer_blocks:
            x, attention = block(x, mask)
            out.hidden_states.append(x)
            out.attentions.append(attention)
        out.last_hidden_state = x
        out.logits = self.fc(x)
        return out


def run_token_encoder(module, inputs, visible):
    embedded = inputs.get("inputs_embeds")
    if embedded is None:
        embedded = module.embedding(inputs["input_ids"])
    return module(embedded, visible)


# ---- torch.nn.TransformerEncoder -----------------------------------------------------------------


def additive(visible, dtype):
    """[heads, S, S]: 0 where visible, the smallest finite number elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)


def run_torch_encoder(module, inputs, visible):
    """The module's own layers, one after the other, with its attention asked for its weights.

    The fused inference path has no weights to give and refuses per-head masks: it is switched off.
    """
    torch.backends.mha.set_fastpath_enabled(False)
    x = inputs["inputs_embeds"].unsqueeze(0)
    mask = additive(visible, x.dtype)
    out = Outputs(hidden_states=[x[0]])
    for layer in module.layers:
        with _attention_weights(layer.self_attn) as weights:
            x = layer(x, src_mask=mask)
        out.hidden_states.append(x[0])
        out.attentions.append(weights[0])
    out.last_hidden_state = x[0] if module.norm is None else module.norm(x)[0]
    return out


class _attention_weights:
    """While entered, nn.MultiheadAttention computes its per-head weights and leaves them here."""

    def __init__(self, attention):
        self._attention = attention
        self._forward = attention.forward
        self._weights = []

    def __enter__(self):
        def forward(*args, **kwargs):
            kwargs.update(need_weights=True, average_attn_weights=False)
            output, weights = self._forward(*args, **kwargs)
            self._weights.append(weights[0])
            return output, weights

        self._attention.forward = forward
        return self._weights

    def __exit__(self, *unused):
        self._attention.forward = self._forward


# ---- Models of Hugging Face ----------------------------------------------------------------------


def run_modernbert(module, inputs, visible):
    """ModernBertModel, given the mask of its local blocks beside that of the global ones: it would
    take one 4-D mask for both. With `keys`, the head's mean over the tokens that these let see,
    which the class takes from a 2-D mask."""
    rows = torch.arange(visible.shape[-1])
    near = (rows[:, None] - rows[None, :]).abs() <= module.config.local_attention // 2
    masks = {"full_attention": visible, "sliding_attention": visible & near}
    keys = inputs.pop("keys", None)
    if keys is None:
        return run_transformers(module, inputs, visible, masks)
    outputs = run_transformers(module.base_model, inputs, visible, masks)
    mean = (outputs.last_hidden_state * keys[:, None]).sum(0) / keys.sum()
    outputs.logits = module.classifier(module.head(mean))
    return outputs


def run_esm(module, inputs, visible):
    """EsmModel, but that hidden tokens have rows like all others: its own embeddings are 0 where
    the mask hides, and take no other mask than [S]."""
    layer = module.base_model.embeddings
    x = inputs.get("inputs_embeds")
    if x is None:
        ids = inputs["input_ids"]
        x = layer.word_embeddings(ids)
        if layer.token_dropout:
            masked, keys = ids == layer.mask_token_id, inputs["keys"] == 1
            share = (masked & keys).sum().to(x.dtype) / keys.sum()
            x = x.masked_fill(masked[:, None], 0) * (1 - 0.15 * 0.8) / (1 - share)
    if layer.layer_norm is not None:
        x = layer.layer_norm(x)
    others = {key: value for key, value in inputs.items() if key == "position_ids"}
    return run_transformers(module, {"inputs_embeds": x} | others, visible)


def contacts(regression, attentions, counts):
    """[S-2, S-2] from the maps of all blocks (Rao et al. 2020), of which only rows and columns of
    tokens with `counts` count."""
    maps = (torch.cat(attentions) * counts * counts[:, None])[:, 1:-1, 1:-1]
    symmetric = maps + maps.transpose(1, 2)
    sums = symmetric.sum(-1)
    total = sums.sum(-1)[:, None, None]
    # Where no token counts there is nothing to take away.
    average = sums[:, :, None] * sums[:, None, :] / total.masked_fill(total == 0, 1)
    return regression((symmetric - average).permute(1, 2, 0)).squeeze(-1).sigmoid()


def run_transformers(module, inputs, visible, masks_by_kind=None, bias=0):
    """A model of transformers with eager attention, given the mask in its 4-D additive form; of a
    class with a head also the head's logits. `masks_by_kind`: of blocks of different kinds, whose
    softmax is in single precision. `bias`: added to all scores."""
    batched = {name: value.unsqueeze(0) for name, value in inputs.items()}
    dtype = next(module.parameters()).dtype
    batched["attention_mask"] = (additive(visible, dtype) + bias).unsqueeze(0)
    if masks_by_kind is not None:
        batched["attention_mask"] = {
            kind: additive(mask, torch.float32).to(dtype).unsqueeze(0)
            for kind, mask in masks_by_kind.items()
        }
    result = module.base_model(**batched, output_hidden_states=True, output_attentions=True)
    pooler = getattr(result, "pooler_output", None)
    has_head = module.base_model is not module
    return Outputs(
        hidden_states=[h[0] for h in result.hidden_states],
        attentions=[a[0] for a in result.attentions],
        last_hidden_state=result.last_hidden_state[0],
        pooler=None if pooler is None else pooler[0],
        logits=module(**batched).logits[0] if has_head else None,
    )


def run_deberta(module, inputs, visible):
    """DeBERTa of transformers, part by part: the whole would take the embeddings and the view of
    hidden tokens away, which no other token can tell."""
    base = module.base_model
    batched = {name: value.unsqueeze(0) for name, value in inputs.items()}
    result = base.encoder(
        base.embeddings(**batched),
        visible.unsqueeze(0),
        output_hidden_states=True,
        output_attentions=True,
    )
    logits = None
    if base is not module:
        with mock.patch.object(base, "forward", lambda *_, **__: result):
            logits = module(**batched).logits[0]
    return Outputs(
        hidden_states=[h[0] for h in result.hidden_states],
        attentions=[a[0] for a in result.attentions],
        last_hidden_state=result.last_hidden_state[0],
        pooler=None,
        logits=logits,
    )
