"""to_onnx.py MODEL_DIR OUT.onnx: a BERT as ONNX, fused by ONNX Runtime's transformer optimiser."""

import pathlib
import sys
import tempfile

import bert
import torch
from onnxruntime.transformers import optimizer


def main(model, out):
    module = bert.Bert(model, "eager")  # the optimiser knows attention by its separate operations
    names = ["input_ids", "attention_mask"]
    axes = {0: "sequences", 1: "tokens"}
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / "plain.onnx"
        torch.onnx.export(
            module, bert.example(), str(plain), dynamo=False, opset_version=17,
            input_names=names, output_names=["hidden"],
            dynamic_axes={name: axes for name in (*names, "hidden")},
        )
        config = module.bert.config
        optimised = optimizer.optimize_model(
            str(plain), model_type="bert", num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
        )
        fused = optimised.get_fused_operator_statistics()["Attention"]
        if fused != config.num_hidden_layers:
            sys.exit(f"the optimiser has fused {fused} of {config.num_hidden_layers} attentions")
        optimised.save_model_to_file(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
