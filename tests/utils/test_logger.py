import pytest

from embodichain.utils import logger


def test_messages_go_to_the_present_stderr_with_their_level(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_message_is_logged_once_in_a_block_without_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with logger.without_repeats():
            logger.log_warning("one")
            logger.log_info("two")
            logger.log_warning("one")
    logger.log_warning("one")
    assert capsys.readouterr().err == "[WARNING] one\n[INFO] two\n" * 2 + "[WARNING] one\n"
