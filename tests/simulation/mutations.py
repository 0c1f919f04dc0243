"""Proof that the simulation sees: each known mistake, planted, must be found.

python -m tests.simulation.mutations [NAME ...] runs them and prints a table: mistake, the script
that sees it, the statement that was broken there, and how many drawn seeds it takes to see it
without a script. A mistake that its script does not see is a failure of the simulation. Where a
second guard of the product would hide a mistake, the twin takes both guards away.
"""

import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import replace

from twisted.logger import globalLogBeginner

from ledgermq.testing.simulation.faults import draw_schedule
from ledgermq.testing.simulation.plan import Plan
from ledgermq.testing.simulation.shrink import reason_of
from tests.simulation.mutation import Mutation, Script, planted
from tests.simulation.planted_mistakes import MUTATIONS


def plan_of(mutation: Mutation, seed: int) -> Plan:
    """The plan of a seed, with what brings the mistake out."""
    return replace(Plan.draw(seed), **mutation.focus)


def reason_of_script(script: Script) -> str | None:
    """How a script fails, None when it does not.

    Raises:
        TypeError, AttributeError, NameError: a twin no longer fits what it stands for; the mistake
            has not been planted.
    """
    try:
        script()
    except (TypeError, AttributeError, NameError):
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def seen_by_script(mutation: Mutation) -> str | None:
    """How the script fails with the mistake; None when it does not, or fails without it, too."""
    with planted(mutation):
        reason = reason_of_script(mutation.script)
    return reason if reason_of_script(mutation.script) is None else None


def seen_by_seeds(mutation: Mutation) -> tuple[int, str] | None:
    """How many seeds it takes to see a mistake, and how it shows; None when they do not.

    A seed counts only when it holds without the mistake.
    """
    for seed in range(mutation.seeds_max):
        plan = plan_of(mutation, seed)
        with planted(mutation):
            reason = reason_of(plan, draw_schedule(plan))
        if reason is not None and reason_of(plan, draw_schedule(plan)) is None:
            return seed + 1, reason
    return None


def main(names: Sequence[str]) -> int:
    """Runs the chosen mutations, or all, in two processes, and prints the table."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    chosen = [number for number, m in enumerate(MUTATIONS) if not names or m.name in names]
    missed = []
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for number, line in zip(chosen, pool.imap(_look_for, chosen), strict=True):
            if line is None:
                missed.append(MUTATIONS[number].name)
            else:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    sys.stdout.write(f"not seen: {', '.join(missed) or 'none'}\n")
    return 1 if missed else 0


def _look_for(number: int) -> str | None:
    """A line of the table; made in a process of its own, into which no twin could be sent."""
    mutation = MUTATIONS[number]
    reason = seen_by_script(mutation)
    if reason is None:
        return None
    line = f"{mutation.name:4} {mutation.title:46} {mutation.script.__name__:45}"
    line += f" {_statement(reason):6}"
    found = seen_by_seeds(mutation)
    if found is not None:
        return f"{line} {found[0]:3} seeds {_statement(found[1])}"
    return f"{line}   -" if mutation.seeds_max == 0 else f"{line} > {mutation.seeds_max} seeds"


def _statement(reason: str) -> str:
    """The number of the statement, or the class of the error."""
    kind, _, facts = reason.partition(": ")
    return facts.split(" ", 1)[0] if kind == "Violation" else kind


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
