"""What PyTorch says about a model folder, by the classes of transformers with eager attention."""

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

# Classes whose head encoderd serves; of any other it serves the encoder.
HEADS = ("ForMaskedLM", "ForPreTraining", "ForTokenClassification", "ForSequenceClassification")


class ModelFolder:
    """A folder as transformers or sentence-transformers save it."""

    def __init__(self, path):
        self._path = Path(path)
        modules = self._path / "modules.json"
        self._modules = json.loads(modules.read_text()) if modules.exists() else []
        self.encoder_dir = self._path / (self._modules[0]["path"] if self._modules else "")
        self.config = transformers.AutoConfig.from_pretrained(self.encoder_dir)

    def head_class(self):
        """Of transformers; None where the folder is of an encoder alone, as those of
        sentence-transformers are, whatever class they name."""
        names = self.config.architectures or [""]
        if self._modules or not names[0].endswith(HEADS):
            return None
        return getattr(transformers, names[0])

    def own_vector(self, pooled):
        """The vector that the folder's modules make of the pooled ones, {"cls": [hidden], …}; the
        mean where it has no modules."""
        vector = pooled["mean"]
        for module in self._modules[1:]:
            kind = module["type"].rpartition(".")[2]
            directory = self._path / module["path"]
            if kind == "Pooling":
                vector = pooled[_pooling_mode(_config(directory))]
            elif kind == "Dense":
                vector = _dense(directory, vector)
            elif kind == "Normalize":
                vector = torch.nn.functional.normalize(vector, dim=0)
            else:
                raise ValueError(f"module {module['type']} is not known here")
        return vector


def _config(directory):
    return json.loads((directory / "config.json").read_text())


def _pooling_mode(config):
    if "pooling_mode" in config:
        return config["pooling_mode"]
    switches = {"pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
    return next((mode for key, mode in switches.items() if config.get(key)), "mean")


def _dense(directory, vector):
    weights = load_file(directory / "model.safetensors")
    activation = getattr(torch.nn, _config(directory)["activation_function"].rpartition(".")[2])()
    bias = weights.get("linear.bias")
    return activation(
        torch.nn.functional.linear(
            vector,
            weights["linear.weight"].to(vector.dtype),
            None if bias is None else bias.to(vector.dtype),
        )
    )


class Reference:
    """The folder's model in one floating-point type. `head` is None without one."""

    def __init__(self, folder, dtype):
        self._folder = folder
        self._encoder, absent = self._load(transformers.AutoModel, dtype)
        # transformers makes up what a checkpoint lacks, and a pooler may be lacking.
        self.has_pooler = getattr(self._encoder, "pooler", None) is not None and not any(
            name.startswith("pooler") for name in absent
        )
        absent = [name for name in absent if not name.startswith("pooler")]
        self.head = None
        if head_class := folder.head_class():
            self.head, absent_of_head = self._load(head_class, dtype)
            absent += absent_of_head
        if absent:
            raise ValueError(f"the checkpoint lacks {', '.join(absent)}")

    def _load(self, model_class, dtype):
        """The model, and the names of what the checkpoint lacks."""
        model, report = model_class.from_pretrained(
            self._folder.encoder_dir,
            attn_implementation="eager",
            dtype=torch.float32,
            output_loading_info=True,
        )
        return model.to(dtype).eval(), sorted(report["missing_keys"])

    def outputs(self, sequence):
        """{tensor name: array} of one sequence: all that encoderd gives for it."""
        inputs = {"input_ids": torch.tensor([sequence.input_ids])}
        if sequence.token_type_ids is not None:
            inputs["token_type_ids"] = torch.tensor([sequence.token_type_ids])
        with torch.no_grad():
            out = self._encoder(**inputs, output_hidden_states=True, output_attentions=True)
            last = out.last_hidden_state[0]
            tensors = {"last_hidden_state": last}
            tensors |= {f"hidden_states[{i}]": h[0] for i, h in enumerate(out.hidden_states)}
            tensors |= {f"attentions[{i}]": a[0] for i, a in enumerate(out.attentions)}
            pooled = {"cls": last[0], "mean": last.mean(0), "max": last.amax(0)}
            if self.has_pooler:
                pooled["pooler"] = out.pooler_output[0]
            own = {"the folder's own": self._folder.own_vector(pooled)}
            tensors |= {f"pooled: {name}": vector for name, vector in (own | pooled).items()}
            if self.head is not None:
                tensors["logits"] = self._logits(inputs)
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def _logits(self, inputs):
        """[S, width]; [1, labels] of a class that labels whole sequences."""
        out = self.head(**inputs)
        logits = out["prediction_logits"] if "prediction_logits" in out else out["logits"]
        if type(self.head).__name__.endswith("ForSequenceClassification"):
            return logits
        return logits[0] if logits.dim() == 3 else logits[0][:, None]
