"""Keys for a server that a test starts."""

import subprocess


def write_keys(folder):
    """Writes tls.crt, self-signed for 30 days, and tls.key into `folder`, a pathlib.Path."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=encoderd",
                    "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
                   check=True, capture_output=True)
