"""What is known of the console's page without a browser: texts, size, what is not in it."""

import json
import re

from ledgermq.console.server import PAGE_SCRIPT, STATIC
from ledgermq.http.requests import Request
from ledgermq.http.static_files import StaticFiles

BYTES_MAX = 55_000


def texts(suffix: str) -> dict[str, str]:
    """Name below the folder -> text, of the files with that suffix."""
    return {
        path.relative_to(STATIC).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(STATIC.rglob(f"*{suffix}"))
    }


def dictionary(language: str) -> dict[str, str]:
    entries: dict[str, str] = json.loads((STATIC / "text" / f"{language}.json").read_bytes())
    return entries


def places(text: str) -> set[str]:
    """Names of the values in a text."""
    return set(re.findall(r"\{(\w+)\}", text))


def test_both_languages_have_the_same_keys_and_values() -> None:
    english, chinese = dictionary("en"), dictionary("zh")
    assert list(english) == list(chinese)
    differing = {key for key in english if places(english[key]) != places(chinese[key])}
    # Chinese has no plural: a number that only chooses an ending in English need not be told.
    assert differing == set()
    empty = {key for key in english if not english[key] or not chinese[key]}
    assert empty == set()


def test_every_text_that_is_asked_for_is_there_and_none_besides() -> None:
    scripts = "\n".join(texts(".js").values())
    asked = set(re.findall(r"\bt\(\s*\"([\w.-]+)\"", scripts))
    asked |= set(re.findall(r"\bt\([^\"`()]*\? \"([\w.-]+)\"", scripts))
    entries = dictionary("en")
    assert asked - set(entries) == set()
    # Keys that are put together, `group.${state}`, and lists of keys.
    patterns = [
        re.compile(re.sub(r"\\\$\\\{.*?\\\}", ".+", re.escape(found)))
        for found in re.findall(r"(?:\bt|\bhas)\(`([^`]+)`", scripts)
    ]
    told = {"reason", "event"}
    unused = {
        key
        for key in set(entries) - asked
        if f'"{key}"' not in scripts
        and key.split(".")[0] not in told
        and not any(pattern.fullmatch(key) for pattern in patterns)
    }
    assert unused == set()


def test_the_page_is_small() -> None:
    files = StaticFiles(STATIC, PAGE_SCRIPT)
    sizes = {}
    for name in files.names:
        # A browser takes one of the dictionaries, here the larger one.
        if name != "text/en.json":
            request = Request(headers={"accept-encoding": "gzip"})
            body = files.find(name, request).body
            assert isinstance(body, bytes)
            sizes[name] = len(body)
    assert {PAGE_SCRIPT, "text/zh.json", "style.css", "index.html"} <= set(sizes)
    assert sum(sizes.values()) < BYTES_MAX, sizes


def test_nothing_can_become_markup_or_code() -> None:
    scripts = texts(".js")
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\b"
        r"|new Function|createContextualFragment|setHTML|\bimport\("
    )
    found = [
        f"{name}: {m.group()}" for name, text in scripts.items() for m in forbidden.finditer(text)
    ]
    assert found == []


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    page = texts(".html")["index.html"]
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page) == []
    everything = texts(".html") | texts(".js") | texts(".css")
    namespace = "http://www.w3.org/2000/svg"
    found = {
        f"{name}: {address}"
        for name, text in everything.items()
        for address in re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]{2,}\S*", text)
        if not address.startswith((namespace, namespace.removeprefix("http:")))
    }
    assert found == set()


def test_each_import_names_a_file() -> None:
    for name, text in texts(".js").items():
        for path in re.findall(r"(?:from|import) \"([^\"]+)\"", text):
            assert path.startswith("."), f"{name}: {path}"
            assert (STATIC / name).parent.joinpath(path).is_file(), f"{name}: {path}"
