"""Where the certificates of the tests lie, and settings that name them."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "certificates"
AUTHORITY = str(FOLDER / "authority.pem")
OTHER_AUTHORITY = str(FOLDER / "other-authority.pem")
NODE = str(FOLDER / "node.pem")
NODE_KEY = str(FOLDER / "node-key.pem")
LOCKED_KEY = str(FOLDER / "node-key-locked.pem")
SECOND_NODE = str(FOLDER / "second-node.pem")
SECOND_NODE_KEY = str(FOLDER / "second-node-key.pem")
EXPIRED = str(FOLDER / "expired.pem")

SERVER = {"tls.server.certPath": NODE, "tls.server.keyPath": NODE_KEY}
CLIENT = {"tls.client.trustCertPath": AUTHORITY}


def write_tls_file(path: Path, **changes: str) -> Path:
    """Writes a tls.properties with both ends; a change names its key with _ for the dots."""
    settings = {**SERVER, **CLIENT}
    settings |= {name.replace("_", "."): value for name, value in changes.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
