#!/usr/bin/env python3
"""Writes FOLDER/pytorch_model.bin as FOLDER/model.safetensors, tensor by tensor.

usage: to_safetensors.py FOLDER

The pickle may hold tensors only: nothing in it is run.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    tensors = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    # Clones, since tied tensors share their memory, which safetensors cannot say.
    separate = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(separate, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
