"""Analysis is a pure function from a chain to its problems."""

from pathlib import Path
from typing import ClassVar

from omlx.config.document import Document
from omlx.pipeline.analysis import Placed, analyse
from omlx.pipeline.stage import Lane, Stage


class Prefill(Stage, frozen=True, tag="prefill"):
    """Stands for a stage of the device lane that others follow."""

    assigns: ClassVar[tuple[str, ...]] = ("sequence",)
    lane: ClassVar[Lane] = "device"


class Audit(Stage, frozen=True, tag="audit"):
    """Stands for a stage of another lane."""

    lane: ClassVar[Lane] = "io"


class Follow(Stage, frozen=True, tag="follow"):
    """Stands for a stage that follows another."""

    requires: ClassVar[tuple[str, ...]] = ("sequence",)
    lane: ClassVar[Lane] = "device"
    during: ClassVar[tuple[str, ...]] = ("prefill",)


class Rewrite(Stage, frozen=True, tag="rewrite"):
    """Stands for a stage that claims what the request brings."""

    assigns: ClassVar[tuple[str, ...]] = ("request",)


def found(*stages: Stage) -> list[str]:
    """Return the problems of a chain without their place."""
    document = Document(Path("x.toml"), {})
    chain = [Placed(stage, document, ("stage", index)) for index, stage in enumerate(stages)]
    return [str(problem).removeprefix("x.toml: ") for problem in analyse(chain, [Prefill])]


def test_a_chain_that_works_has_no_problems():
    """Stages that find what they require, in an order that can be walked, are left alone."""
    assert [] == found(Audit(), Prefill(), Follow(), Audit())


def test_a_stage_of_another_lane_may_not_part_a_stage_from_its_follower():
    """A follower can only be run during a stage that is walked in one piece with it."""
    assert [
        "stage 'audit' (lane 'io') parts 'prefill' from 'follow'; put it before 'prefill' or after 'follow'"
    ] == found(Prefill(), Audit(), Follow())


def test_what_the_request_brings_is_assigned_already():
    """No stage may assign the request or the model."""
    assert ["stage 'rewrite' assigns 'request', as the request did before; leave one of them out"] == found(
        Rewrite()
    )


def test_a_hint_names_only_stages_that_are_known():
    """The remedy is a stage of the chain or of the registry; without one there is no hint."""
    unmet = "stage 'follow' requires 'sequence', which no earlier stage assigns"
    document = Document(Path("x.toml"), {})
    [problem] = analyse([Placed(Follow(), document, ())])
    assert (unmet, None) == (problem.message, problem.hint)
    assert [f"{unmet}; put a 'prefill' stage before it"] == found(Follow())
