"""Where a table lies: a directory that all workers see, or a bucket of an object store.

The same place has three spellings: Spark's (``file:///data/t``, ``s3a://bucket/t``), the one of
pyarrow's file systems, and the one of the libraries that commit (``s3://bucket/t``). Keys and
endpoint of an object store are those that Spark was given as ``spark.hadoop.fs.s3a.*``; what is not
there, the libraries find as they always do (AWS_ACCESS_KEY_ID and its relatives, a profile).
"""

import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from pyarrow.fs import (
    AwsStandardS3RetryStrategy,
    FileSelector,
    FileType,
    LocalFileSystem,
    S3FileSystem,
)

from ledgermq.spark.errors import OptionError
from ledgermq.spark.paths import check_shared, local_path, who_reads

_S3A: Final = re.compile(r"s3a://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(.*)")
_PLACE_ALLOWED: Final = (
    "a directory that all workers see, or s3a://BUCKET/PREFIX without . and .. in it"
)
# How Hadoop's client is told of a store.
STORE_SETTINGS: Final = (
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
)
_SMALL_BYTES: Final = 1 << 20
# Of a request that the object store did not answer well, and how long they may take together.
_TRIES: Final = 8
_TRIES_S: Final = 120


class PatientRetries(AwsStandardS3RetryStrategy):
    """How often a request is tried, for all that reaches a store by pyarrow."""

    def __init__(self) -> None:
        super().__init__(max_attempts=_TRIES)


class StoreKeys(NamedTuple):
    """How an object store is reached; None is found in the environment."""

    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    # URL of a service that is not Amazon's.
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "StoreKeys":
        """Reads them from ``fs.s3a.*`` of Hadoop, the endpoint from AWS_ENDPOINT_URL, too."""
        # pyarrow knows no such variable, which all other clients of Amazon's do.
        endpoint = settings.get("fs.s3a.endpoint") or os.environ.get("AWS_ENDPOINT_URL") or None
        if endpoint and "://" not in endpoint:
            tls = settings.get("fs.s3a.connection.ssl.enabled", "true").lower() != "false"
            endpoint = f"{'https' if tls else 'http'}://{endpoint}"
        return cls(
            settings.get("fs.s3a.access.key") or None,
            settings.get("fs.s3a.secret.key") or None,
            settings.get("fs.s3a.session.token") or None,
            endpoint,
            settings.get("fs.s3a.endpoint.region") or None,
        )

    def __repr__(self) -> str:
        # Without its secrets.
        return f"<StoreKeys {self.access_key} {self.endpoint} {self.region}>"


class StoredFile(NamedTuple):
    """A file below the root."""

    path: str
    size_bytes: int
    modified_ms: int


class Storage:
    """The root of a table.

    Attributes:
        keys: by which an object store is reached.
        is_local: it is a directory of this machine.
        spark_root: as Spark's readers and writers take it.
        root: as the libraries that commit take it.
    """

    def __init__(self, option: str, text: str, keys: StoreKeys) -> None:
        """
        Args:
            option: by which the place was given, for the error.
            text: a path, a ``file:`` URL or an ``s3a:`` URL.
            keys: of the object store.

        Raises:
            OptionError: it is none of them.
        """
        self.keys = keys
        self._option = option
        found = _S3A.fullmatch(text)
        self.is_local = found is None
        if found is None:
            if re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/", text):
                raise OptionError(option, text, f"{_PLACE_ALLOWED}{who_reads(text)}")
            self._base = str(local_path(option, text))
            if re.search("[%?#]", self._base):
                # deltalake decodes the first, pyiceberg cuts a path at the others.
                raise OptionError(option, text, f"{_PLACE_ALLOWED}, and without % ? #")
            self.spark_root = self.root = f"file://{self._base}"
            self.files: Any = LocalFileSystem()
            return
        bucket, prefix = found[1], found[2].strip("/")
        if not prefix or any(part in ("", ".", "..") for part in prefix.split("/")):
            raise OptionError(option, text, _PLACE_ALLOWED)
        self._base = f"{bucket}/{prefix}"
        self.spark_root, self.root = f"s3a://{self._base}", f"s3://{self._base}"
        self.files = S3FileSystem(
            access_key=keys.access_key,
            secret_key=keys.secret_key,
            session_token=keys.session_token,
            endpoint_override=keys.endpoint,
            region=keys.region,
            retry_strategy=PatientRetries(),
        )

    @property
    def directory(self) -> str:
        """The root without a scheme: a path of this machine, or ``bucket/prefix``."""
        return self._base

    def prepare(self, context: Any) -> None:
        """Makes a directory, and checks that workers write into the very same one.

        Raises:
            OptionError: a worker has another one, or none.
        """
        if self.is_local:
            check_shared(context, self._option, local_path(self._option, self._base))

    def parquet_files(self, folder: str) -> list[StoredFile]:
        """Returns the Parquet files below a folder of the root; none where there is no folder.

        What a task writes lies below names with _ in front (`_temporary`) until its job is
        committed. There may be some of it afterwards, of tasks that were run twice or were taken
        for dead, whose rows others have written.
        """
        selector = FileSelector(f"{self._base}/{folder}", recursive=True, allow_not_found=True)
        found = []
        for info in self.files.get_file_info(selector):
            path = str(PurePosixPath(info.path).relative_to(self._base))
            in_folder = path.removeprefix(f"{folder}/").split("/")
            is_hidden = any(name.startswith(("_", ".")) for name in in_folder)
            if info.type is FileType.File and path.endswith(".parquet") and not is_hidden:
                modified_ms = (info.mtime_ns or 0) // 1_000_000
                found.append(StoredFile(path, info.size, modified_ms))
        return found

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder of the root; none where there is no folder."""
        selector = FileSelector(f"{self._base}/{folder}", allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(selector)]

    def read(self, path: str) -> bytes | None:
        """Returns a small file below the root; None where there is none."""
        whole = f"{self._base}/{path}"
        if self.files.get_file_info(whole).type is not FileType.File:
            return None
        with self.files.open_input_stream(whole) as stream:
            return bytes(stream.read(_SMALL_BYTES))

    def delta_options(self) -> dict[str, str]:
        """Returns how deltalake reaches the store."""
        if self.is_local:
            return {}
        keys = self.keys
        options = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.session_token,
            "AWS_ENDPOINT_URL": keys.endpoint,
            "AWS_REGION": keys.region,
            "AWS_ALLOW_HTTP": "true" if (keys.endpoint or "").startswith("http:") else None,
            # Two who commit the same version at once: the store itself lets one of them win.
            "aws_conditional_put": "etag",
            "max_retries": str(_TRIES - 1),
            "retry_timeout": f"{_TRIES_S}s",
        }
        return {name: value for name, value in options.items() if value is not None}

    def iceberg_properties(self) -> dict[str, str]:
        """Returns how pyiceberg reaches the store."""
        keys = self.keys
        properties = {
            "s3.access-key-id": keys.access_key,
            "s3.secret-access-key": keys.secret_key,
            "s3.session-token": keys.session_token,
            "s3.endpoint": keys.endpoint,
            "s3.region": keys.region,
            "s3.retry-strategy-impl": f"{__name__}.{PatientRetries.__name__}",
        }
        return {name: value for name, value in properties.items() if value is not None}


def store_keys(spark: Any) -> StoreKeys:
    """Returns the keys that a session was given for object stores."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    found = {name: hadoop.get(name) for name in STORE_SETTINGS}
    return StoreKeys.of({name: value for name, value in found.items() if value is not None})
