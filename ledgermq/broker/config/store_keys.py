"""The configuration keys of files and of the ledger; `keys.py` has the others and the whole
table.
"""

from typing import Final

from ledgermq.broker.config.key import GIB, I32_MAX, integer, switch, text_key

STORE_KEYS: Final = (
    text_key(
        "storePathRootDir", "store_root", None, "Root of all files; store in the home directory."
    ),
    text_key(
        "storePathCommitLog",
        "commit_log_path",
        "",
        "Folder of a plain commit log; commitlog in the root.",
    ),
    text_key(
        "flushDiskType",
        "flush_disk_type",
        "SYNC_FLUSH",
        "SYNC_FLUSH: on the disks of a majority before the answer. ASYNC_FLUSH: in their memory.",
        ("SYNC_FLUSH", "ASYNC_FLUSH"),
    ),
    integer(
        "mappedFileSizeCommitLog",
        "segment_bytes",
        GIB,
        "bytes",
        1 << 16,
        I32_MAX,
        "Size of one data file of the ledger; 4 MiB more than maxMessageSize is wise.",
    ),
    integer(
        "mappedFileSizeDLedgerIndex",
        "index_segment_bytes",
        32 * 5 * 1024 * 1024,
        "bytes",
        1 << 15,
        I32_MAX,
        "Size of one index file of the ledger; a multiple of 32.",
    ),
    integer(
        "mappedFileSizeConsumeQueue",
        "queue_segment_bytes",
        6_000_000,
        "bytes",
        2000,
        I32_MAX,
        "Size of one consume queue file; a multiple of 20.",
    ),
    integer(
        "scrubBytesPerSecond",
        "scrub_bytes_s",
        1 << 18,
        "bytes/s",
        0,
        1 << 30,
        "How fast the log is read through for flipped bits, round after round, at most a fifth of"
        " the time; 0: never.",
    ),
    switch("messageIndexEnable", "has_key_index", True, "Index messages by their keys."),
    integer(
        "maxHashSlotNum",
        "index_slots",
        5_000_000,
        "slots",
        16,
        100_000_000,
        "Slots of an index file.",
    ),
    integer(
        "maxIndexNum",
        "index_units",
        20_000_000,
        "units",
        16,
        400_000_000,
        "Units of an index file.",
    ),
    text_key(
        "deleteWhen",
        "delete_hours",
        "04",
        "Hours of the day for deletion, joined with a semicolon.",
    ),
    integer(
        "fileReservedTime", "retention_hours", 72, "h", 1, 1_000_000, "Age at which files may go."
    ),
    integer(
        "diskMaxUsedSpaceRatio",
        "disk_used_percent_max",
        75,
        "%",
        10,
        95,
        "Disk use at which old files go at any hour.",
    ),
    switch(
        "cleanFileForciblyEnable", "cleans_forcibly", True, "Delete young files on a full disk."
    ),
    integer(
        "cleanResourceInterval",
        "clean_interval_ms",
        10_000,
        "ms",
        100,
        86_400_000,
        "Time between two cleanings; the disk's use is looked at ten times as often.",
    ),
    integer(
        "maxTransferBytesOnMessageInMemory",
        "pull_bytes_max",
        262_144,
        "bytes",
        1,
        1 << 24,
        "Most bytes of one pull answer.",
    ),
    integer(
        "maxTransferCountOnMessageInMemory",
        "pull_count_max",
        32,
        "messages",
        1,
        100_000,
        "Most messages of one pull answer.",
    ),
)

LEDGER_KEYS: Final = (
    switch(
        "enableDLegerCommitLog",
        "is_group_member",
        False,
        "true: member of dLegerPeers. false, or left out with brokerRole SYNC_MASTER or SLAVE:"
        " plain commit log. Left out otherwise: ledger of one.",
    ),
    text_key("dLegerGroup", "ledger_group", None, "Name of the DLedger group; brokerName."),
    text_key("dLegerPeers", "ledger_peers", None, "Members, id-host:port joined with a semicolon."),
    text_key("dLegerSelfId", "ledger_self_id", None, "Own member id, a letter and digits, as n0."),
    text_key(
        "dLegerFounderIds",
        "ledger_founder_ids",
        "",
        "Members that found a new group while others are missing, joined with a semicolon: a"
        " majority, equal on all. Empty: all.",
    ),
    text_key(
        "preferredLeaderId",
        "preferred_leader_ids",
        "",
        "Ids that should lead, joined with a semicolon.",
    ),
    integer(
        "ledgerClockSkewMax",
        "clock_skew_max_ms",
        60_000,
        "ms",
        0,
        86_400_000,
        "How far the clocks of the members may be apart; a member that differs by more from a"
        " majority does not lead. 0: they are not compared.",
    ),
    switch(
        "storeTimeFollowsClock",
        "trusts_clock",
        False,
        "Store times go back to this machine's clock where the log is further ahead of it than"
        " ledgerClockSkewMax, also without a majority of clocks that agrees; for one start.",
    ),
    text_key(
        "ledgerMemberAddresses",
        "ledger_member_networks",
        "",
        "Addresses and networks, joined with a semicolon, from which members connect besides those"
        " of their hosts in dLegerPeers.",
    ),
    integer(
        "heartBeatTimeIntervalMs",
        "ledger_heartbeat_ms",
        0,
        "ms",
        0,
        600_000,
        "Heart beat of the leader; 0: 500, or 2000 with a Java member.",
    ),
    integer(
        "maxHeartBeatLeak",
        "ledger_heartbeats_missed_max",
        3,
        "heart beats",
        1,
        100,
        "Missed heart beats before an election.",
    ),
    integer(
        "minVoteIntervalMs",
        "ledger_vote_wait_min_ms",
        0,
        "ms",
        0,
        600_000,
        "Shortest wait before a vote; 0: 150, or 300 with a Java member.",
    ),
    integer(
        "maxVoteIntervalMs",
        "ledger_vote_wait_max_ms",
        0,
        "ms",
        0,
        600_000,
        "Longest wait before a vote; 0: 450, or 1000 with a Java member.",
    ),
    integer(
        "maxPendingRequestsNum",
        "ledger_pending_max",
        10_000,
        "entries",
        1,
        10_000_000,
        "Most entries that wait for a majority.",
    ),
)
