"""StaticFiles: the files of one folder, kept in memory, with ETag and gzip."""

import gzip
import posixpath
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from ledgermq.http.modules import join_modules
from ledgermq.http.replies import Reply, RequestError
from ledgermq.http.requests import Request

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_TEXTS: Final = frozenset({".css", ".html", ".js", ".json", ".svg", ".txt"})
# Smaller ones do not get smaller.
_GZIP_BYTES_MIN: Final = 512
_QUOTED: Final = re.compile(r"""("[^"]*"|'[^']*')""")


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes | None
    content_type: str
    etag: str


class StaticFiles:
    """Files by their path below the folder.

    Attributes:
        names: the paths of all that is served.
        version: a hash over all files. A folder that is served below it never changes there:
            `Routes.add("GET", f"/static/{files.version}/{{path*}}", files.immutable)`.
    """

    def __init__(self, folder: Path, joined: str = "") -> None:
        """Reads and packs all files.

        Args:
            folder: where they are.
            joined: the script of a page that takes in what it imports (`modules.join_modules`);
                empty: there is none.

        Raises:
            OSError: the folder cannot be read.
            ValueError: the scripts cannot be joined.
        """
        bodies = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in _TYPES
        }
        if joined:
            scripts = {name: body.decode() for name, body in bodies.items() if name[-3:] == ".js"}
            left = join_modules(scripts, joined)
            bodies = {name: body for name, body in bodies.items() if name not in scripts}
            bodies |= {name: text.encode() for name, text in left.items()}
        self._files = {name: _pack(name, bodies[name]) for name in sorted(bodies)}
        self.names = tuple(self._files)
        told = "\n".join(f"{name} {file.etag}" for name, file in self._files.items())
        self.version = sha256(told.encode()).hexdigest()[:16]

    def fresh(self, request: Request) -> Reply:
        """Answers with the file of the route's `path`; the browser asks each time whether it is
        still the same.
        """
        return self.find(request.params["path"], request, "no-cache")

    def immutable(self, request: Request) -> Reply:
        """The same, for a place that has the version in its path: it is never asked again."""
        return self.find(request.params["path"], request, "public, max-age=31536000, immutable")

    def find(self, name: str, request: Request, cache_control: str = "no-cache") -> Reply:
        """Returns a file, or 304 when the client has it.

        Raises:
            RequestError: there is none of that name.
        """
        file = self._files.get(name)
        if file is None:
            raise RequestError(404, "there is no such file", field="path", value=request.path)
        headers = [("Cache-Control", cache_control), ("ETag", file.etag)]
        body = file.body
        if file.packed is not None:
            headers.append(("Vary", "Accept-Encoding"))
            if accepts_gzip(request):
                headers.append(("Content-Encoding", "gzip"))
                body = file.packed
        told = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if file.etag in told or "*" in told:
            return Reply(status=304, content_type=file.content_type, headers=tuple(headers[:2]))
        return Reply(body=body, content_type=file.content_type, headers=tuple(headers))


def accepts_gzip(request: Request) -> bool:
    """Returns whether the client reads gzip."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def without_comments(text: str) -> str:
    """Returns a script or a style sheet without what is for readers of the source only.

    Lines of comments and indentation go; a comment behind code on its line stays. A text that a
    script holds over several lines would lose its indentation: there are to be none.
    """
    kept = []
    in_comment = False
    for line in text.splitlines():
        line = line.strip()
        opens = line.startswith("/*") and ("*/" not in line or line.endswith("*/"))
        if in_comment or opens:
            in_comment = not line.endswith("*/")
        elif line and not line.startswith("//"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def without_room(text: str) -> str:
    """Returns a style sheet, free of comments, without the spaces that mean nothing in it.

    Spaces around `+`, `-` and in selectors are left alone, and so is all that stands in quotes.
    """
    parts = _QUOTED.split(text)
    for at in range(0, len(parts), 2):
        part = re.sub(r"\s+", " ", parts[at])
        part = re.sub(r" ?([{};,>]) ?", r"\1", part)
        # Of a declaration: before the colon of a selector (`a :hover`) a space means something.
        parts[at] = re.sub(r"(?<=[\w-]): ", ":", part).replace(";}", "}")
    return "".join(parts).strip() + "\n"


def _pack(name: str, body: bytes) -> _File:
    suffix = posixpath.splitext(name)[1]
    match suffix:
        case ".js":
            body = without_comments(body.decode()).encode()
        case ".css":
            body = without_room(without_comments(body.decode())).encode()
        case ".json":
            body = msgspec.json.format(body, indent=-1)
    packed = None
    if suffix in _TEXTS and len(body) >= _GZIP_BYTES_MIN:
        packed = gzip.compress(body, 9, mtime=0)
    # Weak: the same for both forms of the body.
    etag = f'W/"{sha256(body).hexdigest()[:24]}"'
    return _File(body, packed, _TYPES[suffix], etag)
