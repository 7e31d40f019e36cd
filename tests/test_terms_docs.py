"""The catalogue of terms: complete, and as committed."""

import re

from embodichain.lab.gym.envs.managers.cfg import DEFAULT_MANAGER_MODULES
from embodichain.utils.module_utils import public_names
from scripts.make_terms import PAGE, page, term_text


def test_committed_catalogue_is_what_the_script_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/make_terms.py"


def test_every_term_that_configs_may_name_is_there() -> None:
    found = re.findall(r"^### `(\w+)`$", page(), flags=re.MULTILINE)
    assert set(public_names(DEFAULT_MANAGER_MODULES)) <= set(found)


def test_every_parameter_is_explained() -> None:
    rows = [line for line in page().splitlines() if line.startswith("- `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("): ")] == []


def term(cup: str, heights: tuple[int, int] = (1, 2), speed: float | None = None) -> None:
    """Return :func:`nothing` of ``cup``.

    Args:
        cup: which one,
            or another.
        heights: m.
        speed: m/s, or | none.

    Returns:
        [N].
    """


def test_text_of_a_term_is_its_docstring_with_its_parameters() -> None:
    assert term_text("term", term) == (
        "### `term`\n\nReturn `nothing` of `cup`.\n\nReturns [N].\n\n"
        "- `cup` (str, required): which one, or another.\n"
        "- `heights` (tuple[int, int], `[1, 2]`): m.\n"
        "- `speed` (float | null, `null`): m/s, or | none.\n"
    )
