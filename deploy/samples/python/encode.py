"""Turns token ids into one vector.

    pip install ./deploy/client/python
    python deploy/samples/python/encode.py 127.0.0.1:50051 101 7592 102
"""

import sys

from encoderd_client import Client, EncoderdError, Pooling


def main(address: str, ids: list[int]) -> None:
    with Client(address, timeout=10) as client:
        model = client.model()
        print(f"model {model.name}: {model.num_layers} layers, hidden size {model.hidden_size}")
        vector = client.encode([ids], pooled=[Pooling.MEAN]).pooled[0][0]
        print(f"{len(ids)} tokens -> {len(vector)} numbers:", *(f"{x:.6f}" for x in vector[:4]))


if __name__ == "__main__":
    try:
        main(sys.argv[1], [int(word) for word in sys.argv[2:]])
    except EncoderdError as error:
        sys.exit(str(error))
