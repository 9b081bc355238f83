"""The code of docs/environments.md, executed."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


@pytest.mark.filterwarnings("ignore::pcpg.api.RunWarning")
def test_the_environment_of_thirty_lines_trains():
    [snippet] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {"__name__": "snippet"}
    exec(compile(snippet, str(PAGE), "exec"), names)
    [mean] = names["run"].evaluate(100).mean_return
    assert mean > 0.9
    assert names["action"] in (0, 1)
