"""`omlx bench estimates`: what was foretold beside what happened."""

import json

import pytest

from omlx.cli import main
from omlx.cli.estimates import ANSWER, Measured, percentile, render


@pytest.mark.parametrize(("part", "value"), [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)])
def test_a_percentile_lies_between_the_nearest(part, value):
    """Percentiles are taken between neighbours, whatever the order of the values."""
    assert value == pytest.approx(percentile([3.0, 1.0, 4.0, 2.0], part))


def test_the_table_has_a_line_for_each_stage_and_case():
    """Each line has how many, both medians, and how real and estimated seconds compare."""
    found = [Measured("cold", "prefill", 100, 1.0, 1.0 + share) for share in (0.0, 0.5, 1.0)]
    line = render(found).splitlines()[-1].split()
    assert ["prefill", "cold", "3", "1.0000", "1.5000", "1.10", "1.50", "1.90"] == line


def test_a_real_server_is_compared(model_folders, capsys):
    """On a tiny model each case gives a comparison of the whole way, and of the stages that take time."""
    arguments = ["bench", "estimates", "--model", str(model_folders["llama"])]
    assert 0 == main([*arguments, "--tokens", "300", "--requests", "1", "--answer", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    cases = {"cold", "repeated", "edited", "restart"}
    assert cases == {each["case"] for each in found if each["stage"] == ANSWER}
    assert "prefill" in {each["stage"] for each in found}
    assert all(each["estimated_s"] > 0 and each["real_s"] >= 0 for each in found)
