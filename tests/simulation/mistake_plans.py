"""Plans that bring planted mistakes out: what is changed of the plan that a seed draws."""

GROUP: dict[str, object] = {"java_ids": (), "is_sync_flush": True}
POWER: dict[str, object] = {
    **GROUP,
    "fault_every_ms": 400.0,
    "fault_weights": (("power_all", 1.0), ("power", 2.0), ("kill", 1.0), ("cut", 2.0)),
}
ELECTIONS: dict[str, object] = {
    **GROUP,
    "member_count": 5,
    "fault_every_ms": 250.0,
    "delay_ms": 60.0,
    "fault_weights": (("kill", 2.0), ("cut", 3.0), ("pause", 2.0)),
    "trigger_chance": 0.4,
}
# A leader that is cut off gathers a long tail that nobody else has.
TAILS: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "fault_every_ms": 500.0,
    "delay_ms": 5.0,
    "sync_ms": 2.0,
    "loss": 0.0,
    "fault_weights": (("kill", 2.0), ("cut", 4.0), ("pause", 1.0)),
    "send_every_ms": 10.0,
    "trigger_chance": 0.15,
}
DAMAGE: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "victims": ("n1",),
    "fault_every_ms": 300.0,
    "fault_weights": (("rot", 2.0), ("kill", 2.0), ("wipe", 1.0), ("cut", 1.0)),
    "send_every_ms": 40.0,
}
ALL_JAVA: dict[str, object] = {
    "member_count": 3,
    "java_ids": ("n0", "n1", "n2"),
    "is_sync_flush": True,
    "keeps_order": False,
    "duplication": 0.2,
    "delay_ms": 60.0,
    "fault_every_ms": 250.0,
    "fault_weights": (("kill", 2.0), ("cut", 3.0), ("pause", 2.0), ("reset", 1.0)),
    "send_every_ms": 40.0,
    "victims": (),
}
SYNC_ERRORS: dict[str, object] = {
    **GROUP,
    "fault_weights": (("sync_error", 3.0), ("power", 1.0)),
}
WRITE_ERRORS: dict[str, object] = {
    **GROUP,
    "fault_weights": (("write_error", 3.0), ("power", 1.0)),
}
FULL_DISKS: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "fault_every_ms": 300.0,
    "fault_weights": (("full_disk", 4.0), ("kill", 1.0)),
    "send_every_ms": 40.0,
}
# Offsets of many queues in a log that takes few of them at once.
WIDE: dict[str, object] = {
    **GROUP,
    "returning_queue_count": 80,
    "segment_bytes": 16_384,
    "sweep_step_bytes": 512,
    "fault_weights": (("kill", 2.0), ("cut", 1.0)),
}
LISTS: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "fault_every_ms": 1_000.0,
    "fault_weights": (("other_list", 3.0), ("kill", 1.0)),
}
UNREADABLE: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "victims": ("n1",),
    "fault_every_ms": 300.0,
    "fault_weights": (("unreadable", 3.0), ("kill", 2.0), ("cut", 1.0)),
    "send_every_ms": 40.0,
}
STATE_FILES: dict[str, object] = {
    **DAMAGE,
    "fault_weights": (("rot", 3.0), ("kill", 2.0), ("cut", 1.0)),
}
# Two of three on empty disks again and again, and put back.
BIRTHS: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "founder_ids": (),
    "victims": ("n1",),
    "fault_every_ms": 500.0,
    "fault_weights": (("swap", 3.0), ("kill", 2.0), ("older", 1.0), ("cut", 1.0)),
}
# All get the next program, and some go back before they have it.
PROGRAMS: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "chaos_ms": 12_000.0,
    "fault_weights": (("kill", 1.0),),
    "fault_every_ms": 3_000.0,
    "send_every_ms": 150.0,
    "program_changes": (
        (2_000.0, "upgrade"),
        (3_500.0, "upgrade"),
        (5_000.0, "downgrade"),
        (6_500.0, "upgrade"),
        (8_000.0, "upgrade"),
    ),
}
# They go back when the next format may be written.
PROGRAMS_BACK: dict[str, object] = {
    **PROGRAMS,
    "program_changes": (
        (1_500.0, "upgrade"),
        (2_500.0, "upgrade"),
        (3_500.0, "upgrade"),
        (7_000.0, "downgrade"),
        (7_200.0, "downgrade"),
        (7_400.0, "downgrade"),
    ),
}
# Leaders lose their leadership while they have no time, or are cut off.
DEPOSED: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "fault_every_ms": 700.0,
    "delay_ms": 20.0,
    "loss": 0.0,
    "fault_weights": (("pause", 4.0), ("cut", 3.0)),
    "send_every_ms": 40.0,
    "trigger_chance": 0.2,
}
CLOCKS: dict[str, object] = {**GROUP, "fault_weights": (("clock", 1.0), ("kill", 1.0))}
RETENTION: dict[str, object] = {
    **GROUP,
    "member_count": 3,
    "fault_weights": (("retention", 2.0), ("kill", 1.0), ("cut", 2.0)),
    "send_every_ms": 10.0,
    "segment_bytes": 4096,
}
