"""A large broker state, restarts, retention and an empty disk."""

import tempfile
from pathlib import Path

import pytest

from tests.fault.large_state import State, run
from tests.fault.small_disk import NoMountError


@pytest.mark.timeout(300)
def test_a_state_is_known_after_all_that_may_happen_to_its_log() -> None:
    # Not below pytest's own: a run that is killed leaves mounts, which pytest cannot clean.
    with tempfile.TemporaryDirectory(prefix="ledgermq-large-") as folder:
        try:
            run(Path(folder), State(topics=1000, groups=3, queues=4), print)
        except NoMountError as error:
            pytest.skip(
                f"a disk that is nearly full is a tmpfs, which only root may mount: {error}"
            )
