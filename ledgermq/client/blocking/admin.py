"""AdminClient without an event loop."""

from ledgermq.client.admin.admin_client import AdminClient as AsyncAdminClient
from ledgermq.client.blocking.twin import Twin, waits
from ledgermq.client.config import ClientConfig


class AdminClient(Twin[AsyncAdminClient]):
    """See ledgermq.client.admin.AdminClient; use it in a ``with`` block."""

    def __init__(
        self, name_servers: str = "127.0.0.1:9876", *, config: ClientConfig | None = None
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(AsyncAdminClient(name_servers, config=config))

    brokers = waits(AsyncAdminClient.brokers)
    topics = waits(AsyncAdminClient.topics)
    create_topic = waits(AsyncAdminClient.create_topic)
    update_topic = waits(AsyncAdminClient.update_topic)
    delete_topic = waits(AsyncAdminClient.delete_topic)
    describe_topic = waits(AsyncAdminClient.describe_topic)
    groups = waits(AsyncAdminClient.groups)
    describe_group = waits(AsyncAdminClient.describe_group)
    group_settings = waits(AsyncAdminClient.group_settings)
    delete_group = waits(AsyncAdminClient.delete_group)
    lag = waits(AsyncAdminClient.lag)
    lags = waits(AsyncAdminClient.lags)
    preview_reset = waits(AsyncAdminClient.preview_reset)
    reset_offsets = waits(AsyncAdminClient.reset_offsets)
    copy_offsets = waits(AsyncAdminClient.copy_offsets)
    dead_letters = waits(AsyncAdminClient.dead_letters)
    dead_letter = waits(AsyncAdminClient.dead_letter)
    resend_dead_letters = waits(AsyncAdminClient.resend_dead_letters)
    drop_dead_letters = waits(AsyncAdminClient.drop_dead_letters)
    drop_all_dead_letters = waits(AsyncAdminClient.drop_all_dead_letters)
