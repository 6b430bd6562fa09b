"""to_openvino.py MODEL_DIR OUT_DIR fp32|int8 [TEXT_IDS]: a BERT as OpenVINO's model.xml and model.bin.

int8 is nncf's post-training quantisation of weights and activations with its settings for
transformers, calibrated with sequences cut from TEXT_IDS, a file of token ids.
"""

import pathlib
import sys

import bert
import numpy as np
import openvino

CALIBRATION_SEQUENCES = 128


def calibration(path):
    """Sequences of 16 to 128 tokens, as (ids, mask)."""
    ids = np.array(pathlib.Path(path).read_text().split(), np.int64)
    generator = np.random.default_rng(1)
    for _ in range(CALIBRATION_SEQUENCES):
        tokens = int(generator.integers(16, 129))
        begin = int(generator.integers(0, len(ids) - tokens))
        sequence = np.concatenate([[101], ids[begin : begin + tokens - 2], [102]])[None]
        yield sequence, np.ones_like(sequence)


def main(model, out, precision, text=None):
    converted = openvino.convert_model(
        bert.Bert(model, "sdpa"), example_input=bert.example(),
        input=[("input_ids", [-1, -1]), ("attention_mask", [-1, -1])],
    )
    if precision == "int8":
        import nncf

        converted = nncf.quantize(
            converted, nncf.Dataset(list(calibration(text)), lambda item: list(item)),
            model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATION_SEQUENCES,
        )
    openvino.save_model(converted, pathlib.Path(out) / "model.xml", compress_to_fp16=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
