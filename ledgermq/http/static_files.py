"""StaticFiles: the files of one folder, kept in memory, with ETag and gzip."""

import gzip
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

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


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes | None
    content_type: str
    etag: str


class StaticFiles:
    """Files by their path below the folder.

    Attributes:
        version: a hash over all files. A folder that is served below it never changes there:
            `Routes.add("GET", f"/static/{files.version}/{{path*}}", files.immutable)`.
    """

    def __init__(self, folder: Path) -> None:
        """Reads and packs all files.

        Raises:
            OSError: the folder cannot be read.
        """
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in _TYPES
        }
        names = "\n".join(f"{name} {file.etag}" for name, file in self._files.items())
        self.version = sha256(names.encode()).hexdigest()[:16]

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


def _read(path: Path) -> _File:
    body = path.read_bytes()
    if path.suffix in (".css", ".js"):
        body = without_comments(body.decode()).encode()
    elif path.suffix == ".json":
        body = msgspec.json.format(body, indent=-1)
    packed = None
    if path.suffix in _TEXTS and len(body) >= _GZIP_BYTES_MIN:
        packed = gzip.compress(body, 9, mtime=0)
    # Weak: the same for both forms of the body.
    etag = f'W/"{sha256(body).hexdigest()[:24]}"'
    return _File(body, packed, _TYPES[path.suffix], etag)
