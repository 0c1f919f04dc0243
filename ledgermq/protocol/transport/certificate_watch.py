"""CertificateWatch: has a program follow its certificates, and tells the log what became of it."""

from typing import Final

from twisted.logger import Logger

from ledgermq.protocol.tls.contexts import TlsSettingsError
from ledgermq.protocol.tls.files import TlsFiles

# Between two looks at the files.
LOOK_INTERVAL_MS: Final = 5000

_log = Logger()


class CertificateWatch:
    """Looks at the files of a program whenever it is asked to."""

    def __init__(self, files: TlsFiles) -> None:
        """Looks at nothing yet."""
        self._files = files

    def look(self) -> None:
        """Takes over files that changed; files that cannot be used are told once."""
        try:
            if self._files.reload():
                _log.info("{path}: new connections use what it names now", path=self._files.path)
        except (TlsSettingsError, RuntimeError, ValueError) as error:
            _log.error("certificates stay as they were: {error}", error=error)
