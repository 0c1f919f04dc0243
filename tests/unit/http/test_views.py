"""Routes, static files and values of a request, without a socket."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ledgermq.http.application import Application
from ledgermq.http.hosts import host_name
from ledgermq.http.replies import Reply, RequestError, text_reply
from ledgermq.http.requests import Request, read_target
from ledgermq.http.routes import Routes
from ledgermq.http.static_files import StaticFiles, without_comments, without_room


def answered(routes: Routes, path: str, **words: object) -> Reply:
    segments, query = read_target(path.encode())
    request = Request(segments=segments, query=query, **words)  # type: ignore[arg-type]
    reply = Application(routes).answer(request)
    assert isinstance(reply, Reply)
    return reply


def test_spelled_out_parts_go_before_names_and_names_before_the_rest() -> None:
    routes = Routes()
    for pattern in ("/", "/a/b", "/a/{x}", "/a/{x}/c", "/{rest*}"):
        routes.add(
            "GET", pattern, lambda request, at=pattern: text_reply(f"{at} {dict(request.params)}")
        )
    for path, told in (
        ("/", "/ {}"),
        ("/a/b", "/a/b {}"),
        ("/a/z", "/a/{x} {'x': 'z'}"),
        ("/a/b/c", "/a/{x}/c {'x': 'b'}"),
        ("/a/b/d", "/{rest*} {'rest': 'a/b/d'}"),
        ("/q", "/{rest*} {'rest': 'q'}"),
    ):
        assert answered(routes, path).body == told.encode()


def test_path_of_many_parts_costs_little() -> None:
    routes = Routes()
    routes.add("GET", "/a/{x}/{y}", lambda request: text_reply("x"))
    assert answered(routes, "/a" * 5000).status == 404


@pytest.mark.parametrize("target", [b"*", b"/%ff", b"/?a=%ff", b"/?" + b"a=1&" * 101, b"http://x/"])
def test_target_that_cannot_be_read_is_refused(target: bytes) -> None:
    with pytest.raises(RequestError):
        read_target(target)


@pytest.mark.parametrize("text", ["", "+1", "1.0", "٣", "1e3", "9" * 5000, " 1", "0", "6", "--1"])
def test_number_has_one_grammar(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        Request(query={"n": [text]}).integer("n", low=1, high=5)
    assert caught.value.field == "n"
    assert len(caught.value.reply().body) < 1000  # type: ignore[arg-type]


def test_value_that_comes_twice_is_refused() -> None:
    with pytest.raises(RequestError):
        Request(query={"n": ["1", "2"]}).text("n")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("A.example:80", "a.example"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("a.example.", "a.example"),
        ("a:b", None),
        (":80", None),
        ("[::1", None),
        ("[::1]x", None),
        ("", None),
    ],
)
def test_host_is_read_with_and_without_port(host: str, name: str | None) -> None:
    assert host_name(host) == name


def test_cookie_is_found_by_its_whole_name() -> None:
    request = Request(headers={"cookie": "xid=1; id=2; idx=3"})
    assert request.cookie("id") == "2"
    assert Request(headers={"cookie": "id=2; id=3"}).cookie("id") is None


@pytest.fixture
def files(tmp_path: Path) -> StaticFiles:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "app.js").write_text("let a = 1;\n" * 100)
    (tmp_path / "small.css").write_text("a {}")
    (tmp_path / "secret.key").write_text("no")
    return StaticFiles(tmp_path)


def asked(files: StaticFiles, path: str, **headers: str) -> Reply:
    routes = Routes()
    routes.add("GET", f"/static/{files.version}/{{path*}}", files.immutable)
    routes.add("GET", "/{path*}", files.fresh)
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return answered(routes, path, headers=told)


def test_file_is_packed_for_whoever_reads_gzip(files: StaticFiles) -> None:
    plain = asked(files, "/lib/app.js")
    packed = asked(files, "/lib/app.js", accept_encoding="br, gzip;q=0.5")
    assert isinstance(packed.body, bytes)
    assert gzip.decompress(packed.body) == plain.body
    assert ("Content-Encoding", "gzip") in packed.headers
    assert asked(files, "/lib/app.js", accept_encoding="gzip;q=0").body == plain.body


def test_file_that_the_client_has_is_not_sent_again(files: StaticFiles) -> None:
    etag = dict(asked(files, "/lib/app.js").headers)["ETag"]
    reply = asked(files, "/lib/app.js", if_none_match=f'"x", {etag}')
    assert (reply.status, reply.body) == (304, b"")


def test_place_with_the_version_never_changes(files: StaticFiles) -> None:
    reply = asked(files, f"/static/{files.version}/small.css")
    assert "immutable" in dict(reply.headers)["Cache-Control"]


@pytest.mark.parametrize("path", ["/lib/../secret.key", "/secret.key", "/..%2Fx", "/lib", "/%00"])
def test_nothing_else_of_the_disk_is_had(files: StaticFiles, path: str) -> None:
    assert asked(files, path).status == 404


def test_comments_of_scripts_are_not_sent() -> None:
    text = '/** What\n * it is. */\nlet a = "//x"; // why\n\n  /* b */ let b = 1;\n  // no\n'
    assert without_comments(text) == 'let a = "//x"; // why\n/* b */ let b = 1;\n'


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a  >  b , c\n{ color: red;\n  margin: 0 -1px; }\n", "a>b,c{color:red;margin:0 -1px}\n"),
        ("a :hover { width: calc(1px + 2px); }", "a :hover{width:calc(1px + 2px)}\n"),
        ('a { content: "; }  x"; }', 'a{content:"; }  x"}\n'),
        ("@media (max-width: 9px) { a { top: 0; } }", "@media (max-width:9px){a{top:0}}\n"),
    ],
)
def test_spaces_of_style_sheets_are_not_sent_where_they_mean_nothing(text: str, sent: str) -> None:
    assert without_room(text) == sent
