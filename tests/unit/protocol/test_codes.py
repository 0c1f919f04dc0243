"""Numbers that others depend on; the rest of the lists is compared by the recorded frames."""

from ledgermq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType


def test_codes_have_their_numbers_on_the_wire() -> None:
    assert [
        RequestCode.SEND_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.REGISTER_BROKER,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.DLEDGER_PUSH,
        RequestCode.POP_MESSAGE,
    ] == [10, 11, 34, 103, 310, 320, 51004, 200050]


def test_request_codes_are_unique() -> None:
    assert len(RequestCode.__members__) == len(set(RequestCode))


def test_codes_with_two_meanings_are_aliases() -> None:
    doubled = {
        name for name, code in ResponseCode.__members__.items() if ResponseCode(code).name != name
    }
    assert doubled == {"POLLING_FULL", "POLLING_TIMEOUT", "BROKER_NOT_EXIST"}


def test_languages_count_from_java() -> None:
    assert [code.name for code in LanguageCode][:3] == ["JAVA", "CPP", "DOTNET"]
    assert sorted(LanguageCode) == list(range(14))
    assert (SerializeType.JSON, SerializeType.ROCKETMQ) == (0, 1)
