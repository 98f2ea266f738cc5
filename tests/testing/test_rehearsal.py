"""The tests in a pipeline file are walked as a server would, and a failure shows expected beside actual."""

from pathlib import Path

import pytest

from omlx.config.document import parse_document, read_document
from omlx.config.problem import Problem
from omlx.pipeline.pipeline import Tuning, decode_pipeline
from omlx.server.dialects import read_request
from omlx.stages import built_in_stages
from omlx.testing.expectation import _ACTUAL
from omlx.testing.rehearsal import rehearse
from omlx.testing.scenario import Expect, Step, decode_tests

EVERY_STEP = Path(__file__).parents[1] / "pipeline" / "data" / "every_step.toml"
CHAIN = "".join(
    f'[[stage]]\nuse = "{name}"\n'
    for name in ["normalize", "tokenize", "segment", "lookup", "fetch", "prefill", "decode", "writeback"]
)
HEAD = CHAIN + '[[test]]\nname = "x"\nanswer = "Fine."\n'


def walked(text: str, folder: Path = Path()) -> list[Problem]:
    """Return the problems of a file's tests, walked."""
    return problems_of(parse_document(folder / "chat.toml", text))


def problems_of(document) -> list[Problem]:
    """Return what goes wrong when a document's tests are walked."""
    pipeline, problems = decode_pipeline(document, built_in_stages(), Tuning())
    tests, wrong = decode_tests(document)
    assert [] == problems + wrong
    assert tests
    assert pipeline is not None
    done = [
        rehearse(document, number, test, pipeline.stages, lambda body: read_request(body)[1])
        for number, test in enumerate(tests)
    ]
    return [problem for each in done for problem in each.problems]


def test_each_kind_of_step_and_expectation_is_shown_and_passes():
    """The file that shows every step uses every key that a step and an expectation have, and passes."""
    assert [] == problems_of(read_document(EVERY_STEP))
    text = EVERY_STEP.read_text()
    assert [] == [key for kind in (Step, Expect) for key in kind.__struct_fields__ if key not in text]
    assert {*_ACTUAL, "error"} == set(Expect.__struct_fields__)


@pytest.mark.parametrize(
    ("expect", "details"),
    [
        ("prompt_tokens = 3", ("expected  3", "actual    5")),
        ('cached_tokens = "all"', ("expected  4", "actual    0")),
        ("hot_tokens = 1", ("expected  1", "actual    0")),
        ("cold_tokens = 1", ("expected  1", "actual    0")),
        ("prefill_tokens = 1", ("expected  1", "actual    5")),
        ('rewrites = ["tool_order"]', ("  expected    actual", "≠ tool_order  -")),
        ('reused = ["prompt"]', ("  expected  actual", "≠ prompt    -")),
        ('decision = "restore"', ("expected  restore", "actual    compute")),
        ("written_blocks = 9", ("expected  9", "actual    3")),
        ('text = "Bad."', ("expected  Bad.", "actual    Fine.")),
        ('finish = "length"', ("expected  length", "actual    stop")),
        ('error = "too long"', ("expected  too long", "actual    nothing")),
        (
            'segments = ["system", { label = "prompt", tokens = 4 }]',
            ("  expected          actual", "≠ system            prompt, 5 tokens", "≠ prompt, 4 tokens  -"),
        ),
    ],
)
def test_a_failure_shows_expected_beside_actual(expect, details):
    """What came out otherwise is told at the key that expects it, with both values."""
    [problem] = walked(f'{HEAD}[[test.step]]\nprompt = "hello"\n[test.step.expect]\n{expect}\n')
    key = expect.partition(" ")[0]
    assert (f"test 'x', step 1: {key} not as expected", details) == (problem.message, problem.details)
    assert (HEAD.count("\n") + 4, expect) == (problem.line, problem.excerpt)


def test_every_failing_step_of_a_test_is_told():
    """A test goes on after a step that fails."""
    step = '[[test.step]]\nprompt = "hello"\nexpect.prompt_tokens = 1\n'
    assert 2 == len(walked(HEAD + 2 * step))


def test_an_unexpected_refusal_is_a_failure():
    """A request that ends in an error fails its step, whatever else is expected of it."""
    [problem] = walked(
        f'{HEAD}model.context_tokens = 4\n[[test.step]]\nprompt = "hello"\nexpect.prompt_tokens = 1\n'
    )
    assert "step 1: the request failed: This model's maximum context length is 4" in problem.message
    assert HEAD.count("\n") + 2 == problem.line


def test_a_fault_of_a_stage_is_a_failure(tmp_path):
    """A stage that reads what it did not declare fails the step in the words of the guard."""
    (tmp_path / "nosy_stage.py").write_text("""\
from omlx.pipeline.stage import Stage

class Nosy(Stage, frozen=True, tag="nosy"):
    def run(self, state, services):
        state.tokens
""")
    text = (
        CHAIN + '[[stage]]\nuse = "nosy_stage:Nosy"\n[[test]]\nname = "x"\n[[test.step]]\nprompt = "hello"\n'
    )
    document = parse_document(tmp_path / "chat.toml", text)
    pipeline, problems = decode_pipeline(document, built_in_stages(), Tuning(), (tmp_path,))
    assert [] == problems
    [test], _ = decode_tests(document)
    [problem] = rehearse(document, 0, test, pipeline.stages, lambda body: read_request(body)[1]).problems
    assert "stage 'nosy' reads 'tokens'; declare it in `requires` or `uses`" in problem.message


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ('[[test.step]]\nfollow_up = "more"\n', "there is no conversation to follow up"),
        (
            '[[test.step]]\nprompt = "a"\n[[test.step]]\nfollow_up = "more"\n',
            "there is no conversation to follow up",
        ),
        ('[[test.step]]\ncorrupt = "block 1"\n', "there is no block 1: the last request has 0"),
        ('[[test.step]]\nprompt = "hello"\n[[test.step]]\ncorrupt = "block 9"\n', "the last request has 3"),
    ],
)
def test_a_step_that_cannot_be_taken_is_told(steps, told):
    """A follow-up of nothing, or damage to a block that is not there, is a failure with its line."""
    [problem] = walked(HEAD + steps)
    assert told in problem.message
    assert problem.line is not None


def test_a_body_that_is_no_request_is_told(tmp_path):
    """A file that a server would refuse is a failure in the server's words."""
    (tmp_path / "body.json").write_text('{"messages": []}')
    [problem] = walked(f'{HEAD}[[test.step]]\nfile = "body.json"\n', tmp_path)
    assert "step 1: " in problem.message
    assert "messages" in problem.message


def test_a_file_that_is_not_there_is_a_problem_of_the_file():
    """A missing body is found by reading, before anything is walked."""
    _, [problem] = decode_tests(parse_document(Path("chat.toml"), f'{HEAD}[[test.step]]\nfile = "no.json"\n'))
    assert "file: 'no.json' does not exist" in problem.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[test]]\nname = "x"\nstep = []\n', "[[test]] 1: a test needs at least one [[test.step]]"),
        (
            '[[test]]\nname = "x"\n[[test.step]]\nmax_tokens = 3\n',
            "[[test.step]] 1: a step needs one of: messages, ",
        ),
        ("[test]\nname = 3\n", "test: expected an array, got a table"),
    ],
)
def test_a_test_that_does_nothing_is_refused(text, told):
    """Empty tests and steps are problems, not passes."""
    _, [problem] = decode_tests(parse_document(Path("chat.toml"), text))
    assert problem.message.startswith(told)


def test_ram_only_damage_is_told():
    """A block that is not on disk cannot be damaged, and the step says so."""
    text = HEAD.replace('use = "writeback"', 'use = "writeback"\ntiers = ["hot"]')
    [problem] = walked(f'{text}[[test.step]]\nprompt = "hello"\n[[test.step]]\ncorrupt = "block 1"\n')
    assert "block 1 is not on disk" in problem.message
