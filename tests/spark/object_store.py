"""An object store that speaks S3, in a process of its own, gone with the test."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from ledgermq.spark.tables.storage import StoreKeys
from tests.free_ports import free_ports
from tests.waiting import wait_until

BUCKET = "lake"


@contextmanager
def object_store(folder: Path) -> Iterator[StoreKeys]:
    """Yields how a store with one empty bucket is reached."""
    [port] = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    with open(folder / "object-store.log", "w") as log:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        program = subprocess.Popen(words, stdout=log, stderr=log)
        try:

            def is_there() -> bool:
                request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
                try:
                    with urllib.request.urlopen(request, timeout=10):
                        return True
                except (URLError, OSError):
                    assert program.poll() is None, (folder / "object-store.log").read_text()
                    return False

            wait_until(is_there, what="an object store")
            yield StoreKeys("key", "secret", None, endpoint, "us-east-1")
        finally:
            program.kill()
            program.wait()
