"""Whom a client believes, and what it shows, when it connects by TLS."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Optional, Union

import grpc

AnyPath = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Tls:
    """TLS from files in PEM, which are read when a Client is made.

    ca_file:     the authorities that may vouch for the server; None = those of the system.
    cert_file:   the certificate to show to a server that asks for one, followed by those between
                 it and the root; with key_file.
    key_file:    its private key, not encrypted.
    server_name: the name that the server's certificate must have; None = the host of the address.
    """

    ca_file: Optional[AnyPath] = None
    cert_file: Optional[AnyPath] = None
    key_file: Optional[AnyPath] = None
    server_name: Optional[str] = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file, key_file: expected both or neither, got one of them")

    def credentials(self) -> grpc.ChannelCredentials:
        """What gRPC needs. Raises OSError for a file that cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_file), private_key=_read(self.key_file),
            certificate_chain=_read(self.cert_file))


def _read(path: Optional[AnyPath]) -> Optional[bytes]:
    return None if path is None else pathlib.Path(path).read_bytes()
