"""The table: kind of what is wanted -> what makes its plan."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ledgermq.console.actions import brokers, definitions, groups, letters, topics
from ledgermq.console.actions.plan import Plan
from ledgermq.console.call import Call
from ledgermq.console.shapes import actions as shapes

Planner = Callable[[Call, Any], Awaitable[Plan]]

PLANNERS: Final[Mapping[type[Any], Planner]] = {
    shapes.CreateTopic: topics.plan_create_topic,
    shapes.UpdateTopic: topics.plan_update_topic,
    shapes.DeleteTopic: topics.plan_delete_topic,
    shapes.SendMessage: topics.plan_send_message,
    shapes.ResendMessage: topics.plan_resend_message,
    shapes.DeliverMessage: topics.plan_deliver_message,
    shapes.ResumeCheck: topics.plan_resume_check,
    shapes.CreateGroup: groups.plan_create_group,
    shapes.DeleteGroup: groups.plan_delete_group,
    shapes.ResetOffset: groups.plan_reset_offset,
    shapes.CloneOffsets: groups.plan_clone_offsets,
    shapes.ResendDeadLetters: letters.plan_resend,
    shapes.DropDeadLetters: letters.plan_drop,
    shapes.ImportDefinitions: definitions.plan_import,
    shapes.PutAccount: brokers.plan_put_account,
    shapes.DeleteAccount: brokers.plan_delete_account,
    shapes.ChangeSetting: brokers.plan_change_setting,
    shapes.SetWritable: brokers.plan_set_writable,
    shapes.TransferLeader: brokers.plan_transfer_leader,
    shapes.CleanFiles: brokers.plan_clean_files,
}
