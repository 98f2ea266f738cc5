"""The demo, as a newcomer runs it: real weights, a real server process, a real restart."""

import re
import subprocess
import sys

import pytest


@pytest.mark.real
def test_the_demo_shows_reuse_after_a_turn_an_edit_and_a_restart(tmp_path):
    """`omlx demo --exit` needs no configuration, and its table shows what was reused from RAM and from SSD."""
    done = subprocess.run(
        [sys.executable, "-m", "omlx", "demo", "--exit"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    turns = dict(re.findall(r"^(\S.*?) {2,}(\d+ +\d+ +\d+ +\d+) ", done.stdout, re.MULTILINE))
    cold = [int(n) for n in turns["first turn, cold"].split()]
    follow = [int(n) for n in turns["follow-up"].split()]
    edit = [int(n) for n in turns["edit in the middle"].split()]
    restarted = [int(n) for n in turns["follow-up, after restart"].split()]
    assert cold[0] >= 1500
    assert [0, 0] == cold[1:3]
    assert follow[1] >= cold[0] - 16
    assert edit[1] > cold[0] // 2
    assert restarted[2] == restarted[0] - 1
    assert "prompt tokens were reused" in done.stdout
