"""HaSettings: sizes and times of replication, with upstream's defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HaSettings:
    """What both ends are told; each end uses its own values."""

    # Most bytes of log in one frame (haTransferBatchSize).
    batch_bytes_max: int = 32 * 1024
    # After so long without a frame or report an empty one is sent (haSendHeartbeatInterval).
    heart_beat_ms: int = 5000
    # A peer that is silent for longer is given up (haHousekeepingInterval).
    silence_ms_max: int = 20_000
