from __future__ import annotations

import pytest

from embodichain.utils import logger


def test_messages_go_to_the_stderr_of_the_moment_with_their_level(capsys: pytest.CaptureFixture[str]) -> None:
    logger.log_info("one")
    logger.log_warning("two")
    captured = capsys.readouterr()
    assert captured.err == "[INFO] one\n[WARNING] two\n"
    assert captured.out == ""


def test_logging_an_error_raises_it() -> None:
    with pytest.raises(RuntimeError, match=r"^boom$"):
        logger.log_error("boom")
    with pytest.raises(KeyError, match="boom"):
        logger.log_error("boom", KeyError)
