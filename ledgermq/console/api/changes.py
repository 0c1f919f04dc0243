"""Changes: previewed, confirmed, looked at, stopped."""

from ledgermq.console.actions.planners import PLANNERS
from ledgermq.console.call import Call
from ledgermq.console.shapes import actions as shapes


async def preview_action(call: Call) -> shapes.Action:
    """What a change would do."""
    plan = await PLANNERS[type(call.body)](call, call.body)
    kind = str(type(call.body).__struct_config__.tag)
    return call.changes.preview(call, kind, plan)


async def confirm_action(call: Call) -> shapes.Action:
    """Begins a change."""
    assert isinstance(call.body, shapes.Confirm)
    return call.changes.confirm(call, call.body.token)


async def get_action(call: Call) -> shapes.Action:
    """How far a change is."""
    return call.changes.look(call)


async def stop_action(call: Call) -> shapes.Action:
    """Stops a change."""
    return call.changes.stop(call)


async def get_actions(call: Call) -> shapes.Actions:
    """Changes of late."""
    return call.changes.listed(call)
