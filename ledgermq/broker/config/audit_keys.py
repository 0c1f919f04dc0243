"""The configuration keys of the audit log; `keys.py` has the whole table."""

from typing import Final

from ledgermq.broker.config.key import I32_MAX, integer, text_key

AUDIT_KEYS: Final = (
    text_key(
        "auditLogFile",
        "audit_file",
        None,
        "Where changes and refusals are noted, or none; with aclEnable=true audit/audit.log in"
        " the store, without it none.",
    ),
    integer(
        "auditLogFileBytes",
        "audit_file_bytes",
        16 << 20,
        "bytes",
        65_536,
        I32_MAX,
        "Size of one file of the audit log; a full one becomes .1, .2 and so on.",
    ),
    integer(
        "auditLogFiles",
        "audit_files",
        10,
        "",
        1,
        1000,
        "Files of the audit log that are kept, the oldest go.",
    ),
)
