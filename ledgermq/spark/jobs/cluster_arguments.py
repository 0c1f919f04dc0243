"""Arguments by which a job finds its cluster, and what becomes of them: the same for every job.

    -n, --name-server HOST:PORT   required
    --acl-config FILE             accessKey and secretKey, as upstream's tools.yml has them, and
                                  signature: strong
    --tls-config FILE             TLS, with the keys tls.client.* of upstream's tls.properties

What is not given is read from the environment, as other commands do: LEDGERMQ_ACCESS_KEY and
LEDGERMQ_SECRET_KEY, LEDGERMQ_TLS_CONFIG. A secret is no word of a command line. In the options of a
source it is hidden by Spark itself, in plans and in logs.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

import yaml

from ledgermq.spark.access import ACCESS_OPTIONS, Access, signature_form
from ledgermq.spark.cluster import Cluster
from ledgermq.spark.errors import OptionError
from ledgermq.spark.option_table import addresses
from ledgermq.spark.paths import local_path
from ledgermq.spark.read_places import ReadFrom

_TIMEOUT_S: Final = 30.0
_ACCOUNT_ALLOWED: Final = "a YAML file with accessKey and secretKey"


class ClusterArguments(NamedTuple):
    """Where a job's cluster is, and how it is spoken to."""

    name_server: str
    access: Access

    def source_options(self) -> dict[str, str]:
        """Returns the options of a source, for reading and writing."""
        found = {"nameServer": self.name_server}
        if self.access.access_key:
            found["accessKey"] = self.access.access_key
            found["secretKey"] = self.access.secret_key
            found["signature"] = self.access.form
        if self.access.uses_tls:
            found |= {"tls": "true", "tlsConfigFile": self.access.tls_file}
        return found

    def open(self) -> Cluster:
        """Returns the cluster, for a ``with`` block.

        Raises:
            OptionError: the addresses are none.
        """
        try:
            found = addresses(self.name_server)
        except ValueError as error:
            allowed = "host:port;host:port"
            raise OptionError("--name-server", self.name_server, allowed) from error
        return Cluster(found, _TIMEOUT_S, self.access)


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    parser.add_argument("-n", "--name-server", required=True, metavar="HOST:PORT")
    parser.add_argument("--acl-config", metavar="FILE", help=_ACCOUNT_ALLOWED)
    parser.add_argument(
        "--tls-config", metavar="FILE", help="use TLS, as this tls.properties says, on every worker"
    )


def add_topic_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how a job that reads topics is told which."""
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("-t", "--topic", help="one or more, with commas between")
    topics.add_argument("--pattern", help="all topics whose whole name it matches")
    parser.add_argument(
        "--read-from",
        choices=[place.value for place in ReadFrom],
        default=ReadFrom.LEADER.value,
        help="the members of broker groups that are asked for messages",
    )


def cluster_of(options: argparse.Namespace) -> ClusterArguments:
    """Returns what the arguments and the environment say.

    Raises:
        OptionError: a file cannot be used.
    """
    account = _account(options.acl_config)
    tls_file = options.tls_config or os.environ.get("LEDGERMQ_TLS_CONFIG") or ""
    access = Access(
        access_key=account["accessKey"],
        secret_key=account["secretKey"],
        form=_form(options.acl_config, account["signature"]),
        uses_tls=bool(tls_file),
        tls_file=tls_file and str(local_path("--tls-config", tls_file)),
        directory=os.getcwd(),
    )
    return ClusterArguments(options.name_server, access)


def topic_option(options: argparse.Namespace) -> dict[str, str]:
    """Returns the options of a source that say which topics are read, and from whom."""
    topics = {"topicPattern": options.pattern} if options.pattern else {"topic": options.topic}
    return {**topics, "read.from": options.read_from}


def _account(file: str | None) -> dict[str, str]:
    """Returns both keys, "" where there is no account, and the form of signatures."""
    if file is None:
        found: object = {
            "accessKey": os.environ.get("LEDGERMQ_ACCESS_KEY"),
            "secretKey": os.environ.get("LEDGERMQ_SECRET_KEY"),
            "signature": os.environ.get("LEDGERMQ_SIGNATURE"),
        }
        if not {"LEDGERMQ_ACCESS_KEY", "LEDGERMQ_SECRET_KEY"} & os.environ.keys():
            return {"accessKey": "", "secretKey": "", "signature": "stock"}
        option, shown, allowed = "LEDGERMQ_ACCESS_KEY", None, "together with LEDGERMQ_SECRET_KEY"
    else:
        option, shown, allowed = "--acl-config", file, _ACCOUNT_ALLOWED
        try:
            found = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError, ValueError, RecursionError):
            # What the parser shows may be the secret.
            raise OptionError(option, shown, allowed) from None
    keys: Mapping[str, object] = found if isinstance(found, dict) else {}
    if not (keys.get("accessKey") and keys.get("secretKey")):
        raise OptionError(option, shown, allowed)
    texts = {name: str(keys[name]) for name in ("accessKey", "secretKey")}
    return {**texts, "signature": str(keys.get("signature") or "stock")}


def _form(file: str | None, text: str) -> Literal["stock", "strong"]:
    try:
        return signature_form(text)
    except ValueError as error:
        option = "LEDGERMQ_SIGNATURE" if file is None else f"signature in {file}"
        raise OptionError(option, text, ACCESS_OPTIONS["signature"].allowed) from error
