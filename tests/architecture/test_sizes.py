"""Functions and files stay of a size that one reads at once."""

from __future__ import annotations

from tests.architecture.sources import PACKAGES, Source, within

LONGEST_FUNCTION, LONGEST_FILE = 60, 500
#: Files that are one concept and a few lines longer.
LONGER = {
    "nodeagent/agent.py": 520,  # all steps of an agent, in their order
    "manciple/wire/codec.py": 540,  # all that is between bytes and typed values
    "manciple/wire/base.py": 530,  # what all values are made of
    "manciple/wire/validation.py": 540,  # the rules that all kinds share
    "manciple/api/streams.py": 590,  # how events get from the log to the watches, all on one page
    "manciple/store/writer.py": 530,  # the one writer
    "manciple/store/sql.py": 520,  # many rows at a time, and every hot read of the store
    "tests/manciple/processes/test_doctor.py": 580,  # every check of the doctor
    "tests/scheduling/test_structured_draft.py": 570,  # a document of requirements, paragraph by paragraph
    "tests/chaos/oracle.py": 550,  # everything that has a limit, added up without a line of the product
    "scheduling/allocator/index.py": 530,  # which nodes could meet a request: the counts and the index they follow
    "scheduling/allocator/snapshot.py": 680,  # what is published, and what is in use of it
    "scheduling/controllers/scheduler.py": 530,  # all of a cycle on one page
    "scheduling/controllers/claims.py": 510,  # claims from templates, and the checks before they are made
    "scheduling/neighbours.py": 520,  # affinity, spreading and host ports are counted over the same groups of pods
    "scheduling/queue.py": 520,  # one table, and every way of a row
    "scheduling/causes.py": 520,  # every reason, as the union of types that readers match on
    "scheduling/preemption.py": 520,  # the search for victims on one page
    "tests/scheduling/test_feature_gates.py": 560,  # every gate, on, off and on again
}


def written() -> dict[str, Source]:
    """By people: migrations are generated."""
    return {place: source for place, source in within(*PACKAGES).items() if "/migrations/" not in place}


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = [
        f"{place}:{function.line} {function.name}"
        for place, source in written().items()
        for function in source.functions
        if function.lines > LONGEST_FUNCTION
    ]
    assert long == []


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    assert [place for place, source in written().items() if source.lines > LONGER.get(place, LONGEST_FILE)] == []
