"""Options: what each may be, and what is said of what it may not."""

import pickle
import re

import pytest

from ledgermq.client import MessageQueue
from ledgermq.spark.errors import OptionError
from ledgermq.spark.options import column_options, read_options, write_options
from ledgermq.spark.read_places import ReadFrom
from ledgermq.spark.segment_source import segment_options
from ledgermq.spark.tables.storage import Storage, StoreKeys

GOOD = {"nameserver": "h1:9876;h2:9876", "TOPIC": "A, B"}
AVRO = {**GOOD, "value.format": "avro"}
FILE = {**AVRO, "value.schema.file": "f"}


def test_names_match_in_any_case_and_defaults_fill_the_rest() -> None:
    options = read_options(GOOD, is_stream=False)
    assert options.name_servers == ("h1:9876", "h2:9876")
    assert options.topics == ("A", "B")
    assert (options.starting_offsets, options.ending_offsets) == ("earliest", "latest")
    assert options.fails_on_data_loss
    assert read_options(GOOD, is_stream=True).starting_offsets == "latest"


def test_values_are_typed() -> None:
    given = {
        **GOOD,
        "tags": "A || B",
        "keys": "k, l",
        "startingOffsets": '{"A": {"b": {"3": 7}}}',
        "endingTimestamp": "1970-01-01T00:00:01.5",
        "failOnDataLoss": "FALSE",
        "columns": "BODY,queueid",
        "Read.From": "Follower",
    }
    options = read_options(given, is_stream=False)
    assert options.tags == {"A", "B"}
    assert options.keys == {"k", "l"}
    assert options.starting_offsets == {MessageQueue("A", "b", 3): 7}
    assert options.ending_ms == 1500
    assert not options.fails_on_data_loss
    assert options.columns == ("body", "queueId")
    assert options.read_from is ReadFrom.FOLLOWER


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nameServer", ""),
        ("nameServer", "host"),
        ("nameServer", "host:0"),
        ("topic", " , "),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"T": 1}'),
        ("startingTimestamp", "yesterday"),
        ("endingTimestamp", "-1"),
        ("rowsPerPartition", "0"),
        ("minPartitions", "many"),
        ("columns", "body,nonsense"),
        ("failOnDataLoss", "maybe"),
        ("fetchBytes", "1"),
        ("readTimeoutMs", "99999999999"),
        ("filterPushdown", "1"),
        ("read.from", "slave"),
        ("value.format", "xml"),
        ("value.schema.registry", "ftp://h/x"),
        ("value.schema.registry", "http://h:99999"),
        ("value.schema.registry", "http://h/#a"),
        ("value.schema.registry", "file:///x"),
        ("value.maxBytes", "0"),
        ("value.errors", "ignore"),
    ],
)
def test_a_bad_value_is_answered_with_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is {text!r}; allowed: .+"):
        read_options({**GOOD, name: text}, is_stream=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "T"}, "option nameServer is missing; allowed: host:port"),
        ({"nameServer": "h:1"}, "option topic is missing; allowed: exactly one of"),
        ({**GOOD, "topicPattern": "T.*"}, "exactly one of topic"),
        ({**GOOD, "topicPattern": "("}, "a regular expression"),
        ({**GOOD, "nonsense": "1"}, "option nonsense is '...'; allowed: no such option; known are"),
        ({**GOOD, "startingOffsets": "latest", "startingTimestamp": "5"}, "not both"),
        ({**GOOD, "accessKey": "a"}, "option secretKey is missing; allowed: accessKey and secret"),
        ({**GOOD, "tlsConfigFile": "a"}, "option tls is 'false'; allowed: true where"),
        ({**GOOD, "value.format": "avro"}, "value.schema.file is missing; allowed: a path, or"),
        ({**GOOD, "value.schema.file": "f"}, "value.format is 'bytes'; allowed: json, avro or"),
        ({**AVRO, "value.schema.registry": "http://h"}, "value.schema.subject is missing"),
        ({**FILE, "value.schema.subject": "s"}, "subject is 's'; allowed: only with value.schema."),
        ({**FILE, "value.schema.message": "m"}, "message is 'm'; allowed: only with value.format="),
        ({**FILE, "value.schema.registry.user": "u"}, "registry.password is missing"),
        ({**GOOD, "columns": "value"}, "columns is 'value'; allowed: value only with another"),
    ],
)
def test_what_does_not_go_together_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        read_options(given, is_stream=False)


def test_batch_and_stream_have_options_of_their_own() -> None:
    with pytest.raises(OptionError, match="maxRowsPerTrigger"):
        read_options({**GOOD, "maxRowsPerTrigger": "1"}, is_stream=False)
    with pytest.raises(OptionError, match="endingOffsets"):
        read_options({**GOOD, "endingOffsets": "latest"}, is_stream=True)


def test_an_unknown_option_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(
        OptionError, match="option nonsense is '...'; .* known are nameServer, .*grou"
    ):
        read_options({**GOOD, "nonsense": "1"}, is_stream=True)
    with pytest.raises(OptionError, match="option nonsense is '...'; .* known are .*producerGroup"):
        write_options({"nameServer": "h:1", "nonsense": "1"})
    with pytest.raises(OptionError, match="option nonsense is '...'; .* known are path, topics"):
        segment_options({"path": "/data", "nonsense": "1"})


def test_no_secret_is_told() -> None:
    """Errors and reprs stand in logs of drivers and in notebooks."""
    secret = "S3CR3T/of+it"
    with pytest.raises(OptionError) as misspelt:
        read_options({**GOOD, "secret_key": secret}, is_stream=False)
    with pytest.raises(OptionError) as with_account:
        Storage("--path", f"s3a://KEY:{secret}@bucket/data", StoreKeys())
    for error in (misspelt.value, with_account.value):
        told = f"{error} {error!r} {pickle.loads(pickle.dumps(error))}"
        assert secret not in told and "of+it" not in told
    assert "option --path is 's3a://...@bucket/data'; allowed:" in str(with_account.value)
    keys = StoreKeys("KEY", secret, f"token {secret}", "https://store", "here")
    assert secret not in repr(keys) and "https://store" in repr(keys)


def test_options_and_their_errors_travel_between_processes() -> None:
    options = read_options(GOOD, is_stream=True)
    assert pickle.loads(pickle.dumps(options)) == options
    error = OptionError("a", None, "b")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_write_needs_only_a_name_server() -> None:
    options = write_options({"nameServer": "h:1"})
    assert (options.topic, options.row_id_property) == (None, "SPARK_ROW_ID")
    with pytest.raises(OptionError, match="producerGroup"):
        write_options({"nameServer": "h:1", "producerGroup": ""})


def test_values_have_options_of_their_own() -> None:
    assert not read_options(GOOD, is_stream=False).value.is_typed
    given = {**GOOD, "topic": "A", "VALUE.FORMAT": "Avro", "value.schema.registry": "https://h/r/"}
    del given["TOPIC"]
    account = {"value.schema.registry.user": "me", "value.schema.registry.password": "hidden"}
    value = read_options({**given, **account}, is_stream=True).value
    assert (value.format, value.subject) == ("avro", "A-value")
    assert value.registry is not None and value.registry.url == "https://h/r"
    assert "hidden" not in repr(value) and value.registry.password == "hidden"
    assert column_options(given).columns[-2:] == ("value", "value_error")
    both = {**given, "value.schema.file": "f"}
    assert read_options(both, is_stream=False).value.subject == ""
    write = {"nameServer": "h:1", **{k: v for k, v in both.items() if k.startswith("value")}}
    with pytest.raises(OptionError, match="file or value.schema.registry for a write, not both"):
        write_options({**write, "value.format": "avro"})
    with pytest.raises(OptionError, match="value.errors"):
        write_options({"nameServer": "h:1", "value.errors": "fail"})


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError, match="registry.user and .password") as caught:
        read_options({**AVRO, "value.schema.registry": "http://me:hidden@h"}, is_stream=False)
    assert "hidden" not in str(caught.value)


def test_secrets_travel_but_are_not_shown() -> None:
    given = {**GOOD, "accessKey": "me", "secretKey": "hidden", "tls": "true"}
    options = read_options(given, is_stream=True)
    assert "hidden" not in repr(options)
    credentials = pickle.loads(pickle.dumps(options)).access.credentials()
    assert credentials.signed({"a": "1"}, b"")["AccessKey"] == "me"
    assert credentials.form == "stock"
    strong = read_options({**given, "signature": "strong"}, is_stream=True).access.credentials()
    assert strong is not None and strong.form == "strong"
    with pytest.raises(OptionError, match="signature is 'weak'; allowed: stock or strong"):
        read_options({**given, "signature": "weak"}, is_stream=True)
    assert options.access.tls_context() is not None
    assert read_options(GOOD, is_stream=True).access.tls_context() is None
