"""The table of the outbox."""

import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("outbox_id", models.UUIDField(default=uuid.uuid4, editable=False)),
                ("created", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("topic", models.CharField(max_length=255)),
                ("body", models.BinaryField()),
                ("keys", models.TextField(blank=True, default="")),
                ("tags", models.TextField(blank=True, default="")),
                ("properties", models.JSONField(default=dict)),
                ("flag", models.IntegerField(default=0)),
                ("delay_level", models.IntegerField(default=0)),
                ("ordering_key", models.TextField(blank=True, default="")),
            ],
        ),
    ]
